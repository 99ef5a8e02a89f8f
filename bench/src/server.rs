//! The server's process: a contender with a listener, controlled by lines of JSON.
//!
//! The main thread reads commands and the acceptor waits for connections; both are asleep while
//! rounds run. The process ends when its standard input does.

use std::io::{self, BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::contenders::{self, Listening, Server, Usage};
use crate::flood;
use crate::processor_time::Clock;
use crate::sink::{self, Service, Sink};
use crate::system::{self, Aside, Counters, Switches};

/// How the harness starts a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[arg(long)]
    pub(crate) contender: String,
    #[arg(long)]
    pub(crate) threads: usize,
    /// Let the kernel count system calls
    #[arg(long)]
    pub(crate) count: bool,
    /// Let the contender accept by itself
    #[arg(long)]
    pub(crate) accepts: bool,
    /// Give the contender this many sockets for datagrams instead of connections
    #[arg(long, default_value_t = 0, conflicts_with = "accepts")]
    pub(crate) datagrams: usize,
    /// Be a sink instead of an echo
    #[command(flatten)]
    pub(crate) sink: Option<Sink>,
    /// Read from a file during the echo
    #[command(flatten)]
    pub(crate) reading: Option<Aside>,
}

/// The first line of a server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) address: SocketAddr,
    /// Of the sockets for datagrams.
    pub(crate) sockets: Vec<SocketAddr>,
    /// How the contender detects blocked threads, if it reports that.
    pub(crate) detected: Option<String>,
}

/// A command to a server, on a line. It answers with a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Command {
    Snapshot,
    /// Read from the file at this rate per second, or as often as possible.
    Read(Option<f64>),
    /// Read no more.
    Rest,
}

impl Command {
    /// As a line.
    pub(crate) fn line(self) -> String {
        match self {
            Command::Snapshot => "snapshot\n".to_owned(),
            Command::Read(None) => "read\n".to_owned(),
            Command::Read(Some(rate)) => format!("read {rate}\n"),
            Command::Rest => "rest\n".to_owned(),
        }
    }

    fn parse(line: &str) -> Option<Command> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("snapshot", "") => Some(Command::Snapshot),
            ("read", "") => Some(Command::Read(None)),
            ("read", rate) => Some(Command::Read(Some(rate.parse().ok()?))),
            ("rest", "") => Some(Command::Rest),
            _ => None,
        }
    }
}

/// A server's answer to a line: its resource usage so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Snapshot {
    /// When it was made, by the server's clock, in nanoseconds.
    pub(crate) time: u64,
    /// Packets that a sink has handled, or reads from a file.
    pub(crate) packets: u64,
    /// Bytes that they had.
    pub(crate) bytes: u64,
    /// Processor time of the process, in nanoseconds.
    pub(crate) processor_time: u64,
    /// On systems that report them.
    pub(crate) switches: Option<Switches>,
    /// Resident memory, in bytes.
    pub(crate) resident: u64,
    /// Connections taken over.
    pub(crate) added: u64,
    /// Connections that were refused.
    pub(crate) refused: u64,
    /// Why the last of them was refused.
    pub(crate) refusal: Option<String>,
    /// Threads of the process, on systems that count them.
    pub(crate) threads: Option<u64>,
    /// Those of them that run tasks, by the contender's own count.
    pub(crate) workers: Option<usize>,
    /// The contender's own count of threads woken.
    pub(crate) wakes: Option<u64>,
    /// System calls, if the kernel counts them.
    pub(crate) system_calls: Option<u64>,
    /// Why the kernel does not count.
    pub(crate) not_counted: Option<String>,
}

#[derive(Default)]
struct Accepted {
    added: AtomicU64,
    refused: AtomicU64,
    refusal: Mutex<Option<String>>,
}

/// Runs until standard input ends.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let name = &options.contender;
    let unknown = || format!("no contender `{name}`");
    // Before any thread is made: only later threads are counted.
    let counters = options.count.then(Counters::begin);
    let service = options.sink.map_or(Service::Echo, Service::Sink);
    let server = match &options.reading {
        Some(reading) => {
            system::start_beside(name, options.threads, reading).ok_or_else(unknown)?
        }
        None => {
            let all = contenders::all().into_iter().chain(system::runtimes());
            let contender = all.into_iter().find(|it| it.name == name).ok_or_else(unknown)?;
            (contender.start)(options.threads, service)
        }
    };
    let server: Arc<dyn Server> = server.map_err(|error| format!("{name}: {error}"))?.into();
    let accepted = Arc::new(Accepted::default());
    // Held for as long as the process lives.
    let (address, _listening) = if let Some(address) = server.address() {
        (address, None)
    } else if options.accepts {
        let listening = Listening::new().map_err(|error| format!("listener: {error}"))?;
        server.listen(&listening).map_err(|error| format!("listener: {error}"))?;
        (listening.address(), Some(listening))
    } else {
        (start_acceptor(service, &server, &accepted)?, None)
    };
    let sockets = (0..options.datagrams).map(|_| answer(&*server));
    let sockets: io::Result<Vec<SocketAddr>> = sockets.collect();
    let sockets = sockets.map_err(|error| format!("sockets for datagrams: {error}"))?;
    say(&Hello { address, sockets, detected: server.detected() })?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        match Command::parse(&line).ok_or_else(|| format!("no command: {line}"))? {
            Command::Snapshot => Ok(()),
            Command::Read(rate) => server.begin_reads(rate),
            Command::Rest => server.end_reads(),
        }
        .map_err(|error| format!("{line}: {error}"))?;
        say(&snapshot(&*server, &accepted, counters.as_ref())?)?;
    }
    // A contender has no orderly end; its threads go with the process.
    std::process::exit(0);
}

/// Gives the contender one more socket for datagrams; its address.
fn answer(server: &dyn Server) -> io::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    server.answer(socket)?;
    Ok(address)
}

/// Starts the thread that takes connections and hands them over; where it listens.
fn start_acceptor(
    service: Service,
    server: &Arc<dyn Server>,
    accepted: &Arc<Accepted>,
) -> Result<SocketAddr, String> {
    let listener = listen(service).map_err(|error| format!("listener: {error}"))?;
    let address = listener.local_addr().map_err(|error| format!("listener: {error}"))?;
    let (server, accepted) = (Arc::clone(server), Arc::clone(accepted));
    thread::Builder::new()
        .name("acceptor".to_owned())
        .spawn(move || accept(&listener, &*server, &accepted))
        .map_err(|error| format!("acceptor: {error}"))?;
    Ok(address)
}

fn say(answer: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| error.to_string())
}

/// A listener with a longer backlog than the standard library asks for. What a connection to a sink
/// holds is limited, so that at the end of a turn there is not more of it than is soon read.
fn listen(service: Service) -> io::Result<TcpListener> {
    // Accepted connections inherit the settings of a sink's listener.
    system::listener(matches!(service, Service::Sink(_)).then_some(flood::ROOM))
}

fn accept(listener: &TcpListener, server: &dyn Server, accepted: &Accepted) {
    let refuse = |error: io::Error| {
        *accepted.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
        accepted.refused.fetch_add(1, Ordering::Relaxed);
    };
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            // The descriptors have run out, or nearly so: the harness asked for too many.
            Err(error) => return refuse(error),
        };
        match stream.set_nodelay(true).and_then(|()| server.add(stream)) {
            Ok(()) => {
                accepted.added.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => refuse(error),
        }
    }
}

fn snapshot(
    server: &dyn Server,
    accepted: &Accepted,
    counters: Option<&Result<Counters, String>>,
) -> Result<Snapshot, String> {
    let time = nanoseconds(BEGUN.elapsed());
    let used = server.usage().unwrap_or_else(own_usage).map_err(|error| error.to_string())?;
    let read = sink::read();
    let counted = match counters {
        None => None,
        Some(Ok(counters)) => Some(counters.read().map_err(|error| error.to_string())),
        Some(Err(reason)) => Some(Err(reason.clone())),
    };
    let (counted, not_counted) = match counted {
        None => (None, None),
        Some(Ok(counted)) => (Some(counted), None),
        Some(Err(reason)) => (None, Some(reason)),
    };
    Ok(Snapshot {
        time,
        packets: read.packets,
        bytes: read.bytes,
        processor_time: used.processor_time,
        switches: used.switches,
        resident: used.resident,
        added: accepted.added.load(Ordering::Relaxed),
        refused: accepted.refused.load(Ordering::Relaxed),
        refusal: accepted.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        threads: used.threads,
        workers: server.workers(),
        wakes: server.wakes(),
        system_calls: counted,
        not_counted,
    })
}

/// What this process has used up.
fn own_usage() -> io::Result<Usage> {
    Ok(Usage {
        processor_time: nanoseconds(Clock::Process.now()),
        switches: system::switches(),
        resident: system::resident()?,
        threads: system::threads(),
    })
}

/// The server's clock is zero at its first look at it.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_understood_as_it_was_said() {
        let all = [Command::Snapshot, Command::Read(None), Command::Read(Some(0.1)), Command::Rest];
        for command in all {
            assert_eq!(Command::parse(command.line().trim_end()), Some(command));
        }
        assert_eq!(Command::parse("read much"), None);
    }
}
