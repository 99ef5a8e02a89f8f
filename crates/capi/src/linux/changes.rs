//! What a change to a registration does.

use std::os::fd::RawFd;

use completion_port::raw::Hints;
use completion_port::{ErrorKind, Id};

use crate::abi::Registration;
use crate::errors::{code, code_of};
use crate::handles;
use crate::linux::descriptors;
use crate::linux::numbers::{self, Key, Number, Registered, State};
use crate::linux::port::CompletionPort;
use crate::linux::registrations::{self, Ended};
use crate::requests::{Change, Terms, parse};

/// Which number is changed, and the key that is given for it.
struct Place {
    number: &'static Number,
    descriptor: RawFd,
    key: usize,
}

impl CompletionPort {
    /// Applies one entry.
    #[inline]
    pub(crate) fn change(&self, entry: &Registration) -> Result<(), u32> {
        let mut ended = None;
        let outcome = self.change_number(entry, &mut ended);
        if let Some(ended) = ended {
            ended.tell();
        }
        outcome
    }

    /// The same. What has ended by that is the caller's to tell, who has no lock.
    #[inline]
    fn change_number(&self, entry: &Registration, ended: &mut Option<Ended>) -> Result<(), u32> {
        let change = parse(entry)?;
        if matches!(change, Change::Nothing) {
            return Ok(());
        }
        let descriptor = RawFd::try_from(entry.socket).map_err(|_| code::WSAENOTSOCK)?;
        let number = match numbers::find(descriptor) {
            Some(number) => number,
            None => {
                // Nothing is kept for a number that names nothing.
                descriptors::protocol(descriptor)?;
                numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?
            }
        };
        let place = Place { number, descriptor, key: entry.key };
        let mut state = number.lock();
        if state.is_closing(descriptor) {
            return Err(code::WSAENOTSOCK);
        }
        // A call that is not of this library may have closed the number, which may name another socket by now.
        // That question is spared if a read or write has found something out since the last packet.
        let is_enabled = matches!(change, Change::Enable(_));
        let is_hinted =
            is_enabled && !registrations::is_checked() && number.hints() != Hints::default();
        // What comes with each packet, as a rule.
        if let Change::Enable(terms) = change
            && is_hinted
            && let Some(registered) = &mut state.registered
            && registered.port == self.name()
            && registered.removed.is_none()
        {
            let enabled = self.enable_again(number, registered, terms, || number.hints());
            number.spend_hints();
            return match enabled {
                Ok(()) => Ok(()),
                Err(error) => self.begin_instead(&mut state, &place, terms, error, ended),
            };
        }
        self.change_otherwise(change, &place, &mut state, ended)
    }

    /// The same for a number that is locked, in all but the common case.
    #[inline(never)]
    fn change_otherwise(
        &self,
        change: Change,
        place: &Place,
        state: &mut State,
        ended: &mut Option<Ended>,
    ) -> Result<(), u32> {
        let Place { number, descriptor, .. } = *place;
        if let Some(registered) = state.registered
            && registered.port == self.name()
            && !registrations::is_of(&registered, descriptor, self)
        {
            // A last packet that is on its way still comes.
            number.retire_locked(state, |former| {
                *ended = Some(registrations::end(former));
            });
            number.doubt();
        }
        if let Change::Enable(terms) = change
            && let Some(registered) = &mut state.registered
            && registered.port == self.name()
            && registered.removed.is_none()
        {
            let enabled = self.enable_again(number, registered, terms, Hints::default);
            return enabled.or_else(|error| self.begin_instead(state, place, terms, error, ended));
        }
        let ours = state.registered.filter(|registered| registered.port == self.name());
        match (change, ours) {
            (Change::Nothing, _) => Ok(()),
            (Change::Remove, Some(registered)) if registered.removed.is_some() => Ok(()),
            (_, Some(registered)) if registered.removed.is_some() => Err(code::INVALID_PARAMETER),
            (Change::Enable(terms), _) => self.begin(state, place, terms, ended),
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

    /// Enables a registration of a number that is locked, which is on this port and goes on there.
    #[allow(clippy::inline_always, reason = "part of each packet")]
    #[inline(always)]
    fn enable_again(
        &self,
        number: &Number,
        registered: &mut Registered,
        terms: Terms,
        hints: impl Fn() -> Hints,
    ) -> completion_port::Result<()> {
        let (interest, trigger) = (terms.interest, terms.trigger(registered.is_on_line));
        if registered.is_on_line {
            // Packets look at this with the number locked.
            number.begin_report();
        }
        self.raw().enable(registered.id, interest, trigger, hints)?;
        if !registered.is_on_line {
            // A packet that is taken meanwhile is told once more, if operations begin.
            number.begin_report();
        }
        registered.terms = Some(terms);
        registered.is_held = false;
        Ok(())
    }

    /// A registration could not be enabled again: if it has ended, another one is made.
    #[cold]
    fn begin_instead(
        &self,
        state: &mut State,
        place: &Place,
        terms: Terms,
        error: completion_port::Error,
        ended: &mut Option<Ended>,
    ) -> Result<(), u32> {
        match error.kind() {
            // It was found out just now that the number had been closed.
            ErrorKind::NotRegistered => self.begin(state, place, terms, ended),
            _ => Err(code_of(error)),
        }
    }

    /// Makes a registration of a number that has none on this port.
    fn begin(
        &self,
        state: &mut State,
        place: &Place,
        terms: Terms,
        ended: &mut Option<Ended>,
    ) -> Result<(), u32> {
        let Place { number, descriptor, key } = *place;
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
        let (removed, is_held) = (None, false);
        state.registered = Some(Registered { port, id, removed, terms, key, is_on_line, is_held });
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
