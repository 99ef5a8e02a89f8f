//! The cost of an event on a port with very many registrations.
//!
//! A thousand to a million event counters are registered. Each step increments a few random ones.
//! Then the same thread takes the packets, reads the counters and rearms; this is timed, in
//! processor time of the thread.
//!
//! On epoll, the process's descriptor limit ends the measurement; on the simulated kernel, memory
//! does. The cost of the kernel alone is measured as well: polling an edge-triggered set, and
//! reading the counters it reports.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration, Source, sim};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::options::Crowd as Options;
use crate::processor_time::Clock;
use crate::statistics::{Estimate, estimate_present};
use crate::{Failure, table};

/// How many are ready in a step: more than a batch, and few compared to the registrations.
const READY: usize = 512;
/// Steps of a round.
const STEPS: u32 = 16;
/// Packets, or events, that are taken at a time.
const TAKEN: usize = 64;
/// Numbers of registrations to measure, up to the limit.
const SIZES: [usize; 10] =
    [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000];
/// Descriptors that the process needs besides the counters.
const SPARE: usize = 64;

/// A measured quantity: a column of the table.
struct Line {
    name: &'static str,
    /// Whether its counters are descriptors of the process.
    is_real: bool,
    measure: fn(size: usize, rounds: u32) -> io::Result<Vec<f64>>,
}

const LINES: [Line; 4] = [
    Line {
        name: "the port, sim",
        is_real: false,
        measure: |size, rounds| {
            let kernel = sim::Kernel::new();
            let counters = simulated(&kernel, size)?;
            let port = Port::builder().build_simulated(&kernel)?;
            rounds_of(&mut OnPort::new(port, &counters)?, &counters, rounds)
        },
    },
    Line {
        name: "sim alone",
        is_real: false,
        measure: |size, rounds| {
            let kernel = sim::Kernel::new();
            let counters = simulated(&kernel, size)?;
            let watcher = kernel.watcher();
            for (counter, number) in counters.iter().zip(0..) {
                watcher.watch(counter, number, sim::Conditions::IN)?;
            }
            rounds_of(&mut OnSim(watcher), &counters, rounds)
        },
    },
    Line {
        name: "the port, epoll",
        is_real: true,
        measure: |size, rounds| {
            let counters = real(size)?;
            rounds_of(&mut OnPort::new(Port::new()?, &counters)?, &counters, rounds)
        },
    },
    Line {
        name: "epoll alone",
        is_real: true,
        measure: |size, rounds| {
            let counters = real(size)?;
            let set = epoll::create(CreateFlags::CLOEXEC)?;
            for (counter, number) in counters.iter().zip(0..) {
                let flags = EventFlags::IN | EventFlags::ET;
                epoll::add(&set, counter, EventData::new_u64(number), flags)?;
            }
            rounds_of(&mut OnEpoll(set, Vec::with_capacity(TAKEN)), &counters, rounds)
        },
    },
];

/// The columns of the port, and those of the kernels to compare with.
const PAIRS: [(usize, usize); 2] = [(0, 1), (2, 3)];

/// A size, and the times for each line.
struct Row {
    size: usize,
    found: [Option<Estimate>; LINES.len()],
}

/// An event counter.
trait Counter: Source {
    fn add(&self) -> io::Result<()>;
    fn take(&self) -> io::Result<()>;
}

impl Counter for sim::Socket {
    fn add(&self) -> io::Result<()> {
        self.write(&1_u64.to_ne_bytes()).map(drop)
    }

    fn take(&self) -> io::Result<()> {
        self.read(&mut [0; 8]).map(drop)
    }
}

impl Counter for OwnedFd {
    fn add(&self) -> io::Result<()> {
        rustix::io::write(self, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    fn take(&self) -> io::Result<()> {
        rustix::io::read(self, &mut [0; 8])?;
        Ok(())
    }
}

fn simulated(kernel: &sim::Kernel, count: usize) -> io::Result<Vec<sim::Socket>> {
    (0..count).map(|_| kernel.event()).collect()
}

fn real(count: usize) -> io::Result<Vec<OwnedFd>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    (0..count).map(|_| Ok(eventfd(0, flags)?)).collect()
}

/// Reports which counters are readable.
trait Watch<C> {
    /// Reads the reported counters, a batch or all of them, and returns their number. Does not
    /// block.
    fn take(&mut self, counters: &[C]) -> io::Result<usize>;
}

struct OnPort {
    port: Port<usize>,
    batch: Batch,
}

impl OnPort {
    fn new<C: Counter>(port: Port<usize>, counters: &[C]) -> io::Result<Self> {
        for (number, counter) in counters.iter().enumerate() {
            let registration = Registration::new(counter, number, Interest::IN, OneShot::Level);
            port.register(registration)?;
        }
        Ok(Self { port, batch: Batch::with_capacity(TAKEN) })
    }
}

impl<C: Counter> Watch<C> for OnPort {
    fn take(&mut self, counters: &[C]) -> io::Result<usize> {
        let mut count = 0;
        for packet in self.port.wait(&mut self.batch, Duration::ZERO)? {
            let Packet::Ready(mut ready) = packet else { continue };
            counters[*ready.key()].take()?;
            ready.read_drained();
            ready.rearm()?;
            count += 1;
        }
        Ok(count)
    }
}

struct OnSim(sim::Watcher);

impl Watch<sim::Socket> for OnSim {
    fn take(&mut self, counters: &[sim::Socket]) -> io::Result<usize> {
        let edges = self.0.edges();
        for (number, _) in &edges {
            place(counters, *number)?.take()?;
        }
        Ok(edges.len())
    }
}

struct OnEpoll(OwnedFd, Vec<Event>);

impl Watch<OwnedFd> for OnEpoll {
    fn take(&mut self, counters: &[OwnedFd]) -> io::Result<usize> {
        let Self(set, events) = self;
        events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&*set, rustix::buffer::spare_capacity(events), Some(&now))?;
        for event in &*events {
            place(counters, event.data.u64())?.take()?;
        }
        Ok(events.len())
    }
}

fn place<C>(counters: &[C], number: u64) -> io::Result<&C> {
    let place = usize::try_from(number).ok().and_then(|place| counters.get(place));
    place.ok_or_else(|| io::Error::other("an event of no counter"))
}

/// Nanoseconds for each event, round by round. A first round is not counted: everything grows in it.
fn rounds_of<C: Counter>(
    watch: &mut impl Watch<C>,
    counters: &[C],
    rounds: u32,
) -> io::Result<Vec<f64>> {
    let mut lots = Lots(0x9e37_79b9_7f4a_7c15);
    let mut times = Vec::new();
    for _ in 0..=rounds {
        let mut time = Duration::ZERO;
        let mut events = 0_u32;
        for _ in 0..STEPS {
            let ready = lots.draw(counters.len());
            for place in &ready {
                counters[*place].add()?;
            }
            let mut left = ready.len();
            let begin = Clock::Thread.now();
            while left > 0 {
                let taken = watch.take(counters)?;
                if taken == 0 {
                    return Err(io::Error::other("events were lost"));
                }
                left = left.saturating_sub(taken);
            }
            time += Clock::Thread.now() - begin;
            events += u32::try_from(ready.len()).unwrap_or(u32::MAX);
        }
        times.push(time.as_secs_f64() * 1e9 / f64::from(events));
    }
    times.remove(0);
    Ok(times)
}

/// The same lots in every run.
struct Lots(u64);

impl Lots {
    /// Different places below `size`: [`READY`] of them, at most half of all.
    fn draw(&mut self, size: usize) -> Vec<usize> {
        let mut drawn = std::collections::HashSet::new();
        let mut places = Vec::new();
        while places.len() < READY.min(size / 2) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            #[allow(clippy::cast_possible_truncation, reason = "any of its bits will do")]
            let place = self.0 as usize % size;
            if drawn.insert(place) {
                places.push(place);
            }
        }
        places
    }
}

/// How many counters the process can have.
fn room() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    limit.saturating_sub(SPARE)
}

/// The sizes up to `most`, and the largest one for which there is `room`, in thousands.
fn sizes(most: usize, room: usize) -> Vec<usize> {
    let last = (room / 1000 * 1000).min(most).max(SIZES[0]);
    let mut sizes: Vec<_> = SIZES.into_iter().filter(|size| *size <= most).chain([last]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Measures, and prints the table.
pub(crate) fn run(options: Options) -> Result<(), Failure> {
    let most = usize::try_from(options.most).unwrap_or(usize::MAX);
    let room = room();
    let mut rows = Vec::new();
    for size in sizes(most, room) {
        eprintln!("{size} registrations");
        let mut row = Row { size, found: [None; LINES.len()] };
        for (line, found) in LINES.iter().zip(&mut row.found) {
            if line.is_real && size > room {
                continue;
            }
            let times = (line.measure)(size, options.rounds);
            let times = times
                .map_err(|error| Failure::Broken(format!("{}, {size}: {error}", line.name)))?;
            let times: Vec<_> = times.into_iter().map(Some).collect();
            *found = estimate_present(&times);
        }
        rows.push(row);
    }
    print!("{}", text(&rows));
    Ok(())
}

/// The table: a line for each size.
fn text(rows: &[Row]) -> String {
    let mut head = vec!["registrations".to_owned()];
    head.extend(LINES.iter().map(|line| format!("{} [ns]", line.name)));
    head.extend(["above sim [ns]".to_owned(), "above epoll [ns]".to_owned()]);
    let mut lines = vec![head];
    for row in rows {
        let mut line = vec![row.size.to_string()];
        let shown = |found: &Estimate| match found.interval {
            Some((low, high)) => format!("{:.0} ({low:.0}-{high:.0})", found.median),
            None => format!("{:.0}", found.median),
        };
        line.extend(row.found.iter().map(|it| it.as_ref().map_or("-".to_owned(), shown)));
        line.extend(PAIRS.map(|(ours, kernel)| match (row.found[ours], row.found[kernel]) {
            (Some(ours), Some(kernel)) => format!("{:.0}", ours.median - kernel.median),
            _ => "-".to_owned(),
        }));
        lines.push(line);
    }
    format!(
        "processor time for each event, {READY} ready at a time, one thread\n{}",
        table::align(lines, 0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_measured() {
        for line in &LINES {
            let times = (line.measure)(1000, 2).unwrap();
            assert_eq!(times.len(), 2, "{}", line.name);
            assert!(times.iter().all(|time| *time > 0.0), "{}: {times:?}", line.name);
        }
    }

    /// A contender that misses a counter is detected and does not count as fast.
    #[test]
    fn a_lost_event_is_an_error() {
        struct Deaf;
        impl Watch<sim::Socket> for Deaf {
            fn take(&mut self, _counters: &[sim::Socket]) -> io::Result<usize> {
                Ok(0)
            }
        }
        let counters = simulated(&sim::Kernel::new(), 10).unwrap();
        assert!(rounds_of(&mut Deaf, &counters, 1).is_err());
    }

    #[test]
    fn lots_are_different_places() {
        let mut lots = Lots(7);
        for (size, count) in [(10, 5), (1000, 500), (100_000, READY)] {
            let drawn = lots.draw(size);
            let different: std::collections::HashSet<_> = drawn.iter().collect();
            assert_eq!((drawn.len(), different.len()), (count, count));
            assert!(drawn.iter().all(|place| *place < size));
        }
    }

    #[test]
    fn the_last_size_with_room_for_descriptors_is_among_the_sizes() {
        assert_eq!(sizes(5000, 19_936), [1000, 2000, 5000]);
        assert_eq!(sizes(20_000, 19_936), [1000, 2000, 5000, 10_000, 19_000, 20_000]);
        assert_eq!(sizes(1000, 100), [1000]);
        assert_eq!(sizes(1_000_000, usize::MAX).last(), Some(&1_000_000));
    }

    #[test]
    fn the_table_has_what_the_port_adds() {
        let of = |median| Some(Estimate { median, interval: None });
        let rows = [Row { size: 1000, found: [of(300.0), of(100.0), of(900.0), None] }];
        let text = text(&rows);
        let line: Vec<_> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(line, ["1000", "300", "100", "900", "-", "200", "-"]);
    }
}
