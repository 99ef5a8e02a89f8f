//! Stream sockets: TCP and AF_UNIX. They differ in ends, errors and full buffers.

use std::collections::VecDeque;

use super::kqueue::FilterEnds;
use super::objects::{Code, FileId, Object, Objects};
use super::{Conditions, SEND_BUFFER};
use crate::sys::codes;

// States from the kernel's tcp_states.h.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const CLOSE_WAIT: u8 = 8;
const LISTEN: u8 = 10;

/// The states in which the peer has ended the stream.
pub(super) const PEER_ENDED: [u8; 2] = [CLOSE, CLOSE_WAIT];

/// The protocol family of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Tcp,
    Unix,
}

/// The state of a stream.
#[derive(Debug)]
enum StreamState {
    /// Not connected yet, or no longer connected: `TCP_CLOSE`.
    Closed,
    /// A TCP connect waits for room in the queue of this listener.
    Connecting(FileId),
    Listening(Listener),
    Connected,
}

#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// Connections that have not been accepted.
    connections: VecDeque<FileId>,
    /// TCP clients that found the queue full.
    clients: VecDeque<FileId>,
}

/// The progress of `connect` as its caller sees it.
///
/// A TCP socket remembers a connect until the program has asked for its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectProgress {
    Idle,
    Pending,
    Done,
}

#[derive(Debug)]
pub(super) struct Stream {
    family: Family,
    state: StreamState,
    progress: ConnectProgress,
    peer: Option<FileId>,
    received: VecDeque<u8>,
    /// The lengths of the writes that make up `received`.
    segments: VecDeque<usize>,
    read_shut: bool,
    write_shut: bool,
    /// TCP: a FIN has arrived. Reads after the data return 0, even if an error is pending.
    finished: bool,
    error: Option<Code>,
    /// TCP: a write found too little room. Only then does new room make an edge.
    short_of_room: bool,
    /// Closing resets the connection instead of ending it.
    linger_zero: bool,
    /// The stream is connected, or was connected before it failed.
    was_connected: bool,
}

impl Stream {
    pub(super) fn fresh(family: Family) -> Self {
        Self {
            family,
            state: StreamState::Closed,
            progress: ConnectProgress::Idle,
            peer: None,
            received: VecDeque::new(),
            segments: VecDeque::new(),
            read_shut: false,
            write_shut: false,
            finished: false,
            error: None,
            short_of_room: false,
            linger_zero: false,
            was_connected: false,
        }
    }

    pub(super) fn listening(family: Family, backlog: usize) -> Self {
        let listener = Listener { backlog, connections: VecDeque::new(), clients: VecDeque::new() };
        Self { state: StreamState::Listening(listener), ..Self::fresh(family) }
    }

    pub(super) fn connected(family: Family, peer: FileId) -> Self {
        Self {
            state: StreamState::Connected,
            was_connected: true,
            progress: ConnectProgress::Done,
            peer: Some(peer),
            ..Self::fresh(family)
        }
    }

    pub(super) fn set_linger_zero(&mut self) {
        self.linger_zero = true;
    }

    pub(super) fn take_error(&mut self) -> Option<Code> {
        self.error.take()
    }

    pub(super) fn unread(&self) -> Option<usize> {
        match self.state {
            StreamState::Listening(_) => None,
            _ => Some(self.received.len()),
        }
    }

    /// Returns the state of the connection. The peer's system answers without delay.
    pub(super) fn tcp_state(&self) -> Option<u8> {
        if self.family != Family::Tcp {
            return None;
        }
        Some(match self.state {
            StreamState::Closed => CLOSE,
            StreamState::Connecting(_) => SYN_SENT,
            StreamState::Listening(_) => LISTEN,
            StreamState::Connected if self.finished => CLOSE_WAIT,
            StreamState::Connected if self.write_shut => FIN_WAIT2,
            StreamState::Connected => ESTABLISHED,
        })
    }

    /// Returns whether the stream is connected, or was connected before it failed.
    pub(super) fn was_connected(&self) -> bool {
        self.was_connected
    }

    /// Returns the conditions that the filters of a kqueue test.
    ///
    /// `plain` has those that epoll reports too. An unconnected stream has none of them.
    pub(super) fn ends(&self, plain: FilterEnds) -> FilterEnds {
        let halves = FilterEnds {
            read_over: self.read_shut,
            write_over: self.write_shut,
            ..FilterEnds::default()
        };
        match &self.state {
            StreamState::Listening(listener) => {
                let unread = listener.connections.len();
                FilterEnds { readable: unread > 0, unread, is_listener: true, ..halves }
            }
            StreamState::Closed | StreamState::Connecting(_)
                if !self.read_shut && !self.write_shut =>
            {
                FilterEnds { error: self.error, ..halves }
            }
            _ => FilterEnds {
                readable: !self.received.is_empty(),
                unread: self.received.len(),
                writable: plain.writable,
                error: self.error,
                ..halves
            },
        }
    }

    /// Returns the conditions that the kernel's `tcp_poll` and `unix_poll` report.
    ///
    /// The peer has not read `sent` of the socket's bytes.
    fn conditions(&mut self, sent: usize) -> Conditions {
        let mut now = Conditions::NONE;
        if let StreamState::Listening(listener) = &self.state {
            if !listener.connections.is_empty() {
                now |= Conditions::IN;
            }
            // AF_UNIX only: shutting a TCP listener returns it to its initial state.
            if self.read_shut {
                now |= Conditions::IN | Conditions::RDHUP;
            }
            if self.read_shut && self.write_shut {
                now |= Conditions::HUP;
            }
            return now;
        }
        if self.error.is_some() {
            now |= Conditions::ERR;
        }
        if matches!(self.state, StreamState::Connecting(_)) {
            return now;
        }
        if matches!(self.state, StreamState::Closed) || (self.read_shut && self.write_shut) {
            now |= Conditions::HUP;
        }
        if self.read_shut {
            now |= Conditions::IN | Conditions::RDHUP;
        }
        if !self.received.is_empty() {
            now |= Conditions::IN;
        }
        if self.has_room(sent) || (self.family == Family::Tcp && self.write_shut) {
            now |= Conditions::OUT;
        } else {
            // The kernel also treats this query as a request for an edge when there is room.
            self.short_of_room = true;
        }
        now
    }

    /// Returns whether the kernel reports the socket writable. That takes more than one free byte.
    fn has_room(&self, sent: usize) -> bool {
        match self.family {
            Family::Tcp => SEND_BUFFER.saturating_sub(sent) >= sent / 2,
            Family::Unix => sent * 4 <= SEND_BUFFER,
        }
    }
}

impl Objects {
    fn stream(&mut self, id: FileId) -> Option<&mut Stream> {
        match self.get(id) {
            Some(Object::Stream(stream)) => Some(stream),
            _ => None,
        }
    }

    fn peer_of(&mut self, id: FileId) -> Option<FileId> {
        self.stream(id)?.peer
    }

    /// Returns how many bytes `id` has sent that its peer has not read.
    fn sent(&mut self, id: FileId) -> usize {
        let Some(peer) = self.peer_of(id) else { return 0 };
        self.stream(peer).map_or(0, |peer| peer.received.len())
    }

    pub(super) fn stream_conditions(&mut self, id: FileId) -> Conditions {
        let sent = self.sent(id);
        self.stream(id).map_or(Conditions::NONE, |stream| stream.conditions(sent))
    }

    /// Checks whether a read would return bytes or the end.
    ///
    /// It takes a pending error and nothing else.
    pub(super) fn stream_look(&mut self, id: FileId) -> Result<(), Code> {
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        if stream.received.is_empty() { stream.read_nothing().map(drop) } else { Ok(()) }
    }

    /// Returns the result of a connect whose pending error was already taken.
    pub(super) fn stream_end_connect(&mut self, id: FileId) -> Result<(), Code> {
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        match stream.state {
            StreamState::Connected => Ok(()),
            StreamState::Connecting(_) => Err(codes::EINPROGRESS),
            StreamState::Closed if stream.progress != ConnectProgress::Idle => {
                Err(codes::ECONNABORTED)
            }
            StreamState::Closed | StreamState::Listening(_) => Err(codes::ENOTCONN),
        }
    }

    /// Returns the family of a stream.
    pub(super) fn stream_family(&mut self, id: FileId) -> Option<Family> {
        self.stream(id).map(|stream| stream.family)
    }

    /// Returns the other end of an Internet connection. AF_UNIX clients have no address.
    pub(super) fn stream_peer(&mut self, id: FileId) -> Option<FileId> {
        self.stream(id).filter(|stream| stream.family == Family::Tcp)?.peer
    }

    pub(super) fn stream_read(&mut self, id: FileId, buf: &mut [u8]) -> Result<usize, Code> {
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        if stream.received.is_empty() {
            return stream.read_nothing();
        }
        let taken = buf.len().min(stream.received.len());
        for (place, byte) in buf.iter_mut().zip(stream.received.drain(..taken)) {
            *place = byte;
        }
        let mut left = taken;
        let mut segment_done = false;
        while let Some(first) = stream.segments.front_mut() {
            if *first > left {
                *first -= left;
                break;
            }
            left -= *first;
            stream.segments.pop_front();
            segment_done = true;
        }
        if let Some(peer) = stream.peer {
            self.room_again(peer, segment_done);
        }
        Ok(taken)
    }

    /// Reports new room after the peer of `id` has read.
    ///
    /// AF_UNIX reports it for every write that was read to its end, TCP only for a socket that ran
    /// out of room.
    fn room_again(&mut self, id: FileId, segment_done: bool) {
        let sent = self.sent(id);
        let Some(stream) = self.stream(id) else { return };
        let told = match stream.family {
            Family::Tcp => std::mem::take(&mut stream.short_of_room),
            Family::Unix => segment_done,
        };
        let room = stream.has_room(sent);
        if told && room {
            self.changes.wake_writers(id);
        } else if told {
            stream.short_of_room = true;
        }
    }

    pub(super) fn stream_write(&mut self, id: FileId, bytes: &[u8]) -> Result<usize, Code> {
        let sent = self.sent(id);
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        match (&stream.state, stream.family) {
            (StreamState::Listening(_), Family::Tcp) => return Err(codes::EPIPE),
            (StreamState::Connecting(_), _) => return Err(codes::EAGAIN),
            (StreamState::Closed, Family::Tcp) => {
                return Err(stream.error.take().unwrap_or(codes::EPIPE));
            }
            (StreamState::Connected, Family::Tcp)
                if stream.write_shut || stream.error.is_some() =>
            {
                return Err(stream.error.take().unwrap_or(codes::EPIPE));
            }
            (StreamState::Connected, _) if stream.write_shut => return Err(codes::EPIPE),
            (StreamState::Connected, _) => {}
            (_, Family::Unix) => return Err(codes::ENOTCONN),
        }
        if bytes.is_empty() {
            // There is nothing to send to the peer.
            return Ok(0);
        }
        let free = SEND_BUFFER.saturating_sub(sent);
        let taken = bytes.len().min(free);
        if taken < bytes.len() {
            stream.short_of_room = true;
        }
        if taken == 0 {
            return Err(codes::EAGAIN);
        }
        let family = stream.family;
        let peer = stream.peer.ok_or(codes::EPIPE)?;
        match self.stream(peer) {
            // Both halves of the peer are shut: TCP answers data with a reset, and both ends fail.
            Some(other) if family == Family::Tcp && other.read_shut && other.write_shut => {
                self.reset(peer);
                self.reset(id);
            }
            Some(other) => {
                other.received.extend(&bytes[..taken]);
                other.segments.push_back(taken);
                self.changes.wake_readers(peer);
            }
            None if family == Family::Tcp => self.reset(id),
            None => return Err(codes::EPIPE),
        }
        Ok(taken)
    }

    /// Resets the connection at `id`.
    fn reset(&mut self, id: FileId) {
        let Some(stream) = self.stream(id) else { return };
        if !matches!(stream.state, StreamState::Connected) {
            return;
        }
        let after_fin = stream.finished && !stream.write_shut;
        stream.error = Some(if after_fin { codes::EPIPE } else { codes::ECONNRESET });
        stream.end();
        self.changes.wake(id);
    }

    /// Delivers the FIN of the peer of the TCP socket `id`.
    fn fin(&mut self, id: FileId) {
        let Some(stream) = self.stream(id) else { return };
        stream.read_shut = true;
        stream.finished = true;
        self.changes.wake(id);
    }

    pub(super) fn stream_shutdown(
        &mut self,
        id: FileId,
        read: bool,
        write: bool,
    ) -> Result<(), Code> {
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        let family = stream.family;
        if family == Family::Tcp && matches!(stream.state, StreamState::Listening(_)) {
            if read {
                self.stop_listening(id);
                if let Some(stream) = self.stream(id) {
                    *stream = Stream::fresh(family);
                }
            }
            self.changes.wake(id);
            return Ok(());
        }
        let first_end = write && !stream.write_shut;
        stream.read_shut |= read;
        stream.write_shut |= write;
        self.changes.wake(id);
        let Some(stream) = self.stream(id) else { return Ok(()) };
        let connected = matches!(stream.state, StreamState::Connected);
        let finished = stream.finished;
        let peer = stream.peer;
        match (family, peer) {
            (Family::Tcp, _) if !connected => return Err(codes::ENOTCONN),
            (Family::Tcp, Some(peer)) if first_end => {
                self.fin(peer);
                if finished {
                    // Both directions have ended in order, so nothing can reset this connection.
                    for end in [id, peer] {
                        if let Some(stream) = self.stream(end) {
                            stream.end();
                        }
                    }
                }
            }
            (Family::Tcp, _) => {}
            (Family::Unix, Some(peer)) => {
                if let Some(other) = self.stream(peer) {
                    other.read_shut |= write;
                    other.write_shut |= read;
                    self.changes.wake(peer);
                }
            }
            (Family::Unix, None) => {}
        }
        Ok(())
    }

    pub(super) fn stream_connect(&mut self, id: FileId, to: FileId) -> Result<(), Code> {
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        let family = stream.family;
        match (&stream.state, family, stream.progress) {
            (StreamState::Listening(_), Family::Tcp, _) | (_, _, ConnectProgress::Done) => {
                return Err(codes::EISCONN);
            }
            (StreamState::Listening(_), Family::Unix, _) => return Err(codes::EINVAL),
            (StreamState::Connecting(_), ..) => return Err(codes::EALREADY),
            (StreamState::Connected, _, ConnectProgress::Pending) => {
                stream.progress = ConnectProgress::Done;
                return Ok(());
            }
            (StreamState::Closed, _, ConnectProgress::Pending) => {
                // The call returns the result of the last attempt and returns the socket to its
                // initial state.
                let code = stream.error.take().unwrap_or(codes::ECONNABORTED);
                *stream = Stream::fresh(family);
                self.changes.wake(id);
                return Err(code);
            }
            _ => {}
        }
        let listener = match self.get(to) {
            Some(Object::Stream(Stream {
                state: StreamState::Listening(listener),
                family: there,
                read_shut: false,
                ..
            })) if *there == family => Some(listener),
            _ => None,
        };
        let full = listener.as_ref().is_some_and(|it| it.connections.len() > it.backlog);
        match (family, listener) {
            (Family::Unix, None) => Err(codes::ECONNREFUSED),
            (Family::Unix, Some(_)) if full => Err(codes::EAGAIN),
            (Family::Unix, Some(_)) => {
                // An AF_UNIX client gets no edge from its own connect.
                self.join(id, to, ConnectProgress::Done);
                self.changes.note_joined(id);
                Ok(())
            }
            (Family::Tcp, Some(listener)) if full => {
                listener.clients.push_back(id);
                if let Some(stream) = self.stream(id) {
                    stream.state = StreamState::Connecting(to);
                    stream.progress = ConnectProgress::Pending;
                }
                Err(codes::EINPROGRESS)
            }
            (Family::Tcp, Some(_)) => {
                self.join(id, to, ConnectProgress::Pending);
                self.changes.wake(id);
                Err(codes::EINPROGRESS)
            }
            (Family::Tcp, None) => {
                self.refuse(id);
                Err(codes::EINPROGRESS)
            }
        }
    }

    /// Dissolves a connected or connecting TCP stream, as connect(2) with `AF_UNSPEC` does.
    ///
    /// The kernel keeps the resulting error, and its caller takes it immediately, so none is kept
    /// here. Returns false for `AF_UNIX`, which has no such call.
    pub(super) fn stream_disconnect(&mut self, id: FileId) -> bool {
        let Some(stream) = self.stream(id) else { return false };
        if stream.family != Family::Tcp || matches!(stream.state, StreamState::Listening(_)) {
            return false;
        }
        let former = std::mem::replace(stream, Stream::fresh(Family::Tcp));
        if let StreamState::Connecting(to) = former.state
            && let Some(Stream { state: StreamState::Listening(listener), .. }) = self.stream(to)
        {
            listener.clients.retain(|client| *client != id);
        }
        if let Some(peer) = former.peer {
            self.reset(peer);
        }
        self.changes.wake(id);
        true
    }

    /// Returns whether a stream has a peer, as getpeername(2) reports.
    pub(super) fn is_connected(&mut self, id: FileId) -> bool {
        self.stream(id).is_some_and(|stream| matches!(stream.state, StreamState::Connected))
    }

    fn refuse(&mut self, client: FileId) {
        let Some(stream) = self.stream(client) else { return };
        stream.progress = ConnectProgress::Pending;
        stream.error = Some(codes::ECONNREFUSED);
        stream.end();
        self.changes.wake(client);
    }

    /// Makes the accepted end of a connection and queues it at the listener.
    fn join(&mut self, client: FileId, to: FileId, progress: ConnectProgress) {
        let Some(stream) = self.stream(client) else { return };
        let family = stream.family;
        let server = self.add(Object::Stream(Stream::connected(family, client)));
        if let Some(stream) = self.stream(client) {
            stream.state = StreamState::Connected;
            stream.was_connected = true;
            stream.progress = progress;
            stream.peer = Some(server);
        }
        if let Some(Stream { state: StreamState::Listening(listener), .. }) = self.stream(to) {
            listener.connections.push_back(server);
        }
        self.changes.wake_readers(to);
    }

    pub(super) fn stream_accept(&mut self, id: FileId) -> Result<FileId, Code> {
        let stream = self.stream(id).ok_or(codes::EBADF)?;
        let StreamState::Listening(listener) = &mut stream.state else { return Err(codes::EINVAL) };
        let accepted = listener.connections.pop_front().ok_or(codes::EAGAIN)?;
        // The client's next connection attempt finds room.
        if let Some(client) = listener.clients.pop_front() {
            self.join(client, id, ConnectProgress::Pending);
            self.changes.wake(client);
        }
        Ok(accepted)
    }

    fn stop_listening(&mut self, id: FileId) {
        let Some(Stream { state: StreamState::Listening(listener), .. }) = self.stream(id) else {
            return;
        };
        let connections = std::mem::take(&mut listener.connections);
        let clients = std::mem::take(&mut listener.clients);
        for server in connections {
            let Some(Object::Stream(server)) = self.remove(server) else { continue };
            let Some(client) = server.peer else { continue };
            match server.family {
                Family::Tcp => self.reset(client),
                Family::Unix => self.unix_gone(client, true),
            }
        }
        for client in clients {
            self.refuse(client);
        }
    }

    /// Handles the close of the peer of the AF_UNIX socket `id`, which may have left data unread.
    fn unix_gone(&mut self, id: FileId, unread: bool) {
        let Some(stream) = self.stream(id) else { return };
        stream.read_shut = true;
        stream.write_shut = true;
        if unread {
            stream.error = Some(codes::ECONNRESET);
        }
        self.changes.wake(id);
    }

    /// Handles the close of the last descriptor of `id`.
    pub(super) fn stream_close(&mut self, id: FileId) {
        self.stop_listening(id);
        let Some(Object::Stream(closed)) = self.remove(id) else { return };
        let Some(peer) = closed.peer else { return };
        let unread = !closed.received.is_empty();
        match closed.family {
            Family::Tcp if closed.linger_zero || unread => self.reset(peer),
            Family::Tcp if closed.write_shut => {}
            Family::Tcp => {
                self.fin(peer);
                if closed.finished
                    && let Some(other) = self.stream(peer)
                {
                    other.end();
                }
            }
            Family::Unix => self.unix_gone(peer, unread),
        }
    }
}

impl Stream {
    fn read_nothing(&mut self) -> Result<usize, Code> {
        match self.family {
            Family::Tcp if matches!(self.state, StreamState::Listening(_)) => Err(codes::ENOTCONN),
            Family::Tcp if self.finished => Ok(0),
            Family::Unix if !matches!(self.state, StreamState::Connected) => Err(codes::EINVAL),
            _ => match self.error.take() {
                Some(code) => Err(code),
                None if self.read_shut => Ok(0),
                None if matches!(self.state, StreamState::Closed) => Err(codes::ENOTCONN),
                None => Err(codes::EAGAIN),
            },
        }
    }

    /// Ends the connection in both directions. Data that has arrived can still be read.
    fn end(&mut self) {
        self.state = StreamState::Closed;
        self.peer = None;
        self.read_shut = true;
        self.write_shut = true;
    }
}
