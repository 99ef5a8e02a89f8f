//! Applying a change to a registration.

use std::os::fd::RawFd;

use completion_port::raw::Hints;
use completion_port::{ErrorKind, SharedId};

use crate::abi::Registration;
use crate::errors::{code, code_of};
use crate::handles;
use crate::linux::descriptors;
use crate::linux::numbers::{self, Key, Number, Registered, State};
use crate::linux::port::CompletionPort;
use crate::linux::registrations::{self, Ended};
use crate::requests::{Change, Terms, parse};

/// The number to change, and its new key.
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

    /// The same. The caller reports `ended` operations once it holds no lock.
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
                // A number that names nothing gets no entry.
                descriptors::protocol(descriptor)?;
                numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?
            }
        };
        let place = Place { number, descriptor, key: entry.key };
        let mut state = number.lock();
        if state.is_closing(descriptor) {
            return Err(code::WSAENOTSOCK);
        }
        // Another library's call may have closed the number, which may name another socket by now.
        // The check is skipped if a read or write has found something out since the last packet.
        let is_enabled = matches!(change, Change::Enable(_));
        let is_hinted =
            is_enabled && !registrations::is_checked() && number.hints() != Hints::default();
        // The common case: a packet is followed by this.
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

    /// The same for a locked number, in all other cases.
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
            // A last packet that is already queued still arrives.
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
                    // The operations continue.
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

    /// Enables a registration again that is on this port and stays there. Its number is locked.
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
            // Packets check this with the number locked.
            number.begin_report();
        }
        self.raw().enable(registered.id, interest, trigger, hints)?;
        if !registered.is_on_line {
            // If operations start, a packet that is taken meanwhile is reported again.
            number.begin_report();
        }
        registered.terms = Some(terms);
        registered.is_held = false;
        Ok(())
    }

    /// Enabling a registration again has failed. If it has ended, creates another one.
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
            // The port has just detected that the number was closed.
            ErrorKind::NotRegistered => self.begin(state, place, terms, ended),
            _ => Err(code_of(error)),
        }
    }

    /// Registers a number that has no registration on this port.
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
            Some(line) => {
                let id = line.id();
                if registrations::end_receiver(state, self, line) {
                    let port = registrations::port_of(self.name());
                    ended.get_or_insert_with(|| Ended::deferred(port));
                }
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

    /// The association through which this port performs a number's operations. Gives up an idle
    /// one on another port, or of a former socket; the caller reports the operations that end.
    fn line_of(
        &self,
        state: &mut State,
        number: &'static Number,
        ended: &mut Option<Ended>,
    ) -> Result<Option<SharedId>, u32> {
        let Some(line) = state.line else { return Ok(None) };
        let port = registrations::port_of(line.port);
        let is_current = port.is_some_and(|port| port.raw().is_current(line.id.id()));
        if is_current && line.port == self.name() {
            return Ok(Some(line.id));
        }
        if is_current && state.is_in_use() {
            return Err(code::INVALID_PARAMETER);
        }
        *ended = Some(registrations::end_line(number, state, line));
        Ok(None)
    }
}
