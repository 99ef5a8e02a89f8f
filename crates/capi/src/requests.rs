//! A program's changes to a registration, converted for the port.

use completion_port::raw::AnyTrigger;
use completion_port::{Interest, OneShot, Persistent};

use crate::abi::{Registration, event, operation, trigger};
use crate::errors::code;

/// The change that an entry requests.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    Nothing,
    Enable(Terms),
    Disable,
    Remove,
}

/// The change that an entry requests, or the error if it is invalid for any socket.
#[inline]
pub(crate) fn parse(entry: &Registration) -> Result<Change, u32> {
    match entry.operation {
        operation::NONE => Ok(Change::Nothing),
        operation::ENABLE => terms(entry.filter, entry.trigger).map(Change::Enable),
        operation::DISABLE => Ok(Change::Disable),
        operation::REMOVE => Ok(Change::Remove),
        _ => Err(code::INVALID_PARAMETER),
    }
}

#[inline]
fn terms(filter: u16, triggers: u8) -> Result<Terms, u32> {
    const KINDS: u8 = trigger::LEVEL | trigger::EDGE;
    const ENDS: u8 = trigger::ONE_SHOT | trigger::PERSISTENT;
    if filter & !event::KNOWN != 0
        || triggers & !trigger::ALL != 0
        || !matches!(triggers & KINDS, trigger::LEVEL | trigger::EDGE)
        || triggers & ENDS == ENDS
    {
        return Err(code::INVALID_PARAMETER);
    }
    let asked =
        [(event::IN, Interest::IN), (event::OUT, Interest::OUT), (event::HANGUP, Interest::HANGUP)];
    let mut interest = Interest::NONE;
    for (bit, condition) in asked {
        if filter & bit != 0 {
            interest |= condition;
        }
    }
    Ok(Terms { interest, triggers })
}

/// An entry's filter and trigger, validated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) interest: Interest,
    pub(crate) triggers: u8,
}

impl Terms {
    /// Its trigger; persistent if operations share the registration.
    #[inline]
    pub(crate) fn trigger(self, has_line: bool) -> AnyTrigger {
        let is_edge = self.triggers & trigger::EDGE != 0;
        if self.triggers & trigger::ONE_SHOT != 0 && !has_line {
            AnyTrigger::OneShot(if is_edge { OneShot::Edge } else { OneShot::Level })
        } else {
            AnyTrigger::Persistent(if is_edge { Persistent::Edge } else { Persistent::Level })
        }
    }
}
