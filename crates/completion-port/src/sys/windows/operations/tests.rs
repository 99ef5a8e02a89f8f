//! Which operations the kernel carries out, and who owns their memory.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{ErrorKind as Io, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::windows::io::{AsRawSocket as _, OwnedSocket};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Once, OnceLock};
use std::time::{Duration, Instant};

use windows_sys::Win32::Networking::WinSock::{INVALID_SOCKET, WSA_IO_PENDING, WSABUF, WSARecv};
use windows_sys::Win32::System::IO::OVERLAPPED;
use windows_sys::Win32::System::LibraryLoader::LoadLibraryA;
use windows_sys::Win32::System::Threading::{GetCurrentProcess, GetProcessHandleCount};

use super::super::afd::{self, Afd};
use super::super::host::is_wine;
use super::super::options::{WinsockCode, last_code, socket};
use super::super::port::SystemPort as Kernel;
use super::super::winsock_notifications::{WinsockBackend, native};
use super::{OverlappedOperations, SocketTransfer, kept_or_asked};
use crate::backend::Backend;
use crate::backend::reactor::Reactor as _;
use crate::backend::request::{SocketRequest, Submit as _};
use crate::backend::sockets::{SocketAttempt, SocketKind, SocketTarget, Sockets as _, Transport};
use crate::state::facts::{Edge, Facts};
use crate::types::config::FileEngine;
use crate::types::io_buffer::IoBuffer;
use crate::types::source::{Descriptor, KernelId, Source as _};
use crate::{Batch, Operation, Outcome, Packet, Port, Readiness, SharedSource};

const SOON: Duration = Duration::from_secs(120);

/// Long enough to show that nothing arrives.
const QUIET: Duration = Duration::from_millis(50);

thread_local! {
    /// The calls of this thread that the kernel has accepted.
    static CARRIED: RefCell<Vec<SocketKind>> = const { RefCell::new(Vec::new()) };
    /// Runs when this thread is about to make its next call.
    static IN_BETWEEN: RefCell<Option<Between>> = const { RefCell::new(None) };
}

/// A function that gets the place of the transfer.
type Between = Box<dyn FnOnce(super::TransferPlace)>;

/// Makes a call after running what the test wants in between, and notes it if the kernel accepts it.
///
/// # Safety
///
/// As for [`SocketTransfer::call`].
unsafe fn noted_call(transfer: *mut SocketTransfer) -> WinsockCode {
    if let Some(between) = IN_BETWEEN.take() {
        between(transfer.addr());
    }
    // SAFETY: reading demands that the place is valid and not written to.
    // - the caller says so; the kernel does not have it yet.
    let kind = unsafe { (*transfer).request.kind };
    // SAFETY: `call` demands what this function demands.
    // - `between` has at most looked at the status.
    let code = unsafe { SocketTransfer::call(transfer) };
    if matches!(code, 0 | WSA_IO_PENDING) {
        CARRIED.with_borrow_mut(|carried| carried.push(kind));
    }
    code
}

fn noted_operations() -> OverlappedOperations {
    OverlappedOperations { call: noted_call, ..OverlappedOperations::default() }
}

/// Returns a reactor by polls that notes its calls.
fn noted_afd() -> Afd {
    let mut afd = Afd::new(FileEngine::Automatic).unwrap();
    afd.operations = noted_operations();
    afd
}

/// Loads the library that replaces notifications if `TEST_NOTIFICATIONS` is set and the system has
/// none. The test kit does so for the other tests.
fn load_replacement() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        if std::env::var_os("TEST_NOTIFICATIONS").is_none() || native().is_some() {
            return;
        }
        // SAFETY: LoadLibraryA reads a name that ends with a zero, and runs code of the library that
        // it loads.
        // - it is a library of this workspace, whose code may run at any time.
        let library = unsafe { LoadLibraryA(c"completion_port.dll".as_ptr().cast()) };
        assert!(!library.is_null(), "there is no completion_port.dll");
    });
}

/// Returns the calls since this was last called.
fn carried() -> Vec<SocketKind> {
    CARRIED.take()
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    (near, far)
}

fn number(socket: &impl std::os::windows::io::AsSocket) -> Descriptor {
    socket.as_source().name.number
}

/// Sends until there has been no room for a while: the other end takes data that is in transit.
fn fill(stream: &mut TcpStream) {
    let mut last = Instant::now();
    while last.elapsed() < QUIET {
        match stream.write(&[b'x'; 65536]) {
            Ok(_) => last = Instant::now(),
            Err(error) if error.kind() == Io::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs a test on both back ends.
///
/// The one with notifications requires that the system, or the library that replaces it, has them.
fn each_way(test: impl Fn(Readiness)) {
    test(Readiness::Polls);
    load_replacement();
    let builder = Port::builder().readiness(Readiness::Notifications);
    match builder.build::<OwnedSocket, ()>() {
        Ok(_) => test(Readiness::Notifications),
        Err(_) => println!("SKIPPED operations by notifications: the system has none"),
    }
}

/// A back end whose calls are noted.
fn backend(way: Readiness) -> Box<dyn Backend> {
    if way == Readiness::Polls {
        return Box::new(noted_afd());
    }
    let notified = WinsockBackend::new(FileEngine::Automatic, noted_operations());
    Box::new(notified.unwrap().unwrap())
}

fn new_port<K>(way: Readiness) -> Port<K> {
    Port::builder().build_on(backend(way), KernelId::SYSTEM).unwrap()
}

/// Returns the outcome of the only pending operation, whose token ends.
#[track_caller]
fn outcome<K>(port: &Port<K>) -> Outcome {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, SOON).unwrap();
    match packets.next() {
        Some(Packet::Completed(done)) => done.into_parts().1,
        Some(Packet::SharedCompleted(finished)) => finished.into_parts().1,
        _ => panic!("no operation has ended"),
    }
}

#[test]
fn what_has_to_wait_is_carried_out_by_the_kernel() {
    each_way(|way| {
        carried();
        let port = new_port::<OwnedSocket>(way);

        let (near, mut far) = pair();
        port.associate(near.into()).unwrap().recv(Vec::with_capacity(8)).unwrap();
        assert_eq!(carried(), [SocketKind::Receive]);
        far.write_all(b"abc").unwrap();
        let Outcome::Received(Ok(3), bytes) = outcome(&port) else { panic!() };
        assert_eq!(bytes, b"abc");

        let (mut near, mut far) = pair();
        fill(&mut near);
        port.associate(near.into()).unwrap().send_all(vec![b'y'; 3 << 20]).unwrap();
        assert_eq!(carried(), [SocketKind::SendAll]);
        let reader = std::thread::spawn(move || {
            far.set_nonblocking(false).unwrap();
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            bytes.iter().filter(|byte| **byte == b'y').count()
        });
        assert!(matches!(outcome(&port), Outcome::Sent(Ok(len), _) if len == 3 << 20));
        assert_eq!(carried(), [SocketKind::SendAll; 2], "call after call");
        assert_eq!(reader.join().unwrap(), 3 << 20);

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        port.associate(listener.into()).unwrap().accept().unwrap();
        assert_eq!(carried(), [SocketKind::Accept]);
        let client = TcpStream::connect(address).unwrap();
        let Outcome::Accepted(Ok((socket, Some(peer)))) = outcome(&port) else { panic!() };
        assert_eq!(peer.as_ip(), Some(client.local_addr().unwrap()));
        let socket = TcpStream::from(socket.into_descriptor().unwrap());
        // The connection has its listener's properties.
        assert_eq!(socket.local_addr().unwrap(), address);
        assert_eq!(socket.peer_addr().unwrap(), client.local_addr().unwrap());

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let to_key = |socket: crate::OwnedSource| socket.into_descriptor().unwrap();
        port.connect(address, None, to_key).unwrap();
        assert_eq!(carried(), [SocketKind::Connect]);
        let mut batch = Batch::new();
        let Some(Packet::Completed(done)) = port.wait(&mut batch, SOON).unwrap().next() else {
            panic!()
        };
        let (token, outcome_of_connect) = done.into_parts();
        assert!(matches!(outcome_of_connect, Outcome::Connected(Ok(()))));
        // The socket knows its peer.
        assert_eq!(TcpStream::from(token.into_key()).peer_addr().unwrap(), address);

        let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = datagrams.local_addr().unwrap();
        port.associate(datagrams.into()).unwrap().recv_from(Vec::with_capacity(8)).unwrap();
        assert_eq!(carried(), [SocketKind::ReceiveFrom]);
        peer.send_to(b"abc", address).unwrap();
        let Outcome::ReceivedFrom(Ok((3, Some(from))), _) = outcome(&port) else { panic!() };
        assert_eq!(from.as_ip(), Some(peer.local_addr().unwrap()));
    });
}

/// A provider that had no memory returns the functions later.
#[test]
fn functions_that_were_not_found_are_looked_up_again() {
    let kept = OnceLock::new();
    let none = kept_or_asked(&kept, INVALID_SOCKET);
    assert!(none.accept.is_none() && none.names.is_none() && none.connect.is_none());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for of in [socket(number(&listener)), INVALID_SOCKET] {
        let all = kept_or_asked(&kept, of);
        assert!(all.accept.is_some() && all.names.is_some() && all.connect.is_some());
    }
}

#[test]
fn what_can_be_done_at_once_is_no_call_that_waits() {
    each_way(|way| {
        carried();
        let port = new_port::<OwnedSocket>(way);
        let (near, mut far) = pair();
        far.write_all(b"abc").unwrap();
        while near.peek(&mut [0; 8]).is_err() {}
        port.associate(near.into()).unwrap().recv(Vec::with_capacity(8)).unwrap();
        assert!(matches!(outcome(&port), Outcome::Received(Ok(3), _)));
        assert_eq!(carried(), []);
    });
}

/// A receive without room would take a datagram, so it waits for an edge.
#[test]
fn a_receive_without_room_takes_no_datagram() {
    each_way(|way| {
        carried();
        let port = new_port::<Arc<UdpSocket>>(way);
        let near = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        port.associate(Arc::clone(&near)).unwrap().recv(Vec::new()).unwrap();
        assert_eq!(carried(), []);
        far.send_to(b"abc", near.local_addr().unwrap()).unwrap();
        assert!(matches!(outcome(&port), Outcome::Received(Ok(0), _)));
        assert_eq!(near.recv(&mut [0; 8]).unwrap(), 3);
    });
}

#[test]
fn a_socket_of_another_completion_port_waits_for_edges() {
    each_way(|way| {
        carried();
        let other = Kernel::new().unwrap();
        let (near, mut far) = pair();
        let handle = ptr::without_provenance_mut(usize::try_from(near.as_raw_socket()).unwrap());
        other.associate_number(handle, 1).unwrap();
        let port = new_port::<OwnedSocket>(way);
        port.associate(near.into()).unwrap().recv(Vec::with_capacity(8)).unwrap();
        far.write_all(b"abc").unwrap();
        assert!(matches!(outcome(&port), Outcome::Received(Ok(3), _)));
        assert_eq!(carried(), []);
    });
}

#[test]
fn a_socket_that_comes_back_to_its_port_is_known_there() {
    each_way(|way| {
        carried();
        let port = new_port::<TcpStream>(way);
        let (mut near, mut far) = pair();
        for round in 0..3 {
            port.associate(near).unwrap().recv(Vec::with_capacity(8)).unwrap();
            // With notifications, the back end cannot tell that it is the same socket.
            let is_known = round == 0 || way == Readiness::Polls;
            assert_eq!(carried(), &[SocketKind::Receive][..usize::from(is_known)]);
            far.write_all(b"abc").unwrap();
            let mut batch = Batch::new();
            let Some(Packet::Completed(done)) = port.wait(&mut batch, SOON).unwrap().next() else {
                panic!()
            };
            let (token, outcome) = done.into_parts();
            assert!(matches!(outcome, Outcome::Received(Ok(3), _)));
            near = token.into_key();
        }
        drop(port);
        // On another port it waits for edges.
        let port = new_port::<TcpStream>(way);
        port.associate(near).unwrap().recv(Vec::with_capacity(8)).unwrap();
        far.write_all(b"abc").unwrap();
        assert!(matches!(outcome(&port), Outcome::Received(Ok(3), _)));
        assert_eq!(carried(), []);
    });
}

/// Its packet has an address that does not belong to the port.
#[test]
fn a_call_of_the_program_is_passed_over() {
    each_way(|way| {
        carried();
        let port = new_port::<Arc<TcpStream>>(way);
        let (near, mut far) = pair();
        let near = Arc::new(near);
        port.associate(Arc::clone(&near)).unwrap().recv(Vec::with_capacity(8)).unwrap();
        let mut bytes = [0_u8; 8];
        let parts = WSABUF { len: 8, buf: bytes.as_mut_ptr() };
        let (mut own, mut flags) = (OVERLAPPED::default(), 0);
        let socket = usize::try_from(near.as_raw_socket()).unwrap();
        // SAFETY: WSARecv reads one buffer and flags, and writes to all of these until it has
        // finished.
        // - valid: they are locals, and the loop below ends when it has finished.
        let done = unsafe {
            WSARecv(
                socket,
                &raw const parts,
                1,
                ptr::null_mut(),
                &raw mut flags,
                &raw mut own,
                None,
            )
        };
        assert!(done != 0 && last_code() == WSA_IO_PENDING);
        far.write_all(b"abc").unwrap();
        assert!(matches!(outcome(&port), Outcome::Received(Ok(3), _)));
        far.write_all(b"de").unwrap();
        let end = Instant::now() + SOON;
        let place = &raw const own.Internal;
        // SAFETY: reading requires a valid object; it is read as one word.
        // - it is a local.
        while unsafe { place.read_volatile() } != 0 {
            assert!(Instant::now() < end);
            drop(port.wait(&mut Batch::new(), Duration::from_millis(1)).unwrap());
        }
        assert!(port.wait(&mut Batch::new(), QUIET).unwrap().next().is_none());
        assert_eq!(&bytes[..2], b"de");
    });
}

fn request(
    descriptor: Descriptor,
    id: u64,
    kind: SocketKind,
    buffer: Option<IoBuffer>,
) -> SocketRequest {
    SocketRequest::new(id, SocketTarget::new(descriptor, None), kind, buffer)
}

fn room(bytes: usize) -> Option<IoBuffer> {
    let mut io_buffer = IoBuffer::new(Vec::<u8>::with_capacity(bytes));
    io_buffer
        .lend_room(|buffer: &mut Vec<u8>, part| part(&mut buffer.spare_capacity_mut()[..bytes]));
    Some(io_buffer)
}

/// Returns the operations whose end edges report within `limit`.
fn ended_within(afd: &Afd, limit: Duration) -> Vec<SocketRequest> {
    let end = Instant::now() + limit;
    let mut edges: Vec<Edge> = Vec::with_capacity(64);
    let mut ended = Vec::new();
    while ended.is_empty() && Instant::now() < end {
        afd.poll(&mut edges, Some(end.saturating_duration_since(Instant::now()))).unwrap();
        ended.extend(edges.iter().map(|edge| afd.take_completed(edge.name).unwrap()));
    }
    ended
}

#[track_caller]
fn ended(afd: &Afd) -> SocketRequest {
    let mut all = ended_within(afd, SOON);
    assert_eq!(all.len(), 1, "{all:?}");
    all.pop().unwrap()
}

/// A call that fails immediately has taken the datagram. The system decides whether a packet
/// reports it as well.
#[test]
fn a_datagram_that_is_cut_at_once_is_told_once() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let here = number(&near);
    afd.attach(here, 7, Facts::IN).unwrap();
    assert!(afd.carries(here).is_some());
    for name in 1..50 {
        far.send_to(b"hello", near.local_addr().unwrap()).unwrap();
        near.peek_from(&mut [0; 8]).unwrap();
        afd.submit(request(here, name, SocketKind::ReceiveFrom, room(3)));
        afd.flush();
        let cut = ended(&afd);
        assert_eq!((cut.id, cut.done, cut.target.is_cut), (name, 3, true), "{:?}", cut.fault);
        assert_eq!(cut.target.address.unwrap().as_ip(), Some(far.local_addr().unwrap()));
    }
    assert!(ended_within(&afd, QUIET).is_empty());
    assert_eq!(afd.operations.pending(), 0);
}

/// A packet of an earlier transfer in the same memory, or of a call of the program, may be taken at
/// any time.
#[test]
fn a_packet_that_is_none_of_a_flight_brings_no_second_call() {
    carried();
    let afd = Arc::new(noted_afd());
    let (near, mut far) = pair();
    let here = number(&near);
    afd.attach(here, 7, Facts::IN).unwrap();
    assert!(afd.carries(here).is_some());
    let is_stale = |afd: &Afd, place| {
        let sign = |place| afd.port.post_for(afd::CARRIED, place);
        assert_eq!(afd.operations.complete(place, &sign, |_| true), None);
    };
    let found = Arc::new(AtomicUsize::new(0));
    for name in 1..4 {
        let (in_between, place) = (Arc::clone(&afd), Arc::clone(&found));
        IN_BETWEEN.set(Some(Box::new(move |at| {
            place.store(at, SeqCst);
            is_stale(&in_between, at);
        })));
        afd.submit(request(here, name, SocketKind::Receive, room(8)));
        afd.flush();
        assert!(IN_BETWEEN.take().is_none(), "a call was made");
        assert_eq!(carried(), [SocketKind::Receive]);
        // The call has returned, and the kernel has the memory. Wine is asked to cancel it, and
        // gets it again afterwards.
        is_stale(&afd, found.load(SeqCst));
        assert!(ended_within(&afd, QUIET).is_empty());
        let end = Instant::now() + SOON;
        let mut again = carried();
        while is_wine() && again.is_empty() && Instant::now() < end {
            assert!(ended_within(&afd, QUIET).is_empty());
            again = carried();
        }
        assert_eq!(again.len(), usize::from(is_wine()));
        far.write_all(b"abc").unwrap();
        let ended = ended(&afd);
        assert_eq!((ended.id, ended.done), (name, 3), "{:?}", ended.fault);
    }
    assert!(ended_within(&afd, QUIET).is_empty());
    assert_eq!(afd.operations.pending(), 0);
}

#[test]
fn what_the_system_does_not_begin_is_declined() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (near, _far) = pair();
    let here = number(&near);
    afd.attach(here, 7, Facts::IN).unwrap();
    assert!(afd.carries(here).is_some());
    let address = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)).into());
    let mut connect = request(here, 1, SocketKind::Connect, None);
    connect.target.address = address;
    afd.submit(connect);
    afd.flush();
    let declined = ended(&afd);
    assert!(declined.target.is_declined && declined.target.address.is_some());
}

/// The port then makes the call itself, which returns the system's error.
#[test]
fn a_connect_that_is_declined_fails_as_the_system_says() {
    each_way(|way| {
        let port = new_port::<OwnedSocket>(way);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        port.associate(listener.into()).unwrap().connect(address).unwrap();
        let Outcome::Connected(Err(error)) = outcome(&port) else { panic!() };
        assert!(error.os_code().is_some(), "{error:?}");
    });
}

#[test]
fn what_is_cancelled_comes_back_by_the_call_or_by_an_edge() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (near, mut far) = pair();
    let here = number(&near);
    afd.attach(here, 7, Facts::IN).unwrap();
    let mut nothing = [];
    let attempt = afd.receive(here, Transport::DrainedStream, &mut nothing);
    assert!(matches!(attempt, SocketAttempt::NeedsSystem));
    afd.submit(request(here, 1, SocketKind::Receive, room(8)));
    assert_eq!(afd.cancel(1).map(|request| request.id), Some(1));
    afd.submit(request(here, 2, SocketKind::Receive, room(8)));
    afd.flush();
    assert!(afd.cancel(2).is_none());
    let cancelled = ended(&afd);
    assert!(cancelled.is_cancelled && cancelled.fault.is_none() && cancelled.done == 0);
    assert!(afd.cancel(2).is_none());
    // It has taken nothing.
    far.write_all(b"abc").unwrap();
    afd.submit(request(here, 3, SocketKind::Receive, room(8)));
    afd.flush();
    assert_eq!(ended(&afd).done, 3);
}

#[test]
fn a_call_outlives_its_thread() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (near, mut far) = pair();
    let here = number(&near);
    afd.attach(here, 7, Facts::IN).unwrap();
    assert!(afd.carries(here).is_some());
    for name in 1..30 {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                afd.submit(request(here, name, SocketKind::Receive, room(8)));
                afd.flush();
            });
        });
        far.write_all(b"abc").unwrap();
        let ended = ended(&afd);
        assert_eq!((ended.id, ended.done), (name, 3), "{:?}", ended.fault);
    }
}

fn handles() -> u32 {
    let mut count = 0;
    // SAFETY: GetCurrentProcess has no requirements.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: GetProcessHandleCount writes a number at the pointer.
    // - valid: `count` is a local.
    assert!(unsafe { GetProcessHandleCount(process, &raw mut count) } != 0);
    count
}

/// A buffer whose drop is observable.
#[derive(Debug)]
struct Counted(Vec<u8>, #[expect(dead_code, reason = "it is counted")] Arc<()>);

// SAFETY: the room is that of the vector, which has the same guarantee.
unsafe impl crate::Buffer for Counted {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.0.filled(part);
    }
    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [std::mem::MaybeUninit<u8>])) {
        // SAFETY: the caller's guarantee is the one that the vector requires.
        unsafe { self.0.room(part) };
    }
    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: as above.
        unsafe { self.0.set_filled(len) };
    }
}

#[test]
fn a_dropped_port_leaves_nothing_of_what_the_kernel_had() {
    each_way(|way| {
        let count = Arc::new(());
        let drop_one = || {
            carried();
            let port: Port<SharedSource<OwnedSocket>, (), Counted> =
                Port::builder().buffers().build_on(backend(way), KernelId::SYSTEM).unwrap();
            let counted = |bytes| Counted(bytes, Arc::clone(&count));
            let mut far_ends = Vec::new();
            for _ in 0..20 {
                let (mut near, far) = pair();
                fill(&mut near);
                let id = port.associate_shared(SharedSource::new(near.into())).unwrap();
                port.start(id, Operation::recv(counted(Vec::with_capacity(8)))).unwrap();
                port.start(id, Operation::send_all(counted(vec![1; 1 << 20]))).unwrap();
                port.start(id, Operation::send(counted(vec![2; 8]))).unwrap();
                far_ends.push(far);
            }
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let id = port.associate_shared(SharedSource::new(listener.into())).unwrap();
            for _ in 0..3 {
                port.start(id, Operation::accept()).unwrap();
            }
            let mut kinds = BTreeMap::new();
            carried()
                .into_iter()
                .for_each(|ask| *kinds.entry(format!("{ask:?}")).or_insert(0) += 1);
            assert_eq!(format!("{kinds:?}"), r#"{"Accept": 1, "Receive": 20, "SendAll": 20}"#);
            assert_eq!(Arc::strong_count(&count), 1 + 3 * 20);
            let begun = Instant::now();
            drop(port);
            assert_eq!(Arc::strong_count(&count), 1);
            begun.elapsed()
        };
        // Creates the handles that a process makes only once.
        drop_one();
        let before = handles();
        let took = drop_one();
        assert!(took < Duration::from_secs(4), "the kernel has kept something: {took:?}");
        let end = Instant::now() + SOON;
        while handles() > before {
            assert!(Instant::now() < end, "{} handles more", handles() - before);
            std::thread::yield_now();
        }
    });
}
