//! Sixteen threads whose handlers sleep, contend for a lock, spin, post, panic and die, with every
//! method of block detection. Everything is handled once, and no seat is lost.

#![cfg(any(unix, windows))]

use std::any::Any;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, BorrowedSource, ErrorKind, Interest, OneShot, Packet, Port, Ready,
    Registration, Source,
};
use testkit::{Dice, SOON, Stream, connected, effort};

const THREADS: usize = 16;
const SOCKETS: usize = 16;
const LIMITS: [usize; 3] = [1, 2, 4];

/// Enough for each deed to occur several times with each limit and method.
fn messages() -> usize {
    300 * effort()
}

fn bytes_each() -> usize {
    60 * effort()
}

/// What a handler does.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Spin(Duration),
    /// Unannounced.
    Sleep(Duration),
    Announce(Duration),
    /// Holds the shared lock for this long.
    Lock(Duration),
    /// Posts the message of the second half that corresponds to this one.
    Post,
    Panic,
    Die,
}

impl Deed {
    fn any(dice: &mut Dice) -> Self {
        // Usually short, sometimes longer than detection takes.
        let most = [100, 500, 5_000][usize::try_from(dice.roll(3)).unwrap()];
        let time = Duration::from_micros(1 + dice.roll(most));
        match dice.roll(40) {
            0..=25 => Self::Spin(time / 50),
            26..=28 => Self::Sleep(time),
            29..=30 => Self::Announce(time),
            31..=32 => Self::Lock(time / 20),
            33..=37 => Self::Post,
            38 => Self::Panic,
            _ => Self::Die,
        }
    }

    /// Returns whether it runs without blocking or ending.
    fn only_runs(self) -> bool {
        matches!(self, Self::Spin(_))
    }
}

/// The panic that the thread survives.
struct Caught;

/// The panic that ends the thread.
struct Death;

/// A socket whose peer counts up from zero.
struct Counter {
    stream: Stream,
    next: u8,
}

impl Source for Counter {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.stream.as_source()
    }
}

struct World {
    port: Port<Counter, usize>,
    /// The capacity of each thread's batch.
    room: usize,
    /// Draws the deed of a handler of bytes.
    deed: fn(&mut Dice) -> Deed,
    /// The deed of each message. The messages of the second half are posted by handlers of the
    /// first.
    deeds: Vec<Deed>,
    taken: Vec<AtomicUsize>,
    messages: AtomicUsize,
    bytes: AtomicUsize,
    lock: Mutex<()>,
    /// The handlers that are running without blocking, and the most at one time.
    inside: AtomicUsize,
    peak: AtomicUsize,
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn sleep(time: Duration) {
    let (_keep, never) = mpsc::channel::<()>();
    assert!(never.recv_timeout(time).is_err());
}

impl World {
    fn new(
        limit: usize,
        detection: BlockDetection,
        room: usize,
        dice: &mut Dice,
        deed: fn(&mut Dice) -> Deed,
    ) -> Self {
        let deeds: Vec<_> = (0..messages()).map(|_| deed(dice)).collect();
        let builder = testkit::port_builder().concurrency(limit);
        Self {
            port: builder.block_detection(detection).build().unwrap(),
            room,
            deed,
            taken: deeds.iter().map(|_| AtomicUsize::new(0)).collect(),
            deeds,
            messages: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            lock: Mutex::new(()),
            inside: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
        }
    }

    fn half(&self) -> usize {
        self.deeds.len() / 2
    }

    /// Returns the message that the handler of `message` posts.
    fn follower(&self, message: usize) -> Option<usize> {
        let posts = message < self.half() && matches!(self.deeds[message], Deed::Post);
        posts.then(|| message + self.half())
    }

    /// Posts the messages that no handler posts.
    fn send_messages(&self) {
        let followers: Vec<_> = (0..self.half()).filter_map(|it| self.follower(it)).collect();
        for message in (0..self.deeds.len()).filter(|message| !followers.contains(message)) {
            self.port.post(message).unwrap();
            if message.is_multiple_of(16) {
                sleep(Duration::from_micros(300));
            }
        }
    }

    fn act(&self, deed: Deed) {
        match deed {
            Deed::Spin(time) => spin(time),
            Deed::Sleep(time) => sleep(time),
            Deed::Announce(time) => self.port.blocking(|| sleep(time)),
            Deed::Lock(time) => {
                let _held = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
                spin(time);
            }
            Deed::Post => {}
            Deed::Panic => resume_unwind(Box::new(Caught)),
            Deed::Die => resume_unwind(Box::new(Death)),
        }
    }

    fn handle_message(&self, message: usize) {
        self.taken[message].fetch_add(1, SeqCst);
        self.messages.fetch_add(1, SeqCst);
        if let Some(follower) = self.follower(message) {
            self.port.post(follower).unwrap();
        }
        let deed = self.deeds[message];
        if deed.only_runs() {
            self.peak.fetch_max(self.inside.fetch_add(1, SeqCst) + 1, SeqCst);
            self.act(deed);
            self.inside.fetch_sub(1, SeqCst);
        } else {
            self.act(deed);
        }
    }

    fn handle_bytes(&self, mut ready: Ready<'_, Counter>, dice: &mut Dice) {
        let mut bytes = [0; 16];
        let room = 1 + usize::try_from(dice.roll(16)).unwrap();
        let counter = ready.key_mut();
        let read = match counter.stream.read(&mut bytes[..room]) {
            Ok(read) => read,
            Err(error) => panic!("a level packet is exact: {error}"),
        };
        for byte in &bytes[..read] {
            assert_eq!(*byte, counter.next, "bytes came twice, or not at all");
            counter.next = counter.next.wrapping_add(1);
        }
        if read < room {
            ready.read_drained();
        }
        let (before, after) = ((self.deed)(dice), (self.deed)(dice));
        // A panic or death here would lose the key with its token.
        if !matches!(before, Deed::Panic | Deed::Die) {
            self.act(before);
        }
        ready.rearm().unwrap();
        self.bytes.fetch_add(read, SeqCst);
        self.act(after);
    }

    /// Handles packets until the port is closed. Catches each panic, and continues or lets the
    /// thread die.
    fn serve(&self, mut dice: Dice) {
        let mut batch = Batch::with_capacity(self.room);
        loop {
            let served = catch_unwind(AssertUnwindSafe(|| {
                let packets = match self.port.wait(&mut batch, None) {
                    Ok(packets) => packets,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Closed);
                        return false;
                    }
                };
                for packet in packets {
                    match packet {
                        Packet::Posted(message) => self.handle_message(message),
                        Packet::Ready(ready) => self.handle_bytes(ready, &mut dice),
                        _ => panic!("neither a message nor a socket"),
                    }
                }
                true
            }));
            match served {
                Ok(true) => {}
                Ok(false) => return,
                Err(cause) if cause.is::<Caught>() => {}
                Err(cause) => resume_unwind(cause),
            }
        }
    }
}

/// Serving threads, which are replaced when they die.
struct Crew {
    world: Arc<World>,
    dice: Dice,
    threads: Vec<JoinHandle<()>>,
    hired: usize,
}

impl Crew {
    fn new(world: &Arc<World>, dice: &Dice) -> Self {
        let mut crew =
            Self { world: Arc::clone(world), dice: dice.clone(), threads: Vec::new(), hired: 0 };
        (0..THREADS).for_each(|_| crew.hire());
        crew
    }

    fn hire(&mut self) {
        let (world, dice) = (Arc::clone(&self.world), self.dice.another(self.hired));
        self.threads.push(thread::spawn(move || world.serve(dice)));
        self.hired += 1;
    }

    #[track_caller]
    fn bury(ended: Result<(), Box<dyn Any + Send>>) {
        if let Err(cause) = ended
            && !cause.is::<Death>()
        {
            resume_unwind(cause);
        }
    }

    fn replace_the_dead(&mut self) {
        while let Some(dead) = self.threads.iter().position(JoinHandle::is_finished) {
            Self::bury(self.threads.swap_remove(dead).join());
            self.hire();
        }
    }

    /// Waits until `condition` holds. Replaces threads that die meanwhile.
    #[track_caller]
    fn until(&mut self, what: &str, condition: impl Fn(&World) -> bool) {
        let begun = Instant::now();
        while !condition(&self.world) {
            let port = &self.world.port;
            assert!(begun.elapsed() < SOON, "it did not happen that {what}: {port:#?}");
            self.replace_the_dead();
            sleep(Duration::from_micros(200));
        }
    }
}

/// Writes to random sockets, a few bytes at a time.
fn send_bytes(peers: &[Stream], dice: &mut Dice) {
    let mut sent = [0; SOCKETS];
    while sent != [bytes_each(); SOCKETS] {
        let number = usize::try_from(dice.roll(SOCKETS as u64)).unwrap();
        let more = 1 + usize::try_from(dice.roll(20)).unwrap();
        let end = (sent[number] + more).min(bytes_each());
        let next: Vec<_> =
            (sent[number]..end).map(|number| u8::try_from(number % 256).unwrap()).collect();
        (&peers[number]).write_all(&next).unwrap();
        sent[number] = end;
    }
}

/// The observations of a run.
struct Shown {
    /// The most handlers that ran at the same time without blocking.
    peak: usize,
    blocks_found: u64,
}

/// Sends everything from two threads. Checks that everything is handled once and nothing remains.
fn stress(
    limit: usize,
    detection: BlockDetection,
    room: usize,
    deed: fn(&mut Dice) -> Deed,
    dice: &mut Dice,
) -> Shown {
    let begun = Instant::now();
    let world = Arc::new(World::new(limit, detection, room, dice, deed));
    let (messages, bytes) = (messages(), SOCKETS * bytes_each());
    let mut peers = Vec::new();
    for _ in 0..SOCKETS {
        let (stream, peer) = connected();
        stream.set_nonblocking(true).unwrap();
        peers.push(peer);
        let counter = Counter { stream, next: 0 };
        let registration = Registration::owned(counter, Interest::IN, OneShot::Level);
        world.port.register(registration).unwrap();
    }
    let mut crew = Crew::new(&world, dice);
    crew.until("all wait", |world| world.port.stats().parked == THREADS);
    thread::scope(|scope| {
        let (world, peers) = (&world, &peers);
        scope.spawn(move || world.send_messages());
        let mut dice = dice.another(THREADS * 1_000);
        scope.spawn(move || send_bytes(peers, &mut dice));
        crew.until("all is handled", |world| {
            world.messages.load(SeqCst) >= messages && world.bytes.load(SeqCst) >= bytes
        });
    });
    crew.until("all wait again", |world| world.port.stats().parked == THREADS);
    let stats = world.port.stats();
    assert_eq!((stats.queued, stats.running, stats.blocked), (0, 0, 0), "{:#?}", world.port);
    assert_eq!(stats.registered, SOCKETS);
    assert_eq!(stats.packets.posted, messages as u64);
    assert!(world.taken.iter().all(|times| times.load(SeqCst) == 1), "{:?}", world.taken);
    assert_eq!(world.bytes.load(SeqCst), bytes);
    world.port.close();
    for thread in crew.threads {
        thread.join().unwrap();
    }
    let stats = world.port.stats();
    assert_eq!((stats.running, stats.blocked, stats.parked), (0, 0, 0));
    let shown = Shown { peak: world.peak.load(SeqCst), blocks_found: stats.blocks_found };
    println!(
        "{detection:?}, limit {limit}, batches of {room}: peak {}, {} blocks found, {} died, {:?}",
        shown.peak,
        shown.blocks_found,
        crew.hired - THREADS,
        begun.elapsed()
    );
    shown
}

/// The methods of block detection that this machine supports.
fn rungs() -> Vec<BlockDetection> {
    let mut rungs =
        vec![BlockDetection::Automatic, BlockDetection::Announced, BlockDetection::Tick];
    let builder = Port::builder().block_detection(BlockDetection::Switches);
    match builder.build::<(), ()>() {
        Ok(_) => rungs.push(BlockDetection::Switches),
        Err(error) => println!("SKIPPED blocking_stress on Switches: {error}"),
    }
    rungs
}

/// With one packet at a time, a thread that has blocked returns to the port before its next packet.
/// So the handlers that only run can be counted exactly.
#[test]
fn whatever_handlers_do_everything_is_handled_once_and_no_seat_is_lost() {
    let mut dice = Dice::new();
    for detection in rungs() {
        for limit in LIMITS {
            let shown = stress(limit, detection, 1, Deed::any, &mut dice);
            // On a busy machine a thread may be found asleep in the port's own lock, which allows
            // one more.
            let most = limit + usize::from(shown.blocks_found > 0);
            assert!(shown.peak <= most, "{} ran at once, the limit is {limit}", shown.peak);
            let finds = detection != BlockDetection::Announced;
            assert!(finds || shown.blocks_found == 0);
        }
    }
}

/// With several packets at a time, which are taken back from threads that block.
#[test]
fn whatever_handlers_of_batches_do_everything_is_handled_once_and_no_seat_is_lost() {
    let mut dice = Dice::new();
    for detection in rungs() {
        for limit in LIMITS {
            stress(limit, detection, 8, Deed::any, &mut dice);
        }
    }
}

/// With and without batches. A false block, for instance in the port's own lock, allows one more.
#[test]
fn no_more_handlers_run_than_may_where_all_of_them_only_run() {
    let mut dice = Dice::new();
    for detection in rungs() {
        for limit in LIMITS {
            for room in [1, 8] {
                let spin = |dice: &mut Dice| Deed::Spin(Duration::from_micros(dice.roll(60)));
                let shown = stress(limit, detection, room, spin, &mut dice);
                let most = limit + usize::try_from(shown.blocks_found).unwrap();
                assert!(shown.peak <= most, "{} ran at once, the limit is {limit}", shown.peak);
            }
        }
    }
}
