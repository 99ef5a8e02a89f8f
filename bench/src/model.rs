//! A simulation of the port on a machine with many processors, with measured costs.
//!
//! No thread runs here. The figures are calculated, and as good as their assumptions (see
//! [`costs`]). The port's own schedule, compiled in here, makes the decisions. Simulated are
//! processors with a thread each, the one lock, the kernel's set, sleeps and wakes. Not simulated
//! are the network, other users of the machine, more threads than processors, sleeping handlers,
//! and memory bandwidth.

mod costs;
mod simulation;

use self::costs::Costs;
use self::simulation::{Outcome, Placement, Setup, simulate};
use crate::options::Model as Options;
use crate::table::align;

/// The load at which delays are compared, in percent of what the handlers alone would allow.
const LIGHT: u64 = 70;

/// Prints the table.
pub(crate) fn run(options: &Options) {
    print!("{}", outcomes(options));
}

/// The parameters that vary from line to line, except the number of processors.
#[derive(Clone, Copy, Debug)]
struct Variant {
    handler: u16,
    connections: u16,
    /// `None`: one-shot epoll without a port.
    placement: Option<Placement>,
}

impl Options {
    fn setup(&self, cores: usize, variant: Variant) -> Setup {
        let Variant { handler, connections, placement } = variant;
        let costs = Costs {
            data_lines: self.data,
            wake_lines: self.wake_lines,
            near: self.near,
            far: self.far,
            socket: usize::from(self.socket),
            ..Costs::default()
        };
        let duration = u64::from(self.time) * 1_000_000;
        Setup {
            cores,
            connections: cores * usize::from(connections),
            handler: u64::from(handler) * 1_000,
            think: u64::from(self.think) * 1_000,
            incoming: cores.min(self.incoming.into()),
            placement: placement.unwrap_or(Placement::Data),
            is_bare: placement.is_none(),
            patience: self.patience.into(),
            seed: self.seed,
            costs,
            // A parked thread may take a tick of a millisecond until it takes part.
            warm_up: duration / 2,
            duration,
        }
    }

    fn placements(&self) -> impl Iterator<Item = Option<Placement>> {
        self.placement.iter().map(|name| match name.as_str() {
            "own" => Some(Placement::Own),
            "data" => Some(Placement::Data),
            "near" => Some(Placement::Near),
            "away" => Some(Placement::Away),
            _ => None,
        })
    }

    fn variants(&self) -> Vec<Variant> {
        let mut variants = Vec::new();
        for &handler in &self.handler {
            for &connections in &self.connections {
                let variant = |placement| Variant { handler, connections, placement };
                variants.extend(self.placements().map(variant));
            }
        }
        variants
    }
}

/// The think time at which this many connections per processor request this percentage of the
/// handlers' capacity.
fn think_for(load: u64, handler: u64, connections: u64) -> u64 {
    (connections * handler * 100 / load).saturating_sub(handler)
}

fn outcomes(options: &Options) -> String {
    let mut rows = vec![
        [
            "cores",
            "handler",
            "each",
            "woken",
            "cpu/packet",
            "at home",
            "of ideal",
            "of conserving",
            "lock",
            "set",
            "for lock",
            "for set",
            "asleep",
            "packets/claim",
            "wakes/1000",
            "p50",
            "p99",
            "of ideal at 70%",
            "p50",
            "p99",
            "cpu/packet",
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for cores in &options.cores {
        for variant in options.variants() {
            let setup = options.setup(usize::from(*cores), variant);
            let full = simulate(setup);
            let think = think_for(LIGHT, setup.handler, variant.connections.into());
            let light = simulate(Setup { think, ..setup });
            let mut row = vec![cores.to_string()];
            row.extend(named(variant));
            row.push(format!("{:.0} ns", full.cpu));
            row.push(percent(full.at_home));
            row.extend(shown(&setup, &full));
            row.push(percent(light.efficiency));
            row.extend([light.p50, light.p99].map(microseconds));
            row.push(format!("{:.0} ns", light.cpu));
            rows.push(row);
        }
    }
    align(rows, 0)
}

fn named(variant: Variant) -> [String; 3] {
    let Variant { handler, connections, placement } = variant;
    let woken = placement.map_or("one-shot".to_owned(), |it| format!("{it:?}").to_lowercase());
    [format!("{handler} us"), connections.to_string(), woken]
}

/// The part of the processors' time in which handlers would run, if no processor idled while a packet
/// stands, and if locks, polls and wakes cost nothing: all that remains is the price of each packet.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn conserving(setup: &Setup) -> f64 {
    let each = (setup.costs.packet(setup.handler) + setup.costs.delivered()) as f64;
    let supply = setup.connections as f64 * each / (setup.think as f64 + each);
    setup.handler as f64 / each * (supply / setup.cores as f64).min(1.0)
}

fn shown(setup: &Setup, outcome: &Outcome) -> [String; 11] {
    [
        percent(outcome.efficiency),
        percent(outcome.efficiency / conserving(setup)),
        percent(outcome.lock),
        percent(outcome.set),
        percent(outcome.for_lock),
        percent(outcome.for_set),
        percent(outcome.asleep),
        format!("{:.1}", outcome.share),
        format!("{:.1}", outcome.wakes * 1000.0),
        microseconds(outcome.p50),
        microseconds(outcome.p99),
    ]
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

fn microseconds(nanoseconds: f64) -> String {
    format!("{:.0} us", nanoseconds / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(cores: usize) -> Setup {
        Setup {
            cores,
            connections: 16 * cores,
            handler: 5_000,
            think: 10_000,
            incoming: 0,
            placement: Placement::Own,
            is_bare: false,
            patience: 1,
            seed: 0,
            costs: Costs::default(),
            warm_up: 5_000_000,
            duration: 20_000_000,
        }
    }

    /// One processor and no think time: each batch has all connections, and the costs can be added
    /// up.
    #[test]
    fn one_processor_does_what_the_sum_of_the_costs_allows() {
        for handler in [1_000, 20_000] {
            let setup = Setup { think: 0, handler, ..setup(1) };
            let costs = setup.costs;
            let batch = 16;
            let each = costs.event + costs.deliver + costs.take + handler + costs.arm;
            let cycle = 2 * costs.section + costs.poll + batch * each;
            let outcome = simulate(setup);
            let expected = batch * setup.duration / cycle;
            assert!(outcome.handled.abs_diff(expected) <= batch, "{outcome:?}, not {expected}");
            assert_eq!(outcome.share, 16.0);
            let busy = costs.poll + batch * costs.event;
            assert!((outcome.set - busy as f64 / cycle as f64).abs() < 0.01, "{outcome:?}");
            let lock = (2 * costs.section) as f64 / cycle as f64;
            assert!((outcome.lock - lock).abs() < 0.01, "{outcome:?}");
        }
    }

    #[test]
    fn the_same_setup_has_the_same_outcome_and_another_one_another() {
        let first = simulate(setup(8));
        assert_eq!(simulate(setup(8)), first);
        let dearer = Costs { near: 90, ..Costs::default() };
        assert_ne!(simulate(Setup { costs: dearer, ..setup(8) }), first);
    }

    #[test]
    fn nobody_does_more_than_processors_can() {
        for cores in [1, 2, 8, 32] {
            let outcome = simulate(setup(cores));
            let parts = [outcome.efficiency, outcome.lock, outcome.set];
            assert!(parts.iter().all(|part| *part > 0.0 && *part <= 1.0), "{outcome:?}");
            assert!(outcome.p99 >= outcome.p50, "{outcome:?}");
        }
    }

    #[test]
    fn a_dearer_lock_or_wake_makes_nothing_faster() {
        let usual = simulate(setup(8)).handled;
        let lock = Costs { section: 20_000, ..Costs::default() };
        assert!(simulate(Setup { costs: lock, ..setup(8) }).handled < usual);
        let wake = Costs { wake: 30_000, latency: 90_000, ..Costs::default() };
        assert!(simulate(Setup { costs: wake, ..setup(8) }).handled < usual);
    }

    #[test]
    fn at_most_a_part_is_claimed() {
        let outcome = simulate(Setup { handler: 20_000, ..setup(8) });
        // 128 connections on 8 processors: never more than 16.
        assert!(outcome.share <= 16.0, "{outcome:?}");
    }

    /// Little is lost where threads seldom meet at the lock or at the set.
    #[test]
    fn processors_do_not_idle_while_packets_stand() {
        for (cores, each, handler) in
            [(2, 4, 5), (2, 16, 2), (8, 1, 20), (8, 4, 20), (8, 16, 20), (32, 4, 20)]
        {
            let setup = Setup {
                connections: each * cores,
                handler: handler * 1_000,
                think: 0,
                warm_up: 20_000_000,
                duration: 40_000_000,
                ..setup(cores)
            };
            let part = simulate(setup).efficiency / conserving(&setup);
            assert!((0.9..=1.0).contains(&part), "{cores}, {each} each, {handler} us: {part}");
        }
    }

    #[test]
    fn the_time_to_think_makes_the_load() {
        // 16 connections that ask every 16 us for 1 us: full load; for 70 %, every 22.8 us.
        assert_eq!(think_for(100, 1_000, 16), 15_000);
        assert_eq!(think_for(70, 1_000, 16), 21_857);
    }

    #[test]
    fn the_tables_have_a_line_for_each_combination() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: Options,
        }
        let parse = |line: &str| <Line as clap::Parser>::parse_from(line.split(' ')).options;
        let options = parse("model --cores 1,2 --handler 5,20 --connections 4,16 --time 2");
        assert_eq!(outcomes(&options).lines().count(), 1 + 2 * 2 * 2);
        let placements =
            "model --cores 2 --handler 1 --time 2 --placement own,data,near,away,one-shot";
        let text = outcomes(&parse(placements));
        assert_eq!(text.lines().count(), 1 + 5, "{text}");
        assert!(text.contains("one-shot") && text.contains(" away "), "{text}");
    }
}
