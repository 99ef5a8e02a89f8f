//! Servers that read from a file while they echo, at a given rate.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Interest, OneShot, Operation, OwnedReady, Packet, Port, Registration,
};
use rustix::event::epoll::{self, CreateFlags, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::Listening;
use super::epoll_one_shot::{Arming, NO_PEER, Turns, add_stream};
use super::nonblocking::{Handler, Peer};
use super::{Server, ours, threads};
use crate::files::{IN_FLIGHT, Memory, PAGE, Pace, Plan, Reading, Turn, read_of};
use crate::names::{BESIDE_POOL, READS_BY_HAND, WITH_READS};
use crate::sink::{self, Service};

/// Packets taken by a wait at most.
const BATCH: usize = 64;

/// A way to write such a server.
#[derive(Clone, Copy)]
pub(crate) struct ReadingContender {
    pub(crate) name: &'static str,
    pub(crate) start: fn(threads: usize, reading: &Reading) -> io::Result<Box<dyn Server>>,
}

/// All of them; the first is the one to which the others are compared.
pub(crate) fn all() -> [ReadingContender; 3] {
    [
        ReadingContender { name: WITH_READS, start: with_reads },
        ReadingContender { name: BESIDE_POOL, start: beside_pool },
        ReadingContender { name: READS_BY_HAND, start: by_hand },
    ]
}

fn pages(file: &File) -> io::Result<u64> {
    Ok(file.metadata()?.len() / PAGE as u64)
}

// ---- on the same port ----

enum Key {
    Peer(Peer),
    File(File),
}

impl AsFd for Key {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Key::Peer(peer) => peer.as_fd(),
            Key::File(file) => file.as_fd(),
        }
    }
}

/// The token of a file without a read in progress, with memory for the next one.
type Idle = (OwnedReady<Key, (), Memory>, Memory);

/// The threads of the port take ready connections and finished reads. Each read in flight has its
/// own token.
struct WithReads {
    port: Arc<Port<Key, (), Memory>>,
    pace: Pace,
    /// The next reads of these have their times: a message comes at each.
    waiting: Mutex<Vec<Idle>>,
    /// These wait until the reads begin.
    resting: Mutex<Vec<Idle>>,
    pages: u64,
}

fn with_reads(threads: usize, reading: &Reading) -> io::Result<Box<dyn Server>> {
    let server = Arc::new(WithReads {
        port: Arc::new(Port::builder().buffers().build()?),
        pace: Pace::new(),
        waiting: Mutex::default(),
        resting: Mutex::default(),
        pages: pages(&reading.way.open(&reading.file)?)?,
    });
    for _ in 0..IN_FLIGHT {
        let file = Key::File(reading.way.open(&reading.file)?);
        let token = server.port.associate(file).map_err(|refused| refused.error())?;
        let Ok(token) = token.with_port(&server.port) else {
            return Err(io::Error::other("the token is another port's"));
        };
        server.rest((token, Memory::new()));
    }
    for seed in 0..threads as u64 {
        let server = Arc::clone(&server);
        threads::spawn("ours", move || server.serve(seed))?;
    }
    Ok(Box::new(Shared(server)))
}

/// The server and its threads share it.
struct Shared(Arc<WithReads>);

fn lock(list: &Mutex<Vec<Idle>>) -> MutexGuard<'_, Vec<Idle>> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WithReads {
    fn rest(&self, idle: Idle) {
        lock(&self.resting).push(idle);
        self.pace.rest();
    }

    fn serve(&self, seed: u64) -> io::Result<()> {
        let mut batch = Batch::with_capacity(BATCH);
        let mut handler: Handler = Handler::new(Service::Echo);
        let mut plan = Plan::endless(self.pages, seed);
        loop {
            for packet in self.port.wait(&mut batch, None)? {
                match packet {
                    Packet::Ready(mut ready) => {
                        let Key::Peer(peer) = ready.key_mut() else { continue };
                        let next = peer.serve(&mut handler, false)?;
                        ours::arm(ready, next)?;
                    }
                    Packet::Completed(done) => {
                        let (token, outcome) = done.into_parts();
                        let (count, mut memory) = read_of(outcome)?;
                        plan.check(&memory, count)?;
                        sink::count(count);
                        let turn = self.pace.turn();
                        if turn == Turn::Now {
                            plan.aim(&mut memory);
                            let offset = memory.offset;
                            let started = token.start(Operation::read_at(memory, offset));
                            started.map_err(|refused| refused.error())?;
                        } else if let Ok(token) = token.with_port(&self.port) {
                            self.put_off((token, memory), turn)?;
                        }
                    }
                    Packet::Posted(()) => {
                        let Some(idle) = lock(&self.waiting).pop() else { continue };
                        if self.pace.is_going() {
                            start(idle, &mut plan)?;
                        } else {
                            self.rest(idle);
                        }
                    }
                    _ => {}
                }
            }
        }
    }

    fn put_off(&self, idle: Idle, turn: Turn) -> io::Result<()> {
        match turn {
            Turn::At(at) => {
                lock(&self.waiting).push(idle);
                self.port.post_at(at, ()).map_err(|refused| refused.error())?;
            }
            Turn::Now | Turn::Rest => self.rest(idle),
        }
        Ok(())
    }
}

fn start((token, mut memory): Idle, plan: &mut Plan) -> io::Result<()> {
    plan.aim(&mut memory);
    let offset = memory.offset;
    token.start(Operation::read_at(memory, offset)).map_err(|refused| refused.error())?;
    Ok(())
}

impl Server for Shared {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let peer = Key::Peer(Peer::of(stream));
        self.0.port.register(Registration::owned(peer, Interest::IN, OneShot::Level))?;
        Ok(())
    }

    fn listen(&self, _: &Listening) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.0.port.stats().wakes)
    }

    fn begin_reads(&self, rate: Option<f64>) -> io::Result<()> {
        let idle = std::mem::take(&mut *lock(&self.0.resting));
        // Others than those of the threads.
        let mut plan = Plan::endless(self.0.pages, u64::MAX);
        self.0.pace.begin(rate);
        for idle in idle {
            match self.0.pace.turn() {
                Turn::Now => start(idle, &mut plan)?,
                turn => self.0.put_off(idle, turn)?,
            }
        }
        Ok(())
    }

    fn end_reads(&self) -> io::Result<()> {
        self.0.pace.end()
    }
}

// ---- next to a pool of threads ----

/// The echo of `ours`. The reads are made by threads that hand nothing over.
struct BesidePool {
    echo: Box<dyn Server>,
    pace: Arc<Pace>,
}

fn beside_pool(threads: usize, reading: &Reading) -> io::Result<Box<dyn Server>> {
    let echo = (ours::contender().start)(threads, Service::Echo)?;
    let pace = Arc::new(Pace::new());
    let file = Arc::new(reading.way.open(&reading.file)?);
    let pages = pages(&file)?;
    for seed in 0..IN_FLIGHT as u64 {
        let (file, pace) = (Arc::clone(&file), Arc::clone(&pace));
        let plan = Plan::endless(pages, seed);
        threads::spawn("pread", move || read(&file, &pace, plan))?;
    }
    Ok(Box::new(BesidePool { echo, pace }))
}

fn read(file: &File, pace: &Pace, mut plan: Plan) -> io::Result<()> {
    let mut memory = Memory::new();
    loop {
        match pace.turn() {
            Turn::Rest => {
                pace.rest_until_begun();
                continue;
            }
            Turn::At(at) => sleep_until(at),
            Turn::Now => {}
        }
        plan.aim(&mut memory);
        let offset = memory.offset;
        let count = file.read_at(memory.bytes_mut(), offset)?;
        plan.check(&memory, count)?;
        sink::count(count);
    }
}

#[allow(clippy::disallowed_methods, reason = "the time itself is the event")]
fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()));
}

impl Server for BesidePool {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        self.echo.add(stream)
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        self.echo.listen(at)
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        self.echo.answer(socket)
    }

    fn wakes(&self) -> Option<u64> {
        self.echo.wakes()
    }

    fn begin_reads(&self, rate: Option<f64>) -> io::Result<()> {
        self.pace.begin(rate);
        Ok(())
    }

    fn end_reads(&self) -> io::Result<()> {
        self.pace.end()
    }
}

// ---- by hand ----

/// One-shot epoll without a port: each thread polls the set, serves ready connections, and makes
/// its reads that are due.
struct ByHand {
    set: Arc<OwnedFd>,
    reads: Arc<HandReads>,
}

/// What the threads know of the reads.
struct HandReads {
    pace: Pace,
    file: File,
    pages: u64,
    /// Readable from the beginning of the reads until all threads have begun.
    begins: OwnedFd,
    /// How often the reads have begun, and how many threads have the latest time.
    begun: AtomicUsize,
    have_begun: AtomicUsize,
    threads: usize,
}

impl HandReads {
    fn new(threads: usize, file: File) -> io::Result<HandReads> {
        Ok(HandReads {
            pace: Pace::new(),
            pages: pages(&file)?,
            file,
            begins: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            begun: AtomicUsize::new(0),
            have_begun: AtomicUsize::new(0),
            threads,
        })
    }

    fn begin(&self, rate: Option<f64>) -> io::Result<()> {
        self.pace.begin(rate);
        self.have_begun.store(0, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        rustix::io::write(&self.begins, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

fn by_hand(threads: usize, reading: &Reading) -> io::Result<Box<dyn Server>> {
    if threads > IN_FLIGHT {
        // One without a read would take the sign of the next beginning away.
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let set = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
    let reads = Arc::new(HandReads::new(threads, reading.way.open(&reading.file)?)?);
    epoll::add(&*set, &reads.begins, NO_PEER, EventFlags::IN)?;
    for index in 0..threads {
        let (set, reads) = (Arc::clone(&set), Arc::clone(&reads));
        let share = IN_FLIGHT / threads + usize::from(index < IN_FLIGHT % threads);
        for _ in 0..share {
            reads.pace.rest();
        }
        threads::spawn("by_hand", move || HandThread::new(&reads, share, index).serve(&set))?;
    }
    Ok(Box::new(ByHand { set, reads }))
}

/// A thread, with its share of the reads.
struct HandThread<'s> {
    reads: &'s HandReads,
    plan: Plan,
    memory: Memory,
    /// Reads that are due.
    due: usize,
    /// The times of others, the earliest first.
    waiting: VecDeque<Instant>,
    /// Others, until the reads begin.
    resting: usize,
    /// How often the reads have begun here.
    begun: usize,
}

impl HandThread<'_> {
    fn new(reads: &HandReads, share: usize, index: usize) -> HandThread<'_> {
        HandThread {
            reads,
            plan: Plan::endless(reads.pages, index as u64),
            memory: Memory::new(),
            due: 0,
            waiting: VecDeque::with_capacity(share),
            resting: share,
            begun: 0,
        }
    }

    fn serve(mut self, set: &OwnedFd) -> io::Result<()> {
        let mut turns = Turns::new(Service::Echo, Arming::AfterEachHandler);
        loop {
            let at_most = self.time_left().map(Timespec::try_from).transpose();
            if turns.take(set, at_most.map_err(io::Error::other)?.as_ref())? {
                self.begin()?;
            }
            self.read_what_is_due()?;
        }
    }

    /// How long the set is asked at most. `None`: until something is ready.
    fn time_left(&self) -> Option<Duration> {
        if self.due > 0 {
            return Some(Duration::ZERO);
        }
        Some(self.waiting.front()?.saturating_duration_since(Instant::now()))
    }

    /// The reads have started; the last thread to notice removes the sign.
    fn begin(&mut self) -> io::Result<()> {
        let begun = self.reads.begun.load(Ordering::SeqCst);
        if std::mem::replace(&mut self.begun, begun) == begun {
            // Other threads do not know it yet.
            return Ok(());
        }
        // Its own reads rest only after this, so they do not start again before.
        if self.reads.have_begun.fetch_add(1, Ordering::SeqCst) + 1 == self.reads.threads {
            rustix::io::read(&self.reads.begins, &mut [0; 8])?;
        }
        for _ in 0..std::mem::take(&mut self.resting) {
            self.plan_next();
        }
        Ok(())
    }

    /// What to do with a finished read, or a starting one.
    fn plan_next(&mut self) {
        match self.reads.pace.turn() {
            Turn::Now => self.due += 1,
            Turn::At(at) => self.waiting.push_back(at),
            Turn::Rest => self.rest(),
        }
    }

    fn rest(&mut self) {
        self.resting += 1;
        self.reads.pace.rest();
    }

    fn read_what_is_due(&mut self) -> io::Result<()> {
        if !self.waiting.is_empty() {
            let now = Instant::now();
            while self.waiting.front().is_some_and(|at| *at <= now) {
                self.waiting.pop_front();
                if self.reads.pace.is_going() {
                    self.due += 1;
                } else {
                    self.rest();
                }
            }
        }
        for _ in 0..std::mem::take(&mut self.due) {
            self.plan.aim(&mut self.memory);
            let offset = self.memory.offset;
            let count = self.reads.file.read_at(self.memory.bytes_mut(), offset)?;
            self.plan.check(&self.memory, count)?;
            sink::count(count);
            self.plan_next();
        }
        Ok(())
    }
}

impl Server for ByHand {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        add_stream(&self.set, stream)
    }

    fn listen(&self, _: &Listening) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn begin_reads(&self, rate: Option<f64>) -> io::Result<()> {
        self.reads.begin(rate)
    }

    fn end_reads(&self) -> io::Result<()> {
        self.reads.pace.end()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;
    use crate::contenders::tests::alone;
    use crate::files::{Scratch, Way};
    use crate::work::{MESSAGE, Work, message};

    fn each(test: impl Fn(&dyn Server, &str)) {
        let _alone = alone();
        let scratch = Scratch::new(&std::env::temp_dir(), 1 << 20).unwrap();
        let reading = Reading { file: scratch.path(), way: Way::Cached };
        for contender in all() {
            test(&*(contender.start)(2, &reading).unwrap(), contender.name);
        }
    }

    /// How many reads are made in that time.
    fn reads(server: &dyn Server, rate: Option<f64>, time: Duration) -> u64 {
        let before = sink::read();
        server.begin_reads(rate).unwrap();
        sleep_until(Instant::now() + time);
        server.end_reads().unwrap();
        let after = sink::read();
        let packets = after.packets - before.packets;
        assert_eq!(after.bytes - before.bytes, packets * PAGE as u64);
        packets
    }

    #[test]
    fn reads_begin_and_end_as_often_as_is_wanted() {
        let time = Duration::from_millis(20);
        each(|server, name| {
            for _ in 0..3 {
                assert!(reads(server, None, time) >= IN_FLIGHT as u64, "{name}");
                let before = sink::read();
                sleep_until(Instant::now() + Duration::from_millis(5));
                assert_eq!(sink::read(), before, "{name}");
            }
        });
    }

    #[test]
    fn reads_keep_to_their_rate() {
        each(|server, name| {
            let begun = Instant::now();
            // The server's threads may not have run in the first turns.
            let made = loop {
                let turn = Instant::now();
                let made = reads(server, Some(2000.0), Duration::from_millis(100));
                // Delayed reads are made up for, unless they are very late.
                let due = turn.elapsed().mul_f64(2000.0).as_secs();
                assert!(made <= due + 2 * IN_FLIGHT as u64, "{name}: {made} of {due}");
                if made >= IN_FLIGHT as u64 || begun.elapsed() > Duration::from_secs(60) {
                    break made;
                }
            };
            assert!(made >= IN_FLIGHT as u64, "{name}: {made}");
        });
    }

    /// The sign remains until the last thread has seen it. A thread whose reads rest again by then
    /// has started all the same.
    #[test]
    fn a_thread_begins_its_reads_once_each_time() {
        let scratch = Scratch::new(&std::env::temp_dir(), 1 << 20).unwrap();
        let file = Way::Cached.open(&scratch.path()).unwrap();
        let reads = HandReads::new(2, file).unwrap();
        let mut threads = [0, 1].map(|index| HandThread::new(&reads, IN_FLIGHT / 2, index));
        for _ in 0..2 {
            reads.begin(None).unwrap();
            thread::scope(|scope| {
                let ended = scope.spawn(|| reads.pace.end());
                while reads.pace.is_going() {
                    thread::yield_now();
                }
                let [first, second] = &mut threads;
                for _ in 0..3 {
                    first.begin().unwrap();
                    assert_eq!(reads.have_begun.load(Ordering::SeqCst), 1);
                }
                assert!(!ended.is_finished());
                second.begin().unwrap();
                ended.join().unwrap().unwrap();
            });
            let sign = rustix::io::read(&reads.begins, &mut [0; 8]);
            assert_eq!(
                sign,
                Err(rustix::io::Errno::AGAIN),
                "the last thread has not taken it away"
            );
        }
    }

    #[test]
    fn the_echo_goes_on_meanwhile() {
        each(|server, _| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            server.add(listener.accept().unwrap().0).unwrap();
            server.begin_reads(None).unwrap();
            for number in 0..100 {
                let asked = message(Work::Echo, number);
                let mut answered = [0; MESSAGE];
                client.write_all(&asked).unwrap();
                client.read_exact(&mut answered).unwrap();
                assert_eq!(asked, answered);
            }
            server.end_reads().unwrap();
        });
    }
}
