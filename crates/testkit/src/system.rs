//! The real system and the simulated one, with the same constructors.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use completion_port::{BlockDetection, Buffer, FileEngine, OwnedSource, Port, PortBuilder, sim};

use crate::native;
use crate::patience::SOON;
use crate::run::lacking;
use crate::socket::{Address, Socket};

/// Something to test on: the system of this machine, or a simulated kernel.
///
/// All sockets are non-blocking and closed on exec.
#[derive(Debug)]
pub struct System {
    kind: Kind,
    /// Its ports arm each descriptor again for each report.
    is_one_shot: bool,
    /// By which calls its ports watch their sockets, if it is simulated.
    mechanism: sim::Mechanism,
    /// How its ports do operations on files.
    file_engine: FileEngine,
    sockets: Arc<AtomicUsize>,
    /// An address of the loopback network that no other [`System`] of the process uses, so that a
    /// port number given up by one test is not another's before it is looked at.
    host: Ipv4Addr,
}

#[derive(Debug)]
enum Kind {
    Native,
    Simulated(sim::Kernel),
}

/// A builder of ports of this machine's system, with the back end of [`System::native`].
pub fn port_builder() -> PortBuilder {
    native::prepare();
    Port::builder().readiness(native::readiness())
}

fn host() -> Ipv4Addr {
    if cfg!(all(unix, not(target_os = "linux"))) {
        // There is no other one.
        return Ipv4Addr::LOCALHOST;
    }
    static LAST: AtomicU32 = AtomicU32::new(0);
    let [.., low] = std::process::id().to_be_bytes();
    let [.., middle, last] = LAST.fetch_add(1, SeqCst).to_be_bytes();
    Ipv4Addr::new(127, low | 1, middle, last | 1)
}

impl System {
    /// The system of this machine, with its default back end. On Windows the environment variable `TEST_NOTIFICATIONS`
    /// chooses the other one.
    #[must_use]
    pub fn native() -> Self {
        native::prepare();
        Self {
            kind: Kind::Native,
            is_one_shot: false,
            mechanism: sim::Mechanism::Epoll,
            file_engine: FileEngine::Automatic,
            sockets: Arc::default(),
            host: host(),
        }
    }

    /// The same system, with ports that arm each descriptor again for each report.
    #[must_use]
    pub fn one_shot(self) -> Self {
        Self { is_one_shot: true, ..self }
    }

    /// The same system, with ports that do operations on files in this way.
    #[must_use]
    pub fn with_files(self, file_engine: FileEngine) -> Self {
        Self { file_engine, ..self }
    }

    /// How its ports do operations on files.
    #[must_use]
    pub fn file_engine(&self) -> FileEngine {
        self.file_engine
    }

    /// Whether the ports of this system arm each descriptor again for each report.
    #[must_use]
    pub fn is_one_shot(&self) -> bool {
        self.is_one_shot
    }

    /// A separate simulated kernel with the automatic clock.
    #[must_use]
    pub fn simulated() -> Self {
        let kind = Kind::Simulated(sim::Kernel::new());
        let file_engine = FileEngine::Automatic;
        let sockets = Arc::default();
        let mechanism = sim::Mechanism::Epoll;
        Self { kind, is_one_shot: false, mechanism, file_engine, sockets, host: host() }
    }

    /// The same, with ports that watch their sockets by a kqueue, as on macOS and the BSDs.
    #[must_use]
    pub fn simulated_kqueue() -> Self {
        Self::simulated().watching_by(sim::Mechanism::Kqueue)
    }

    /// The same, with ports that watch their sockets by notifications, as on Windows from build
    /// 20348 on. They arm each descriptor again for each report.
    #[must_use]
    pub fn simulated_notifications() -> Self {
        Self::simulated().watching_by(sim::Mechanism::Notifications).one_shot()
    }

    /// Simulated kernels, one for each shape of reactors and mechanism.
    pub fn simulated_in_each_way() -> [Self; 4] {
        let one_shot = Self::simulated().one_shot();
        [Self::simulated(), one_shot, Self::simulated_kqueue(), Self::simulated_notifications()]
    }

    /// Skips the test on ports with notifications, which lack a feature or behave differently.
    /// `what` names it.
    pub fn not_by_notifications(&self, what: &'static str) {
        if self.mechanism == sim::Mechanism::Notifications {
            lacking(what);
        }
    }

    fn watching_by(self, mechanism: sim::Mechanism) -> Self {
        if let Kind::Simulated(kernel) = &self.kind {
            kernel.watch_by(mechanism);
        }
        Self { mechanism, ..self }
    }

    /// Whether its ports watch their sockets by a kqueue.
    #[must_use]
    pub fn is_kqueue(&self) -> bool {
        match self.kind {
            Kind::Native => cfg!(all(unix, not(target_os = "linux"))),
            Kind::Simulated(_) => self.mechanism == sim::Mechanism::Kqueue,
        }
    }

    /// Skips the test on ports with a kqueue, which lack a feature or behave differently. `what`
    /// names it.
    pub fn not_by_kqueue(&self, what: &'static str) {
        if self.is_kqueue() {
            lacking(what);
        }
    }

    /// Whether a stream's connect that is under way can be given up, so that the socket is as new.
    #[must_use]
    pub fn gives_up_connects(&self) -> bool {
        match self.kind {
            Kind::Native => cfg!(target_os = "linux"),
            Kind::Simulated(_) => self.mechanism == sim::Mechanism::Epoll,
        }
    }

    /// The simulated kernel, if it is one.
    #[must_use]
    pub fn kernel(&self) -> Option<&sim::Kernel> {
        match &self.kind {
            Kind::Native => None,
            Kind::Simulated(kernel) => Some(kernel),
        }
    }

    /// [`Stats::backend`](completion_port::Stats::backend) of its ports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.kind {
            Kind::Native if native::uses_notifications() => "notifications",
            Kind::Native if cfg!(windows) => "afd",
            Kind::Native if self.is_kqueue() => "kqueue",
            Kind::Native if self.is_one_shot => "epoll, one-shot",
            Kind::Native => "epoll",
            Kind::Simulated(_) if self.is_kqueue() => "sim, kqueue",
            Kind::Simulated(_) if self.mechanism == sim::Mechanism::Notifications => {
                "sim, notifications"
            }
            Kind::Simulated(_) if self.is_one_shot => "sim, one-shot",
            Kind::Simulated(_) => "sim",
        }
    }

    /// Skips the test on Windows, which lacks a feature or behaves differently. `what` names it.
    pub fn not_on_windows(&self, what: &'static str) {
        if cfg!(windows) && matches!(self.kind, Kind::Native) {
            lacking(what);
        }
    }

    /// Whether its ports watch their sockets by polls of the driver of Windows.
    fn is_afd(&self) -> bool {
        cfg!(windows) && matches!(self.kind, Kind::Native) && !native::uses_notifications()
    }

    /// Whether its notifications are those of the C library, which polls the driver: Wine has none.
    fn is_dll(&self) -> bool {
        self.is_wine() && native::uses_notifications()
    }

    /// Whether its sockets are watched by polls of the driver of Windows, by the ports themselves or by the DLL.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.is_afd() || self.is_dll()
    }

    /// Skips the test on ports whose sockets are [polled](Self::is_polled), which lack a feature or
    /// behave differently. `what` names it.
    pub fn not_by_polls(&self, what: &'static str) {
        if self.is_polled() {
            lacking(what);
        }
    }

    /// The same of ports that poll by themselves.
    pub fn not_by_afd(&self, what: &'static str) {
        if self.is_afd() {
            lacking(what);
        }
    }

    /// The same for ports whose notifications come from the DLL.
    pub fn not_by_the_dll(&self, what: &'static str) {
        if self.is_dll() {
            lacking(what);
        }
    }

    /// Whether the system itself performs operations on sockets: arriving data is theirs
    /// immediately, and not only when a thread checks.
    #[must_use]
    pub fn carries_operations(&self) -> bool {
        cfg!(windows) && matches!(self.kind, Kind::Native)
    }

    /// Whether an event reaches the port within the call that causes it. Windows reports it from a
    /// separate thread, slightly later.
    #[must_use]
    pub fn tells_at_once(&self) -> bool {
        !(cfg!(windows) && matches!(self.kind, Kind::Native))
    }

    /// Skips claims about the data that a waiting or unstarted operation leaves in the socket, on
    /// systems that perform operations themselves. `what` names the claim.
    pub fn not_where_operations_are_carried_out(&self, what: &'static str) {
        if self.carries_operations() {
            lacking(what);
        }
    }

    /// Whether it is Wine, which does some things in another way than Windows.
    #[must_use]
    pub fn is_wine(&self) -> bool {
        matches!(self.kind, Kind::Native) && native::is_wine()
    }

    /// For claims about what Windows has and Wine has not.
    pub fn not_on_wine(&self, what: &'static str) {
        if self.is_wine() {
            lacking(what);
        }
    }

    /// For claims in which several threads wait: a wait with a limit then really waits on the
    /// simulated kernel too, and never ends for lack of time unless the test moves the clock.
    pub fn several_threads_wait(&self) {
        if let Kind::Simulated(kernel) = &self.kind {
            kernel.manual_clock();
        }
    }

    /// How long to wait for an event: [`SOON`].
    #[must_use]
    pub fn soon(&self) -> Duration {
        SOON
    }

    /// How long to look when nothing may happen. Costs no time on a simulated kernel.
    #[must_use]
    pub fn quiet(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// A port with this concurrency value; 0 means the number of processors.
    #[must_use]
    pub fn port<K, M>(&self, concurrency: usize) -> Port<K, M> {
        self.port_that(concurrency, BlockDetection::Automatic).unwrap()
    }

    /// The same, which does not look for threads that block: on a busy machine one that is to run may sleep for a moment, for
    /// a lock of the checker's for instance.
    #[must_use]
    pub fn port_without_detection<K, M>(&self, concurrency: usize) -> Port<K, M> {
        self.port_that(concurrency, BlockDetection::Announced).unwrap()
    }

    /// A port that finds out in this way which of its threads block.
    ///
    /// # Errors
    ///
    /// This system does not have that way.
    pub fn port_that<K, M>(
        &self,
        concurrency: usize,
        detection: BlockDetection,
    ) -> completion_port::Result<Port<K, M>> {
        self.built(Port::builder().concurrency(concurrency).block_detection(detection))
    }

    /// A port whose operations have buffers of the type `B`.
    #[must_use]
    pub fn port_with_buffers<K, M, B: Buffer>(&self, concurrency: usize) -> Port<K, M, B> {
        self.built(Port::builder().concurrency(concurrency).buffers::<B>()).unwrap()
    }

    /// A port with these settings.
    ///
    /// # Errors
    ///
    /// This system does not have one of them.
    pub fn built<K, M, B: Buffer>(
        &self,
        builder: PortBuilder<B>,
    ) -> completion_port::Result<Port<K, M, B>> {
        let builder = builder.one_shot_kernel(self.is_one_shot).file_engine(self.file_engine);
        match &self.kind {
            Kind::Native => builder.readiness(native::readiness()).build(),
            Kind::Simulated(kernel) => builder.build_simulated(kernel),
        }
    }

    /// A socket that a port has made or accepted.
    #[must_use]
    pub fn adopt(&self, source: OwnedSource) -> Socket {
        Socket::adopted(source, &self.sockets)
    }

    pub(crate) fn own(&self, descriptor: native::Owned) -> Socket {
        Socket::native(descriptor, &self.sockets)
    }

    fn own_both(&self, (first, second): (native::Owned, native::Owned)) -> (Socket, Socket) {
        (self.own(first), self.own(second))
    }

    pub(crate) fn own_simulated(&self, socket: sim::Socket) -> Socket {
        Socket::simulated(socket, &self.sockets)
    }

    fn own_simulated_both(&self, (first, second): (sim::Socket, sim::Socket)) -> (Socket, Socket) {
        (self.own_simulated(first), self.own_simulated(second))
    }

    /// Two connected TCP sockets.
    #[must_use]
    pub fn tcp_pair(&self) -> (Socket, Socket) {
        match &self.kind {
            Kind::Native => {
                let listener = self.tcp_listener(1);
                let first = self.tcp_connect(&listener);
                let second = listener.accept_within(self.soon());
                first.set_nodelay();
                second.set_nodelay();
                (first, second)
            }
            Kind::Simulated(kernel) => self.own_simulated_both(kernel.tcp_pair().unwrap()),
        }
    }

    /// A TCP socket that is not connected.
    #[must_use]
    pub fn tcp_fresh(&self) -> Socket {
        match &self.kind {
            Kind::Native => self.own(native::tcp_fresh()),
            Kind::Simulated(kernel) => self.own_simulated(kernel.tcp_fresh().unwrap()),
        }
    }

    /// A TCP listener. On Linux its queue takes one connection more than `backlog`.
    #[must_use]
    pub fn tcp_listener(&self, backlog: usize) -> Socket {
        match &self.kind {
            Kind::Native => {
                self.own(native::tcp_listener(SocketAddrV4::new(self.host, 0), backlog))
            }
            Kind::Simulated(kernel) => self.own_simulated(kernel.tcp_listener(backlog).unwrap()),
        }
    }

    /// A TCP socket that is connecting to `listener`, and is connected once `listener` has room for
    /// it: usually immediately.
    #[must_use]
    pub fn tcp_connect(&self, listener: &Socket) -> Socket {
        let socket = self.tcp_fresh();
        socket.connect(&listener.address()).unwrap();
        socket
    }

    /// A TCP socket whose connect was refused. Its error has not been fetched yet.
    #[must_use]
    pub fn tcp_connect_refused(&self) -> Socket {
        let socket = self.tcp_fresh();
        socket.connect(&self.unused_address()).unwrap();
        socket
    }

    /// An address at which no TCP or UDP socket listens.
    #[must_use]
    pub fn unused_address(&self) -> Address {
        match &self.kind {
            Kind::Native => Address::native(&SocketAddrV4::new(self.host, 1).into()),
            Kind::Simulated(kernel) => Address::simulated(kernel.unused_address()),
        }
    }

    /// A UDP socket that has an address and is not connected.
    #[must_use]
    pub fn udp_bound(&self) -> Socket {
        match &self.kind {
            Kind::Native => self.own(native::udp_bound(SocketAddrV4::new(self.host, 0))),
            Kind::Simulated(kernel) => self.own_simulated(kernel.udp_bound().unwrap()),
        }
    }

    /// Two UDP sockets that are connected to each other.
    #[must_use]
    pub fn udp_pair(&self) -> (Socket, Socket) {
        let first = self.udp_bound();
        let second = self.udp_bound();
        first.connect(&second.address()).unwrap();
        second.connect(&first.address()).unwrap();
        (first, second)
    }

    /// Two connected AF_UNIX streams; where there are none, of TCP.
    #[must_use]
    pub fn unix_pair(&self) -> (Socket, Socket) {
        match &self.kind {
            Kind::Native => self.own_both(native::unix_pair()),
            Kind::Simulated(kernel) => self.own_simulated_both(kernel.unix_pair().unwrap()),
        }
    }

    /// Two connected sockets for records.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn unix_record_pair(&self) -> (Socket, Socket) {
        assert!(matches!(self.kind, Kind::Native), "there are none in the simulated kernel");
        self.own_both(native::unix_record_pair())
    }

    /// An AF_UNIX stream that is not connected.
    #[must_use]
    pub fn unix_fresh(&self) -> Socket {
        match &self.kind {
            Kind::Native => self.own(native::unix_fresh()),
            Kind::Simulated(kernel) => self.own_simulated(kernel.unix_fresh().unwrap()),
        }
    }

    /// An AF_UNIX listener whose address leaves no file.
    #[must_use]
    pub fn unix_listener(&self, backlog: usize) -> Socket {
        match &self.kind {
            Kind::Native => self.own(native::unix_listener(backlog)),
            Kind::Simulated(kernel) => self.own_simulated(kernel.unix_listener(backlog).unwrap()),
        }
    }

    /// Two AF_UNIX datagram sockets that are connected to each other.
    #[must_use]
    pub fn unix_datagram_pair(&self) -> (Socket, Socket) {
        match &self.kind {
            Kind::Native => self.own_both(native::unix_datagram_pair()),
            Kind::Simulated(kernel) => {
                self.own_simulated_both(kernel.unix_datagram_pair().unwrap())
            }
        }
    }

    /// The reading and the writing end of a pipe.
    #[must_use]
    pub fn pipe(&self) -> (Socket, Socket) {
        match &self.kind {
            Kind::Native => self.own_both(native::pipe()),
            Kind::Simulated(kernel) => self.own_simulated_both(kernel.pipe().unwrap()),
        }
    }

    /// A counter: `eventfd(2)`. On Windows a datagram socket that is connected to itself.
    #[must_use]
    pub fn event(&self) -> Socket {
        match &self.kind {
            Kind::Native => self.own(native::event()),
            Kind::Simulated(kernel) => self.own_simulated(kernel.event().unwrap()),
        }
    }

    /// A file, which no system can watch.
    #[must_use]
    pub fn regular_file(&self) -> Socket {
        match &self.kind {
            Kind::Native => self.own(native::regular_file()),
            Kind::Simulated(kernel) => self.own_simulated(kernel.regular_file().unwrap()),
        }
    }

    /// How many sockets of this system are open.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.sockets.load(SeqCst)
    }

    /// Checks that every socket was dropped; on a simulated kernel, that every port was too.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert_eq!(self.open_sockets(), 0, "sockets were left open");
        if let Kind::Simulated(kernel) = &self.kind {
            assert_eq!(kernel.open_descriptors(), 0, "descriptors were left open");
            assert_eq!(kernel.ports(), 0, "ports were left open");
            assert_eq!(kernel.sleeping(), 0, "threads were left waiting");
        }
    }
}
