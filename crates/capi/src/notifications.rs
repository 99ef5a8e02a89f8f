//! Changes to registrations: one entry after the other, each with a result of its own.

use std::os::fd::RawFd;

use completion_port::raw::Hints;
use completion_port::{ErrorKind, Id, Interest};

use crate::abi::{self, Entry, Handle, Registration, event, operation, trigger};
use crate::errors::{code, code_of, guarded};
use crate::numbers::{self, Key, Number, Registered, State, Terms};
use crate::port::{Changed, CompletionPort};
use crate::registrations::{self, Ended};
use crate::{descriptors, driver, handles};

/// What an entry asks for.
enum Change {
    Nothing,
    Enable(Terms),
    Disable,
    Remove,
}

fn parse(entry: &Registration) -> Result<Change, u32> {
    match entry.operation {
        operation::NONE => Ok(Change::Nothing),
        operation::ENABLE => terms(entry.filter, entry.trigger).map(Change::Enable),
        operation::DISABLE => Ok(Change::Disable),
        operation::REMOVE => Ok(Change::Remove),
        _ => Err(code::INVALID_PARAMETER),
    }
}

fn terms(filter: u16, triggers: u8) -> Result<Terms, u32> {
    let is_one_of = |one, other| (triggers & one == 0) != (triggers & other == 0);
    let are_both = |one, other| triggers & one != 0 && triggers & other != 0;
    if filter & !event::KNOWN != 0
        || triggers & !trigger::ALL != 0
        || !is_one_of(trigger::LEVEL, trigger::EDGE)
        || are_both(trigger::ONE_SHOT, trigger::PERSISTENT)
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

impl CompletionPort {
    /// Applies one entry.
    fn change(&self, entry: &Registration) -> Result<(), u32> {
        let mut ended = None;
        let outcome = self.change_number(entry, &mut ended);
        if let Some(ended) = ended {
            ended.tell();
        }
        outcome
    }

    /// The same. What has ended by that is the caller's to tell, who has no lock.
    fn change_number(&self, entry: &Registration, ended: &mut Option<Ended>) -> Result<(), u32> {
        let change = parse(entry)?;
        if matches!(change, Change::Nothing) {
            return Ok(());
        }
        let descriptor = RawFd::try_from(entry.socket).map_err(|_| code::WSAENOTSOCK)?;
        if numbers::find(descriptor).is_none() {
            // Nothing is kept for a number that names nothing.
            descriptors::protocol(descriptor)?;
        }
        let number = numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?;
        let mut state = number.lock();
        // A call that is not of this library may have closed the number, which may name another socket by now.
        // That question is spared if a read or write has found something out since the last packet.
        let is_enabled = matches!(change, Change::Enable(_));
        let is_hinted =
            is_enabled && !registrations::is_checked() && number.hints() != Hints::default();
        if let Some(registered) = state.registered
            && registered.port == self.name()
            && !(is_hinted && registered.removed.is_none())
            && !registrations::is_of(&registered, descriptor, self)
        {
            // A last packet that is on its way still comes.
            number.retire_locked(&mut state, |former| {
                *ended = Some(registrations::end(former));
            });
            number.doubt();
        }
        let ours = state.registered.filter(|registered| registered.port == self.name());
        match (change, ours) {
            (Change::Nothing, _) => Ok(()),
            (Change::Remove, Some(registered)) if registered.removed.is_some() => Ok(()),
            (_, Some(registered)) if registered.removed.is_some() => Err(code::INVALID_PARAMETER),
            (Change::Enable(terms), Some(registered)) => {
                let hints = || if is_hinted { number.hints() } else { Hints::default() };
                let (interest, trigger) = (terms.interest, terms.trigger(registered.is_on_line));
                if registered.is_on_line {
                    // Packets look at this with the number locked.
                    number.begin_report();
                }
                let enabled = self.raw().enable(registered.id, interest, trigger, hints);
                if is_hinted {
                    number.spend_hints();
                }
                if enabled.is_ok() {
                    if !registered.is_on_line {
                        // A packet that is taken meanwhile is told once more, if operations begin.
                        number.begin_report();
                    }
                    state.registered = Some(Registered { terms: Some(terms), ..registered });
                }
                match enabled {
                    // It was found out just now that the number had been closed.
                    Err(error) if error.kind() == ErrorKind::NotRegistered => {
                        self.begin(&mut state, number, descriptor, entry.key, terms, ended)
                    }
                    outcome => outcome.map_err(code_of),
                }
            }
            (Change::Enable(terms), None) => {
                self.begin(&mut state, number, descriptor, entry.key, terms, ended)
            }
            (Change::Disable, Some(registered)) => {
                self.disable(registered.id).map_err(code_of)?;
                state.registered = Some(Registered { terms: None, ..registered });
                Ok(())
            }
            (Change::Remove, Some(registered)) => {
                if registered.is_on_line {
                    // The operations go on.
                    self.disable(registered.id).map_err(code_of)?;
                    self.post_removal(registered.key, number, registered.id)?;
                } else {
                    self.remove(registered.id).map_err(code_of)?;
                }
                let removed = Some(descriptors::identity(descriptor));
                state.registered = Some(Registered { removed, ..registered });
                Ok(())
            }
            (Change::Disable | Change::Remove, None) => {
                descriptors::protocol(descriptor)?;
                Err(code::NOT_FOUND)
            }
        }
    }

    /// Makes a registration of a number that has none on this port.
    fn begin(
        &self,
        state: &mut State,
        number: &'static Number,
        descriptor: RawFd,
        key: usize,
        terms: Terms,
        ended: &mut Option<Ended>,
    ) -> Result<(), u32> {
        let is_plain_stream = descriptors::protocol(descriptor)? == libc::IPPROTO_TCP;
        if let Some(registered) = state.registered
            && registered.removed == Some(descriptors::identity(descriptor))
            && registered.port != self.name()
            && handles::is_open(registered.port)
        {
            // Another port has it, until its last packet is taken there.
            return Err(code::INVALID_PARAMETER);
        }
        let id = match self.line_of(state, number, ended)? {
            Some(id) => {
                number.begin(is_plain_stream);
                number.begin_report();
                let (interest, trigger) = (terms.interest, terms.trigger(true));
                self.raw().enable(id, interest, trigger, Hints::default).map_err(code_of)?;
                id
            }
            None => {
                number.begin(is_plain_stream);
                number.begin_report();
                let word = Key { word: key, is_line: false, number };
                self.raw()
                    .register_number(descriptor, word, terms.interest, terms.trigger(false))
                    .map_err(|refused| code_of(refused.error()))?
            }
        };
        let is_on_line = state.line.is_some();
        let (port, terms) = (self.name(), Some(terms));
        state.registered = Some(Registered { port, id, removed: None, terms, key, is_on_line });
        Ok(())
    }

    /// The registration by which the operations of a number are carried out here. One that is idle and elsewhere, or of
    /// what the number named before, is given up; what ends by that is the caller's to tell.
    fn line_of(
        &self,
        state: &mut State,
        number: &'static Number,
        ended: &mut Option<Ended>,
    ) -> Result<Option<Id>, u32> {
        let Some(line) = state.line else { return Ok(None) };
        let port = registrations::port_of(line.port);
        let is_current = port.is_some_and(|port| port.raw().is_current(line.id.id()));
        if is_current && line.port == self.name() {
            return Ok(Some(line.id.id()));
        }
        if is_current && state.is_in_use() {
            return Err(code::INVALID_PARAMETER);
        }
        *ended = Some(registrations::end_line(number, state, line));
        Ok(None)
    }
}

/// The arguments of the call.
struct Arguments {
    count: usize,
    registrations: *mut Registration,
    milliseconds: u32,
    room: usize,
    entries: *mut Entry,
    received: *mut u32,
}

impl Arguments {
    fn check(&self) -> Result<(), u32> {
        if (self.count > 0 && self.registrations.is_null())
            || (self.room > 0 && (self.entries.is_null() || self.received.is_null()))
        {
            return Err(code::WSAEFAULT);
        }
        let is_left_over = (self.count == 0 && !self.registrations.is_null())
            || (self.room == 0
                && (!self.entries.is_null() || !self.received.is_null() || self.milliseconds != 0));
        if is_left_over || self.overlap() {
            return Err(code::WSAEINVAL);
        }
        Ok(())
    }

    fn overlap(&self) -> bool {
        let bytes =
            |from: usize, count: usize, size: usize| from..from.saturating_add(count * size);
        let changes = bytes(self.registrations.addr(), self.count, size_of::<Registration>());
        let packets = bytes(self.entries.addr(), self.room, size_of::<Entry>());
        changes.start < packets.end
            && packets.start < changes.end
            && self.count > 0
            && self.room > 0
    }
}

/// Applies registrations, then takes packets: `ProcessSocketNotifications`.
///
/// # Safety
///
/// `registrations` is null or points to `count` of them, `entries` to room for `room` of them, and
/// `received` is null or points to a number; no other thread uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_process_notifications(
    port: Handle,
    count: u32,
    registrations: *mut Registration,
    milliseconds: u32,
    room: u32,
    entries: *mut Entry,
    received: *mut u32,
) -> u32 {
    let process = || {
        let port = handles::usable_port(port)?;
        let (count, room) = (count as usize, room as usize);
        let arguments = Arguments { count, registrations, milliseconds, room, entries, received };
        arguments.check()?;
        let mut refused = 0;
        for index in 0..count {
            // SAFETY: `add` demands that the result is in the same allocation.
            // - the caller says that there are `count` registrations.
            let registration = unsafe { registrations.add(index) };
            // SAFETY: reading and writing through a raw pointer demands that it is valid, and that
            // no other thread uses the place.
            // - the caller says so.
            let registration = unsafe { &mut *registration };
            registration.result = match port.change(registration) {
                Ok(()) => code::SUCCESS,
                Err(code) => {
                    refused += 1;
                    code
                }
            };
        }
        if room == 0 {
            return Ok(code::SUCCESS);
        }
        let changed = match refused {
            0 => Changed::AsAsked,
            refused if refused < count => Changed::InPart,
            _ => Changed::NotAtAll,
        };
        // SAFETY: `take` demands room for so many entries.
        // - the caller says that there is.
        let take = || unsafe { port.take(entries, room, abi::timeout(milliseconds), changed) };
        let taken = driver::attending(&port, take);
        // SAFETY: writing through a raw pointer demands that it is valid, and that no other thread uses
        // the place.
        // - the caller says so, and it is not null (`check`).
        unsafe { received.write(*taken.as_ref().unwrap_or(&0)) };
        taken.map(|_| code::SUCCESS)
    };
    guarded(code::INTERNAL_ERROR, || process().unwrap_or_else(|code| code))
}
