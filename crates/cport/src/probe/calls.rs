//! The call: changes applied, packets taken; posted messages.

use std::fs::File;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Changes, FileSource, Interest, OneShot, Packet, Port, Registration};

use super::Trial;
use super::kit::{QUIET, SOON, Seen, count, outcome, plain, udp, until, wait, word};
use crate::system::Stream;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 1,
        what: "a registration and what it makes ready, in one call",
        expected: "ready OUT",
        run: one_call,
    },
    Trial {
        rule: 2,
        what: "a call with changes and no room for packets",
        expected: "at once, 0 packets; then ready OUT",
        run: no_room,
    },
    Trial {
        rule: 3,
        what: "a call on a closed port",
        expected: "Closed, 1 change kept; 2 results: accepted, NotPollable",
        run: two_levels,
    },
    Trial {
        rule: 4,
        what: "a call whose time is over",
        expected: "0 packets, 1 registered",
        run: time_over,
    },
    Trial {
        rule: 5,
        what: "packets of all kinds in one batch",
        expected: "ready OUT, posted 2, removed",
        run: one_queue,
    },
    Trial {
        rule: 6,
        what: "a registration while another thread waits",
        expected: "that thread: ready OUT",
        run: while_another_waits,
    },
    Trial {
        rule: 7,
        what: "20 waits of 1 ms in which nothing comes",
        expected: "0 ended early, 0 brought a packet",
        run: never_early,
    },
    Trial {
        rule: 45,
        what: "a call whose only change is refused, twice",
        expected: "at once, NotPollable; then its time",
        run: refused_change,
    },
    Trial {
        rule: 33,
        what: "five messages of one thread",
        expected: "1 2 3 4 5",
        run: first_in_first_out,
    },
    Trial {
        rule: 34,
        what: "two threads wait, three messages are posted",
        expected: "newest 1, older 2, later 3",
        run: two_wait_three_posts,
    },
    Trial {
        rule: 35,
        what: "a message that no thread took, and its port is dropped",
        expected: "dropped once",
        run: dropped_with_the_port,
    },
    Trial {
        rule: 48,
        what: "the handler of the first of two messages posts to its own thread",
        expected: "1 3 2",
        run: posts_to_itself,
    },
    Trial {
        rule: 49,
        what: "messages for 50 ms, 1 ms and in an hour, the last one taken back",
        expected: "2 1, none early, 3 back",
        run: posts_for_later,
    },
];

fn posts_to_itself() -> Seen {
    let port = plain()?;
    port.post(1)?;
    port.post(2)?;
    let mut batch = Batch::new();
    let mut order = Vec::new();
    for packet in port.wait(&mut batch, SOON)? {
        let Packet::Posted(message) = packet else { continue };
        order.push(message.to_string());
        if message == 1 {
            port.post_after(3)?;
        }
    }
    Ok(order.join(" "))
}

fn posts_for_later() -> Seen {
    let port = plain()?;
    // Far apart: each counts from its own call, and a busy machine may hold this thread up between the two.
    let [late, soon] = [50, 1].map(Duration::from_millis);
    let begin = Instant::now();
    port.post_at(late, 1)?;
    port.post_at(soon, 2)?;
    let never = port.post_at(Duration::from_secs(3600), 3)?;
    let (mut order, mut early) = (Vec::new(), 0);
    let mut batch = Batch::new();
    while order.len() < 2 && begin.elapsed() < SOON {
        for packet in port.wait(&mut batch, SOON)? {
            let Packet::Posted(message) = packet else { continue };
            early += usize::from(begin.elapsed() < if message == 1 { late } else { soon });
            order.push(message.to_string());
        }
    }
    let early = if early == 0 { "none".to_owned() } else { early.to_string() };
    let back = port.cancel_post(never).map_or_else(|| "none".to_owned(), |it| it.to_string());
    Ok(format!("{}, {early} early, {back} back", order.join(" ")))
}

fn one_call() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let mut changes = Changes::new();
    changes.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level));
    let mut batch = Batch::new();
    let packets = port.process(&mut changes, &mut batch, SOON)?;
    let words: Vec<_> = packets.map(word).collect();
    Ok(words.join(", "))
}

fn no_room() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let mut changes = Changes::new();
    changes.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level));
    let begin = Instant::now();
    let taken = port.process(&mut changes, &mut Batch::with_capacity(0), SOON)?.count();
    let when = if begin.elapsed() < SOON { "at once" } else { "after its time" };
    Ok(format!("{when}, {taken} packets; then {}", wait(&port, SOON)?))
}

/// A file, which is not waited for.
fn program() -> std::io::Result<FileSource<File>> {
    Ok(FileSource::new(File::open(std::env::current_exe()?)?))
}

fn two_levels() -> Seen {
    let (socket, file) = (udp()?, program()?);
    let closed = plain()?;
    closed.close();
    let mut changes = Changes::new();
    changes.register(Registration::new(&socket, 1, Interest::IN, OneShot::Level));
    let refused = closed.process(&mut changes, &mut Batch::new(), Duration::ZERO).map(|_| ());
    let kept = changes.len();
    let port = plain()?;
    let mut changes = Changes::new();
    changes.register(Registration::new(&socket, 1, Interest::IN, OneShot::Level));
    changes.register(Registration::new(&file, 2, Interest::IN, OneShot::Level));
    drop(port.process(&mut changes, &mut Batch::new(), Duration::ZERO)?);
    let results: Vec<_> = changes.results().iter().map(|result| outcome(*result)).collect();
    let (refused, number) = (outcome(refused), results.len());
    let results = results.join(", ");
    Ok(format!("{refused}, {kept} change kept; {number} results: {results}"))
}

fn time_over() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    let mut changes = Changes::new();
    changes.register(Registration::new(&socket, 1, Interest::IN, OneShot::Level));
    let taken = port.process(&mut changes, &mut Batch::new(), QUIET)?.count();
    Ok(format!("{taken} packets, {} registered", port.stats().registered))
}

fn one_queue() -> Seen {
    let (port, socket, other) = (plain()?, udp()?, udp()?);
    port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
    let id = port.register(Registration::new(&other, 1, Interest::IN, OneShot::Level))?;
    // The kernel is asked, so that the socket's packet is queued before the others.
    port.raw().has_packets(&mut Batch::new())?;
    port.post(2)?;
    port.remove(id)?;
    Ok(wait(&port, SOON)?)
}

fn while_another_waits() -> Seen {
    let (port, socket) = (plain()?, udp()?);
    thread::scope(|scope| {
        let waits = scope.spawn(|| wait(&port, SOON));
        until(|| port.stats().parked == 1)?;
        port.register(Registration::new(&socket, 1, Interest::OUT, OneShot::Level))?;
        let seen = waits.join().map_err(|_| "the waiting thread panicked")??;
        Ok(format!("that thread: {seen}"))
    })
}

fn never_early() -> Seen {
    let port = plain()?;
    let (mut early, mut with_packets) = (0, 0);
    for _ in 0..20 {
        let (begin, time) = (Instant::now(), Duration::from_millis(1));
        with_packets += count(&port, time)?;
        early += usize::from(begin.elapsed() < time);
    }
    Ok(format!("{early} ended early, {with_packets} brought a packet"))
}

fn refused_change() -> Seen {
    let (port, file) = (plain()?, program()?);
    let mut seen = Vec::new();
    for limit in [SOON, QUIET] {
        let mut changes = Changes::new();
        changes.register(Registration::new(&file, 1, Interest::IN, OneShot::Level));
        let begin = Instant::now();
        drop(port.process(&mut changes, &mut Batch::new(), limit)?);
        let took = begin.elapsed();
        let result = changes.results().first().copied().ok_or("no result")?;
        seen.push((took < limit, outcome(result)));
    }
    Ok(match &seen[..] {
        [(true, kind), (false, _)] => format!("at once, {kind}; then its time"),
        other => format!("{other:?}"),
    })
}

fn first_in_first_out() -> Seen {
    let port = plain()?;
    (1..=5).try_for_each(|message| port.post(message))?;
    let mut batch = Batch::new();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        for packet in port.wait(&mut batch, SOON)? {
            let Packet::Posted(message) = packet else { return Ok(word(packet)) };
            seen.push(message.to_string());
        }
    }
    Ok(seen.join(" "))
}

fn two_wait_three_posts() -> Seen {
    let port: Port<u32, u32> = Port::builder().concurrency(4).build()?;
    let taken = || -> completion_port::Result<String> {
        let mut batch = Batch::with_capacity(1);
        let packet = port.wait(&mut batch, SOON)?.next();
        let number = match packet {
            Some(Packet::Posted(number)) => number.to_string(),
            _ => "nothing".to_owned(),
        };
        Ok(number)
    };
    thread::scope(|scope| {
        let older = scope.spawn(taken);
        until(|| port.stats().parked == 1)?;
        let newest = scope.spawn(taken);
        until(|| port.stats().parked == 2)?;
        port.post(1)?;
        until(|| port.stats().packets.posted == 1)?;
        port.post(2)?;
        until(|| port.stats().packets.posted == 2)?;
        port.post(3)?;
        let later = taken()?;
        let newest = newest.join().map_err(|_| "a thread panicked")??;
        let older = older.join().map_err(|_| "a thread panicked")??;
        Ok(format!("newest {newest}, older {older}, later {later}"))
    })
}

fn dropped_with_the_port() -> Seen {
    let port: Port<Stream, Arc<()>> = Port::builder().build()?;
    let message = Arc::new(());
    port.post(Arc::clone(&message)).map_err(|refused| refused.error())?;
    let before = Arc::strong_count(&message);
    drop(port);
    Ok(match (before, Arc::strong_count(&message)) {
        (2, 1) => "dropped once".to_owned(),
        counts => format!("owners before and after: {counts:?}"),
    })
}
