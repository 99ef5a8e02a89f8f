//! The idle thread that looks after the port, so that it is never deaf; and the replacement of a kernel
//! set that is full of what is no longer registered.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::seat::Seat;
use super::share::nanoseconds;
use super::wait::Scratch;
use super::{Engine, Member, Shared, token};
use crate::state::advice::Advice;
use crate::state::seats::{SeatNumber, Status};
use crate::sync::MutexGuard;

/// How long an idle thread lets a port go unattended.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Who has had several packets for so long without coming to the next one is stuck, or preempted: a thread
/// that comes to wait looks after the others so often.
pub(super) const STUCK: Duration = Duration::from_micros(150);

/// How soon the second look follows the first one of a watch.
const SOON: Duration = Duration::from_micros(250);

/// Edges of given-up registrations before the kernel's set is thought to be full of them.
pub(super) const STALE_EDGES: usize = 1024;

impl Engine {
    /// A watch begins: from now on progress is noted. When the next look is due.
    pub(super) fn begin_watch(shared: &mut Shared, now: Duration) -> Duration {
        let tick = Self::until_next_look(shared, now);
        if now < shared.ticked + tick {
            // Somebody has noted it not long ago. Where the watch often changes hands, nobody would
            // ever be found stuck if each began anew.
            let due = Self::no_later_than_overdue(shared, shared.ticked + tick);
            shared.due = Some(due);
            shared.outdated = true;
            return due;
        }
        let Shared { members, seen, .. } = shared;
        for (seen, member) in seen.iter_mut().zip(members.iter()) {
            if let Some(member) = member {
                *seen = member.seat.progress.load(Relaxed);
            }
        }
        shared.ticked = now;
        shared.visited = None;
        shared.outdated = false;
        let due = Self::no_later_than_overdue(shared, now + tick);
        shared.due = Some(due);
        due
    }

    /// This time, or sooner, when what a thread holds is to go to another one that may run.
    fn no_later_than_overdue(shared: &Shared, due: Duration) -> Duration {
        if shared.loaded == 0 || !shared.seats.has_room() {
            return due;
        }
        let loaded = |(number, member): (SeatNumber, &Option<Member>)| {
            let is_loaded = member.as_ref().is_some_and(|it| it.seat.loaded.load(Relaxed));
            is_loaded.then(|| Duration::from_nanos(shared.crew.overdue_at(number)))
        };
        let overdue = shared.members.iter().enumerate().filter_map(loaded).min();
        overdue.map_or(due, |overdue| overdue.min(due))
    }

    /// The watching thread, or one that has come to wait, looks after the port: what nobody harvests,
    /// what stuck threads hold, and who of those that are counted sleeps.
    #[inline(never)]
    pub(super) fn tick<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        seat: &Seat,
        scratch: &mut Scratch,
        now: Duration,
    ) -> MutexGuard<'e, Shared> {
        // First: whoever comes while this one looks without the lock must not look at once.
        shared.ticked = now;
        let examines = now >= shared.examined + TICK;
        if examines {
            shared.examined = now;
        }
        // The first look of a watch, or the first one after it was put off: most of those who are stuck have
        // moved since they were seen. The second look will tell, and ask about them.
        let is_first =
            std::mem::take(&mut shared.outdated) && shared.due.is_some_and(|due| due <= now);
        if is_first {
            shared.examined = shared.examined.min((now + SOON).saturating_sub(TICK));
        }
        self.glance(&mut shared);
        for number in 0..shared.members.len() {
            let Shared { members, seen, seats, crew, .. } = &mut *shared;
            let Some(other) = &members[number] else { continue };
            let progress = other.seat.progress.load(Relaxed);
            let stuck = std::mem::replace(&mut seen[number], progress) == progress;
            let is_loaded = other.seat.loaded.load(Relaxed);
            let is_late = is_loaded && crew.is_overdue(number, nanoseconds(now));
            let overdue = is_late && seats.has_room();
            if seats.status(number) != Status::Running || !(stuck || overdue) {
                continue;
            }
            let other = other.clone();
            let gave_back = self.take_back(&mut shared, &other.seat);
            if is_late && !gave_back {
                self.advise(&mut shared, now, Advice::suspect);
            }
            if stuck && examines && self.detects() && other.thread.glance().is_none() {
                shared = self.examine(shared, &other, progress);
            }
        }
        if examines {
            shared = self.inspect(shared);
        } else {
            Self::recount(&mut shared);
        }
        let tick = Self::until_next_look(&shared, now);
        let due = now + if is_first { tick.min(SOON) } else { tick };
        // Who came out of the kernel's wait not long ago, and runs, is left to come back for it. If that
        // is nearly a tick ago it is not worth another look.
        let runs = shared.seats.running() > 0;
        shared.visited = shared.visited.filter(|visited| runs && now + tick / 4 <= *visited + tick);
        if runs && shared.visited.is_none() {
            let found = shared.ready.len() + shared.slots.in_use();
            let handed = shared.handed + found as u64;
            shared.crew.was_unattended(handed);
        }
        // Nor is he if something is still queued that was so at the last look.
        let overdue = Self::is_overdue(&mut shared);
        // Who watches in the kernel's wait takes what it finds there itself.
        let polls =
            shared.seats.watching().is_some_and(|watching| shared.seats.is_polling(watching));
        shared.patient = shared.visited.is_some() && !overdue && !polls;
        let due = shared.visited.map_or(due, |visited| due.min(visited + tick));
        shared.due = Some(Self::no_later_than_overdue(&shared, due));
        let quiet = Self::is_quiet(&shared);
        let calm = shared.handed == shared.handed_seen;
        shared.handed_seen = shared.handed;
        if shared.seats.has_room() {
            // From here this thread takes what is queued, or enters the kernel's wait if nobody is
            // in it; it goes on watching as long as there is something going on.
            if quiet && calm {
                shared.seats.resign();
            }
        } else if Self::may_ask(&shared) {
            shared = self.ask(shared, seat, scratch, true);
        }
        shared
    }

    /// The thread of `seat` comes from the kernel's wait, or has asked without waiting, and knows of every
    /// set; what it has found is not queued yet. Noted for another one that watches, and which is not
    /// woken for what there is no need to look at.
    #[inline]
    pub(super) fn note_visit(&self, shared: &mut Shared, seat: &Seat) {
        if let Some(watching) = shared.seats.watching()
            && watching != seat.number
        {
            let now = self.backend.now();
            shared.visited = Some(now);
            let tick = Self::until_next_look(shared, now);
            let late = now + tick;
            if shared.due.is_some_and(|due| due + tick / 2 <= late) {
                Self::postpone_watch(shared, watching, late);
            }
        }
    }

    /// The thread of `watching` need not look before `due`, if the calling one, which has come to wait, is
    /// the only one that there is to look after, and nothing has been left undone.
    #[inline(never)]
    fn postpone_watch(shared: &mut Shared, watching: SeatNumber, due: Duration) {
        let others = shared.seats.running() + shared.seats.presumed_blocked() + shared.loaded;
        if others > 0
            || shared.seats.is_polling(watching)
            || !shared.recheck.is_empty()
            || Self::is_overdue(shared)
        {
            return;
        }
        shared.due = Some(due);
        shared.outdated = true;
        if let Some(member) = &shared.members[watching] {
            member.thread.postpone(due);
        }
    }

    /// Whether something is queued that was so the last time that this was asked.
    fn is_overdue(shared: &mut Shared) -> bool {
        let queued = shared.handed + shared.ready.len() as u64;
        shared.handed < std::mem::replace(&mut shared.queued_seen, queued)
    }

    /// Replaces the kernel's set by one that has only the live registrations.
    #[cold]
    pub(super) fn rebuild(&self) -> bool {
        let highest = self.lock().slots.highest();
        let _alone = self.set.write().unwrap_or_else(PoisonError::into_inner);
        let mut live = (0..highest).filter_map(|index| {
            let slot = self.nodes.slots.find(index)?;
            let word = slot.word();
            let wanted = word.is_live() && !word.is_removing();
            // A number that was closed and given out again is not this registration's any more.
            let wanted = wanted && (!word.is_borrowed() || self.backend.watches(slot.descriptor()));
            wanted.then(|| (slot.descriptor(), token(index, word.generation())))
        });
        // Refused for want of a descriptor or of memory: the old set goes on, stale edges included.
        self.backend.rebuild(&mut live).is_ok()
    }
}
