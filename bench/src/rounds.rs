//! Measures a situation: round after round, each contender in turn.
//!
//! All servers of a situation live side by side, and sleep while another has its turn. A turn begins
//! and ends when nothing is under way, so that all the processor time in between belongs to its
//! requests. The order of the turns is rotated from round to round.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::asking::{Ask, Tally};
use crate::contenders::Contender;
use crate::datagrams::Datagrams;
use crate::distance;
use crate::enough::Amount;
use crate::flood::Flood;
use crate::histogram::Histogram;
use crate::http::HttpClients;
use crate::load::{Handlers, Load, PORTION, Pattern};
use crate::processor_time::Clock;
use crate::remote::Remote;
use crate::report::{Cell, Row};
use crate::scenario::{CPU, RATE, Setup};
use crate::server::Snapshot;
use crate::short::Short;
use crate::sink::Service;
use crate::system;
use crate::traffic::Traffic;

/// Sent before each turn's measurement, so that caches and branch predictors know the server.
pub(crate) const WARM_UP: Duration = Duration::from_millis(40);
/// A round in which the kernel counts.
const COUNTED: Duration = Duration::from_millis(150);
/// A server that is asleep uses less of a processor than this.
const ASLEEP: f64 = 0.005;
/// How long a sink may take to read the remaining data at the end of a turn.
const LEFT_OVER: Duration = Duration::from_secs(10);
/// With fewer connections the memory of each is lost in that of the process.
const MANY: usize = 1000;
/// The first contender with few sockets, for comparison with many.
pub(crate) const FEW_SOCKETS: &str = "ours, 64 sockets";

/// The clients of a server.
enum Clients {
    /// Of one that answers, by connections that are made before the rounds.
    Load(Load),
    /// Of one that answers, by short connections or by datagrams.
    Others(Box<dyn Ask>),
    /// Of a sink.
    Flood(Flood),
}

impl Clients {
    fn new(setup: &Setup, remote: &Remote) -> Result<Clients, String> {
        let clients = match (setup.traffic, setup.service()) {
            (Traffic::Http(http), _) => HttpClients::new(remote.address, setup.connections, http)
                .map(|clients| Clients::Others(Box::new(clients))),
            (Traffic::Lasting, Service::Echo) => Load::new().map(Clients::Load),
            (Traffic::Lasting, Service::Sink(_)) => Flood::new().map(Clients::Flood),
            (Traffic::Short, _) => Short::new(remote.address, setup.connections)
                .map(|short| Clients::Others(Box::new(short))),
            (Traffic::Datagrams { under_way, .. }, _) => Datagrams::new(&remote.sockets, under_way)
                .map(|datagrams| Clients::Others(Box::new(datagrams))),
        };
        clients.map_err(|error| format!("load generator: {error}"))
    }

    /// Connects once more, where connections are made before the rounds.
    fn connect(&mut self, server: SocketAddr, active: bool) -> io::Result<()> {
        match self {
            Clients::Load(load) => load.connect(server, active),
            Clients::Others(_) => Ok(()),
            Clients::Flood(flood) => flood.connect(server),
        }
    }

    fn connections(&self) -> usize {
        match self {
            Clients::Load(load) => load.connections(),
            Clients::Others(others) => others.connections(),
            Clients::Flood(flood) => flood.connections(),
        }
    }

    /// Those that wait for answers, or those that do not.
    fn asking(&mut self) -> Result<&mut dyn Ask, &mut Flood> {
        match self {
            Clients::Load(load) => Ok(load),
            Clients::Others(others) => Ok(&mut **others),
            Clients::Flood(flood) => Err(flood),
        }
    }
}

/// A contender that takes part in the rounds.
struct Entrant {
    remote: Remote,
    clients: Clients,
    /// Connections made ever.
    made: u64,
    /// At the end of the last turn: when, and the processor time so far.
    rested: Option<(Instant, u64)>,
    /// Time at rest, and the processor time used in it, in seconds.
    rest: (f64, f64),
    /// Resident memory before the first connection.
    resident: u64,
    /// Whether the memory has been noted.
    weighed: bool,
}

/// One row of a cell: who is measured, and how.
pub(crate) struct Place {
    pub(crate) name: String,
    /// The `cport-bench` that has the server.
    pub(crate) program: PathBuf,
    pub(crate) contender: Contender,
    pub(crate) setup: Setup,
    /// Whether connections are made again for each turn.
    pub(crate) by_turn: bool,
}

/// All contenders; in S8 also the first of them with few sockets, to which it is compared. `descriptors` is the limit of a
/// process.
pub(crate) fn line_up(setup: &Setup, contenders: &[Contender], descriptors: usize) -> Vec<Place> {
    let place = |name: &str, contender: &Contender, setup: &Setup| Place {
        name: name.to_owned(),
        program: system::own_program(),
        contender: *contender,
        setup: setup.clone(),
        by_turn: setup.connects_by_turn(contenders.len(), descriptors),
    };
    let mut places: Vec<Place> =
        contenders.iter().map(|contender| place(contender.name, contender, setup)).collect();
    if setup.scenario == "S8"
        && let Some(first) = contenders.first()
    {
        let few = Setup { connections: setup.active(), ..setup.clone() };
        places.push(place(FEW_SOCKETS, first, &few));
    }
    places
}

/// Measures all places in the situation of the first one. Errors are recorded in the row concerned.
pub(crate) fn measure(places: &[Place], amount: Amount, progress: &mut dyn FnMut(&str)) -> Cell {
    let Some(Place { setup, .. }) = places.first() else { return Cell::default() };
    let mut rows: Vec<Row> = places
        .iter()
        .map(|place| Row { contender: place.name.clone(), ..Row::default() })
        .collect();
    progress("starting the servers");
    let mut entrants: Vec<Option<Entrant>> = Vec::new();
    for (place, row) in places.iter().zip(&mut rows) {
        let entrant = Entrant::start(place);
        entrants.push(entrant.map_err(|reason| row.failure = Some(reason)).ok());
    }
    let mut latencies = Histogram::default();
    let mut round = 0;
    while amount.goes_on(round, &rows, setup.compared) {
        for turn in 0..places.len() {
            let at = (round + turn) % places.len();
            let (place, row) = (&places[at], &mut rows[at]);
            let usual = setup.rounds;
            progress(&format!("round {} (usually {usual}), {}", round + 1, place.name));
            let turn =
                entrants[at].as_mut().map(|entrant| entrant.turn(place, &mut latencies, row));
            if !matches!(turn, Some(Ok(()))) {
                skip(row, setup, round);
            }
            if let Some(Err(reason)) = turn {
                row.failure = Some(format!("round {}: {reason}", round + 1));
                entrants[at] = None;
            }
        }
        round += 1;
    }
    let mut notes = notes(setup, places.iter().any(|place| place.by_turn));
    let detected = |(place, entrant): (&Place, &Option<Entrant>)| {
        let detected = entrant.as_ref()?.remote.detected.as_ref()?;
        Some(format!("{}: {detected}", place.name))
    };
    notes.extend(places.iter().zip(&entrants).filter_map(detected));
    for (place, entrant) in places.iter().zip(&entrants) {
        let Some(Entrant { rest: (rested, used), .. }) = entrant else { continue };
        let share = used / rested.max(f64::MIN_POSITIVE);
        if share > ASLEEP {
            let (name, share) = (&place.name, share * 100.0);
            notes.push(format!("{name} used {share:.1} % of a processor while at rest"));
        }
    }
    let alive: Vec<bool> = entrants.iter().map(Option::is_some).collect();
    // The servers go, so that those that count have the machine for themselves.
    drop(entrants);
    for ((place, row), is_alive) in places.iter().zip(&mut rows).zip(alive) {
        if !is_alive {
            continue;
        }
        progress(&format!("counting system calls, {}", place.name));
        if let Err(reason) = count(place, row) {
            row.failure = Some(format!("counting: {reason}"));
        }
    }
    Cell {
        scenario: setup.scenario.to_owned(),
        title: setup.title.clone(),
        threads: Some(setup.threads),
        connections: Some(setup.connections),
        drain: setup.drain,
        under_way: match setup.traffic {
            Traffic::Datagrams { under_way, .. } => Some(under_way),
            Traffic::Lasting | Traffic::Short | Traffic::Http(_) => None,
        },
        reads: None,
        compared: setup.compared.to_owned(),
        rows,
        notes,
    }
}

/// Two turns that are not recorded: the rate, and what the server used in all.
#[cfg_attr(windows, allow(dead_code, reason = "only runtimes need it"))]
pub(crate) fn pilot(place: &Place) -> Result<(f64, Snapshot), String> {
    let mut entrant = Entrant::start(place)?;
    let (mut latencies, mut row) = (Histogram::default(), Row::default());
    for _ in 0..2 {
        entrant.turn(place, &mut latencies, &mut row)?;
    }
    // In the first turn a queue may still be growing.
    let rate = row.values(RATE).iter().flatten().copied().fold(f64::INFINITY, f64::min);
    Ok((rate, entrant.remote.snapshot()?))
}

fn notes(setup: &Setup, by_turn: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if by_turn {
        notes.push("Connections are created again for each turn.".to_owned());
    }
    if setup.drain.is_some() {
        let what = "rate: packets in a second, each a read that brought something. read, cpu and the \
                    numbers after it are for each packet; but processors and clients say how many \
                    processors the server used, and its clients.";
        let how = "The tasks of tokio, compio and monoio, and uring, cannot limit their reads.";
        notes.extend([what.to_owned(), how.to_owned()]);
    }
    let about = match setup.traffic {
        Traffic::Lasting => None,
        Traffic::Http(_) => Some(
            "Latencies are of the quick requests. With a rate they begin when a request was due, not when it was sent.",
        ),
        Traffic::Short => Some(
            "Figures are for each connection, from connect(2) to close(2). Designs whose threads share nothing \
             have a listener for each thread (SO_REUSEPORT), the others one.",
        ),
        Traffic::Datagrams { .. } => Some(
            "Figures are for each datagram and its answer. A readiness-based server reads until \
             it would block.",
        ),
    };
    notes.extend(about.map(str::to_owned));
    match setup.pattern.handlers {
        Handlers::FirstSpins(microseconds) => notes.push(format!(
            "Figures are those of the quick connections; the other one's handler spins for {} ms \
             again and again. A latency stands also for those whom requests sent each millisecond \
             would have met. least: requests of the connection with the fewest.",
            microseconds / 1000
        )),
        Handlers::Sometimes { .. } | Handlers::Quick | Handlers::All(_) => {}
    }
    notes
}

/// Notes that a round gave nothing, so that the values of later rounds keep their places.
fn skip(row: &mut Row, setup: &Setup, round: usize) {
    let names: Vec<(String, String)> = row
        .quantities
        .iter()
        .filter(|quantity| quantity.values.len() == round)
        .map(|quantity| (quantity.name.clone(), quantity.unit.clone()))
        .collect();
    for (name, unit) in names {
        row.push(&name, &unit, None);
    }
    if row.quantity(setup.compared).is_none() {
        let unit = match setup.compared {
            RATE => "1/s",
            "p99" => "us",
            _ => "ns",
        };
        (0..=round).for_each(|_| row.push(setup.compared, unit, None));
    }
}

impl Entrant {
    fn start(place: &Place) -> Result<Entrant, String> {
        let setup = &place.setup;
        let service = setup.service();
        let (name, traffic) = (place.contender.name, setup.traffic);
        let program = &place.program;
        let mut remote = Remote::start_of(program, name, setup.threads, service, traffic, false)?;
        let resident = remote.settle()?.resident;
        let mut entrant = Entrant {
            clients: Clients::new(setup, &remote)?,
            remote,
            made: 0,
            rested: None,
            rest: (0.0, 0.0),
            resident,
            weighed: setup.connections < MANY,
        };
        if !place.by_turn {
            entrant.connect(setup)?;
        }
        Ok(entrant)
    }

    fn connect(&mut self, setup: &Setup) -> Result<(), String> {
        connect(&mut self.remote, &mut self.clients, setup, self.made)?;
        self.made += setup.connections as u64;
        self.remote.settle()?;
        Ok(())
    }

    /// One turn: its values go into `row`.
    fn turn(
        &mut self,
        place: &Place,
        latencies: &mut Histogram,
        row: &mut Row,
    ) -> Result<(), String> {
        let setup = &place.setup;
        if let Some((since, used)) = self.rested {
            let now = self.remote.snapshot()?.processor_time;
            self.rest.0 += since.elapsed().as_secs_f64();
            self.rest.1 += to_float(now.saturating_sub(used)) / 1e9;
        }
        if place.by_turn {
            self.connect(setup)?;
        }
        let apart = distance::measure();
        let after = match self.clients.asking() {
            Ok(load) => {
                load.run(warm_up(setup), WARM_UP, latencies)?;
                let before = self.remote.settle()?;
                latencies.clear();
                let tally = load.run(setup.pattern, setup.round, latencies)?;
                let after = self.remote.settle()?;
                note(row, setup, &tally, latencies, &before, &after);
                after
            }
            Err(flood) => {
                let flooded = Flooded::measure(flood, &mut self.remote, setup.round)?;
                note_flooded(row, &flooded);
                read_up(&mut self.remote)?
            }
        };
        row.note_distance(&apart, &distance::measure());
        if !self.weighed {
            self.weighed = true;
            let more = after.resident.saturating_sub(self.resident);
            let each = to_float(more) / to_float(self.clients.connections() as u64);
            row.push("memory", "B", Some(each));
        }
        if place.by_turn {
            self.clients = Clients::new(setup, &self.remote)?;
            self.remote.settle()?;
        }
        self.rested = Some((Instant::now(), self.remote.snapshot()?.processor_time));
        Ok(())
    }
}

/// Makes the connections of a situation to a server that has taken over `made` before. Those that
/// send are spread over the order in which they are made, by an odd distance: a server that deals
/// its connections round robin to its threads gets as many of them on each.
fn connect(
    remote: &mut Remote,
    clients: &mut Clients,
    setup: &Setup,
    made: u64,
) -> Result<(), String> {
    if setup.traffic != Traffic::Lasting {
        return Ok(());
    }
    let distance = (setup.connections / setup.active()).max(1);
    let distance = if distance.is_multiple_of(2) { distance - 1 } else { distance };
    for index in 0..setup.connections {
        let is_active = index % distance == 0 && index / distance < setup.active();
        let connected = clients.connect(remote.address, is_active);
        connected.map_err(|error| format!("connecting: {error}"))?;
        let so_far = index + 1;
        if so_far % PORTION == 0 || so_far == setup.connections {
            remote.wait_for_added(made + so_far as u64)?;
        }
    }
    Ok(())
}

/// A spinning handler would outlast the warm-up.
fn warm_up(setup: &Setup) -> Pattern {
    match setup.pattern.handlers {
        Handlers::FirstSpins(_) => Pattern { handlers: Handlers::Quick, ..setup.pattern },
        _ => setup.pattern,
    }
}

/// The estimated time of a situation with that many contenders and the usual rounds, on the safe
/// side.
pub(crate) fn usual_time(setup: &Setup, contenders: usize, descriptors: usize) -> Duration {
    /// Additional time of a round: the warm-up, and waiting for answers in transit.
    const TURN: Duration = Duration::from_millis(110);
    /// Starting the server, and the round in which the kernel counts.
    const ONCE: Duration = Duration::from_millis(500);
    const CONNECTION: Duration = Duration::from_micros(50);
    let factor = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let by_turn = setup.connects_by_turn(contenders, descriptors);
    let connected = if by_turn { CONNECTION * factor(setup.connections) } else { Duration::ZERO };
    ((setup.round + TURN + connected) * factor(setup.rounds) + ONCE) * factor(contenders)
}

/// What a turn has shown.
fn note(
    row: &mut Row,
    setup: &Setup,
    tally: &Tally,
    latencies: &Histogram,
    before: &Snapshot,
    after: &Snapshot,
) {
    let spins = matches!(setup.pattern.handlers, Handlers::FirstSpins(_));
    let requests = to_float(tally.answered);
    let each = |after: u64, before: u64| Some(to_float(after.saturating_sub(before)) / requests);
    // The time of a spinning handler is not that of the requests.
    if !spins {
        row.push(CPU, "ns", each(after.processor_time, before.processor_time));
    }
    note_answers(row, tally, latencies);
    if spins {
        row.push("least", "1/s", Some(to_float(tally.least) / tally.seconds));
    }
    if let Some((after, before)) = after.switches.zip(before.switches) {
        row.push("sleeps", "", each(after.voluntary, before.voluntary));
        row.push("preempted", "", each(after.involuntary, before.involuntary));
    }
    if let (Some(after), Some(before)) = (after.wakes, before.wakes) {
        row.push("own wakes", "", each(after, before));
    }
    if setup.scenario.starts_with('R') {
        // A server on a runtime has as many threads as its tasks need.
        row.push("threads", "", after.threads.map(to_float));
        row.push("resident", "MiB", Some(to_float(after.resident) / f64::from(1 << 20)));
    }
}

/// How many answers came, and how soon.
pub(crate) fn note_answers(row: &mut Row, tally: &Tally, latencies: &Histogram) {
    row.push(RATE, "1/s", Some(to_float(tally.in_time) / tally.seconds));
    for (name, share) in [("p50", 500), ("p99", 990), ("p99.9", 999)] {
        row.push(name, "us", latencies.per_mille(share).map(|time| time / 1000.0));
    }
}

/// A turn of a sink, whose sockets were full before it began and when it was over.
struct Flooded {
    before: Snapshot,
    after: Snapshot,
    /// Processors that the clients used, and the harness with them.
    clients: f64,
}

impl Flooded {
    fn measure(flood: &mut Flood, remote: &mut Remote, time: Duration) -> Result<Flooded, String> {
        flood.run(WARM_UP)?;
        let before = remote.snapshot()?;
        let (begun, used) = (Instant::now(), Clock::Process.now());
        flood.run(time)?;
        let used = Clock::Process.now() - used;
        let clients = used.as_secs_f64() / begun.elapsed().as_secs_f64();
        let after = remote.snapshot()?;
        if after.packets == before.packets {
            return Err("stalled: no packet in the whole round".to_owned());
        }
        Ok(Flooded { before, after, clients })
    }

    /// For each packet.
    fn each(&self, amount: impl Fn(&Snapshot) -> u64) -> f64 {
        self.more(amount) / self.more(|snapshot| snapshot.packets)
    }

    fn more(&self, amount: impl Fn(&Snapshot) -> u64) -> f64 {
        to_float(amount(&self.after).saturating_sub(amount(&self.before)))
    }
}

/// Waits until a sink has read the remaining data in the sockets; returns the last snapshot.
fn read_up(remote: &mut Remote) -> Result<Snapshot, String> {
    let deadline = Instant::now() + LEFT_OVER;
    let mut last = remote.settle()?;
    loop {
        let next = remote.settle()?;
        if next.packets == last.packets {
            return Ok(next);
        }
        if Instant::now() > deadline {
            return Err(format!("still reading {} s after the round", LEFT_OVER.as_secs()));
        }
        last = next;
    }
}

/// What a turn of a sink has shown. Its time is the one between the two snapshots by the server's own
/// clock.
fn note_flooded(row: &mut Row, flooded: &Flooded) {
    let nanoseconds = flooded.more(|snapshot| snapshot.time);
    let packets = flooded.more(|snapshot| snapshot.packets);
    row.push(RATE, "1/s", Some(packets / nanoseconds * 1e9));
    row.push("read", "B", Some(flooded.each(|snapshot| snapshot.bytes)));
    row.push(CPU, "ns", Some(flooded.each(|snapshot| snapshot.processor_time)));
    let processors = flooded.more(|snapshot| snapshot.processor_time) / nanoseconds;
    row.push("processors", "", Some(processors));
    row.push("clients", "", Some(flooded.clients));
    if flooded.after.switches.is_some() {
        let of = |snapshot: &Snapshot| snapshot.switches.unwrap_or_default();
        row.push("sleeps", "", Some(flooded.each(|snapshot| of(snapshot).voluntary)));
        row.push("preempted", "", Some(flooded.each(|snapshot| of(snapshot).involuntary)));
    }
    if flooded.after.wakes.is_some() {
        let wakes = flooded.each(|snapshot| snapshot.wakes.unwrap_or(0));
        row.push("own wakes", "", Some(wakes));
    }
}

/// Runs again on a separate server, in which the kernel counts.
fn count(place: &Place, row: &mut Row) -> Result<(), String> {
    let setup = &place.setup;
    let service = setup.service();
    let (name, traffic) = (place.contender.name, setup.traffic);
    let program = &place.program;
    let mut remote = Remote::start_of(program, name, setup.threads, service, traffic, true)?;
    let mut clients = Clients::new(setup, &remote)?;
    if let Some(reason) = remote.snapshot()?.not_counted {
        row.push("syscalls", "", None);
        if let Some(quantity) = row.quantities.last_mut() {
            quantity.missing = Some(reason);
        }
        return Ok(());
    }
    connect(&mut remote, &mut clients, setup, 0)?;
    let time = COUNTED.max(setup.round / 4);
    let (before, after, events) = match clients.asking() {
        Ok(load) => {
            let mut latencies = Histogram::default();
            load.run(warm_up(setup), WARM_UP, &mut latencies)?;
            let before = remote.settle()?;
            let tally = load.run(setup.pattern, time, &mut latencies)?;
            (before, remote.snapshot()?, tally.answered)
        }
        Err(flood) => {
            let Flooded { before, after, .. } = Flooded::measure(flood, &mut remote, time)?;
            let packets = after.packets.saturating_sub(before.packets);
            (before, after, packets)
        }
    };
    let each = |after: Option<u64>, before: Option<u64>| {
        Some(to_float(after?.saturating_sub(before?)) / to_float(events))
    };
    row.push("syscalls", "", each(after.system_calls, before.system_calls));
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run are below 2^53")]
fn to_float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::scenario::{Extent, Selection};
    use crate::system::Switches;

    #[test]
    fn many_sockets_are_measured_beside_few() {
        let contenders = crate::contenders::all();
        let many = Setup { connections: 19_500, ..setup("S8") };
        let places = line_up(&many, &contenders, 20_000);
        assert_eq!(places.len(), contenders.len() + 1);
        let (first, last) = (&places[0], &places[contenders.len()]);
        assert_eq!((&*first.name, first.setup.connections, first.by_turn), ("ours", 19_500, true));
        assert_eq!((&*last.name, last.setup.connections, last.by_turn), (FEW_SOCKETS, 64, false));
        assert_eq!(last.contender.name, "ours");
        assert_eq!(line_up(&setup("S1"), &contenders, 20_000).len(), contenders.len());
    }

    pub(crate) fn setup(scenario: &str) -> Setup {
        let selection = Selection {
            extent: Extent::Usual,
            scenarios: vec![scenario.to_owned()],
            threads: vec![2],
            connections: vec![64],
            rounds: None,
            round: None,
            descriptors: 20_000,
        };
        selection.setups().unwrap().remove(0)
    }

    fn turn(row: &mut Row, setup: &Setup) {
        let mut latencies = Histogram::default();
        (1..=1000).for_each(|time| latencies.record(Duration::from_micros(time)));
        let tally = Tally { in_time: 900, seconds: 0.5, answered: 1000, least: 10 };
        let before = Snapshot {
            processor_time: 1_000,
            switches: Some(Switches { voluntary: 5, involuntary: 0 }),
            ..Snapshot::default()
        };
        let after = Snapshot {
            processor_time: 5_001_000,
            switches: Some(Switches { voluntary: 105, involuntary: 0 }),
            ..Snapshot::default()
        };
        note(row, setup, &tally, &latencies, &before, &after);
    }

    /// 500 packets of 1 KiB in a quarter of a second, for half a processor.
    #[test]
    fn figures_of_a_sink_are_for_each_packet_and_by_the_clock_of_the_server() {
        let before = Snapshot { time: 1, packets: 100, bytes: 7, ..Snapshot::default() };
        let after = Snapshot {
            time: 250_000_001,
            packets: 600,
            bytes: 7 + 500 * 1024,
            processor_time: 125_000_000,
            switches: Some(Switches { voluntary: 50, involuntary: 0 }),
            ..Snapshot::default()
        };
        let mut row = Row::default();
        note_flooded(&mut row, &Flooded { before, after, clients: 0.25 });
        for (name, value) in [
            ("rate", 2000.0),
            ("read", 1024.0),
            ("cpu", 250_000.0),
            ("processors", 0.5),
            ("clients", 0.25),
            ("sleeps", 0.1),
        ] {
            assert_eq!(row.values(name), [Some(value)], "{name}");
        }
        assert!(row.quantity("p50").is_none() && row.quantity("own wakes").is_none());
    }

    #[test]
    fn figures_are_for_each_request_and_each_second() {
        let mut row = Row::default();
        turn(&mut row, &setup("S1"));
        assert_eq!(row.values("cpu"), [Some(5000.0)]);
        assert_eq!(row.values("rate"), [Some(1800.0)]);
        assert_eq!(row.values("sleeps"), [Some(0.1)]);
        assert!((row.values("p99")[0].unwrap() - 990.0).abs() < 16.0);
        assert!(row.quantity("own wakes").is_none());
    }

    /// The processor time of a spinning handler has no relation to the requests.
    #[test]
    fn beside_a_spinning_handler_no_processor_time_is_told() {
        let mut row = Row::default();
        turn(&mut row, &setup("S9"));
        assert!(row.quantity("cpu").is_none());
        assert_eq!(row.values("least"), [Some(20.0)]);
    }

    #[test]
    fn rounds_without_values_keep_the_others_in_their_places() {
        let setup = setup("S1");
        let (mut never, mut once) = (Row::default(), Row::default());
        turn(&mut once, &setup);
        skip(&mut never, &setup, 0);
        for round in 1..3 {
            skip(&mut never, &setup, round);
            skip(&mut once, &setup, round);
        }
        assert_eq!(never.values("cpu"), [None; 3]);
        assert_eq!(once.values("cpu"), [Some(5000.0), None, None]);
        assert_eq!(once.values("p99").len(), 3);
    }
}
