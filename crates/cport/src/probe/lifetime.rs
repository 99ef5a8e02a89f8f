//! Closed descriptors, and forks.

use std::io::Write as _;

use completion_port::{Interest, OneShot, Registration};

use super::Trial;
use super::kit::{Lacking, Seen, plain, soon, wait};
use crate::system::forks::forked;
use crate::system::{number, pair};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 30,
        what: "a borrowed descriptor is closed, its number registered anew",
        expected: "accepted under a new name; ready IN; 0 left",
        run: closed_number,
    },
    Trial {
        rule: 32,
        what: "a forked child calls and drops its parent's port, and makes its own",
        expected: "Forked, 2 back, Forked; its own: posted 3; the parent: posted 1, ready IN",
        run: forked,
    },
];

fn closed_number() -> Seen {
    let port = plain()?;
    let (_near, far) = pair()?;
    let first = port.register(Registration::new(&far, 1, Interest::IN, OneShot::Level))?;
    let closed = number(&far);
    let (mut near, other) = pair()?;
    drop(far);
    // Most systems return the lowest free number: the one closed just now, unless another thread got it.
    let mut copies = Vec::new();
    let far = loop {
        let copy = other.try_clone()?;
        if number(&copy) == closed {
            break copy;
        }
        copies.push(copy);
        if copies.len() == 16 {
            return Err(Lacking("the system did not use the number again").into());
        }
    };
    drop(copies);
    drop(other);
    let second = port.register(Registration::new(&far, 2, Interest::IN, OneShot::Level));
    let name = match &second {
        Ok(second) if *second == first => "accepted under the same name".to_owned(),
        Ok(_) => "accepted under a new name".to_owned(),
        Err(refused) => format!("{:?}", refused.kind()),
    };
    near.write_all(b"x")?;
    let seen = wait(&port, soon());
    // That packet's token has been dropped, which ended the new registration.
    Ok(format!("{name}; {}; {} left", seen?, port.stats().registered))
}
