//! Applying a change to a registration.

use completion_port::ErrorKind;
use completion_port::raw::Hints;

use crate::abi::Registration;
use crate::errors::{code, code_of};
use crate::handles;
use crate::requests::{Change, Terms, parse};
use crate::windows::port::CompletionPort;
use crate::windows::sockets::{self, Key, Locked, Number, Registered};

impl CompletionPort {
    /// Applies one entry.
    pub(crate) fn change(&self, entry: &Registration) -> Result<(), u32> {
        let change = parse(entry)?;
        if matches!(change, Change::Nothing) {
            return Ok(());
        }
        let number = sockets::number_of(entry.socket)?;
        let mut locked = sockets::lock(number);
        // The number may name another socket by now: this library does not see every close.
        if let Some(registered) = locked.registered()
            && registered.port == self.name()
            && !registered.is_removed
            && !self.raw().is_current(registered.id)
        {
            self.end(&mut locked);
        }
        let ours = locked.registered().filter(|registered| registered.port == self.name());
        match (change, ours) {
            (Change::Nothing, _) => Ok(()),
            (Change::Remove, Some(registered)) if registered.is_removed => Ok(()),
            (_, Some(registered)) if registered.is_removed => Err(code::INVALID_PARAMETER),
            (Change::Enable(terms), Some(registered)) => {
                let (interest, trigger) = (terms.interest, terms.trigger(false));
                match self.raw().enable(registered.id, interest, trigger, Hints::default) {
                    // The port has just detected that the socket was closed.
                    Err(error) if error.kind() == ErrorKind::NotRegistered => {
                        self.begin(&mut locked, number, entry.key, terms)
                    }
                    outcome => outcome.map_err(code_of),
                }
            }
            (Change::Enable(terms), None) => self.begin(&mut locked, number, entry.key, terms),
            (Change::Disable, Some(registered)) => {
                self.port.disable(registered.id).map_err(code_of)
            }
            (Change::Remove, Some(registered)) => {
                self.port.remove(registered.id).map_err(code_of)?;
                locked.set(Registered { is_removed: true, ..registered });
                Ok(())
            }
            (Change::Disable | Change::Remove, None) => {
                sockets::check(number)?;
                Err(code::NOT_FOUND)
            }
        }
    }

    /// Registers a number that has no registration on this port.
    fn begin(
        &self,
        locked: &mut Locked,
        number: Number,
        key: usize,
        terms: Terms,
    ) -> Result<(), u32> {
        sockets::check(number)?;
        if let Some(registered) = locked.registered()
            && registered.is_removed
            && registered.port != self.name()
            && handles::is_open(registered.port)
        {
            // Another port has it, until its last packet is taken there.
            return Err(code::INVALID_PARAMETER);
        }
        let key = Key { word: key, number };
        let made = self.raw().register_number(number, key, terms.interest, terms.trigger(false));
        let id = made.map_err(|refused| code_of(refused.error()))?;
        locked.set(Registered { port: self.name(), id, is_removed: false });
        Ok(())
    }

    /// The number's registration on this port has ended.
    fn end(&self, locked: &mut Locked) {
        if let Some(registered) = locked.clear() {
            // It may have ended already.
            let _ = self.raw().forget(registered.id);
        }
    }
}
