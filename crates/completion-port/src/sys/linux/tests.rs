//! The system under the shared cases, and tests of its own sockets.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::Write as _;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram, UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::calls;
use super::epoll::Epoll;
use crate::backend::Backend;
use crate::backend::reactor::Reactor as _;
use crate::backend::sockets::{SocketAttempt, Sockets as _, Transport};
use crate::state::facts::Facts;
use crate::sys::tests as cases;
use crate::sys::tests::{
    Told, World as _, accept, connect, done, number, other, receive, send, tcp_pair, told, wait_for,
};
use crate::sys::unix::address::RawAddress;
use crate::sys::unix::errors::repeat;
use crate::sys::unix::options;
use crate::sys::unix::sockets::{accept_by, connect_by};
use crate::types::address::Address;
use crate::types::error::ErrorKind;
use crate::types::source::{OwnedKind, OwnedSource};

pub(in crate::sys) struct Native(Epoll);

impl Native {
    pub(in crate::sys) fn new() -> Self {
        Self(Epoll::new().unwrap())
    }
}

fn owned(descriptor: impl Into<OwnedFd>) -> OwnedSource {
    OwnedSource(OwnedKind::System(descriptor.into()))
}

fn descriptor(socket: &OwnedSource) -> BorrowedFd<'_> {
    match &socket.0 {
        OwnedKind::System(descriptor) => descriptor.as_fd(),
        OwnedKind::Simulated(_) => panic!("a simulated socket"),
    }
}

/// Returns the descriptor in a type that has the methods the test needs.
fn duplicate<T: From<OwnedFd>>(socket: &OwnedSource) -> T {
    descriptor(socket).try_clone_to_owned().unwrap().into()
}

fn set_backlog(listener: &impl AsFd, backlog: usize) {
    let backlog = i32::try_from(backlog).unwrap();
    // SAFETY: listen(2) has no memory requirements.
    let done = unsafe { libc::listen(listener.as_fd().as_raw_fd(), backlog) };
    assert_eq!(done, 0);
}

/// Returns a unique socket name that leaves no file.
fn abstract_name() -> LocalAddr {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("completion-port.seam.{}.{}", std::process::id(), LAST.fetch_add(1, SeqCst));
    LocalAddr::from_abstract_name(name).unwrap()
}

fn option(socket: &OwnedSource, name: i32) -> i32 {
    options::number(number(socket), libc::SOL_SOCKET, name).unwrap()
}

impl cases::World for Native {
    fn backend(&self) -> &dyn Backend {
        &self.0
    }
    fn tcp_listener(&self, backlog: usize) -> OwnedSource {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_backlog(&listener, backlog);
        listener.set_nonblocking(true).unwrap();
        owned(listener)
    }
    fn unix_listener(&self, backlog: usize) -> OwnedSource {
        let listener = UnixListener::bind_addr(&abstract_name()).unwrap();
        set_backlog(&listener, backlog);
        listener.set_nonblocking(true).unwrap();
        owned(listener)
    }
    fn unix_pair(&self) -> (OwnedSource, OwnedSource) {
        // They are blocking sockets, but an attempt must not block.
        let (first, second) = UnixStream::pair().unwrap();
        (owned(first), owned(second))
    }
    fn udp(&self) -> OwnedSource {
        owned(UdpSocket::bind("127.0.0.1:0").unwrap())
    }
    fn unix_datagram_pair(&self) -> (OwnedSource, OwnedSource) {
        let (first, second) = UnixDatagram::pair().unwrap();
        (owned(first), owned(second))
    }
    fn event(&self) -> OwnedSource {
        // SAFETY: eventfd(2) has no memory requirements.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        assert!(event >= 0);
        // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
        // - eventfd(2) has just returned it.
        owned(unsafe { OwnedFd::from_raw_fd(event) })
    }
    fn address(&self, socket: &OwnedSource) -> Address {
        match option(socket, libc::SO_DOMAIN) {
            libc::AF_UNIX => duplicate::<UnixStream>(socket).local_addr().unwrap().into(),
            _ => duplicate::<UdpSocket>(socket).local_addr().unwrap().into(),
        }
    }
    fn unused_address(&self) -> Address {
        SocketAddr::from(([127, 0, 0, 1], 1)).into()
    }
    fn foreign_address(&self) -> Address {
        cases::simulated_address()
    }
    fn shut_writing(&self, socket: &OwnedSource) {
        duplicate::<TcpStream>(socket).shutdown(std::net::Shutdown::Write).unwrap();
    }
    fn reset(&self, socket: OwnedSource) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        let size = libc::socklen_t::try_from(size_of_val(&linger)).unwrap();
        // SAFETY: setsockopt(2) reads as many bytes at the pointer as its last argument says.
        // - valid for reads: `linger` lives until the call returns, and this is its size.
        let done = unsafe {
            libc::setsockopt(
                number(&socket),
                libc::SOL_SOCKET,
                libc::SO_LINGER,
                (&raw const linger).cast(),
                size,
            )
        };
        assert_eq!(done, 0);
    }
}

/// Returns the close-on-exec flag of the descriptor and the non-blocking flag of its file.
fn flags(socket: &OwnedSource) -> (i32, i32) {
    // SAFETY: fcntl(2) has no memory requirements for this request.
    let own = unsafe { libc::fcntl(number(socket), libc::F_GETFD) };
    // SAFETY: as above.
    let of_file = unsafe { libc::fcntl(number(socket), libc::F_GETFL) };
    (own & libc::FD_CLOEXEC, of_file & libc::O_NONBLOCK)
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn what_is_made_here_does_not_block_and_is_not_inherited() {
    let w = Native::new();
    for listener in [w.tcp_listener(1), w.unix_listener(1)] {
        let client = connect(&w, &listener);
        let (accepted, _) = accept(&w, &listener);
        for socket in [client, accepted] {
            assert_eq!(flags(&socket), (libc::FD_CLOEXEC, libc::O_NONBLOCK));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_listener_that_could_block_does_not_once_it_was_asked_not_to() {
    let w = Native::new();
    let listener = owned(TcpListener::bind("127.0.0.1:0").unwrap());
    assert_eq!(flags(&listener).1, 0);
    w.0.make_nonblocking(number(&listener)).unwrap();
    assert_eq!(flags(&listener).1, libc::O_NONBLOCK);
    assert_eq!(told(w.0.accept(number(&listener))).blank(), Told::Blocked);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn an_attempt_on_a_socket_that_could_block_does_not() {
    let w = Native::new();
    let (ours, _theirs) = w.unix_pair();
    assert_eq!(flags(&ours).1, 0);
    for sizes in [[].as_slice(), &[1], &[1, 1]] {
        assert_eq!(receive(&w, &ours, sizes), Told::Blocked);
    }
    let long = vec![0; 1 << 20];
    while send(&w, &ours, &[&long]) != Told::Blocked {}
    assert_eq!(send(&w, &ours, &[&long, &long]), Told::Blocked);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_stream_that_is_connected_to_itself_was_refused() {
    let w = Native::new();
    let any = Address::from(SocketAddr::from(([127, 0, 0, 1], 0)));
    let socket = w.0.open_stream(&any).unwrap();
    let address = RawAddress::of(&any).unwrap();
    // SAFETY: bind(2) reads as many bytes at the pointer as its third argument says.
    // - valid for reads: `address` lives until the call returns, and this is its length.
    let bound = unsafe { libc::bind(number(&socket), address.as_ptr(), address.len()) };
    assert_eq!(bound, 0);
    let own = w.address(&socket);
    let begun = told(w.0.begin_connect(number(&socket), &own));
    assert_eq!(begun, Told::Blocked);
    wait_for(&w, &socket, Facts::OUT);
    assert_eq!(told(w.0.end_connect(number(&socket))), other(libc::ECONNREFUSED));
    // It still has its port and may be connected.
    assert_eq!(w.address(&socket), own);
    let listener = w.tcp_listener(4);
    assert_eq!(told(w.0.begin_connect(number(&socket), &w.address(&listener))), Told::Blocked);
    wait_for(&w, &socket, Facts::OUT);
    assert_eq!(told(w.0.end_connect(number(&socket))), Told::Done(()));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_send_to_a_local_receiver_with_a_full_queue_is_scarce() {
    let w = Native::new();
    let name = abstract_name();
    let receiver = owned(UnixDatagram::bind_addr(&name).unwrap());
    let sender = owned(UnixDatagram::unbound().unwrap());
    let to = Address::from(name);
    let send = || told(w.0.send(number(&sender), &[b"x"], Some(&to)));
    let mut sent = 0;
    while send() == Told::Done(1) {
        sent += 1;
    }
    assert!(sent > 0);
    // The set would report no room: the socket is writable.
    assert_eq!(send(), Told::OutOfResources);
    assert_eq!(receive(&w, &receiver, &[1]), Told::Done((b"x".to_vec(), false)));
    assert_eq!(send(), Told::Done(1));
    // A connected socket gets an edge.
    let connected = w.0.begin_connect(number(&sender), &to);
    assert_eq!(told(connected), Told::Done(()));
    w.0.attach(number(&sender), 1, Facts::OUT).unwrap();
    let is_blocked = cases::send(&w, &sender, &[b"x"]);
    assert_eq!(is_blocked, Told::Blocked);
    let mut edges = Vec::with_capacity(8);
    w.0.poll(&mut edges, Some(Duration::ZERO)).unwrap();
    assert_eq!(receive(&w, &receiver, &[1]), Told::Done((b"x".to_vec(), false)));
    w.0.poll(&mut edges, Some(Duration::from_secs(120))).unwrap();
    assert_eq!(edges.len(), 1);
    assert_eq!(cases::send(&w, &sender, &[b"x"]), Told::Done(1));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_receive_without_room_leaves_descriptors_in_their_place() {
    let w = Native::new();
    let (ours, theirs) = w.unix_pair();
    testkit::rights::send(descriptor(&theirs), descriptor(&w.event()));
    for sizes in [[].as_slice(), &[0]] {
        assert_eq!(receive(&w, &ours, sizes), Told::Done((vec![], false)));
    }
    drop(testkit::rights::receive(descriptor(&ours)));
}

/// A receive without enough room loses the rest of a record, although the socket is connected.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_record_is_cut_like_a_datagram() {
    let w = Native::new();
    let mut pair = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: socketpair(2) writes two descriptors at the pointer.
    // - valid for writes: `pair` has room for two.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
    assert_eq!(made, 0);
    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
    // - socketpair(2) has just returned them.
    let [ours, theirs] = pair.map(|end| owned(unsafe { OwnedFd::from_raw_fd(end) }));
    assert_eq!(w.0.transport(number(&ours)), Transport::Messages);
    for _ in 0..2 {
        assert_eq!(send(&w, &theirs, &[b"0123456789"]), Told::Done(10));
    }
    assert_eq!(receive(&w, &ours, &[4]), Told::Done((b"0123".to_vec(), true)));
    assert_eq!(receive(&w, &ours, &[10]), Told::Done((b"0123456789".to_vec(), false)));
    assert_eq!(receive(&w, &ours, &[10]), Told::Blocked);
}

/// The number of a datagram socket may have passed to a stream before anything notices. The stream
/// writes nothing then, so its bytes must not be believed.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_stream_that_is_taken_for_datagrams_is_refused() {
    let w = Native::new();
    assert_eq!(w.0.transport(number(&w.udp())), Transport::Datagrams);
    let refused = Told::Failed(ErrorKind::BadDescriptor, Some(libc::EBADF));
    for with_address in [false, true] {
        let (ours, theirs) = tcp_pair(&w);
        assert_eq!(send(&w, &theirs, &[b"hello"]), Told::Done(5));
        wait_for(&w, &ours, Facts::IN);
        let mut room = cases::Room::new(&[8]);
        let (ours, mut parts) = (number(&ours), room.parts());
        let received = if with_address {
            told(w.0.receive_from(ours, Transport::Datagrams, &mut parts)).blank()
        } else {
            told(w.0.receive(ours, Transport::Datagrams, &mut parts)).blank()
        };
        assert_eq!(received, refused);
    }
}

/// This protocol completes a receive of zero bytes immediately, whether or not data has arrived.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_receive_without_room_waits_on_multipath_connections_too() {
    let w = Native::new();
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let made = [(); 2].map(|()| {
        // SAFETY: socket(2) has no memory requirements.
        unsafe { libc::socket(libc::AF_INET, kind, libc::IPPROTO_MPTCP) }
    });
    if made[0] < 0 {
        testkit::skipped("this system has no Multipath TCP");
        return;
    }
    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
    // - socket(2) has just returned them.
    let [listener, ours] = made.map(|made| owned(unsafe { OwnedFd::from_raw_fd(made) }));
    // Listening without a name assigns one.
    set_backlog(&descriptor(&listener), 1);
    for socket in [&listener, &ours] {
        w.0.make_nonblocking(number(socket)).unwrap();
    }
    let port = w.address(&listener).as_ip().unwrap().port();
    let to = Address::from(SocketAddr::from(([127, 0, 0, 1], port)));
    assert_eq!(told(w.0.begin_connect(number(&ours), &to)), Told::Blocked);
    let (theirs, _) = accept(&w, &listener);
    wait_for(&w, &ours, Facts::OUT);
    assert_eq!(told(w.0.end_connect(number(&ours))), Told::Done(()));
    assert_eq!(w.0.transport(number(&ours)), Transport::Stream);
    assert_eq!(receive(&w, &ours, &[]), Told::Blocked);
    assert_eq!(send(&w, &theirs, &[b"x"]), Told::Done(1));
    wait_for(&w, &ours, Facts::IN);
    assert_eq!(receive(&w, &ours, &[]), Told::Done((vec![], false)));
    assert_eq!(receive(&w, &ours, &[4]), Told::Done((b"x".to_vec(), false)));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_path_that_leads_nowhere_is_refused_by_its_code() {
    let w = Native::new();
    let nowhere = Address::from_path("/nowhere/completion-port").unwrap();
    let client = w.0.open_stream(&nowhere).unwrap();
    assert_eq!(told(w.0.begin_connect(number(&client), &nowhere)), other(libc::ENOENT));
    let nameless = Address::from(UnixStream::pair().unwrap().0.local_addr().unwrap());
    assert_eq!(told(w.0.begin_connect(number(&client), &nameless)), other(libc::EINVAL));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn addresses_are_those_that_the_standard_library_has() {
    let w = Native::new();
    let listener = match TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(listener) => listener,
        Err(error) => {
            testkit::skipped(format_args!("this system has no IPv6: {error}"));
            return;
        }
    };
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let from = done(w.0.accept(listener.as_raw_fd())).1;
    assert_eq!(from, Some(client.local_addr().unwrap().into()));
    // The path of a socket that has one.
    let folder = std::env::temp_dir().join(format!("completion-port.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("server");
    let listener = owned(UnixListener::bind(&path).unwrap());
    let client = w.0.open_stream(&Address::from_path(&path).unwrap()).unwrap();
    let to = w.address(&listener);
    assert_eq!(to, Address::from_path(&path).unwrap());
    assert_eq!(told(w.0.begin_connect(number(&client), &to)), Told::Done(()));
    let own = folder.join("client");
    let sender = UnixDatagram::bind(&own).unwrap();
    let receiver = owned(UnixDatagram::bind(folder.join("receiver")).unwrap());
    sender.send_to(b"x", folder.join("receiver")).unwrap();
    let mut room = cases::Room::new(&[1]);
    let (_, from) =
        done(w.0.receive_from(number(&receiver), Transport::Messages, &mut room.parts()));
    assert_eq!(from.and_then(|from| from.as_unix()?.as_pathname().map(Into::into)), Some(own));
    fs::remove_dir_all(&folder).unwrap();
}

/// An address whose scope names no interface fails; the system does not ignore the scope.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn the_scope_of_an_address_reaches_the_system() {
    let w = Native::new();
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let at = |scope| Address::from(SocketAddr::from(SocketAddrV6::new(local, 1, 0, scope)));
    let Ok(socket) = w.0.open_stream(&at(0)) else {
        testkit::skipped("this system has no IPv6");
        return;
    };
    let begin = |scope| told(w.0.begin_connect(number(&socket), &at(scope)));
    assert_eq!(begin(0), other(libc::EINVAL));
    assert_ne!(begin(0x7FFF_FFFF), other(libc::EINVAL));
}

const OF_THIS_FILE: &str = "sys::linux::tests::";

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn without_descriptors_accepts_are_scarce_and_lose_nothing() {
    let name = "without_descriptors_accepts_are_scarce_and_lose_nothing";
    if !testkit::in_a_process_of_its_own(&format!("{OF_THIS_FILE}{name}")) {
        return;
    }
    let w = Native::new();
    let listener = w.tcp_listener(1);
    let client = connect(&w, &listener);
    let from = w.address(&client);
    wait_for(&w, &listener, Facts::IN);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit(2) writes a limit at the pointer.
    // - valid for writes: `limit` is a local.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let set = |limit: libc::rlimit| {
        // SAFETY: setrlimit(2) reads a limit at the pointer.
        // - valid for reads: `limit` is a local.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    };
    set(libc::rlimit { rlim_cur: 0, ..limit });
    for _ in 0..2 {
        assert_eq!(told(w.0.accept(number(&listener))).blank(), Told::OutOfResources);
    }
    let fault = w.0.open_stream(&from).unwrap_err();
    assert_eq!((fault.kind, fault.code), (ErrorKind::DescriptorLimit, Some(libc::EMFILE)));
    set(limit);
    assert_eq!(accept(&w, &listener).1, Some(from));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn sends_raise_no_signal() {
    let name = "sends_raise_no_signal";
    if !testkit::in_a_process_of_its_own(&format!("{OF_THIS_FILE}{name}")) {
        return;
    }
    // SAFETY: signal(2) requires a handler that may be called at any time.
    // - the default handler ends the process.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let w = Native::new();
    let (tcp, peer) = tcp_pair(&w);
    w.reset(peer);
    wait_for(&w, &tcp, Facts::HUP);
    assert_eq!(receive(&w, &tcp, &[1]), other(libc::ECONNRESET));
    let (local, _) = w.unix_pair();
    for socket in [tcp, local] {
        for parts in [[b"x".as_slice()].as_slice(), &[b"x", b"y"], &[b"x".as_slice(); 20]] {
            assert_eq!(send(&w, &socket, parts), other(libc::EPIPE));
        }
    }
}

/// Runs this test in its own process, in which the system call `call` fails with `code`.
///
/// A system call filter simulates rare kernel errors there. Returns true inside that process.
fn is_refused(name: &str, call: libc::c_long, code: i32) -> bool {
    if testkit::sandbox::is_inside() {
        return true;
    }
    if let Err(error) = testkit::sandbox::run(&format!("{OF_THIS_FILE}{name}"), &[call], code) {
        println!("SKIPPED {name}: this system has no sandboxes: {error}");
    }
    false
}

/// Returns the result of an accept whose system call fails with `code`.
///
/// Returns `None` in the process that started the test's own process.
fn refused_accept(name: &str, code: i32) -> Option<Told<()>> {
    is_refused(name, libc::SYS_accept4, code).then(|| {
        let w = Native::new();
        let listener = w.tcp_listener(1);
        let _client = connect(&w, &listener);
        told(w.0.accept(number(&listener))).blank()
    })
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn an_error_of_connections_that_stays_is_scarce() {
    let told = refused_accept("an_error_of_connections_that_stays_is_scarce", libc::EPROTO);
    assert!(told.as_ref().is_none_or(|told| *told == Told::OutOfResources), "{told:?}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn an_accept_without_memory_is_scarce() {
    let told = refused_accept("an_accept_without_memory_is_scarce", libc::ENOBUFS);
    assert!(told.as_ref().is_none_or(|told| *told == Told::OutOfResources), "{told:?}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn an_error_of_the_listener_is_a_failure() {
    let told = refused_accept("an_error_of_the_listener_is_a_failure", libc::EPERM);
    assert!(told.as_ref().is_none_or(|told| *told == other(libc::EPERM)), "{told:?}");
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_connect_without_memory_is_scarce() {
    let name = "a_connect_without_memory_is_scarce";
    if is_refused(name, libc::SYS_connect, libc::ENOBUFS) {
        let w = Native::new();
        let to = w.unused_address();
        let socket = w.0.open_stream(&to).unwrap();
        assert_eq!(told(w.0.begin_connect(number(&socket), &to)), Told::OutOfResources);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_connect_that_no_signal_ends_fails() {
    let name = "a_connect_that_no_signal_ends_fails";
    if is_refused(name, libc::SYS_connect, libc::EINTR) {
        let w = Native::new();
        let to = w.unused_address();
        let socket = w.0.open_stream(&to).unwrap();
        assert_eq!(told(w.0.begin_connect(number(&socket), &to)), other(libc::EINTR));
    }
}

#[test]
fn a_connect_that_a_signal_ends_goes_on_by_itself() {
    let begun = |codes: &[i32]| {
        let mut codes = codes.iter();
        let done = connect_by(|| Err(*codes.next().unwrap()));
        assert_eq!(codes.next(), None, "one call too few");
        done
    };
    assert_eq!(begun(&[libc::EINTR, libc::EALREADY]), Err(libc::EINPROGRESS));
    assert_eq!(begun(&[libc::EALREADY]), Err(libc::EALREADY));
    assert_eq!(begun(&[libc::EINTR, libc::EINTR, libc::EISCONN]), Ok(()));
    assert_eq!(begun(&[libc::EISCONN]), Err(libc::EISCONN));
}

/// Simulates a system call that a signal interrupted.
fn interrupted() -> i32 {
    // SAFETY: __errno_location(3) has no requirements.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: writing through a pointer requires that it is valid.
    // - it points to a value of the calling thread, which lives as long as the thread.
    unsafe { *errno = libc::EINTR };
    -1
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn an_accept_that_signals_end_is_made_again() {
    let w = Native::new();
    let listener: TcpListener = duplicate(&w.tcp_listener(1));
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut signals = 0;
    let attempt = accept_by(|raw| {
        signals += 1;
        if signals <= 3 {
            return Err(libc::EINTR);
        }
        calls::accept(listener.as_raw_fd(), raw)
    });
    let SocketAttempt::Done((_, peer)) = attempt else { panic!("nothing was accepted") };
    assert_eq!(peer, Some(client.local_addr().unwrap().into()));
    assert_eq!(signals, 4);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_transfer_that_signals_end_is_made_again() {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.write_all(b"four").unwrap();
    let mut signals = 0;
    let mut bytes = [0; 8];
    let mut receive = |bytes: &mut [u8]| {
        repeat(|| {
            signals += 1;
            if signals % 3 != 0 {
                return interrupted() as libc::ssize_t;
            }
            // SAFETY: recv(2) writes at most as many bytes at the pointer as its third argument
            // says.
            // - valid for writes: `bytes` has that many, and is borrowed mutably during the call.
            unsafe { libc::recv(near.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) }
        })
    };
    assert_eq!(receive(&mut bytes), Ok(4));
    // Any other error is returned immediately.
    assert_eq!(receive(&mut bytes), Err(libc::EAGAIN));
    assert_eq!((&bytes[..4], signals), (b"four".as_slice(), 6));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_send_without_memory_is_scarce() {
    let name = "a_send_without_memory_is_scarce";
    if is_refused(name, libc::SYS_sendto, libc::ENOBUFS) {
        let w = Native::new();
        assert_eq!(send(&w, &w.unix_pair().0, &[b"x"]), Told::OutOfResources);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_receive_without_memory_is_scarce() {
    let name = "a_receive_without_memory_is_scarce";
    if is_refused(name, libc::SYS_recvfrom, libc::ENOMEM) {
        let w = Native::new();
        assert_eq!(receive(&w, &w.unix_pair().0, &[1]), Told::OutOfResources);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_receive_of_lost_messages_fails() {
    let name = "a_receive_of_lost_messages_fails";
    if is_refused(name, libc::SYS_recvfrom, libc::ENOBUFS) {
        let w = Native::new();
        assert_eq!(receive(&w, &w.unix_pair().0, &[1]), other(libc::ENOBUFS));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_connect_that_fails_while_it_is_asked_about_tells_its_error() {
    let w = Native::new();
    // Once another call has taken the error, this call cannot return it.
    let any = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    let socket = w.0.open_stream(&any).unwrap();
    let begun = told(w.0.begin_connect(number(&socket), &w.unused_address()));
    assert_eq!(begun, Told::Blocked);
    wait_for(&w, &socket, Facts::HUP);
    let error = duplicate::<TcpStream>(&socket).take_error().unwrap().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
    assert_eq!(told(w.0.end_connect(number(&socket))), other(libc::ECONNABORTED));
    let attempt: SocketAttempt<()> = w.0.begin_connect(number(&socket), &w.unused_address());
    assert!(matches!(attempt, SocketAttempt::Blocked));
    let mut stream: TcpStream = duplicate(&socket);
    wait_for(&w, &socket, Facts::HUP);
    assert!(stream.write(b"x").is_err());
    assert_eq!(told(w.0.end_connect(number(&socket))), other(libc::ECONNABORTED));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_path_that_fills_its_address_is_that_of_a_peer() {
    const LENGTH: usize = 108;
    let w = Native::new();
    let folder = std::env::temp_dir().join(format!("completion-port.full.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("p".repeat(LENGTH - 1 - folder.as_os_str().len()));
    let address = Address::from_path(&path).unwrap();
    let raw = RawAddress::of(&address).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    // SAFETY: bind(2) reads as many bytes through its pointer as its last argument says.
    // - valid for reads: `raw` has that many bytes there, and lives until the call returns.
    let outcome = unsafe { libc::bind(sender.as_raw_fd(), raw.as_ptr(), raw.len()) };
    assert_eq!(outcome, 0);
    let receiver = owned(UnixDatagram::bind(folder.join("receiver")).unwrap());
    sender.send_to(b"x", folder.join("receiver")).unwrap();
    let mut room = cases::Room::new(&[1]);
    let (_, from) =
        done(w.0.receive_from(number(&receiver), Transport::Messages, &mut room.parts()));
    assert_eq!(from, Some(address));
    assert_eq!(from.unwrap().as_path(), Some(&*path));
    fs::remove_dir_all(&folder).unwrap();
}
