//! Connections whose deadlines move with every message: the idle timeout of a server.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Ready, Registration};

use super::CONTENDERS;
use super::api::Timed;
use crate::contenders::nonblocking::{Handler, Next, Peer};
use crate::contenders::{Contender, Listening, Server, threads};
use crate::enough::Amount;
use crate::load::{Handlers, Pattern};
use crate::options::TIMERS;
use crate::report::Cell;
use crate::rounds::Place;
use crate::runtimes::api::{Ours, Smol, Tokio};
use crate::runtimes::server::{OnRuntime, Serving};
use crate::runtimes::{Options, cells, processors};
use crate::scenario::{CPU, RATE, Setup};
use crate::sink::Service;
use crate::system;
use crate::traffic::Traffic;
use crate::work::{BUFFER, Carry, process};

/// A connection without a request for so long is closed: longer than a contender rests between two
/// turns, on any machine.
const IDLE: Duration = Duration::from_secs(600);
const CONNECTIONS: usize = 10_000;

/// The servers, with the names of the contenders.
pub(in crate::runtimes) fn servers() -> Vec<Contender> {
    let on = |name, start| Contender { name, about: "", version: String::new, start };
    vec![
        on("ours/idle", start::<Ours>),
        on("tokio/idle", start::<Tokio>),
        on("smol/idle", start::<Smol>),
        on("port/idle", start_on_port),
    ]
}

/// Measures all of them.
pub(super) fn measure(
    options: &Options,
    rounds: Amount,
    divided_by: usize,
    step: &mut dyn FnMut(&str),
) -> Cell {
    let usual = (CONNECTIONS / divided_by).max(1);
    let connections = options.connections.first().copied().unwrap_or(usual);
    let seconds = IDLE.as_secs();
    let setup = Setup {
        scenario: TIMERS,
        title: format!(
            "echo of 64 bytes, {connections} connections; each request moves its connection's \
             deadline to {seconds} s later"
        ),
        threads: processors(),
        connections,
        pattern: Pattern { handlers: Handlers::Quick, burst: 1 },
        traffic: Traffic::Lasting,
        drain: None,
        compared: CPU,
        rounds: rounds.least,
        round: options.round.unwrap_or(Duration::from_millis(500)),
    };
    let names = options.names(&CONTENDERS);
    let by_turn = setup.connects_by_turn(names.len(), usize::MAX);
    let place = |name: &&'static str| {
        let is_its = |server: &Contender| server.name.split('/').next() == Some(*name);
        let contender = servers().into_iter().find(is_its);
        let (name, program) = ((*name).to_owned(), system::own_program());
        match contender {
            Some(contender) => {
                Ok(Place { name, program, contender, setup: setup.clone(), by_turn })
            }
            None => Err((name, "there is no server".to_owned())),
        }
    };
    let mut cell = cells::measure(rounds, names.iter().map(place).collect(), Vec::new(), step);
    // If no server has started, it has neither.
    (cell.scenario, cell.title) = (setup.scenario.to_owned(), setup.title.clone());
    super::note_ratios(&mut cell, &[RATE]);
    cell
}

// ---- on a runtime ----

fn start<R: Timed>(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    OnRuntime::<R, Idle>::start(None, service, |_| Idle)
}

#[derive(Clone, Copy)]
struct Idle;

impl<R: Timed> Serving<R> for Idle {
    async fn serve(self, stream: R::Stream) {
        drop(echo::<R>(stream, IDLE).await);
    }
}

/// Sends back what comes, until nothing comes for that time.
async fn echo<R: Timed>(mut stream: R::Stream, idle: Duration) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    let mut carry = Carry::default();
    loop {
        let read = R::read_within(idle, &mut stream, &mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        process(&mut carry, &buffer[..read]);
        R::write_all(&mut stream, &buffer[..read]).await?;
    }
}

// ---- on the bare port ----

struct OnPort {
    port: Arc<Port<Peer>>,
    idle: Duration,
}

fn start_on_port(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(Box::new(OnPort::start(threads, IDLE)?))
}

impl OnPort {
    fn start(threads: usize, idle: Duration) -> io::Result<OnPort> {
        let port = Arc::new(Port::new()?);
        for _ in 0..threads {
            let port = Arc::clone(&port);
            threads::spawn("port", move || serve(&port, idle))?;
        }
        Ok(OnPort { port, idle })
    }
}

impl Server for OnPort {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let registration = Registration::owned(Peer::of(stream), Interest::IN, OneShot::Level);
        self.port.register(registration.deadline(self.idle))?;
        Ok(())
    }

    fn listen(&self, _: &Listening) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.port.stats().wakes)
    }
}

fn serve(port: &Port<Peer>, idle: Duration) -> io::Result<()> {
    let (mut batch, mut handler) = (Batch::new(), Handler::new(Service::Echo));
    loop {
        for packet in port.wait(&mut batch, None)? {
            let Packet::Ready(mut ready) = packet else { continue };
            if ready.events().is_timed_out() {
                drop(ready); // deregisters the socket and closes it
                continue;
            }
            let next = ready.key_mut().serve(&mut handler, false)?;
            arm(ready, next, idle)?;
        }
    }
}

/// Arms a connection for its next event, with its next deadline, or ends it.
fn arm(mut ready: Ready<'_, Peer>, next: Option<Next>, idle: Duration) -> io::Result<()> {
    match next {
        Some(Next::Input) => {
            ready.read_drained();
            ready.rearm_as_until(Interest::IN, OneShot::Level, idle)?;
        }
        // Without a hint: there is probably more.
        Some(Next::Turn) => ready.rearm_as_until(Interest::IN, OneShot::Level, idle)?,
        Some(Next::Room) => {
            ready.write_full();
            ready.rearm_as_until(Interest::OUT, OneShot::Level, idle)?;
        }
        None => drop(ready), // deregisters the socket and closes it
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::work::{MESSAGE, Work, message};

    /// A connection that `serve` takes over.
    fn connected(serve: impl FnOnce(TcpStream)) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        serve(listener.accept().unwrap().0);
        client
    }

    #[test]
    fn every_server_echoes() {
        for server in servers() {
            let server = (server.start)(2, Service::Echo).unwrap();
            let mut client = connected(|stream| server.add(stream).unwrap());
            for number in 0..3 {
                let request = message(Work::Echo, number);
                client.write_all(&request).unwrap();
                let mut answer = [0; MESSAGE];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, request);
            }
        }
    }

    fn assert_ends(client: &mut TcpStream) {
        let ended = client.read(&mut [0; 64]);
        assert_eq!(ended.unwrap(), 0);
    }

    fn closes<R: Timed>() {
        let runtime = R::start(None).unwrap();
        let mut client = connected(|stream| {
            let stream = runtime.stream(stream).unwrap();
            runtime.begin(async move { drop(echo::<R>(stream, Duration::from_millis(20)).await) });
        });
        assert_ends(&mut client);
    }

    #[test]
    fn a_connection_that_is_idle_is_closed() {
        closes::<Ours>();
        closes::<Tokio>();
        closes::<Smol>();
        let port = OnPort::start(1, Duration::from_millis(20)).unwrap();
        assert_ends(&mut connected(|stream| port.add(stream).unwrap()));
    }
}
