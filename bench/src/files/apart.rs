//! The same reads while 64 connections echo elsewhere: the value of each method if it does not have
//! the processors to itself.
//!
//! Each contender reads as fast as it can with one thread, as without an echo: its own loop, or the
//! only thread of its port. Meanwhile a server echoes as fast as its clients send, with whatever
//! processors it gets: a process with a port of one thread, and the clients' thread. Both are the
//! same for all contenders, from the first round to the last, and independent of the method of
//! reading. So only the reading differs.
//!
//! Compared is the processor time for each read: of this process, without that of the clients'
//! thread. The rate is by the clock, so it depends on the share of the processors that the system
//! gives to a thread that rarely or never rests; that, too, is the same for all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::beside::{PATTERN, connect};
use super::plan::Plan;
use super::scratch::{Scratch, Way};
use super::{CACHED, DIRECT, Entry, Options, Reader, measure, of_the_file};
use crate::asking::Ask as _;
use crate::histogram::Histogram;
use crate::load::Load;
use crate::names::files::{
    AT_ONCE, BY_PACKET, BY_RING, BY_TOKENS, IN_C_AT_ONCE, IN_C_BY_PACKET, IN_C_BY_RING, NO_WAIT,
    PREAD, URING, URING_THREAD,
};
use crate::processor_time::Clock;
use crate::remote::Remote;
use crate::report::{Cell, Row};
use crate::rounds::WARM_UP;
use crate::scenario::{ACTIVE, CPU, FILES, RATE};
use crate::sink::Service;
use crate::targets::OURS;
use crate::traffic::Traffic;

/// How often the clients check whether the turn has ended; then they wait for their last answers.
const SLICE: Duration = Duration::from_millis(25);

/// Who takes part.
const CACHED_PART: [&str; 8] =
    [AT_ONCE, BY_PACKET, BY_TOKENS, IN_C_AT_ONCE, IN_C_BY_PACKET, PREAD, NO_WAIT, URING];
const DIRECT_PART: [&str; 4] = [BY_RING, IN_C_BY_RING, URING, URING_THREAD];

/// Measures all contenders.
pub(super) fn run(
    way: Way,
    scratch: &Scratch,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Cell {
    let (all, names, compared) = match way {
        Way::Cached => (&CACHED[..], &CACHED_PART[..], CPU),
        Way::Direct => (&DIRECT[..], &DIRECT_PART[..], RATE),
    };
    let entries: Vec<Entry> =
        all.iter().filter(|entry| names.contains(&entry.name)).copied().collect();
    let reads = format!("{}, while {ACTIVE} connections echo elsewhere", way.words());
    let title = format!("random reads of 4 KiB, {reads}");
    progress(&title);
    let cell = Cell {
        scenario: FILES.to_owned(),
        title,
        threads: Some(1),
        connections: Some(ACTIVE),
        reads: Some(reads),
        compared: compared.to_owned(),
        notes: vec![
            of_the_file(scratch),
            "cpu: of the process that reads, without the clients' thread; echo: its answers, and their p99. Server and clients \
             are the same for all."
                .to_owned(),
        ],
        ..Cell::default()
    };
    let mut echo = match Echo::start() {
        Ok(echo) => echo,
        Err(reason) => {
            let notes = vec![format!("left out: {reason}")];
            return Cell { notes, ..cell };
        }
    };
    let rows = measure(way, &entries, compared, scratch, options, |reader, plan, row| {
        turn(reader, plan, &mut echo, way, options, row)
    });
    Cell { rows, ..cell }
}

/// The server that echoes, and the thread of its clients. They rest between the turns.
struct Echo {
    remote: Remote,
    clients: ThreadClock,
    begin: Sender<()>,
    is_over: Arc<AtomicBool>,
    answers: Receiver<Result<Answers, String>>,
}

/// The echo's results in a turn.
struct Answers {
    in_a_second: f64,
    /// In nanoseconds.
    p99: Option<f64>,
}

impl Echo {
    fn start() -> Result<Echo, String> {
        let mut remote = Remote::start(OURS, 1, Service::Echo, Traffic::Lasting, false)?;
        let ((begin, begun), (answer, answers), (ready, is_ready)) =
            (channel(), channel(), channel());
        let is_over = Arc::new(AtomicBool::new(false));
        let (address, until) = (remote.address, Arc::clone(&is_over));
        let be_clients = move || {
            let clock = ThreadClock::own().map_err(|error| format!("clients: {error}"));
            let mut connected = clock.and_then(|clock| Ok((clock, connect(address)?)));
            // If nobody hears this, nobody begins a turn.
            let _: Result<(), _> =
                ready.send(connected.as_ref().map(|(clock, _)| *clock).map_err(String::clone));
            if let Ok((_, load)) = &mut connected {
                ask_in_turns(load, &begun, &until, &answer);
            }
        };
        thread::Builder::new()
            .name("clients".to_owned())
            .spawn(be_clients)
            .map_err(|error| format!("clients: {error}"))?;
        let clients = is_ready.recv().map_err(|_| "the clients are gone".to_owned())??;
        remote.wait_for_added(ACTIVE as u64)?;
        Ok(Echo { remote, clients, begin, is_over, answers })
    }

    /// Has `work` done while the clients ask.
    fn meanwhile<T>(
        &mut self,
        work: impl FnOnce(ThreadClock) -> io::Result<T>,
    ) -> Result<(T, Answers), String> {
        self.is_over.store(false, Ordering::Relaxed);
        // If they are gone, they have said why.
        let _: Result<(), _> = self.begin.send(());
        let done = work(self.clients);
        self.is_over.store(true, Ordering::Relaxed);
        let answers = self.answers.recv().map_err(|_| "the clients are gone".to_owned())??;
        self.remote.settle()?;
        Ok((done.map_err(|error| error.to_string())?, answers))
    }
}

/// The clients, until no more turns can begin, or something goes wrong.
fn ask_in_turns(
    load: &mut Load,
    begun: &Receiver<()>,
    is_over: &AtomicBool,
    answers: &Sender<Result<Answers, String>>,
) {
    let mut latencies = Histogram::default();
    while begun.recv().is_ok() {
        latencies.clear();
        let asked = ask(load, &mut latencies, is_over);
        let p99 = latencies.per_mille(990);
        let is_wrong = asked.is_err();
        let answer = asked.map(|in_a_second| Answers { in_a_second, p99 });
        if answers.send(answer).is_err() || is_wrong {
            return;
        }
    }
}

/// The clock of the processor time of a thread.
#[derive(Clone, Copy)]
struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// That of the calling thread.
    fn own() -> io::Result<ThreadClock> {
        let mut clock = 0;
        // SAFETY: pthread_self(3) demands nothing.
        let thread = unsafe { libc::pthread_self() };
        // SAFETY: pthread_getcpuclockid(3) demands a thread that lives, and writes a number at the pointer.
        // - lives: it is the calling one;
        // - valid for writes: `clock` lives until the call returns.
        let code = unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) };
        if code == 0 { Ok(ThreadClock(clock)) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    /// How much the thread has used. It may have ended, which is an error then.
    fn now(self) -> io::Result<Duration> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime(2) writes one timespec at the pointer.
        // - valid for writes: `time` lives until the call returns.
        if unsafe { libc::clock_gettime(self.0, &raw mut time) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let seconds = u64::try_from(time.tv_sec).map_err(io::Error::other)?;
        Ok(Duration::new(seconds, u32::try_from(time.tv_nsec).map_err(io::Error::other)?))
    }
}

/// Makes the clients send until the turn ends; returns their answers per second.
fn ask(load: &mut Load, latencies: &mut Histogram, is_over: &AtomicBool) -> Result<f64, String> {
    let (mut answered, mut seconds) = (0, 0.0);
    while !is_over.load(Ordering::Relaxed) {
        let tally = load.run(PATTERN, SLICE, latencies)?;
        answered += tally.in_time;
        seconds += tally.seconds;
    }
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let answered = answered as f64;
    Ok(answered / seconds)
}

/// The reads and their cost.
struct Measured {
    reads: f64,
    used: Duration,
    taken: Duration,
}

/// One turn: its values go into `row`.
fn turn(
    reader: &mut dyn Reader,
    plan: Plan,
    echo: &mut Echo,
    way: Way,
    options: &Options,
    row: &mut Row,
) -> io::Result<()> {
    let turn = echo.meanwhile(|clients| read(reader, &plan, way, options, clients));
    let (Measured { reads, used, taken }, Answers { in_a_second, p99 }) =
        turn.map_err(io::Error::other)?;
    row.push(CPU, "ns", Some(used.as_secs_f64() * 1e9 / reads));
    row.push(RATE, "1/s", Some(reads / taken.as_secs_f64()));
    row.push("echo", "1/s", Some(in_a_second));
    row.push("echo p99", "us", p99.map(|time| time / 1000.0));
    Ok(())
}

/// Reads a while, and then for as long as is measured. From the system's memory that is in portions of as many reads as a
/// turn has where nothing echoes, so that no read has to ask for the time. What `clients` use is not counted.
fn read(
    reader: &mut dyn Reader,
    plan: &Plan,
    way: Way,
    options: &Options,
    clients: ThreadClock,
) -> io::Result<Measured> {
    let [warm_up, plan] = &plan.deal(2)[..] else { return Err(io::ErrorKind::Other.into()) };
    reader.read(&mut warm_up.clone().within(WARM_UP))?;
    let mut plan = plan.clone();
    let (begun, used, by_clients) = (Instant::now(), Clock::Process.now(), clients.now()?);
    match way {
        Way::Cached => {
            while begun.elapsed() < options.time / 2 {
                plan = plan.of(options.reads);
                reader.read(&mut plan)?;
            }
        }
        Way::Direct => {
            plan = plan.within(options.time);
            reader.read(&mut plan)?;
        }
    }
    let (used, by_clients) = (Clock::Process.now() - used, clients.now()? - by_clients);
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let reads = plan.made() as f64;
    Ok(Measured { reads, used: used.saturating_sub(by_clients), taken: begun.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::super::scratch::tests::scratch;
    use super::*;

    #[test]
    fn a_read_is_measured_from_the_end_of_the_warm_up_until_the_turn_is_over() {
        let scratch = scratch(64);
        let options = Options { reads: 100, time: Duration::from_millis(20), ..Options::default() };
        let pread = CACHED.iter().find(|entry| entry.name == PREAD).unwrap();
        let mut reader = (pread.build)(&scratch, Way::Cached).unwrap();
        let plan = Plan::endless(scratch.pages(), 1);
        // A thread that does nothing.
        let (tell, clock) = channel();
        let (end, ends) = channel::<()>();
        let clients = thread::spawn(move || {
            tell.send(ThreadClock::own().unwrap()).unwrap();
            ends.recv().unwrap_err();
        });
        let (clock, begun) = (clock.recv().unwrap(), Instant::now());
        let measured = read(&mut *reader, &plan, Way::Cached, &options, clock).unwrap();
        assert!(begun.elapsed() >= WARM_UP + measured.taken);
        assert!(measured.taken >= options.time / 2 && !measured.used.is_zero());
        drop(end);
        clients.join().unwrap();
        // Whole portions, of which those of the warm-up are none.
        assert!(measured.reads >= 100.0 && measured.reads % 100.0 == 0.0, "{}", measured.reads);
    }

    #[test]
    fn all_who_take_part_are_contenders() {
        for (names, entries) in [(&CACHED_PART[..], &CACHED[..]), (&DIRECT_PART, &DIRECT)] {
            for name in names {
                assert!(entries.iter().any(|entry| entry.name == *name), "{name}");
            }
        }
    }
}
