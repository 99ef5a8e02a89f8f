//! Options of `cport bench`.
//!
//! The benchmark is a separate package that also compiles this file. So `cport bench` shows the
//! benchmark's help without building it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

pub(crate) const ABOUT: &str = "The completion port side by side with its rivals";

/// Informs the benchmark that `cport bench` has started it.
pub(crate) const CALLED_BY_CPORT: &str = "CPORT_BENCH_CALLED_BY_CPORT";

/// The scenarios and their descriptions.
pub(crate) const SCENARIOS: [(&str, &str); 31] = [
    ("S1", "echo of 64 bytes, request and response"),
    ("S2", "echo, bursts of 8 requests"),
    ("S3", "handlers of 20 us on 4 connections"),
    ("S4", "handlers that sleep 5 ms, one in 1,000"),
    (OFTEN, "handlers that sleep 5 ms, one in 50"),
    ("S5", "handlers that want one lock for 3 us"),
    ("S6", "posts, within the process"),
    ("S7", "registration and removal of 10,000 sockets, within the process"),
    ("S8", "echo on 64 of as many sockets as possible"),
    ("S9", "one handler that spins, 63 quick connections"),
    (SHORT, "short connections: accepted, one request of 64 bytes answered, reset by the client"),
    (DATAGRAMS, "echo of datagrams (UDP) of 64 bytes"),
    (ACCEPTS, "short connections, as S10: number of accepts, by operations and otherwise"),
    (OPERATIONS, "echo of 64 bytes by operations that complete, and by our readiness"),
    (FILES, "random reads of 4 KiB from a file, cached and uncached, alone and during an echo"),
    ("S15", "100,000 timers; deadlines that move with each request, within the process"),
    (SINK, "the sink: sockets that are always full, nothing is sent back"),
    (IN_FLIGHT, "1 to 64 operations in flight on one socket, and readiness, within the process"),
    ("single", "the price of an event: one thread, no wakes, within the process"),
    (ECHO, "runtimes, only if asked for, as those below: echo of 64 bytes"),
    (HTTP, "runtimes and others: HTTP/1.1 on connections that stay, and pipelined; hyper, nginx"),
    (SHORT_HTTP, "runtimes and others: HTTP/1.1, connections of ten requests"),
    (BLOCKING, "runtimes: one handler in 50 blocks; throughput, latencies of the others, --plot"),
    (COMPUTING, "runtimes: some handlers compute for 60 ms; latencies of the others"),
    (MESSAGES, "runtimes: tasks that exchange messages, in separate processes"),
    (
        REDIS,
        "runtimes and others: SET, GET, INCR and MGET of Redis, alone and pipelined; and Redis",
    ),
    (SERVED_FILES, "runtimes and nginx: files over HTTP/1.1; other requests next to a slow disk"),
    (TIMERS, "runtimes and the port: 100,000 timers; 10,000 connections with moving deadlines"),
    (DNS, "runtimes and a bare loop: name servers under dnsperf, open and closed loop"),
    (ZOO, "runtimes: small programs that are known to stall"),
    (INSTRUCTIONS, "user instructions for each event; only if asked for, needs valgrind"),
];

pub(crate) const INSTRUCTIONS: &str = "instructions";
/// The scenarios of runtimes: an echo, ...
pub(crate) const ECHO: &str = "R1";
/// ... HTTP/1.1 on connections that stay, ...
pub(crate) const HTTP: &str = "R2";
/// ... on connections of ten requests, ...
pub(crate) const SHORT_HTTP: &str = "R3";
/// ... handlers that block, ...
pub(crate) const BLOCKING: &str = "R4a";
/// ... handlers that compute, ...
pub(crate) const COMPUTING: &str = "R4b";
/// ... messages between tasks, ...
pub(crate) const MESSAGES: &str = "R5";
/// ... the protocol of Redis, ...
pub(crate) const REDIS: &str = "R6";
/// ... files over HTTP/1.1, ...
pub(crate) const SERVED_FILES: &str = "R7";
/// ... many timers, ...
pub(crate) const TIMERS: &str = "R8";
/// ... name servers, ...
pub(crate) const DNS: &str = "R9";
/// ... and programs that are known to stall.
pub(crate) const ZOO: &str = "zoo";
/// The scenarios that are measured only if asked for.
pub(crate) const ASKED_FOR: [&str; 12] = [
    ECHO,
    HTTP,
    SHORT_HTTP,
    BLOCKING,
    COMPUTING,
    MESSAGES,
    REDIS,
    SERVED_FILES,
    TIMERS,
    DNS,
    ZOO,
    INSTRUCTIONS,
];
/// The scenario whose servers accept by themselves.
pub(crate) const SHORT: &str = "S10";
/// The scenario without connections.
pub(crate) const DATAGRAMS: &str = "S11";
/// The scenario S10 for contenders that accept by operations, and their rivals.
pub(crate) const ACCEPTS: &str = "S12";
/// The scenario of servers based on operations.
pub(crate) const OPERATIONS: &str = "S13";
/// The scenario of reads from files.
pub(crate) const FILES: &str = "S14";
/// The scenario S4 with such frequent sleeps that the time to detect them decides the throughput.
pub(crate) const OFTEN: &str = "S4b";
/// The scenario whose servers only receive.
pub(crate) const SINK: &str = "S16";
/// The scenario of many operations in flight on one socket.
pub(crate) const IN_FLIGHT: &str = "S17";

/// The text that follows the options in `--help`.
pub(crate) fn help() -> String {
    let lines: Vec<String> =
        SCENARIOS.iter().map(|(name, about)| format!("  {name:<14}{about}\n")).collect();
    format!(
        "Scenarios:\n{}\nEach contender's figures are medians of the rounds. Intervals (95 %) are \
         order statistics of the rounds; ratios are made within a round. A server's `sleeps` are \
         its voluntary context switches for each request: each is a thread that had to be woken. \
         `own wakes` is its own count, `syscalls` the kernel's, in a separate round.\n\n\
         Exit codes:\n  0  the run is complete\n  1  the run failed\n  \
         2  it could not start: a bad argument, a file that cannot be read or written",
        lines.concat()
    )
}

/// The commands of the benchmark other than a run.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Print tables and plot again from a run's raw JSON
    Report(Report),
    /// Calculate the port's behaviour on a machine with many processors
    Model(Model),
    /// Measure how soon another thread takes over from a blocked one
    Handover(Handover),
    /// Measure the cost of an event with a thousand to a million registrations
    Crowd(Crowd),
}

/// A run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Run {
    /// One situation only (S1, 64 connections, 2 threads), in half a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only these scenarios
    #[arg(long, value_name = "S1,S4,...", value_delimiter = ',')]
    pub(crate) scenario: Vec<String>,
    /// Only these contenders, besides `ours`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) against: Vec<String>,
    /// Compare this build with another build of the benchmark, instead of the rivals: in seven
    /// rounds or more, until the ratio's interval is within 3 %. Only scenarios with servers, and
    /// `instructions`
    #[arg(long, value_name = "PROGRAM", conflicts_with = "plot")]
    pub(crate) compare: Option<PathBuf>,
    /// These numbers of threads instead of each scenario's own
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = count)]
    pub(crate) threads: Vec<usize>,
    /// These numbers of connections instead of each scenario's own
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = count)]
    pub(crate) connections: Vec<usize>,
    /// S14: size of the file in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(crate) file_size: u32,
    /// S14: directory of the file, instead of that for temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) file_in: Option<PathBuf>,
    /// Exact number of rounds for each situation; intervals need six
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) rounds: Option<usize>,
    /// If too few rounds are comparable, take more than usual, but only during this many minutes of
    /// the run
    #[arg(long, value_name = "MINUTES", default_value_t = 30, conflicts_with = "rounds")]
    pub(crate) limit: u32,
    /// Length of each round
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Refuse io_uring and perf to all servers and clients, as containers do
    #[arg(long)]
    pub(crate) sandbox: bool,
    /// Write the raw JSON into this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Write the plot of S1 with 64 connections, or else that of R4a
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// `bench report`
#[derive(Clone, Debug, Args)]
pub(crate) struct Report {
    /// The raw JSON
    pub(crate) file: PathBuf,
    /// Write the plot
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Only turns in which the processors were closer to each other than this many nanoseconds
    #[arg(long, value_name = "NS", conflicts_with = "farther")]
    pub(crate) nearer: Option<f64>,
    /// Only turns in which they were farther apart
    #[arg(long, value_name = "NS")]
    pub(crate) farther: Option<f64>,
}

/// `bench model`
#[derive(Clone, Debug, Args)]
pub(crate) struct Model {
    /// Numbers of processors, which are also the numbers of threads and the concurrency value
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [2, 8, 32, 64],
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) cores: Vec<u16>,
    /// How long handlers run, in microseconds
    #[arg(long, value_name = "US,...", value_delimiter = ',', default_values_t = [1, 5, 10, 20],
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) handler: Vec<u16>,
    /// Connections for each processor, the column `each`
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [16],
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: Vec<u16>,
    /// Average time from an answer to the next request, in microseconds
    #[arg(long, value_name = "US", default_value_t = 10)]
    pub(crate) think: u16,
    /// Cost of fetching a cache line from another processor of the socket, in nanoseconds
    #[arg(long, value_name = "NS", default_value_t = NEAR)]
    pub(crate) near: u64,
    /// The same from another socket
    #[arg(long, value_name = "NS", default_value_t = FAR)]
    pub(crate) far: u64,
    /// Processors of a socket
    #[arg(long, value_name = "N", default_value_t = 32,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) socket: u16,
    /// Processors that receive the data of the connections, dealt to the connections; 0: the data
    /// costs the same everywhere
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) incoming: u16,
    /// Cache lines that a handler fetches if another processor received the data
    #[arg(long, value_name = "LINES", default_value_t = DATA)]
    pub(crate) data: u64,
    /// Cache lines that a wake fetches in addition to its price if the thread is woken on a
    /// processor of another socket, half of them on either side
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    pub(crate) wake_lines: u64,
    /// Processor on which a thread is woken: its own (`own`), or a free one where the first
    /// packet's data arrived (`data`), in the waker's socket (`near`) or in another one (`away`),
    /// if there is any; `one-shot` instead is one-shot epoll without a port, woken where the data
    /// arrived
    #[arg(long, value_name = "WHERE,...", value_delimiter = ',', default_value = "own",
        value_parser = clap::builder::PossibleValuesParser::new(PLACES))]
    pub(crate) placement: Vec<String>,
    /// Divides the port's time per packet and multiplies its wakes by this factor
    #[arg(long, value_name = "TIMES", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) patience: u16,
    /// Another seed makes the connections send at other times
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) seed: u32,
    /// Simulated time for each line, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 40,
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) time: u16,
}

/// Default costs in the model, in nanoseconds.
pub(crate) const NEAR: u64 = 80;
pub(crate) const FAR: u64 = 150;
/// An echo of 64 bytes costs 3.95 us more if a line takes 255 ns instead of 25.
pub(crate) const DATA: u64 = 17;
/// The processor on which a thread is woken, in the model.
pub(crate) const PLACES: [&str; 5] = ["own", "data", "near", "away", "one-shot"];

/// `bench handover`
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Handover {
    /// Number of attempts for each method and situation
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

/// `bench crowd`
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Crowd {
    /// The maximum number of registrations
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    pub(crate) most: u64,
    /// Number of measurements
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=100_000) => Ok(count),
        _ => Err("expected a number from 1 to 100000".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number from 0.01 to 60".to_owned()),
    }
}
