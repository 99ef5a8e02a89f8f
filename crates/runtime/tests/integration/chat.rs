//! The chat among the examples, with real clients that check every line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use completion_port_runtime::Runtime;
use completion_port_runtime::net::TcpListener;

#[path = "../../examples/async_chat.rs"]
mod server;

const LIMIT: Duration = Duration::from_secs(60);

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(line.as_bytes()).unwrap();
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    fn hears(&mut self, line: &str) {
        assert_eq!(self.next(), line);
    }
}

/// Clients come one after the other, each when the others have heard of the last one.
fn come(address: SocketAddr, clients: &mut Vec<Client>) {
    let newest = Client::connect(address);
    let number = clients.len() + 1;
    clients.iter_mut().for_each(|client| client.hears(&format!("{number}: has come\n")));
    clients.push(newest);
}

#[test]
fn clients_hear_each_other_whoever_leaves_or_is_slow() {
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    drop(runtime.spawn(server::serve(listener)));
    let mut clients = Vec::new();
    (0..4).for_each(|_| come(address, &mut clients));
    let [first, second, third, slow] = &mut clients[..] else { unreachable!() };

    // Several lines in one write, and one line in several.
    first.say("one\ntwo\nth");
    second.hears("1: one\n");
    second.hears("1: two\n");
    first.say("ree\n");
    second.hears("1: three\n");
    for line in ["one", "two", "three"] {
        third.hears(&format!("1: {line}\n"));
    }

    // The fourth reads nothing: its socket fills up, then its queue, and it is cut off.
    let text = "x".repeat(16_000);
    let (mut rounds, mut have_heard) = (0, [false; 2]);
    while have_heard == [false; 2] {
        first.say(&format!("{rounds} {text}\n"));
        // They hear of its end before, between or after the lines.
        for (client, has_heard) in [&mut *second, &mut *third].into_iter().zip(&mut have_heard) {
            let mut line = client.next();
            if line == "4: has left\n" {
                *has_heard = true;
                line = client.next();
            }
            assert_eq!(line, format!("1: {rounds} {text}\n"));
        }
        rounds += 1;
        assert!(rounds < 10_000, "the slow client is not cut off");
    }
    for (client, has_heard) in [&mut *first, &mut *second, &mut *third].into_iter().zip([
        false,
        have_heard[0],
        have_heard[1],
    ]) {
        if !has_heard {
            client.hears("4: has left\n");
        }
    }
    // What it gets is what was said to it, up to some point.
    let mut got = String::new();
    // A connection that is cut may end by a reset.
    let _ = slow.0.read_to_string(&mut got);
    let mut said: String = ["one", "two", "three"].map(|line| format!("1: {line}\n")).concat();
    said.extend((0..rounds).map(|round| format!("1: {round} {text}\n")));
    assert!(said.starts_with(&got) && got.len() < said.len(), "{} of {}", got.len(), said.len());

    second.say("go on\n");
    first.hears("2: go on\n");
    third.hears("2: go on\n");

    // The third leaves in the middle of a line, which nobody hears.
    third.say("I am");
    third.0.get_ref().shutdown(Shutdown::Both).unwrap();
    first.hears("3: has left\n");
    second.hears("3: has left\n");
    // A client that comes later hears what is said from then on.
    let mut fifth = Client::connect(address);
    first.hears("5: has come\n");
    second.hears("5: has come\n");
    first.say("welcome\n");
    second.hears("1: welcome\n");
    fifth.hears("1: welcome\n");
    // At the end of the runtime, each reads the end.
    drop(runtime);
    for client in [first, second, &mut fifth] {
        client.hears("");
    }
}
