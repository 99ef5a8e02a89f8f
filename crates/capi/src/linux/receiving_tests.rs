//! Tests that receives which begin at certain moments of a receiver are carried out, and reported,
//! in the order in which they have begun.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::ffi::c_void;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use libc::iovec;

use crate::abi::{Entry, Handle, Overlapped};
use crate::errors::code;
use crate::handles;
use crate::linux::associations::associate;
use crate::linux::buffers::Buffer;
use crate::linux::numbers::{self, InFlight};
use crate::linux::port::CompletionPort;
use crate::linux::receiver::WaitingReceive;
use crate::linux::transfers::cp_start_receive;
use crate::linux::waiting::take;
use crate::linux::{cancelling, last, operations, receiving, status};
use crate::taking::Changed;

const KEY: usize = 5;

/// `WSAECONNRESET`.
const RESET: u32 = 10054;

/// The bytes that each receive has room for.
const ROOM: usize = 4;

/// The memory of a receive.
struct Receive {
    overlapped: Overlapped,
    bytes: [AtomicU8; ROOM],
}

// SAFETY: threads may share it, although it has a pointer.
// - the event is null, and the rest is atomic.
unsafe impl Send for Receive {}

// SAFETY: as above.
unsafe impl Sync for Receive {}

impl Receive {
    fn new() -> Arc<Self> {
        let (status, bytes) = (AtomicUsize::new(status::PENDING as usize), AtomicUsize::new(0));
        let [offset, offset_high] = [0, 0].map(AtomicU32::new);
        let event = ptr::null_mut();
        let overlapped = Overlapped { status, bytes, offset, offset_high, event };
        Arc::new(Self { overlapped, bytes: [0; ROOM].map(AtomicU8::new) })
    }

    /// What its packet and other calls have as its OVERLAPPED.
    fn address(&self) -> *mut c_void {
        (&raw const self.overlapped).cast_mut().cast()
    }

    fn buffer(&self) -> *mut c_void {
        (&raw const self.bytes).cast_mut().cast()
    }

    fn bytes(&self) -> [u8; ROOM] {
        self.bytes.each_ref().map(|byte| byte.load(Relaxed))
    }
}

/// A receive that is to begin.
#[derive(Clone, Copy)]
enum Kind {
    /// A receiver can carry it out.
    Suitable,
    /// It has two buffers.
    Unsuitable,
}

/// A connection, and the port with which its near end is associated. Only the test's threads see to
/// the port.
struct Connection {
    handle: Handle,
    port: Arc<CompletionPort>,
    near: TcpStream,
    far: TcpStream,
}

impl Connection {
    fn new() -> Self {
        let handle = handles::open_port(1).unwrap();
        let port = handles::port(handle).unwrap();
        // So the driver is not asked to.
        port.is_watched.store(true, SeqCst);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        associate(handle_of(near.as_raw_fd()), &port, KEY).unwrap();
        Self { handle, port, near, far }
    }

    /// Sends bytes, all different, and waits until they have come.
    fn send(&mut self, count: usize) {
        let bytes: Vec<_> = (b'a'..).take(count).collect();
        self.far.write_all(&bytes).unwrap();
        let mut seen = vec![0; count];
        let flags = libc::MSG_PEEK | libc::MSG_WAITALL;
        // SAFETY: recv(2) writes at most that many bytes at the pointer.
        // - valid for writes: there is room for them.
        let size =
            unsafe { libc::recv(self.near.as_raw_fd(), seen.as_mut_ptr().cast(), count, flags) };
        assert_eq!(usize::try_from(size), Ok(count));
    }

    /// Takes this many packets.
    fn packets(&self, count: usize) -> Vec<Entry> {
        let none = Entry { key: 0, overlapped: ptr::null_mut(), internal: 0, bytes: 0 };
        let mut packets = Vec::new();
        while packets.len() < count {
            let mut entries = vec![none; count - packets.len()];
            let (room, timeout) = (entries.len(), Some(Duration::from_secs(60)));
            let place = entries.as_mut_ptr();
            // SAFETY: `take` demands room for that many entries.
            // - there is.
            let taken = unsafe { take(&self.port, place, room, timeout, Changed::AsAsked) };
            packets.extend_from_slice(&entries[..taken.unwrap() as usize]);
        }
        packets
    }

    /// Has the port look for events.
    fn look(&self) {
        assert_eq!(self.port.is_ready(), Ok(false));
    }

    /// The next packets report these receives in this order, which have received what was sent.
    fn assert_received(&self, receives: &[Arc<Receive>]) {
        let packets = self.packets(receives.len());
        let places: Vec<_> = receives.iter().map(|it| it.address()).collect();
        assert_eq!(packets.iter().map(|it| it.overlapped).collect::<Vec<_>>(), places);
        assert!(packets.iter().all(|it| it.internal == 0 && it.bytes as usize == ROOM));
        let bytes: Vec<_> = receives.iter().flat_map(|it| it.bytes()).collect();
        assert_eq!(bytes, (b'a'..).take(bytes.len()).collect::<Vec<_>>());
    }

    fn close(self) {
        handles::close(self.handle).unwrap();
    }
}

fn handle_of(descriptor: RawFd) -> Handle {
    ptr::without_provenance_mut(usize::try_from(descriptor).unwrap())
}

/// Begins a receive.
fn begin(descriptor: RawFd, receive: &Receive, kind: Kind) {
    let begun = begun(descriptor, receive, kind);
    assert!(matches!(begun, Ok(_) | Err(code::IO_PENDING)));
}

/// Begins a receive. Returns what the call does: the number of bytes, or the code of its error.
fn begun(descriptor: RawFd, receive: &Receive, kind: Kind) -> Result<u32, u32> {
    let count = match kind {
        Kind::Suitable => 1,
        Kind::Unsuitable => 2,
    };
    let size = ROOM / count;
    let part = |place| Buffer {
        size: u32::try_from(size).unwrap(),
        bytes: receive.buffer().wrapping_byte_add(place * size),
    };
    let (parts, mut received, mut flags) = ([part(0), part(1)], 0, 0);
    let (address, address_size) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: `cp_start_receive` demands that many buffers and two numbers, and memory that stays valid.
    // - these are locals;
    // - valid: the test keeps the receive until it has ended.
    let begun = unsafe {
        cp_start_receive(
            descriptor,
            parts.as_ptr(),
            u32::try_from(count).unwrap(),
            &raw mut received,
            &raw mut flags,
            address,
            address_size,
            receive.address(),
        )
    };
    if begun == 0 { Ok(received) } else { Err(last::last()) }
}

/// What another thread does when the next receive has ended, before its packet is queued.
static WHEN_ENDED: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);

fn when_ended(_key: usize, is_about_to_be_queued: bool) {
    assert!(is_about_to_be_queued);
    let next = WHEN_ENDED.lock().unwrap().take();
    if let Some(next) = next {
        thread::spawn(next).join().unwrap();
    }
}

/// A receive ends with a full buffer while there is more data, and another thread begins one or two
/// before that is reported by a packet. The program sees by then that it has ended.
#[test]
fn receives_that_begin_behind_a_full_one_are_reported_after_that() {
    use Kind::{Suitable, Unsuitable};
    let before: [&[Kind]; 4] =
        [&[Suitable], &[Suitable, Suitable], &[Suitable, Unsuitable], &[Suitable; 3]];
    let behind: [&[Kind]; 4] =
        [&[Suitable], &[Unsuitable], &[Suitable, Unsuitable], &[Unsuitable, Suitable]];
    for (before, behind) in before.into_iter().flat_map(|it| behind.map(|behind| (it, behind))) {
        let mut connection = Connection::new();
        let descriptor = connection.near.as_raw_fd();
        connection.port.counts.set(when_ended).unwrap();
        let all: Vec<_> = (0..before.len() + behind.len()).map(|_| Receive::new()).collect();
        let (first, others) = all.split_at(before.len());
        first.iter().zip(before).for_each(|(receive, kind)| begin(descriptor, receive, *kind));
        connection.send(all.len() * ROOM);
        let others = others.to_vec();
        *WHEN_ENDED.lock().unwrap() = Some(Box::new(move || {
            others.iter().zip(behind).for_each(|(receive, kind)| begin(descriptor, receive, *kind));
        }));
        connection.assert_received(&all);
        assert!(WHEN_ENDED.lock().unwrap().is_none());
        connection.close();
    }
}

/// A thread has made a receiver and is about to start its task. Others cancel the receive, and begin
/// one that a receiver can carry out, and one that it cannot.
#[test]
fn receives_that_begin_before_the_task_of_a_receiver_keep_their_order() {
    let mut connection = Connection::new();
    let descriptor = connection.near.as_raw_fd();
    let [cancelled, first, second] = [(); 3].map(|()| Receive::new());
    let number = numbers::entry(descriptor).unwrap();
    let mut state = number.lock();
    let (port, line) = operations::line(&mut state, number, descriptor).unwrap();
    let overlapped = NonNull::from(&cancelled.overlapped);
    let buffer = iovec { iov_base: cancelled.buffer(), iov_len: ROOM };
    let receive = WaitingReceive { overlapped, buffer, key: KEY };
    let (name, thread, accept, is_called_off) = (None, 0, 0, false);
    let side = completion_port::raw::Side::In;
    let in_flight = InFlight { port: line.port, name, side, thread, accept, is_called_off };
    let target = (number, descriptor);
    let task = receiving::make(&port, &line, target, &mut state, receive, in_flight);
    drop(state);
    assert_eq!(cancelling::cp_cancel(handle_of(descriptor), cancelled.address()), 1);
    begin(descriptor, &first, Kind::Suitable);
    begin(descriptor, &second, Kind::Unsuitable);
    receiving::start_task(&port, &line, task).unwrap();
    assert_eq!(connection.packets(1)[0].overlapped, cancelled.address());
    connection.send(2 * ROOM);
    connection.assert_received(&[first, second]);
    connection.close();
}

/// What a thread does whose packet is about to be queued, once, and the threads that this has started.
static WHEN_QUEUED: Mutex<Option<Box<dyn FnOnce() + Send>>> = Mutex::new(None);
static BEGINNING: Mutex<Vec<thread::JoinHandle<()>>> = Mutex::new(Vec::new());

fn when_queued(_key: usize, is_about_to_be_queued: bool) {
    assert!(is_about_to_be_queued);
    let next = WHEN_QUEUED.lock().unwrap().take();
    if let Some(next) = next {
        next();
    }
}

/// A connection with a receiver that is free and has found data meanwhile.
fn with_data_for_a_receiver(bytes: usize) -> Connection {
    let mut connection = Connection::new();
    let first = Receive::new();
    begin(connection.near.as_raw_fd(), &first, Kind::Suitable);
    connection.send(1);
    assert_eq!(connection.packets(1)[0].bytes, 1);
    connection.send(bytes);
    connection.look();
    connection
}

#[test]
fn a_receive_that_finds_data_for_its_receiver_ends_in_its_call() {
    for (skips_packet, bytes) in [(false, ROOM), (false, 2), (true, ROOM), (true, 2)] {
        let connection = with_data_for_a_receiver(bytes);
        let descriptor = connection.near.as_raw_fd();
        if skips_packet {
            assert_eq!(operations::cp_set_completion_modes(handle_of(descriptor), 1), 1);
        }
        let receive = Receive::new();
        // As a former use may leave it.
        receive.overlapped.offset.store(7, Relaxed);
        assert_eq!(begun(descriptor, &receive, Kind::Suitable), Ok(u32::try_from(bytes).unwrap()));
        assert_eq!(receive.overlapped.status.load(Relaxed), 0);
        assert_eq!(receive.overlapped.bytes.load(Relaxed), bytes);
        assert_eq!(receive.overlapped.offset.load(Relaxed), 0, "the flags");
        assert_eq!(receive.bytes()[..bytes], (b'a'..).take(bytes).collect::<Vec<_>>());
        if skips_packet {
            connection.look();
        } else {
            let packet = connection.packets(1)[0];
            assert_eq!((packet.key, packet.overlapped), (KEY, receive.address()));
            assert_eq!((packet.internal, packet.bytes as usize), (0, bytes));
        }
        // The next one waits, and has the next data.
        let next = Receive::new();
        assert_eq!(begun(descriptor, &next, Kind::Suitable), Err(code::IO_PENDING));
        let mut connection = connection;
        connection.send(ROOM);
        connection.assert_received(&[next]);
        connection.close();
    }
}

/// The number's former socket was closed without the library.
#[test]
fn a_socket_does_not_have_the_notification_modes_of_another_one() {
    let (former, mut connection) = (Connection::new(), Connection::new());
    let number = former.near.as_raw_fd();
    assert_eq!(operations::cp_set_completion_modes(handle_of(number), 1), 1);
    // SAFETY: dup2(2) demands two numbers, and closes the second one.
    // - the first one is a stream, and nothing uses the second one any more.
    let made = unsafe { libc::dup2(connection.near.as_raw_fd(), number) };
    assert_eq!(made, number);
    associate(handle_of(number), &connection.port, KEY).unwrap();
    connection.send(ROOM);
    let receive = Receive::new();
    assert_eq!(begun(number, &receive, Kind::Suitable), Ok(4));
    connection.assert_received(&[receive]);
    connection.close();
    former.close();
}

/// Another thread begins the next receive as soon as the program sees that the first one has ended.
#[test]
fn receives_that_end_in_their_calls_are_reported_in_that_order() {
    let connection = with_data_for_a_receiver(2 * ROOM);
    let descriptor = connection.near.as_raw_fd();
    let receives = [(); 2].map(|()| Receive::new());
    let next = Arc::clone(&receives[1]);
    *WHEN_QUEUED.lock().unwrap() = Some(Box::new(move || {
        let beginning = thread::spawn(move || begin(descriptor, &next, Kind::Suitable));
        // It has to wait for the first one's packet.
        let begun = Instant::now();
        while !beginning.is_finished() && begun.elapsed() < Duration::from_millis(20) {
            thread::yield_now();
        }
        BEGINNING.lock().unwrap().push(beginning);
    }));
    connection.port.counts.set(when_queued).unwrap();
    begin(descriptor, &receives[0], Kind::Suitable);
    BEGINNING.lock().unwrap().drain(..).for_each(|beginning| beginning.join().unwrap());
    connection.assert_received(&receives);
    connection.close();
}

/// Without another event, the receiver's next receive finds the end, or that the peer has reset the
/// connection. The system reports a reset once, the library each time.
#[test]
fn a_receive_that_finds_the_end_for_its_receiver_reports_it() {
    for is_reset in [false, true] {
        let connection = with_data_for_a_receiver(ROOM);
        let descriptor = connection.near.as_raw_fd();
        let [full, last] = [(); 2].map(|()| Receive::new());
        assert_eq!(begun(descriptor, &full, Kind::Suitable), Ok(4), "the receiver looks again");
        assert_eq!(connection.packets(1)[0].overlapped, full.address());
        let Connection { handle, port, mut near, far } = connection;
        if is_reset {
            // That is what a peer does that leaves something unread.
            near.write_all(b"unread").unwrap();
        }
        drop(far);
        let expected = if is_reset { Err(RESET) } else { Ok(0) };
        for _ in 0..2 {
            assert_eq!(begun(descriptor, &last, Kind::Suitable), expected);
        }
        assert_eq!(port.is_ready(), Ok(!is_reset), "only the call reports a failure");
        drop(near);
        handles::close(handle).unwrap();
    }
}
