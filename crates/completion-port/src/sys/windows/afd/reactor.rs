//! The implementation of [`Reactor`](crate::backend::reactor::Reactor).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use windows_sys::Win32::Networking::WinSock::{
    POLLERR, POLLHUP, POLLNVAL, POLLRDBAND, POLLRDNORM, POLLWRNORM, WSAENOTSOCK, WSAPOLLFD, WSAPoll,
};

use super::super::host::now;
use super::super::options::socket;
use super::driver::event;
use super::{
    Afd, NOT_ATTACHED, Sentinel, State, WAKE, Watched, base_of, is_passing, kind, locked, refusal,
    unread,
};
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::types::error::{ErrorKind, Fault};
use crate::types::source::Descriptor;

impl Reactor for Afd {
    fn name(&self) -> &'static str {
        "afd"
    }

    fn is_one_shot(&self) -> bool {
        true
    }

    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        let base = base_of(descriptor)?;
        if let Some(former) = self.find(descriptor)
            && self.is_there(&former, &mut former.state())?
        {
            return Err(Fault { kind: ErrorKind::AlreadyRegistered, code: None });
        }
        let watched = Arc::new(Watched {
            base,
            state: Mutex::new(State {
                name,
                wanted,
                until: Until::Edge,
                main: None,
                spare: None,
                sentinel: None,
                is_owed: false,
                told: 0,
                pause: Duration::ZERO,
                last: 0,
                is_nonblocking: false,
                carried: None,
                begins_connects: false,
                is_detached: false,
            }),
        });
        // With the lock, so that early reports of the driver find the sentinel in the state.
        let mut state = watched.state();
        let sentinel = self.guard(&watched).map_err(|fault| match fault {
            // Wine returns a base for any open number.
            Fault { kind: ErrorKind::BadDescriptor, .. } => refusal(descriptor, WSAENOTSOCK),
            fault => fault,
        })?;
        state.sentinel = Some(Sentinel::PendingPoll(sentinel));
        drop(state);
        // If the attachment fails here, the former socket stays in `former`.
        let remembered = self.remembered(descriptor);
        let mut state = watched.state();
        state.carried = remembered.inspect_err(|_| self.abandon(&mut state))?;
        drop(state);
        locked(&self.sockets).insert(descriptor, watched);
        Ok(())
    }

    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        let watched = self.find(descriptor).ok_or(NOT_ATTACHED)?;
        let mut state = watched.state();
        if !self.is_there(&watched, &mut state)? {
            return Err(NOT_ATTACHED);
        }
        (state.name, state.wanted, state.until) = (name, wanted, Until::Edge);
        Ok(())
    }

    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        let watched = self.find(descriptor).ok_or(NOT_ATTACHED)?;
        let mut state = watched.state();
        self.ask_for(&watched, &mut state, name, wanted, until)
    }

    fn notices_reuse(&self) -> bool {
        // The driver polls whatever object has the number.
        false
    }

    fn detach(&self, descriptor: Descriptor) {
        let watched = locked(&self.sockets).remove(&descriptor);
        if let Some(watched) = watched {
            self.part_with(descriptor, &watched);
        }
    }

    fn watches(&self, descriptor: Descriptor) -> bool {
        let Some(watched) = self.find(descriptor) else { return false };
        // Without memory for the check, the socket counts as open until its sentinel reports its
        // closing.
        let is_there = self.is_there(&watched, &mut watched.state());
        is_there.unwrap_or(true)
    }

    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        let woken = self.take_until(edges, timeout);
        self.hand_on();
        woken
    }

    fn wake(&self) {
        self.port.post(WAKE);
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        for probe in probes {
            let asked = POLLRDNORM | POLLRDBAND | POLLWRNORM;
            let mut question =
                WSAPOLLFD { fd: socket(probe.descriptor), events: asked, revents: 0 };
            // SAFETY: WSAPoll reads and writes as many elements at the pointer as its second
            // argument says.
            // - valid: `question` is one element and a local.
            let done = unsafe { WSAPoll(&raw mut question, 1, 0) };
            probe.facts = Facts::NONE;
            let known = [
                (POLLRDNORM, Facts::IN),
                (POLLRDBAND, Facts::URGENT),
                (POLLWRNORM, Facts::OUT),
                (POLLHUP, Facts::IN | Facts::RDHUP),
                (POLLERR, Facts::ERR),
                (POLLNVAL, Facts::CLOSED),
            ];
            for (bit, fact) in known {
                if done > 0 && question.revents & bit != 0 {
                    probe.facts |= fact;
                }
            }
            if done < 0 {
                // WSAPoll fails, instead of reporting it, if its only descriptor is not a socket.
                probe.facts = Facts::CLOSED;
            }
        }
        Ok(())
    }

    fn unread(&self, descriptor: Descriptor, _end: AtEnd) -> Option<usize> {
        unread(descriptor)
    }

    fn is_own_end(&self, _descriptor: Descriptor) -> bool {
        // The driver reports only the peer's end.
        false
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        // The driver distinguishes a reset from a failed connect.
        let watched = self.find(descriptor);
        watched.is_some_and(|watched| {
            let last = watched.state().last;
            last & (event::ABORT | event::CONNECT_FAIL) == event::ABORT
        })
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        kind(descriptor)
    }

    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        let live: HashMap<_, _> = live.map(|watch| (watch.descriptor, watch)).collect();
        let mut gone = Vec::new();
        locked(&self.sockets).retain(|descriptor, watched| {
            let is_live = live.contains_key(descriptor);
            if !is_live {
                gone.push(Arc::clone(watched));
            }
            is_live
        });
        for watched in gone {
            self.abandon(&mut watched.state());
        }
        for Watch { descriptor, name, wanted, until } in live.into_values() {
            let Some(watched) = self.find(descriptor) else { continue };
            let mut state = watched.state();
            match self.ask_for(&watched, &mut state, name, wanted, until) {
                Err(fault) if is_passing(&fault) => {
                    state.is_owed = true;
                    self.owe(&watched, now());
                }
                // A socket that was closed meanwhile is detected by the next `want`.
                Ok(()) | Err(_) => {}
            }
        }
        self.hand_on();
        Ok(())
    }
}
