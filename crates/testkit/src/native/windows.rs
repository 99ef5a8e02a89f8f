//! Windows, by `socket2`. A claim that needs a missing feature is skipped.

use std::io;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
pub(crate) use std::os::windows::io::BorrowedSocket as Borrowed;
use std::os::windows::io::{AsRawHandle, OwnedSocket};
use std::os::windows::io::{AsRawSocket, AsSocket, FromRawSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLRDNORM, POLLWRNORM, WSAPOLLFD, WSAPoll,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress, LoadLibraryA};

use completion_port::{BorrowedSource, FileSource, OwnedSource, Readiness, Source};

use crate::lacking;
use crate::patience::SOON;

/// A socket or a file.
#[derive(Debug)]
pub(crate) enum Owned {
    Socket(OwnedSocket),
    File(FileSource<std::fs::File>),
}

impl Owned {
    #[track_caller]
    fn socket(&self) -> &OwnedSocket {
        match self {
            Self::Socket(socket) => socket,
            Self::File(_) => panic!("it is a file"),
        }
    }

    #[track_caller]
    pub(crate) fn file(&self) -> &std::fs::File {
        match self {
            Self::File(file) => file,
            Self::Socket(_) => panic!("it is a socket"),
        }
    }
}

impl Source for Owned {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Socket(socket) => socket.as_source(),
            Self::File(file) => file.as_source(),
        }
    }
}

impl From<Socket> for Owned {
    fn from(socket: Socket) -> Self {
        Self::Socket(socket.into())
    }
}

impl From<std::fs::File> for Owned {
    fn from(file: std::fs::File) -> Self {
        Self::File(FileSource::new(file))
    }
}

impl From<OwnedSource> for Owned {
    fn from(source: OwnedSource) -> Self {
        Self::Socket(source.into())
    }
}

pub(crate) type Address = SocketAddr;

/// The error of a connect in progress. The second is a simulated kernel's.
pub(crate) const IN_PROGRESS: &[i32] = &[10035, 10036];

/// The same socket in a type of the standard library, which does not close it.
fn stream(descriptor: &Owned) -> ManuallyDrop<std::net::TcpStream> {
    // SAFETY: `from_raw_socket` demands an open socket, and owns it.
    // - it is borrowed, and the stream, which does not outlive the borrow in any function here, is never dropped.
    ManuallyDrop::new(unsafe {
        std::net::TcpStream::from_raw_socket(descriptor.socket().as_raw_socket())
    })
}

/// Whether this is not Windows, but Wine.
pub(crate) fn is_wine() -> bool {
    // SAFETY: GetModuleHandleA and GetProcAddress read names that end with a zero.
    // - these do; the library is a part of every process, and a null handle would mean the program
    //   itself.
    let library = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
    // SAFETY: as above.
    unsafe { GetProcAddress(library, c"wine_get_version".as_ptr().cast()) }.is_some()
}

/// How the ports of the tests detect that a socket is ready.
pub(crate) fn readiness() -> Readiness {
    if uses_notifications() { Readiness::Notifications } else { Readiness::Automatic }
}

/// Whether the system has socket notifications.
fn has_notifications() -> bool {
    // SAFETY: as above; the library is a part of the process.
    let library = unsafe { GetModuleHandleA(c"ws2_32.dll".as_ptr().cast()) };
    // SAFETY: as above.
    unsafe { GetProcAddress(library, c"ProcessSocketNotifications".as_ptr().cast()) }.is_some()
}

/// To be called before the first port is made.
pub(crate) fn prepare() {
    uses_notifications();
}

/// Whether the ports of the tests use socket notifications: where `TEST_NOTIFICATIONS` is set. If the system has none, the
/// first call loads the C library of this workspace, which has the same function. Ports that were made before cannot use it.
pub(crate) fn uses_notifications() -> bool {
    static USED: OnceLock<bool> = OnceLock::new();
    *USED.get_or_init(|| {
        if std::env::var_os("TEST_NOTIFICATIONS").is_none() {
            return false;
        }
        if has_notifications() {
            return true;
        }
        // SAFETY: LoadLibraryA reads a name that ends with a zero. The loaded library runs code.
        // - it belongs to this workspace, and its code may run at any time.
        let library = unsafe { LoadLibraryA(c"completion_port.dll".as_ptr().cast()) };
        assert!(!library.is_null(), "there is no completion_port.dll");
        true
    })
}

fn internet(address: &SockAddr) -> io::Result<Address> {
    address.as_socket().ok_or(io::ErrorKind::Unsupported.into())
}

fn new(kind: Type) -> Socket {
    let socket = Socket::new(Domain::IPV4, kind, None).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

pub(crate) fn borrow(descriptor: &Owned) -> Borrowed<'_> {
    descriptor.socket().as_socket()
}

pub(crate) fn number(descriptor: &Owned) -> i32 {
    match descriptor {
        Owned::Socket(socket) => i32::try_from(socket.as_raw_socket()).unwrap(),
        Owned::File(file) => i32::try_from(file.as_raw_handle().addr()).unwrap(),
    }
}

pub(crate) fn address(address: &SocketAddr) -> Address {
    *address
}

pub(crate) fn internet_address(address: &Address) -> Option<SocketAddr> {
    Some(*address)
}

pub(crate) fn read(descriptor: &Owned, buf: &mut [u8]) -> io::Result<usize> {
    io::Read::read(&mut &*stream(descriptor), buf)
}

pub(crate) fn unread(descriptor: &Owned) -> io::Result<usize> {
    // As many as a look at them finds: the systems have no call for it in common.
    let mut bytes = vec![0; 1 << 20];
    match stream(descriptor).peek(&mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        peeked => peeked,
    }
}

pub(crate) fn write(descriptor: &Owned, bytes: &[u8]) -> io::Result<usize> {
    io::Write::write(&mut &*stream(descriptor), bytes)
}

/// One WSAPoll.
fn poll(descriptor: &Owned, events: i16, milliseconds: i32) -> i16 {
    let fd = usize::try_from(descriptor.socket().as_raw_socket()).unwrap();
    let mut question = WSAPOLLFD { fd, events, revents: 0 };
    // SAFETY: WSAPoll reads and writes as many questions at the pointer as its second argument says.
    // - valid: `question`, one, is a local.
    let done = unsafe { WSAPoll(&raw mut question, 1, milliseconds) };
    assert!(done >= 0, "{}", io::Error::last_os_error());
    question.revents
}

/// Waits for data or a connection, or for the timeout.
pub(crate) fn await_readable(descriptor: &Owned, limit: Duration) {
    let end = Instant::now() + limit;
    while poll(descriptor, POLLRDNORM, 10) == 0 && Instant::now() < end {}
}

/// The result of WSAPoll, in the bits of Linux. A hang-up here is only the peer's end.
pub(crate) fn polled(descriptor: &Owned) -> u32 {
    let told = poll(descriptor, POLLRDNORM | POLLWRNORM, 0);
    let known = [(POLLRDNORM, 0x1), (POLLWRNORM, 0x4), (POLLERR, 0x8), (POLLHUP, 0x2001)];
    known.iter().filter(|(bit, _)| told & bit != 0).fold(0, |bits, (_, bit)| bits | bit)
}

pub(crate) fn recv_from(
    descriptor: &Owned,
    buf: &mut [u8],
) -> io::Result<(usize, Option<Address>)> {
    // SAFETY: as for `stream`.
    let socket = ManuallyDrop::new(unsafe {
        std::net::UdpSocket::from_raw_socket(descriptor.socket().as_raw_socket())
    });
    socket.recv_from(buf).map(|(taken, from)| (taken, Some(from)))
}

pub(crate) fn send_to(descriptor: &Owned, bytes: &[u8], to: &Address) -> io::Result<usize> {
    SockRef::from(descriptor.socket()).send_to(bytes, &(*to).into())
}

pub(crate) fn accept(descriptor: &Owned) -> io::Result<Owned> {
    let (accepted, _) = SockRef::from(descriptor.socket()).accept()?;
    accepted.set_nonblocking(true)?;
    Ok(accepted.into())
}

pub(crate) fn connect(descriptor: &Owned, to: &Address) -> io::Result<()> {
    SockRef::from(descriptor.socket()).connect(&(*to).into())
}

pub(crate) fn shutdown(descriptor: &Owned, how: Shutdown) -> io::Result<()> {
    SockRef::from(descriptor.socket()).shutdown(how)
}

/// From now on closing the last descriptor of a TCP connection resets it.
pub(crate) fn reset_on_close(descriptor: &Owned) {
    SockRef::from(descriptor.socket()).set_linger(Some(Duration::ZERO)).unwrap();
}

pub(crate) fn take_error(descriptor: &Owned) -> io::Result<Option<io::Error>> {
    SockRef::from(descriptor.socket()).take_error()
}

pub(crate) fn own_address(descriptor: &Owned) -> Address {
    internet(&SockRef::from(descriptor.socket()).local_addr().unwrap()).unwrap()
}

pub(crate) fn set_nonblocking(descriptor: &Owned, nonblocking: bool) -> io::Result<()> {
    SockRef::from(descriptor.socket()).set_nonblocking(nonblocking)
}

pub(crate) fn set_nodelay(descriptor: &Owned) {
    SockRef::from(descriptor.socket()).set_tcp_nodelay(true).unwrap();
}

pub(crate) fn tcp_fresh() -> Owned {
    new(Type::STREAM).into()
}

pub(crate) fn tcp_listener(address: SocketAddrV4, backlog: usize) -> Owned {
    let socket = new(Type::STREAM);
    socket.bind(&SocketAddr::from(address).into()).unwrap();
    socket.listen(i32::try_from(backlog).unwrap()).unwrap();
    socket.into()
}

pub(crate) fn udp_bound(address: SocketAddrV4) -> Owned {
    let socket = new(Type::DGRAM);
    // Under Wine a datagram socket that is connected has the address 127.0.0.1 from then on.
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port());
    socket.bind(&SocketAddr::from(address).into()).unwrap();
    socket.into()
}

pub(crate) fn unix_fresh() -> Owned {
    lacking("AF_UNIX sockets without a file")
}

pub(crate) fn unix_listener(_backlog: usize) -> Owned {
    unix_fresh()
}

/// Two connected TCP streams, since AF_UNIX pairs do not exist here.
pub(crate) fn unix_pair() -> (Owned, Owned) {
    let listener = tcp_listener(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), 1);
    let first = tcp_fresh();
    let done = connect(&first, &own_address(&listener));
    assert!(done.is_ok() || done.unwrap_err().kind() == io::ErrorKind::WouldBlock);
    await_readable(&listener, SOON);
    let second = accept(&listener).unwrap();
    set_nodelay(&first);
    set_nodelay(&second);
    (first, second)
}

pub(crate) fn unix_datagram_pair() -> (Owned, Owned) {
    lacking("AF_UNIX datagram sockets")
}

pub(crate) fn pipe() -> (Owned, Owned) {
    lacking("pipes that a port can watch")
}

/// A source with a single descriptor that is readable once something is written to it: a datagram
/// socket connected to itself. Unlike the signals of a counter, each datagram counts separately.
pub(crate) fn event() -> Owned {
    let own = udp_bound(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));
    connect(&own, &own_address(&own)).unwrap();
    own
}

pub(crate) fn regular_file() -> Owned {
    std::fs::File::open(std::env::current_exe().unwrap()).unwrap().into()
}

/// Another descriptor of the same object.
pub(crate) fn dup(descriptor: &Owned) -> io::Result<Owned> {
    match descriptor {
        Owned::Socket(socket) => socket.try_clone().map(Owned::Socket),
        Owned::File(file) => file.try_clone().map(Owned::from),
    }
}
