//! The scenarios with servers: which situations there are, and which of them a run measures.

use std::time::Duration;

use crate::load::{BURST, Handlers, Pattern};
pub(crate) use crate::options::{ACCEPTS, DATAGRAMS, FILES, OFTEN, OPERATIONS, SINK};
use crate::options::{ASKED_FOR, SCENARIOS, SHORT, TIMERS};
use crate::sink::{Drain, Reads, Service, Sink};
use crate::system;
use crate::traffic::Traffic;
use crate::work::{Work, turns_per_microsecond};

/// Connections that send; all others of a situation are only registered.
pub(crate) const ACTIVE: usize = 64;
/// Descriptors that a server or the harness needs besides its connections.
const SPARE: usize = 500;
/// Measuring more sockets takes long and shows nothing new.
const MOST_CONNECTIONS: usize = 100_000;
/// As many connections of all contenders together may be open during a whole situation; this leaves
/// each client address with ports enough.
const TOGETHER: usize = 20_000;

/// Clients with short connections.
const SHORT_CLIENTS: usize = 32;
/// Datagrams under way on the socket, where there is only one: this many, too.
const SEVERAL: usize = 8;

/// How much of the matrix is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// One situation, in half a minute.
    Quick,
    /// What matters, in about half an hour.
    Usual,
}

/// What a run is to measure.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) extent: Extent,
    /// All, if empty.
    pub(crate) scenarios: Vec<String>,
    /// Instead of the usual numbers, unless empty.
    pub(crate) threads: Vec<usize>,
    pub(crate) connections: Vec<usize>,
    pub(crate) rounds: Option<usize>,
    pub(crate) round: Option<Duration>,
    /// Descriptors that a process may have.
    pub(crate) descriptors: usize,
}

/// The numbers of threads and connections of a situation, and the handlers if it has a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    threads: usize,
    connections: usize,
    /// Datagrams under way on each socket.
    under_way: usize,
    drain: Option<Drain>,
}

/// A situation in which all contenders are measured.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) scenario: &'static str,
    pub(crate) title: String,
    pub(crate) threads: usize,
    pub(crate) connections: usize,
    pub(crate) pattern: Pattern,
    pub(crate) traffic: Traffic,
    /// The work of a sink's handlers; with a sink, the sent data has no pattern.
    pub(crate) drain: Option<Drain>,
    /// The quantity that is compared.
    pub(crate) compared: &'static str,
    pub(crate) rounds: usize,
    pub(crate) round: Duration,
}

impl Setup {
    /// What the servers do.
    pub(crate) fn service(&self) -> Service {
        let sink = |drain: Drain| Service::Sink(Sink::new(turns(drain.handler), drain.reads));
        self.drain.map_or(Service::Echo, sink)
    }

    /// How many connections send.
    pub(crate) fn active(&self) -> usize {
        // The deadlines of all connections have to move.
        if self.scenario == TIMERS { self.connections } else { self.connections.min(ACTIVE) }
    }

    /// Whether connections have to be created again for each turn, because those of all contenders
    /// together would be too many.
    pub(crate) fn connects_by_turn(&self, contenders: usize, descriptors: usize) -> bool {
        self.traffic == Traffic::Lasting
            && self.connections * contenders > TOGETHER.min(descriptors.saturating_sub(SPARE))
    }
}

impl Selection {
    pub(crate) fn wants(&self, scenario: &str) -> bool {
        if self.scenarios.is_empty() {
            (self.extent != Extent::Quick || scenario == "S1") && !ASKED_FOR.contains(&scenario)
        } else {
            self.scenarios.iter().any(|wanted| wanted.eq_ignore_ascii_case(scenario))
        }
    }

    /// The situations, in the order of the scenarios. The error names one that is not possible.
    pub(crate) fn setups(&self) -> Result<Vec<Setup>, String> {
        let mut setups = Vec::new();
        for (scenario, about) in SCENARIOS {
            if !self.wants(scenario) || system::lacks(scenario).is_some() {
                continue;
            }
            for size in self.sizes(scenario) {
                let connections = size.connections;
                if connections + SPARE > self.descriptors {
                    return Err(format!(
                        "{connections} connections: the limit is {} descriptors, see `ulimit -n`",
                        self.descriptors
                    ));
                }
                setups.push(self.setup(scenario, about, size));
            }
        }
        Ok(setups)
    }

    fn setup(&self, scenario: &'static str, about: &str, size: Size) -> Setup {
        let Size { threads, connections, under_way, drain } = size;
        let near_one = matches!(scenario, "S3" | "S4" | ACCEPTS | OPERATIONS)
            || (scenario == "S1" && connections == ACTIVE)
            || (scenario == DATAGRAMS && threads == 1);
        let rounds = match (self.extent, near_one) {
            (Extent::Quick, _) => 6,
            (Extent::Usual, true) => 21,
            (_, false) if connections >= 10_000 => 6,
            (_, false) if scenario == SINK => 7,
            (_, false) => 9,
        };
        let round = self.round.unwrap_or(Duration::from_millis(match scenario {
            "S9" => 600,
            "S4" | OFTEN => 400,
            SINK => 150,
            _ => 250,
        }));
        let (handlers, burst, compared) = match scenario {
            "S2" => (Handlers::Quick, BURST, CPU),
            "S3" => (Handlers::All(Work::Turns(turns(20))), 1, RATE),
            "S4" => (Handlers::Sometimes { once_in: 1000, work: Work::Sleep(5000) }, 1, RATE),
            OFTEN => (Handlers::Sometimes { once_in: 50, work: Work::Sleep(5000) }, 1, RATE),
            "S5" => (Handlers::All(Work::Locked(turns(3))), 1, RATE),
            // Half a round, and restarted immediately: the last one ends soon after the round.
            "S9" => (Handlers::FirstSpins(half(round)), 1, RATE),
            SINK | ACCEPTS => (Handlers::Quick, 1, RATE),
            _ => (Handlers::Quick, 1, CPU),
        };
        let traffic = match scenario {
            SHORT | ACCEPTS => Traffic::Short,
            DATAGRAMS => Traffic::Datagrams { sockets: connections, under_way },
            _ => Traffic::Lasting,
        };
        let clients = match traffic {
            Traffic::Lasting if connections > ACTIVE => {
                format!("{connections} connections, {ACTIVE} of them active")
            }
            Traffic::Lasting | Traffic::Http(_) => format!("{connections} connections"),
            Traffic::Short => format!("{connections} clients"),
            Traffic::Datagrams { sockets, under_way } => {
                let plural = if sockets == 1 { "" } else { "s" };
                format!("{under_way} under way on each of {sockets} socket{plural}")
            }
        };
        let about = drain.map_or_else(
            || about.to_owned(),
            |Drain { handler, reads }| {
                format!("{about}; handlers of {handler} us, {}", reads.title())
            },
        );
        Setup {
            scenario,
            title: format!("{about}; {clients}, {threads} threads"),
            threads,
            connections,
            pattern: Pattern { handlers, burst },
            traffic,
            drain,
            compared,
            rounds: self.rounds.unwrap_or(rounds),
            round,
        }
    }

    /// The sizes of a sink. Numbers of threads and connections that an option chooses replace the usual ones.
    fn sizes_of_sink(&self) -> Vec<Size> {
        /// Reads, threads, connections, microseconds of a handler.
        type Usual<'u> = (Reads, usize, &'u [usize], &'u [u32]);
        let usual: &[Usual<'_>] = match self.extent {
            Extent::Quick => &[(Reads::One, 2, &[8], &[5])],
            Extent::Usual => &[
                (Reads::One, 2, &[8], &[0, 2, 5, 10, 20]),
                (Reads::One, 2, &[2, 32, ACTIVE], &[5]),
                (Reads::One, 4, &[8], &[0, 5]),
                (Reads::All, 2, &[8], &[0, 5]),
            ],
        };
        let mut sizes = Vec::new();
        for (reads, threads, connections, handlers) in usual {
            let threads =
                if self.threads.is_empty() { vec![*threads] } else { self.threads.clone() };
            let connections =
                if self.connections.is_empty() { connections } else { &self.connections[..] };
            for (threads, connections) in
                threads.iter().flat_map(|t| connections.iter().map(|c| (*t, *c)))
            {
                let drain = |handler: &u32| Some(Drain { handler: *handler, reads: *reads });
                sizes.extend(handlers.iter().map(drain).map(|drain| Size {
                    threads,
                    connections,
                    under_way: 1,
                    drain,
                }));
            }
        }
        // With one dimension chosen, several usual sizes may become the same.
        let mut different = Vec::new();
        for size in sizes {
            if !different.contains(&size) {
                different.push(size);
            }
        }
        different
    }

    /// The sizes of a scenario.
    fn sizes(&self, scenario: &str) -> Vec<Size> {
        if scenario == SINK {
            return self.sizes_of_sink();
        }
        let most = self.descriptors.saturating_sub(SPARE).min(MOST_CONNECTIONS);
        let (mut threads, mut connections): (Vec<usize>, Vec<usize>) = match scenario {
            "S1" => (vec![1, 2, 4], vec![1, ACTIVE, 1000, 10_000]),
            "S2" => (vec![1, 2, 4], vec![ACTIVE]),
            "S3" => (vec![2], vec![4]),
            "S4" | OFTEN => (vec![16], vec![ACTIVE]),
            "S5" => (vec![4, 16], vec![ACTIVE]),
            "S8" => (vec![2], vec![most]),
            "S9" => (vec![2, 4], vec![ACTIVE]),
            OPERATIONS => (vec![1, 2, 4], vec![ACTIVE]),
            SHORT | ACCEPTS => (vec![1, 2, 4], vec![SHORT_CLIENTS]),
            DATAGRAMS => (vec![1, 2, 4], vec![1, ACTIVE]),
            _ => (Vec::new(), Vec::new()),
        };
        if self.extent == Extent::Quick {
            threads = threads.first().map_or_else(Vec::new, |first| vec![(*first).max(2)]);
            connections.retain(|count| scenario != "S1" || *count == ACTIVE);
        }
        if !self.threads.is_empty() && !threads.is_empty() {
            threads.clone_from(&self.threads);
        }
        if !self.connections.is_empty() && !connections.is_empty() {
            connections.clone_from(&self.connections);
        }
        let chosen = !self.threads.is_empty() || !self.connections.is_empty();
        let all = connections.iter().flat_map(|c| threads.iter().map(|t| (*t, *c)));
        let is_usual = |threads: usize, connections: usize| match scenario {
            // Other numbers of connections need only one number of threads.
            "S1" => connections == ACTIVE || threads == 2,
            "S2" => threads == 2,
            // What a lone socket shows a second thread does not change.
            DATAGRAMS => threads == 1 || (threads == 2 && connections != 1),
            _ => true,
        };
        all.filter(|(threads, connections)| {
            chosen || self.extent != Extent::Usual || is_usual(*threads, *connections)
        })
        .flat_map(|(threads, connections)| {
            let several = (scenario == DATAGRAMS && connections == 1).then_some(SEVERAL);
            let size = move |under_way| Size { threads, connections, under_way, drain: None };
            [1].into_iter().chain(several).map(size)
        })
        .collect()
    }
}

/// Server processor time for each request.
pub(crate) const CPU: &str = "cpu";
/// Requests answered in a second, or packets that a sink has handled.
pub(crate) const RATE: &str = "rate";

/// That many microseconds in turns of the loop of [`Work`].
pub(crate) fn turns(microseconds: u32) -> u32 {
    static PER_MICROSECOND: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    microseconds.saturating_mul(*PER_MICROSECOND.get_or_init(turns_per_microsecond))
}

fn half(round: Duration) -> u32 {
    u32::try_from(round.as_micros() / 2).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(extent: Extent) -> Selection {
        Selection {
            extent,
            scenarios: Vec::new(),
            threads: Vec::new(),
            connections: Vec::new(),
            rounds: None,
            round: None,
            descriptors: 20_000,
        }
    }

    fn sizes(selection: &Selection) -> Vec<(&'static str, usize, usize)> {
        let setups = selection.setups().unwrap();
        setups.iter().map(|setup| (setup.scenario, setup.threads, setup.connections)).collect()
    }

    #[test]
    fn the_quick_run_is_one_situation() {
        assert_eq!(sizes(&selection(Extent::Quick)), [("S1", 2, 64)]);
    }

    #[test]
    fn the_usual_run_has_every_scenario_and_20_rounds_where_ratios_are_near_one() {
        let setups = selection(Extent::Usual).setups().unwrap();
        let all =
            ["S1", "S2", "S3", "S4", "S4b", "S5", "S8", "S9", "S10", "S11", "S12", "S13", "S16"];
        for scenario in all {
            assert!(setups.iter().any(|setup| setup.scenario == scenario), "{scenario}");
        }
        let rounds = |scenario: &str, connections: usize| -> Vec<(usize, usize)> {
            let chosen =
                setups.iter().filter(|it| it.scenario == scenario && it.connections == connections);
            chosen.map(|setup| (setup.threads, setup.rounds)).collect()
        };
        assert_eq!(rounds("S1", 64), [(1, 21), (2, 21), (4, 21)]);
        assert_eq!(rounds("S3", 4), [(2, 21)]);
        assert_eq!(rounds("S4", 64), [(16, 21)]);
        assert_eq!(rounds("S12", 32), [(1, 21), (2, 21), (4, 21)]);
        assert_eq!(rounds("S13", 64), [(1, 21), (2, 21), (4, 21)]);
    }

    #[test]
    fn options_replace_what_is_usual() {
        let mut chosen = selection(Extent::Usual);
        chosen.scenarios = vec!["s4".to_owned(), "S9".to_owned()];
        chosen.threads = vec![3];
        chosen.rounds = Some(2);
        assert_eq!(sizes(&chosen), [("S4", 3, 64), ("S9", 3, 64)]);
        assert!(chosen.setups().unwrap().iter().all(|setup| setup.rounds == 2));
        chosen.connections = vec![5, 7];
        assert_eq!(sizes(&chosen).len(), 4);
        chosen.connections = vec![19_900];
        assert!(chosen.setups().unwrap_err().contains("20000 descriptors"));
    }

    #[test]
    fn short_connections_are_those_of_32_clients_unless_others_are_asked_for() {
        let mut chosen =
            Selection { scenarios: vec![SHORT.to_owned()], ..selection(Extent::Usual) };
        assert_eq!(sizes(&chosen), [(SHORT, 1, 32), (SHORT, 2, 32), (SHORT, 4, 32)]);
        let setup = chosen.setups().unwrap().remove(1);
        assert_eq!((setup.traffic, setup.compared), (Traffic::Short, CPU));
        let accepts = Selection { scenarios: vec![ACCEPTS.to_owned()], ..selection(Extent::Usual) };
        let accepts = accepts.setups().unwrap().remove(1);
        assert_eq!((accepts.traffic, accepts.compared), (Traffic::Short, RATE));
        assert!(setup.title.ends_with("; 32 clients, 2 threads"), "{}", setup.title);
        assert!(!setup.connects_by_turn(1000, 20_000));
        (chosen.threads, chosen.connections) = (vec![2], vec![100]);
        assert_eq!(sizes(&chosen), [(SHORT, 2, 100)]);
        let setup = selection(Extent::Quick).setups().unwrap().remove(0);
        assert_eq!(setup.traffic, Traffic::Lasting);
    }

    #[test]
    fn datagrams_go_to_one_socket_or_many_and_several_at_once_to_one() {
        let mut chosen =
            Selection { scenarios: vec![DATAGRAMS.to_owned()], ..selection(Extent::Usual) };
        let all = |selection: &Selection| -> Vec<(usize, Traffic)> {
            let setups = selection.setups().unwrap();
            setups.iter().map(|setup| (setup.threads, setup.traffic)).collect()
        };
        let datagrams = |sockets, under_way| Traffic::Datagrams { sockets, under_way };
        let one_thread = [(1, datagrams(1, 1)), (1, datagrams(1, 8)), (1, datagrams(64, 1))];
        assert_eq!(all(&chosen), [&one_thread[..], &[(2, datagrams(64, 1))]].concat());
        let setups = chosen.setups().unwrap();
        assert!(setups[1].title.ends_with("; 8 under way on each of 1 socket, 1 threads"));
        assert_eq!((setups[2].rounds, setups[2].compared), (21, CPU));
        (chosen.threads, chosen.connections) = (vec![3], vec![5]);
        assert_eq!(all(&chosen), [(3, datagrams(5, 1))]);
    }

    /// Reads, threads, connections, microseconds of the sinks of a selection.
    fn sinks(selection: &Selection) -> Vec<(Reads, usize, usize, u32)> {
        let setups = selection.setups().unwrap();
        let of = |setup: &Setup| {
            let Drain { handler, reads } = setup.drain?;
            Some((reads, setup.threads, setup.connections, handler))
        };
        setups.iter().filter_map(of).collect()
    }

    #[test]
    fn the_usual_sinks_vary_one_thing_at_a_time() {
        let usual = sinks(&selection(Extent::Usual));
        let one = |connections, handler| (Reads::One, 2, connections, handler);
        let handlers = [0, 2, 5, 10, 20].map(|handler| one(8, handler));
        let connections = [2, 32, 64].map(|connections| one(connections, 5));
        let threads = [0, 5].map(|handler| (Reads::One, 4, 8, handler));
        let reads = [0, 5].map(|handler| (Reads::All, 2, 8, handler));
        assert_eq!(usual.len(), 12);
        let expected = handlers.iter().chain(&connections).chain(&threads).chain(&reads);
        for sink in expected {
            assert!(usual.contains(sink), "{sink:?}");
        }
    }

    #[test]
    fn chosen_numbers_replace_the_usual_ones_of_sinks() {
        let mut chosen = Selection { scenarios: vec![SINK.to_owned()], ..selection(Extent::Quick) };
        assert_eq!(sinks(&chosen), [(Reads::One, 2, 8, 5)]);
        chosen.extent = Extent::Usual;
        chosen.connections = vec![3];
        let one = [0, 2, 5, 10, 20].map(|handler| (Reads::One, 2, 3, handler));
        let others = [
            (Reads::One, 4, 3, 0),
            (Reads::One, 4, 3, 5),
            (Reads::All, 2, 3, 0),
            (Reads::All, 2, 3, 5),
        ];
        assert_eq!(sinks(&chosen), [&one[..], &others[..]].concat());
        chosen.threads = vec![1];
        assert_eq!(sinks(&chosen).len(), 5 + 2);
    }

    #[test]
    fn a_sink_says_what_its_handlers_do_and_its_servers_are_told() {
        let chosen = Selection { scenarios: vec![SINK.to_owned()], ..selection(Extent::Usual) };
        let mut setups = chosen.setups().unwrap();
        setups.retain(|setup| setup.drain.is_some_and(|drain| drain.reads == Reads::All));
        let [quick, long] = &setups[..] else { panic!("{setups:?}") };
        let words = "handlers of 5 us, reads until it would block; 8 connections, 2 threads";
        assert!(long.title.ends_with(words), "{}", long.title);
        assert_eq!((long.compared, long.rounds), (RATE, 7));
        let (Service::Sink(quick), Service::Sink(long)) = (quick.service(), long.service()) else {
            panic!("no sinks");
        };
        assert_eq!((quick.buffer, quick.turns), (1024, 0));
        assert_eq!((long.buffer, long.reads), (4096, 16));
        assert!(long.turns > 50);
        assert_eq!(selection(Extent::Quick).setups().unwrap()[0].service(), Service::Echo);
    }

    #[test]
    fn connections_are_made_by_turn_only_if_all_together_are_too_many() {
        let setup = selection(Extent::Quick).setups().unwrap().remove(0);
        let setup = Setup { connections: 1000, ..setup };
        assert!(!setup.connects_by_turn(10, 20_000));
        assert!(setup.connects_by_turn(20, 20_000));
        assert!(!setup.connects_by_turn(20, 1_000_000));
        assert!(setup.connects_by_turn(21, 1_000_000));
    }
}
