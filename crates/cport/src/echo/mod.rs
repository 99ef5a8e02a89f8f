//! `cport echo`: a server that echoes what it receives, until it is ended.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use completion_port::{BorrowedSource, Interest, OneShot, Port, Registration, Source};
use serde_json::{Value, json};

use crate::failure::{Failure, ISSUES};
use crate::quantity;
use crate::system::{self, Signals};
use crate::terminal;
use crate::text::{bytes, counted, grouped, list, packets, say, show};

mod clients;
mod datagrams;
mod numbers;
mod operations;
mod serve;
mod state;

use clients::Client;
use datagrams::Datagrams;
use numbers::{Numbers, thousandths};
use serve::Server;
use state::Service;

/// How often a server that is ending checks for finished clients.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `cport echo`.
#[derive(Args)]
pub(crate) struct Options {
    /// Where to listen, such as 127.0.0.1:7000, localhost:7000, 7000 or :7000
    ///
    /// An address (in brackets for IPv6) or a name, and a port. A port alone means 127.0.0.1, which
    /// no other machine reaches. A colon and a port mean all addresses of this machine. With port 0
    /// the system chooses a port.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// UDP instead of TCP
    ///
    /// One thread at a time serves the socket, so that each peer gets its datagrams back in order.
    #[arg(long)]
    udp: bool,
    /// Use operations instead of readiness
    ///
    /// The port accepts, receives and sends, and its packets carry the results. Each connection has
    /// its own buffer.
    #[arg(long, conflicts_with = "udp")]
    operations: bool,
    /// Threads that wait on the port [default: twice the concurrency value]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Threads that may process packets at the same time (0: number of processors)
    #[arg(long, value_name = "N", default_value_t = 0)]
    concurrency: u16,
    /// Print rates at this interval (1s, 500ms)
    ///
    /// On Unix, SIGUSR1 prints the same once, with or without this option: rates since the last
    /// time.
    #[arg(long, value_name = "TIME", value_parser = quantity::interval)]
    stats: Option<Duration>,
    /// Print one JSON object a line, and nothing else
    #[arg(long)]
    json: bool,
    /// How long clients may take to get their data back at the end
    ///
    /// The first Ctrl-C (SIGINT) or SIGTERM, or Ctrl-Break on Windows, closes the listener. A
    /// connection is closed once all received data has been sent back and no more has arrived for a
    /// fifth of a second. After this time, or at a second signal, the remaining connections are cut
    /// off. The server then prints how much they did not get back, and the exit code is 1. A third
    /// signal ends the server at once.
    #[arg(long, value_name = "TIME", value_parser = quantity::limit, default_value = "10s")]
    drain: Duration,
}

/// The key: what the port watches, and so the subject of each packet.
pub(crate) enum Peer {
    Listener(TcpListener),
    Client(Client),
    Datagrams(Datagrams),
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.as_source(),
            Self::Datagrams(datagrams) => datagrams.as_source(),
        }
    }
}

/// Serves until SIGINT or SIGTERM.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let protocol = if options.udp { "udp" } else { "tcp" };
    let (peer, address) = listen(&options.listen, options.udp).map_err(|error| {
        let remedy = remedy(&error);
        let refused = format!("cannot listen on {:?} ({protocol})", options.listen);
        Failure::to_begin(&refused, &error).and(remedy)
    })?;
    let refused = |error: io::Error| Failure::to_begin("cannot set up the server", &error);
    let signals = Signals::new().map_err(refused)?;
    let builder = Port::builder().concurrency(options.concurrency.into());
    match peer {
        Peer::Listener(listener) if options.operations => {
            let port = builder.build().map_err(|error| refused(error.into()))?;
            let server = operations::Server::new(&port, listener, signals.waker())
                .map_err(|error| refused(error.into()))?;
            serve(options, address, &server, &signals)
        }
        peer => {
            let port: Port<Peer> = builder.build().map_err(|error| refused(error.into()))?;
            let entrance = port
                .register(Registration::owned(peer, Interest::IN, OneShot::Level))
                .map_err(|error| refused(error.into()))?;
            serve(options, address, &Server::new(&port, entrance, signals.waker()), &signals)
        }
    }
}

/// Serves with the server's threads until it ends.
fn serve(
    options: &Options,
    address: SocketAddr,
    server: &dyn Service,
    signals: &Signals,
) -> Result<(), Failure> {
    let concurrency = server.stats().concurrency;
    let threads = options.threads.map_or(2 * concurrency, usize::from);
    // Before the first client is served.
    let begin = Numbers::now(server);
    let by_thread = thread::scope(|scope| {
        let workers = (0..threads)
            .map(|_| thread::Builder::new().spawn_scoped(scope, || server.serve()))
            .collect::<io::Result<Vec<_>>>();
        let served = match &workers {
            Ok(_) => greet(options, address, threads, concurrency)
                .and_then(|()| Course { options, server, begin }.run(signals)),
            Err(error) => {
                let what = format!("cannot start {}", counted(threads as u64, "thread"));
                Err(Failure::to_begin(&what, error).and("; fewer may do: `--threads`"))
            }
        };
        if served.is_err() {
            // Ends the running threads before the scope waits for them.
            server.close();
        }
        served?;
        let mut by_thread = Vec::with_capacity(threads);
        for worker in workers.into_iter().flatten() {
            let served = worker.join().map_err(|_| fault("a thread of the server panicked"))?;
            by_thread
                .push(served.map_err(|error| fault(&format!("a server thread failed: {error}")))?);
        }
        Ok(by_thread)
    })?;
    signals.last_warning();
    report(server, options, &by_thread, begin.at().elapsed())
}

/// An unexpected failure, and what to do about it.
fn fault(what: &str) -> Failure {
    Failure::Wrong(format!("{what}, and the server ended. Please report this fault: {ISSUES}"))
}

/// Prints the first lines. Scripts take the address from the end of the first one.
fn greet(
    options: &Options,
    address: SocketAddr,
    threads: usize,
    concurrency: usize,
) -> Result<(), Failure> {
    let protocol = if options.udp { "udp" } else { "tcp" };
    if options.json {
        return line_of(&json!({
            "event": "listening",
            "protocol": protocol,
            "address": address.to_string(),
            "threads": threads,
            "concurrency": concurrency,
            "process": std::process::id(),
        }));
    }
    show(format_args!(
        "{protocol} echo listening on {address}\n\
         {}, {concurrency} may run at once\n\
         {}\n",
        counted(threads as u64, "thread"),
        system::how_to_tell(),
    ))
}

/// Prints a JSON object on its own line.
fn line_of(object: &Value) -> Result<(), Failure> {
    say(format_args!("{object}\n"))
}

/// A server from start to end, as the main thread sees it.
struct Course<'s> {
    options: &'s Options,
    server: &'s dyn Service,
    begin: Numbers,
}

/// The remaining time for ending.
struct Drain {
    until: Instant,
    look: Instant,
    is_cut: bool,
}

impl Course<'_> {
    /// Waits for signals and scheduled work until the threads end.
    fn run(&self, signals: &Signals) -> Result<(), Failure> {
        let failed = |error: io::Error| fault(&format!("waiting for signals failed: {error}"));
        let ends = |error: completion_port::Error| fault(&format!("ending it failed: {error}"));
        let mut drain: Option<Drain> = None;
        let (mut periodic, mut asked) = (self.begin, self.begin);
        let mut next = self.options.stats.map(|every| (every, self.begin.at() + every));
        while !self.server.state().is_over() {
            let looks = drain.as_ref().filter(|drain| !drain.is_cut);
            let looks = looks.map(|drain| drain.look.min(drain.until));
            let due = [next.map(|(_, at)| at), looks].into_iter().flatten().min();
            let limit = due.map(|due| due.saturating_duration_since(Instant::now()));
            signals.wait(limit).map_err(failed)?;
            if signals.numbers() {
                self.print(&mut asked)?;
            }
            let now = Instant::now();
            if let Some((every, at)) = &mut next
                && *at <= now
            {
                self.print(&mut periodic)?;
                // After a stop, skips missed intervals.
                while *at <= now {
                    *at += *every;
                }
            }
            let is_asked = signals.end();
            let is_second = is_asked && drain.is_some();
            if is_asked && !is_second {
                self.server.begin_to_end();
                self.announce()?;
                let until = now + self.options.drain;
                drain = Some(Drain { until, look: now, is_cut: false });
            }
            let Some(drain) = drain.as_mut().filter(|drain| !drain.is_cut) else { continue };
            if is_second || drain.until <= now {
                drain.is_cut = true;
                signals.last_warning();
                self.server.cut_off().map_err(ends)?;
            } else if drain.look <= now {
                self.server.look().map_err(ends)?;
                drain.look = now + LOOK;
            }
        }
        Ok(())
    }

    fn print(&self, earlier: &mut Numbers) -> Result<(), Failure> {
        let now = Numbers::now(self.server);
        let rates = now.since(earlier, self.begin.at());
        if self.options.json {
            line_of(&rates.document())?;
        } else {
            let line = rates.line(self.options.udp, terminal::output_width());
            say(format_args!("{line}"))?;
        }
        *earlier = now;
        Ok(())
    }

    /// Announces that the end has begun, if it may take a while.
    fn announce(&self) -> Result<(), Failure> {
        let (open, limit) = (self.server.served().open, self.options.drain.as_secs_f64());
        if self.options.json {
            line_of(&json!({ "event": "ending", "connections": open, "limit": limit }))
        } else if open > 0 {
            show(format_args!(
                "\nending: {} may take {limit} s to get their data back; a second Ctrl-C cuts \
                 off the rest\n",
                counted(open, "connection"),
            ))
        } else {
            Ok(())
        }
    }
}

/// The socket that clients reach, and its address.
fn listen(address: &str, udp: bool) -> io::Result<(Peer, SocketAddr)> {
    let addresses = addresses(address)?;
    if udp {
        let socket = system::datagram_socket(&addresses)?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?;
        Ok((Peer::Datagrams(Datagrams::new(socket)), bound))
    } else {
        let listener = system::listener(&addresses)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((Peer::Listener(listener), bound))
    }
}

/// Resolves an address argument; the first one that can be bound is used.
fn addresses(text: &str) -> io::Result<Vec<SocketAddr>> {
    let number = |text: &str| -> io::Result<u16> {
        text.parse().map_err(|_| io::Error::new(ErrorKind::InvalidInput, "no port from 0 to 65535"))
    };
    if let Some(port) = text.strip_prefix(':')
        && !port.starts_with(':')
    {
        let port = number(port)?;
        // With IPv6, the socket also accepts IPv4.
        Ok(vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()])
    } else if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(vec![(Ipv4Addr::LOCALHOST, number(text)?).into()])
    } else {
        Ok(text.to_socket_addrs()?.collect())
    }
}

/// Advice for a refused address.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidInput => "; expected an address such as 127.0.0.1:7000, :7000 or 7000",
        ErrorKind::AddrInUse => system::TAKEN,
        ErrorKind::AddrNotAvailable => system::NOT_HERE,
        ErrorKind::PermissionDenied => system::DENIED,
        // Unknown names have no error kind.
        _ if system::is_unknown_name(error) => "; is the name right? an address will do, too",
        _ => "",
    }
}

fn report(
    server: &dyn Service,
    options: &Options,
    by_thread: &[u64],
    elapsed: Duration,
) -> Result<(), Failure> {
    let stats = server.stats();
    let served = server.served();
    let ended = server.state().open_at_end();
    if options.json {
        line_of(&json!({
            "event": "ended",
            "seconds": thousandths(elapsed.as_secs_f64()),
            "accepted": served.accepted,
            "open_at_end": ended,
            "datagrams": served.datagrams,
            "lost": served.lost,
            "received": served.received,
            "sent": served.sent,
            "cut_connections": served.cut_clients,
            "cut_bytes": served.cut_bytes,
            "packets": {
                "ready": stats.packets.ready,
                "notified": stats.packets.notified,
                "posted": stats.packets.posted,
                "removed": stats.packets.removed,
                "completed": stats.packets.completed,
            },
            "packets_by_thread": by_thread,
            "threads_at_work_peak": server.state().gauge.peak(),
            "concurrency": stats.concurrency,
            "wakes": stats.wakes,
            "spurious_wakes": stats.spurious_wakes,
            "polls": stats.polls,
        }))?;
    } else {
        let clients = if options.udp {
            let lost = grouped(served.lost);
            format!("{} ({lost} lost)", counted(served.datagrams, "datagram"))
        } else {
            let open = grouped(ended);
            format!("{} ({open} still open)", counted(served.accepted, "connection"))
        };
        show(format_args!(
            "\nended after {:.1} s: {clients}, {} received, {} sent\n\
             packets: {}\n\
             packets by thread: {}\n\
             threads at work at once: {} at most, concurrency value {}\n\
             threads woken: {}, {} of them for nothing; the kernel was asked for events {}\n",
            elapsed.as_secs_f64(),
            bytes(served.received),
            bytes(served.sent),
            packets(stats.packets),
            list(by_thread),
            server.state().gauge.peak(),
            stats.concurrency,
            grouped(stats.wakes),
            grouped(stats.spurious_wakes),
            counted(stats.polls, "time"),
        ))?;
    }
    if served.cut_bytes == 0 {
        return Ok(());
    }
    Err(Failure::Wrong(format!(
        "cut off {}: {} were received and did not get back; `--drain` gives them longer than {} s",
        counted(served.cut_clients, "connection"),
        bytes(served.cut_bytes),
        options.drain.as_secs_f64(),
    )))
}

#[cfg(test)]
mod tests {
    use super::addresses;

    #[test]
    fn a_port_alone_is_of_this_machine_and_one_behind_a_colon_of_all_addresses() {
        let shown = |text: &str| -> Vec<String> {
            addresses(text).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(shown("7000"), ["127.0.0.1:7000"]);
        assert_eq!(shown(":7000"), ["[::]:7000", "0.0.0.0:7000"]);
        assert_eq!(shown("[::1]:7000"), ["[::1]:7000"]);
        assert_eq!(shown("10.0.0.1:0"), ["10.0.0.1:0"]);
        for bad in ["", ":", "70000", ":x", "::", "127.0.0.1", "7000:"] {
            assert!(addresses(bad).is_err(), "{bad}");
        }
    }
}
