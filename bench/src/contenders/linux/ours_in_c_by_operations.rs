//! The completion port with operations through the C library, like a server in C: the state of an
//! operation follows its OVERLAPPED, and a packet returns its address.

use std::io;
use std::mem::{MaybeUninit, replace};
use std::net::{TcpStream, UdpSocket};
use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use super::{Contender, Listening, Server, ours_in_c, threads};
use crate::c_library::{Address, Overlapped, Packet, Port, ROOM_OF_ACCEPT, Socket, Started};
use crate::names::{IN_C_AT_ONCE, IN_C_BY_PACKETS};
use crate::sink::Service;
use crate::work::{Carry, process, process_datagram};

/// Packets taken by a wait at most.
const BATCH: usize = 64;

/// Operations that a handler ends immediately before another connection has its turn.
const MOST_AT_ONCE: usize = 64;

/// Accepts in flight of a listener.
const ACCEPTS: usize = 16;

/// Operations that end immediately make no packet (`FILE_SKIP_COMPLETION_PORT_ON_SUCCESS`).
pub(crate) fn contender() -> Contender {
    Contender {
        name: IN_C_AT_ONCE,
        about: "libcompletion_port by operations: immediate results make no packet",
        start: |threads, service| start(threads, service, true),
        ..ours_in_c::contender()
    }
}

/// Each operation makes a packet.
pub(crate) fn by_packets() -> Contender {
    Contender {
        name: IN_C_BY_PACKETS,
        about: "libcompletion_port by operations, with a packet for each",
        start: |threads, service| start(threads, service, false),
        ..ours_in_c::contender()
    }
}

fn start(threads: usize, service: Service, at_once: bool) -> io::Result<Box<dyn Server>> {
    let server = Arc::new(ByOperations { port: Port::new()?, service, at_once });
    for _ in 0..threads {
        let server = Arc::clone(&server);
        threads::spawn("ours_in_c", move || server.serve())?;
    }
    Ok(Box::new(Shared(server)))
}

struct ByOperations {
    port: Port,
    service: Service,
    at_once: bool,
}

/// The server and its threads share it.
struct Shared(Arc<ByOperations>);

/// A socket with at most one operation in flight. While there is one, the peer is that operation's; otherwise it is
/// a thread's.
#[repr(C)]
struct Peer {
    /// The first field: its address is the peer's.
    overlapped: Overlapped,
    /// Of an accept: the next connection's.
    socket: Socket,
    role: Role,
    /// What the operation does, or the finished one has done.
    step: Step,
    /// Memory as `malloc` returns it; an operation has written what is read.
    buffer: Box<[MaybeUninit<u8>]>,
    /// Where the latest datagram has come from.
    from: Address,
}

enum Role {
    Connection(Carry),
    Datagrams,
    /// One of this listener's.
    Accept(Arc<Socket>),
}

#[derive(Clone, Copy)]
enum Step {
    /// A receive or an accept.
    Take,
    /// A send of that many bytes of the buffer.
    Give(usize),
}

impl Peer {
    fn new(socket: Socket, role: Role, room: usize) -> Box<Self> {
        let (overlapped, from) = (Overlapped::default(), Address::default());
        let buffer = Box::new_uninit_slice(room);
        Box::new(Self { overlapped, socket, role, step: Step::Take, buffer, from })
    }
}

/// The outcome of a step that a thread has started.
enum Begun {
    /// It has ended, and the thread owns the peer again: that many bytes, or a failure.
    Over(Box<Peer>, Option<u32>),
    /// A packet reports it.
    Left,
}

/// The consequence of a failed step: the end of a connection, or of a server that cannot continue.
fn fail(peer: &Peer) -> io::Result<()> {
    match peer.role {
        Role::Connection(_) => Ok(()),
        Role::Datagrams => Err(io::Error::other("an operation on datagrams has failed")),
        Role::Accept(_) => Err(io::Error::other("an accept has failed")),
    }
}

impl ByOperations {
    fn connection(&self, socket: Socket) -> Box<Peer> {
        Peer::new(socket, Role::Connection(Carry::default()), self.service.buffer())
    }

    /// The first step of a socket.
    fn begin(&self, peer: Box<Peer>) -> io::Result<()> {
        self.port.associate(&peer.socket, !self.at_once)?;
        self.begin_associated(peer)
    }

    fn begin_associated(&self, peer: Box<Peer>) -> io::Result<()> {
        match self.step(peer) {
            Begun::Over(peer, bytes) => self.hand_over(peer, bytes),
            Begun::Left => Ok(()),
        }
    }

    /// Queues a packet for a finished step, so that any thread may continue.
    fn hand_over(&self, peer: Box<Peer>, bytes: Option<u32>) -> io::Result<()> {
        let Some(bytes) = bytes else { return fail(&peer) };
        let peer = Box::into_raw(peer);
        peer.expose_provenance();
        self.port.post(bytes, peer.cast())
    }

    fn serve(&self) -> io::Result<()> {
        let mut packets = [Packet::NONE; BATCH];
        loop {
            let count = self.port.dequeue(&mut packets)?;
            for packet in &packets[..count] {
                let peer: *mut Peer = with_exposed_provenance_mut(packet.operation());
                // SAFETY: `from_raw` demands what `into_raw` gave, once.
                // - given: the port's packets are those of operations and those of `hand_over`.
                //   Both bring the address of a peer's first field, which is the peer's, and it was
                //   exposed;
                // - once: a peer has one operation, which makes one packet; a peer that is handed
                //   over has none in flight.
                let peer = unsafe { Box::from_raw(peer) };
                self.go_on(peer, packet.transferred())?;
            }
        }
    }

    /// Takes steps, one after the other, until one has to wait.
    fn go_on(&self, mut peer: Box<Peer>, mut bytes: Option<u32>) -> io::Result<()> {
        let mut left = MOST_AT_ONCE;
        loop {
            let Some(count) = bytes else { return fail(&peer) };
            if matches!(peer.role, Role::Accept(_)) {
                return self.accepted(peer);
            }
            let Some(next) = self.handle(&mut peer, count as usize)? else { return Ok(()) };
            peer.step = next;
            let Begun::Over(over, transferred) = self.step(peer) else { return Ok(()) };
            if left == 0 {
                return self.hand_over(over, transferred);
            }
            left -= 1;
            (peer, bytes) = (over, transferred);
        }
    }

    /// Serves a connection. The next accept is in flight before that.
    fn accepted(&self, mut accept: Box<Peer>) -> io::Result<()> {
        let accepted = replace(&mut accept.socket, Socket::new()?);
        self.begin_associated(accept)?;
        let connection = self.connection(accepted);
        self.port.associate(&connection.socket, !self.at_once)?;
        match self.step(connection) {
            Begun::Over(connection, bytes) => self.go_on(connection, bytes),
            Begun::Left => Ok(()),
        }
    }

    /// What follows a step that has ended well; `None`: the connection ends.
    fn handle(&self, peer: &mut Peer, bytes: usize) -> io::Result<Option<Step>> {
        if matches!(peer.step, Step::Give(_)) {
            return Ok(Some(Step::Take));
        }
        // SAFETY: `assume_init_ref` demands bytes that are written.
        // - a receive has written that many, and an accept none that is read.
        let received = unsafe { peer.buffer[..bytes].assume_init_ref() };
        Ok(match &mut peer.role {
            Role::Connection(_) if bytes == 0 => None,
            Role::Connection(carry) => match self.service {
                Service::Echo => {
                    process(carry, received);
                    Some(Step::Give(bytes))
                }
                Service::Sink(sink) => {
                    sink.handle(bytes);
                    Some(Step::Take)
                }
            },
            Role::Datagrams => {
                process_datagram(received);
                Some(Step::Give(bytes))
            }
            Role::Accept(_) => unreachable!("`accepted` follows it"),
        })
    }

    /// Begins the peer's step.
    fn step(&self, mut peer: Box<Peer>) -> Begun {
        let (number, step) = (peer.socket.number(), peer.step);
        let (place, room) = (peer.buffer.as_mut_ptr().cast::<u8>(), peer.buffer.len());
        let listener = match &peer.role {
            Role::Accept(listener) => Some(listener.number()),
            _ => None,
        };
        let has_address = matches!(peer.role, Role::Datagrams);
        let to = has_address.then_some(peer.from);
        let peer = Box::into_raw(peer);
        peer.expose_provenance();
        // SAFETY: the address of a field demands that the pointer is to an object.
        // - it is that of a box.
        let from = unsafe { &raw mut (*peer).from };
        let overlapped = peer.cast();
        let begun = match (listener, step) {
            // SAFETY: these demand an OVERLAPPED, memory of that length, and room for an address
            // where it is wanted, that nothing else uses before the packet was taken, or if there
            // is none, before they return.
            // - valid: they are those of the peer, whose box is given up here, and made again from
            //   what a packet brings or below; the buffer of an accept has `ROOM_OF_ACCEPT` bytes;
            // - nothing else: no reference to the peer is left here.
            (Some(listener), _) => unsafe {
                Socket::start_accept(listener, number, place, overlapped)
            },
            // SAFETY: as above.
            (None, Step::Take) => unsafe {
                let from = has_address.then_some(from);
                Socket::start_receive(number, place, room, from, overlapped)
            },
            // SAFETY: as above; the received data is not longer than the buffer.
            (None, Step::Give(length)) => unsafe {
                Socket::start_send(number, place, length, to, overlapped)
            },
        };
        let bytes = match begun {
            Started::Done(bytes) if self.at_once => Some(bytes),
            Started::Failed => None,
            Started::Done(_) | Started::GoesOn => return Begun::Left,
        };
        // SAFETY: `from_raw` demands what `into_raw` gave, once.
        // - once: a step that fails in its call has no packet, and one that ends immediately has
        //   none by the association's mode.
        Begun::Over(unsafe { Box::from_raw(peer) }, bytes)
    }
}

impl Server for Shared {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        self.0.begin(self.0.connection(Socket::of(stream)))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        let listener = Arc::new(Socket::of(at.listener()?));
        self.0.port.associate(&listener, !self.0.at_once)?;
        for _ in 0..ACCEPTS {
            let role = Role::Accept(Arc::clone(&listener));
            self.0.begin_associated(Peer::new(Socket::new()?, role, ROOM_OF_ACCEPT))?;
        }
        Ok(())
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        let room = self.0.service.buffer();
        self.0.begin(Peer::new(Socket::of(socket), Role::Datagrams, room))
    }
}
