//! Removal, closing and memory: what owns a key, and what ends what.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::thread;

use completion_port::{Batch, Interest, OneShot, Packet, Persistent, Port, Registration};

use super::Trial;
use super::kit::{QUIET, SOON, Seen, outcome, plain, udp, wait};
use crate::system::{Stream, number, pair};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 29,
        what: "three keys: one refused, one removed, one left in a dropped port",
        expected: "1 came back, 1 came back, 1 dropped",
        run: owned_keys,
    },
    Trial {
        rule: 46,
        what: "a persistent key that owns its descriptor, and a clone",
        expected: "notified OUT; ended: nothing; the clone is still open",
        run: shared_key,
    },
    Trial {
        rule: 47,
        what: "a token that keeps its port, in a thread that outlives the borrow",
        expected: "armed there: accepted; its port ends with it",
        run: token_with_port,
    },
    Trial {
        rule: 30,
        what: "a borrowed descriptor is closed, its number registered anew",
        expected: "accepted under a new name; ready IN; 0 left",
        run: closed_number,
    },
    Trial {
        rule: 31,
        what: "closed with a message queued; shut down with two registrations",
        expected: "posted 7, Closed; removed, removed, Closed",
        run: closing,
    },
];

fn owned_keys() -> Seen {
    let port: Port<Arc<()>> = Port::new()?;
    let (socket, other) = (udp()?, udp()?);
    let keys = [Arc::new(()), Arc::new(()), Arc::new(())];
    let register = |socket, key: &Arc<()>| {
        let registration = Registration::new(socket, Arc::clone(key), Interest::IN, OneShot::Level);
        port.register(registration)
    };
    let id = register(&socket, &keys[0]).map_err(|refused| refused.error())?;
    let refused = register(&socket, &keys[1]).err().ok_or("it was not refused")?;
    let refused = usize::from(Arc::ptr_eq(&refused.into_parts().1, &keys[1]));
    let removed = usize::from(Arc::ptr_eq(&port.remove_and_wait(id, SOON)?, &keys[0]));
    register(&other, &keys[2]).map_err(|refused| refused.error())?;
    let held = Arc::strong_count(&keys[2]);
    drop(port);
    let dropped = held - Arc::strong_count(&keys[2]);
    Ok(format!("{refused} came back, {removed} came back, {dropped} dropped"))
}

fn shared_key() -> Seen {
    let port = Port::new()?;
    let socket = Arc::new(udp()?);
    let address = socket.local_addr()?;
    let id = port
        .register(Registration::owned(socket, Interest::OUT, Persistent::Level))
        .map_err(|refused| refused.error())?;
    let mut batch = Batch::with_capacity(1);
    let Some(Packet::Notified(notified)) = port.wait(&mut batch, SOON)?.next() else {
        return Ok("no packet with a clone".to_owned());
    };
    let first = format!("notified {:?}", notified.events());
    let clone = notified.into_key();
    drop(port.remove_and_wait(id, SOON)?);
    let ended = wait(&port, QUIET)?;
    let is_open = if clone.local_addr()? == address { "still open" } else { "another" };
    Ok(format!("{first}; ended: {ended}; the clone is {is_open}"))
}

fn token_with_port() -> Seen {
    let port: Arc<Port<Stream>> = Arc::new(Port::new()?);
    let (mut near, far) = pair()?;
    near.set_read_timeout(Some(SOON))?;
    near.write_all(b"x")?;
    port.register(Registration::owned(far, Interest::IN, OneShot::Level))
        .map_err(|refused| refused.error())?;
    let mut batch = Batch::new();
    let token = match port.wait(&mut batch, SOON)?.next() {
        Some(Packet::Ready(ready)) => ready.with_port(&port).ok(),
        _ => None,
    };
    let token = token.ok_or("there was no token")?;
    drop(port);
    // The thread that arms it is the last owner of the port, and drops it with the key.
    let armed = thread::spawn(move || outcome(token.rearm()));
    let armed = armed.join().map_err(|_| "the thread panicked")?;
    let end = match near.read(&mut [0]) {
        // The byte that was sent has not been read: so the end is a reset.
        Ok(0) => "its port ends with it".to_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
            "its port ends with it".to_owned()
        }
        other => format!("its peer sees {other:?}"),
    };
    Ok(format!("armed there: {armed}; {end}"))
}

fn closed_number() -> Seen {
    let port = plain()?;
    let (_near, far) = pair()?;
    let first = port.register(Registration::new(&far, 1, Interest::IN, OneShot::Level))?;
    let closed = number(&far);
    let (mut near, other) = pair()?;
    // The lowest free number is given out: that which was closed just now.
    drop(far);
    let far = other.try_clone()?;
    if number(&far) != closed {
        return Ok("another thread of this process got the number".to_owned());
    }
    drop(other);
    let second = port.register(Registration::new(&far, 2, Interest::IN, OneShot::Level));
    let name = match &second {
        Ok(second) if *second == first => "accepted under the same name".to_owned(),
        Ok(_) => "accepted under a new name".to_owned(),
        Err(refused) => format!("{:?}", refused.kind()),
    };
    near.write_all(b"x")?;
    let seen = wait(&port, SOON);
    // That packet's token has been dropped, which ended the new registration.
    Ok(format!("{name}; {}; {} left", seen?, port.stats().registered))
}

fn closing() -> Seen {
    let port = plain()?;
    port.post(7)?;
    port.close();
    let (last, closed) = (wait(&port, SOON)?, outcome(wait(&port, SOON)));
    let port = plain()?;
    let (socket, other) = (udp()?, udp()?);
    for socket in [&socket, &other] {
        port.register(Registration::new(socket, 1, Interest::IN, OneShot::Level))?;
    }
    port.shutdown()?;
    let (keys, over) = (wait(&port, SOON)?, outcome(wait(&port, SOON)));
    Ok(format!("{last}, {closed}; {keys}, {over}"))
}
