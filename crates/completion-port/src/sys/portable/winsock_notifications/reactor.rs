//! The implementation of [`Reactor`](crate::backend::reactor::Reactor).

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::{
    Asked, INVALID_PARAMETER, MOMENT, NOT_ATTACHED, NotificationCalls, NotificationPacket,
    NotificationStage, PATIENCE, PolledRest, RETRY, ROOM, Record, SharedReactor, WAKE,
    WinsockNotifications, event,
};
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::types::error::{ErrorKind, Fault};
use crate::types::source::Descriptor;

impl<C: NotificationCalls> Reactor for WinsockNotifications<C> {
    fn name(&self) -> &'static str {
        self.calls.name()
    }

    fn is_one_shot(&self) -> bool {
        true
    }

    fn attach(&self, descriptor: Descriptor, name: u64, _wanted: Facts) -> Result<(), Fault> {
        let mut state = self.state();
        if let Some(key) = state.find(descriptor) {
            if self.has(&mut state, key) {
                return Err(self.fault(descriptor, INVALID_PARAMETER));
            }
            state.forget(key);
        }
        state.last += 1;
        let key = state.last;
        let stage = NotificationStage::Registered;
        let mut record =
            Record { descriptor, name, stage, asked: None, echo: 0, is_checked: false };
        let mut result = self.register(&record, key);
        if result == INVALID_PARAMETER && state.is_leaving(descriptor) {
            self.drain(&mut state);
            result = self.register(&record, key);
        } else if result == INVALID_PARAMETER
            && let Some(other) = self.calls.holders().find(descriptor)
        {
            for attempt in 0..PATIENCE {
                // Without the lock: the other reactor takes it if it needs something from this one.
                drop(state);
                if attempt > 0 {
                    // No event shows when the other thread has processed it. That thread needs no
                    // lock held here.
                    #[allow(clippy::disallowed_methods, reason = "another thread is let run")]
                    thread::sleep(MOMENT);
                }
                let is_leaving = other.give_up(descriptor);
                state = self.state();
                result = self.register(&record, key);
                if result != INVALID_PARAMETER || !is_leaving {
                    break;
                }
            }
        }
        match result {
            0 => {}
            // Another thread has taken the removal and will process it.
            INVALID_PARAMETER if state.is_leaving(descriptor) => {
                record.stage = NotificationStage::PutOff
            }
            result => return Err(self.fault(descriptor, result)),
        }
        state.records.insert(key, record);
        state.attached.insert(descriptor, key);
        let this: Weak<SharedReactor<C>> = Arc::downgrade(&self.0);
        self.calls.holders().note(descriptor, this);
        Ok(())
    }

    fn adopt(&self, descriptor: Descriptor, name: u64, _wanted: Facts) -> Result<(), Fault> {
        let mut state = self.state();
        // The system has refused the socket, but this reactor does not have it.
        let refused = || self.fault(descriptor, INVALID_PARAMETER);
        let key = state.find(descriptor).ok_or_else(refused)?;
        let record = state.records.get_mut(&key).ok_or(NOT_ATTACHED)?;
        // Later reports of the former request do not answer the new one.
        (record.name, record.asked) = (name, None);
        if record.stage != NotificationStage::PutOff {
            state.unqueue(key);
        }
        Ok(())
    }

    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        let mut state = self.state();
        let key = state.find(descriptor).ok_or(NOT_ATTACHED)?;
        let record = state.records.get_mut(&key).ok_or(NOT_ATTACHED)?;
        record.name = name;
        record.asked = Some(Asked { wanted, until, sent: u64::MAX, told: 0 });
        record.echo = 0;
        self.ask(&mut state, key)
    }

    fn notices_reuse(&self) -> bool {
        // The engine asks the system later.
        false
    }

    fn detach(&self, descriptor: Descriptor) {
        self.end_registration(&mut self.state(), descriptor);
    }

    fn watches(&self, descriptor: Descriptor) -> bool {
        self.0.watches(descriptor)
    }

    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let mut told = Ok(());
        let mut taken = PolledRest::default();
        let mut state = self.state();
        let sleeps = timeout != Some(Duration::ZERO);
        loop {
            let changes = state.take_changes();
            let poll = state.polls;
            if !sleeps || !changes.is_empty() {
                told = self.take(&mut state, changes, edges, poll, &mut taken);
            }
            state = self.bring_ends(state, edges);
            if !sleeps || told.is_err() || !edges.is_empty() || taken != PolledRest::default() {
                break;
            }
            if !state.waiting.is_empty() {
                // A removal that was just taken had delayed these requests.
                continue;
            }
            let retries = !state.owed.is_empty();
            let limit =
                if retries { Some(timeout.map_or(RETRY, |it| it.min(RETRY))) } else { timeout };
            state.sleepers += 1;
            state.retriers += usize::from(retries);
            drop(state);
            let mut room = [NotificationPacket::default(); ROOM];
            let places = edges.capacity().min(ROOM);
            let slept = self.calls.process(&mut [], &mut room[..places], limit);
            state = self.state();
            state.sleepers -= 1;
            state.retriers -= usize::from(retries);
            let count = *slept.as_ref().unwrap_or(&0);
            told = slept.map(drop);
            self.sort(&mut state, &room[..count], edges, poll, &mut taken);
            if count == ROOM && state.room_for_edges(edges) > 0 {
                told = self.take(&mut state, Vec::new(), edges, poll, &mut taken);
            }
            state = self.bring_ends(state, edges);
            // The end of a removal concerns only the reactor, and ends no wait without a limit. Nor
            // does one part of an operation that continues.
            if timeout.is_some()
                || told.is_err()
                || !edges.is_empty()
                || taken != PolledRest::default()
            {
                break;
            }
        }
        if taken.looks {
            self.look(&mut state, edges);
        }
        self.call_retrier(&state);
        // Return the events that were taken first. A later poll will report the error.
        if edges.is_empty() && !taken.is_woken {
            told?;
        }
        Ok(taken.is_woken)
    }

    fn wake(&self) {
        self.calls.post(WAKE);
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        // The engine does not probe a one-shot reactor.
        let all = event::IN | event::OUT | event::HANGUP;
        for probe in probes {
            let events = self.calls.look(probe.descriptor, all);
            probe.facts = self.facts(probe.descriptor, events);
        }
        Ok(())
    }

    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize> {
        self.calls.unread(descriptor, end)
    }

    fn is_own_end(&self, descriptor: Descriptor) -> bool {
        self.calls.is_own_end(descriptor)
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        self.calls.was_connected(descriptor)
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        self.calls.kind(descriptor)
    }

    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        // No registration outlives its socket, so nothing has to be removed. Live registrations
        // report again what holds.
        for Watch { descriptor, name, wanted, until } in live {
            let Err(fault) = self.want(descriptor, name, wanted, until) else { continue };
            if matches!(fault.kind, ErrorKind::OutOfMemory | ErrorKind::WatchLimit) {
                let mut state = self.state();
                if let Some(key) = state.find(descriptor) {
                    state.owe(key);
                    self.call_retrier(&state);
                }
            }
        }
        Ok(())
    }
}
