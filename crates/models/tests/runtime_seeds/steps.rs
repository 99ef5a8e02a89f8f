//! What tasks and the threads outside of the runtime do in a run.

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::program::Step;
use crate::readiness::Direction;
use crate::records::{Asleep, Outcome};
use crate::task::{JoinError, JoinHandle};
use crate::time::{interval, sleep, timeout};
use crate::turns::{self, fail, linger, point};
use crate::world::World;
use crate::{Handle, spawn_blocking, sync, yield_now};

/// The handles that a task or thread has kept.
pub(crate) type Kept = VecDeque<(usize, JoinHandle<usize>)>;

fn micros(time: u64) -> Duration {
    Duration::from_micros(time)
}

/// The future of a task, which checks how the runtime treats it.
pub(crate) struct Watched {
    future: Pin<Box<dyn Future<Output = usize> + Send>>,
    world: Arc<World>,
    task: usize,
}

impl Future for Watched {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        let this = &mut *self;
        let (records, task) = (&this.world.records, this.task);
        records.begin_poll(task, this.world.is_over.load(SeqCst));
        point();
        let future = this.future.as_mut();
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(context)));
        point();
        match polled {
            Ok(Poll::Pending) => records.with(task, |record| record.is_polled = false),
            Ok(Poll::Ready(_)) => records.end(task, Outcome::Completed, false),
            Err(_) => {
                // A timer panics in a task that a shutdown has not waited for.
                records.with(task, |record| record.panics |= this.world.has_given_up());
                records.end(task, Outcome::Panicked, false);
            }
        }
        polled.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let Self { world, task, .. } = self;
        linger();
        if world.records.with(*task, |record| record.outcome.is_none()) {
            let may_be = world.may_drop(*task);
            world.records.end(*task, Outcome::Dropped, may_be);
        }
        let was_dropped =
            world.records.with(*task, |record| std::mem::replace(&mut record.is_dropped, true));
        if was_dropped {
            fail(&format!("task {task} is dropped twice"));
        }
    }
}

/// While this exists, a task waits for a timer, or for a socket.
struct Noted<'w>(&'w World, usize);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.records.with(self.1, |record| (record.timer, record.reads) = (None, None));
    }
}

impl World {
    /// Spawns a task on the runtime, unless it was spawned before.
    pub(crate) fn spawn(self: &Arc<Self>, task: usize) -> Option<(usize, JoinHandle<usize>)> {
        let was_spawned = self.records.with(task, |record| {
            record.is_woken |= !record.is_spawned;
            std::mem::replace(&mut record.is_spawned, true)
        });
        if was_spawned {
            return None;
        }
        let future = Box::pin(live(Arc::clone(self), task));
        let watched = Watched { future, world: Arc::clone(self), task };
        let handle = self.handle().spawn(watched);
        let is_early = !self.ends.load(SeqCst);
        self.records.with(task, |record| record.is_early = is_early);
        self.aborts.lock().unwrap().push((task, handle.abort_handle()));
        Some((task, handle))
    }

    /// The handle of a task has reported this.
    pub(crate) fn check(&self, task: usize, result: Result<usize, JoinError>) {
        let reported = match result {
            Ok(output) if output == task => Outcome::Completed,
            Ok(output) => fail(&format!("task {task} has the output of task {output}")),
            Err(error) if error.is_aborted() => Outcome::Dropped,
            Err(_) => Outcome::Panicked,
        };
        self.records.check_reported(task, reported);
    }

    fn abort(&self, task: usize, abort: impl FnOnce()) {
        self.records.with(task, |record| record.abort_begun = true);
        self.records.note(|| format!("task {task} is aborted"));
        abort();
        self.records.with(task, |record| {
            record.abort_returned = true;
            // It is due until it has ended.
            record.is_woken |= record.is_spawned && record.outcome.is_none();
        });
    }

    fn sleep_asleep(&self, time: u64) {
        let me = std::thread::current().id();
        self.kernel.set_thread_asleep(me, true);
        self.sleep(micros(time));
        self.kernel.set_thread_asleep(me, false);
    }

    fn compute(&self, time: u64) {
        self.kernel.advance(micros(time));
        sync::time_is(self.kernel.now());
        point();
    }

    /// Wakes a task by a waker that was kept.
    fn wake_any(&self, which: usize) {
        let waker = {
            let wakers = self.wakers.lock().unwrap();
            which.checked_rem(wakers.len()).map(|place| wakers[place].clone())
        };
        let Some((task, waker)) = waker else { return };
        self.records.with(task, |record| record.is_woken = record.outcome.is_none());
        waker.wake();
    }

    /// The steps that tasks and other threads have in common. Returns the others.
    fn act(self: &Arc<Self>, step: Step, kept: &mut Kept) -> Option<Step> {
        match step {
            Step::Spawn(task) => kept.extend(self.spawn(task)),
            Step::Detach => drop(kept.pop_front()),
            Step::AbortOwn => {
                if let Some((task, handle)) = kept.back() {
                    self.abort(*task, || handle.abort());
                }
            }
            Step::AbortAny(which) => {
                let aborts = self.aborts.lock().unwrap().clone();
                if let Some(place) = which.checked_rem(aborts.len()) {
                    let (task, abort) = &aborts[place];
                    self.abort(*task, || abort.abort());
                }
            }
            Step::WakeAny(which) => self.wake_any(which),
            Step::Send(mailbox) => {
                let waiting = {
                    let mut mailbox = self.mailboxes[mailbox].lock().unwrap();
                    mailbox.0 += 1;
                    std::mem::take(&mut mailbox.1)
                };
                for (task, waker) in waiting {
                    self.records.with(task, |record| record.is_woken = record.outcome.is_none());
                    waker.wake();
                }
            }
            // The other end may be closed.
            Step::Write(wire, bytes) => {
                let _ = self.wires[wire].far.write(&[b'x'; 8][..bytes]);
            }
            Step::Close(wire) => {
                let near = self.wires[wire].near.lock().unwrap().take();
                drop(near);
            }
            Step::Look => {
                let metrics = self.handle().metrics();
                if metrics.threads > self.program.limit {
                    fail(&format!("there are too many threads: {metrics:?}"));
                }
            }
            other => return Some(other),
        }
        None
    }

    /// What a thread outside of the runtime does.
    pub(crate) fn act_outside(self: &Arc<Self>, step: Step, kept: &mut Kept) {
        self.records.note(|| format!("outside: {step:?}"));
        match self.act(step, kept) {
            Some(Step::Sleep(time)) => self.sleep(micros(time)),
            Some(Step::Join) => {
                if let Some((task, handle)) = kept.pop_front() {
                    self.check(task, self.handle().block_on(handle));
                }
            }
            Some(Step::JoinFor(time)) => {
                let Some((task, mut handle)) = kept.pop_front() else { return };
                let begun = self.ends.load(SeqCst);
                let joins = || self.handle().block_on(timeout(micros(time), &mut handle));
                match catch_unwind(AssertUnwindSafe(joins)) {
                    Ok(Ok(result)) => return self.check(task, result),
                    Ok(Err(_)) => {}
                    Err(_) if begun || self.ends.load(SeqCst) => {}
                    Err(_) => fail("a timer panics before the end of its runtime"),
                }
                kept.push_back((task, handle));
            }
            _ => {}
        }
    }

    /// Waits for a timer that was made after the time from which `due` counts.
    async fn wait_for_timer(&self, task: usize, due: Duration, waits: impl Future) {
        let noted = Noted(self, task);
        self.records.with(task, |record| record.timer = Some(due));
        waits.await;
        drop(noted);
        let now = self.kernel.now();
        if now < due {
            fail(&format!("task {task}: a timer for {due:?} has expired at {now:?}"));
        }
    }

    async fn join(self: &Arc<Self>, own: usize, step: Step, kept: &mut Kept) {
        let Some((task, mut handle)) = kept.pop_front() else { return };
        match step {
            Step::Join => self.check(task, handle.await),
            Step::JoinFor(time) => match timeout(micros(time), &mut handle).await {
                Ok(result) => self.check(task, result),
                Err(_) => kept.push_back((task, handle)),
            },
            _ => {
                self.records.with(own, |record| record.asleep = Some(Asleep::Announced));
                let result = Handle::current().block_on(handle);
                self.records.with(own, |record| record.asleep = None);
                self.check(task, result);
            }
        }
    }

    async fn receive(&self, task: usize, mailbox: usize, time: u64) {
        let receives = poll_fn(|context| {
            point();
            let mut mailbox = self.mailboxes[mailbox].lock().unwrap();
            if let Some(left) = mailbox.0.checked_sub(1) {
                mailbox.0 = left;
                return Poll::Ready(());
            }
            mailbox.1.push((task, context.waker().clone()));
            self.wakers.lock().unwrap().push((task, context.waker().clone()));
            Poll::Pending
        });
        let _ = timeout(micros(time), receives).await;
    }

    async fn read(&self, task: usize, wire: usize, time: u64) {
        let Some(near) = self.wires[wire].near.lock().unwrap().clone() else { return };
        let noted = Noted(self, task);
        self.records.with(task, |record| record.reads = Some(wire));
        let reads = near.wait(Direction::Read, |socket| socket.0.read(&mut [0; 4]));
        let read = timeout(micros(time), reads).await;
        drop(noted);
        if let Ok(Err(error)) = read
            && !self.ends.load(SeqCst)
        {
            fail(&format!("a read fails: {error}"));
        }
    }

    /// What only a task does.
    async fn act_inside(self: &Arc<Self>, task: usize, step: Step, kept: &mut Kept) {
        match step {
            Step::Yield => yield_now().await,
            Step::Sleep(time) => {
                let due = self.kernel.now() + micros(time);
                self.wait_for_timer(task, due, sleep(micros(time))).await;
            }
            Step::Block(time) => {
                self.records.with(task, |record| record.asleep = Some(Asleep::Unannounced));
                self.sleep_asleep(time);
                self.records.with(task, |record| record.asleep = None);
            }
            Step::Compute(time) => self.compute(time),
            Step::BlockElsewhere(time) => {
                let world = Arc::clone(self);
                // A shutdown refuses it.
                let _ = spawn_blocking(move || {
                    world.closures.fetch_add(1, SeqCst);
                    if world.is_over.load(SeqCst) {
                        fail("a closure runs after the end of the runtime");
                    }
                    world.sleep_asleep(time);
                    world.closures.fetch_sub(1, SeqCst);
                })
                .await;
            }
            Step::Join | Step::JoinFor(_) | Step::BlockOn => self.join(task, step, kept).await,
            Step::Receive(mailbox, time) => self.receive(task, mailbox, time).await,
            Step::TimeOut(time) => {
                let due = self.kernel.now() + micros(time);
                let times_out = async {
                    if timeout(micros(time), pending::<()>()).await.is_ok() {
                        fail("a future that never completes did");
                    }
                };
                self.wait_for_timer(task, due, times_out).await;
            }
            Step::Reset(first, second) => {
                let mut timer = sleep(micros(first));
                let is_ready = poll_fn(|context| Poll::Ready(Pin::new(&mut timer).poll(context)));
                let _ = is_ready.await;
                linger();
                let due = self.kernel.now() + micros(second);
                timer.reset(sync::now() + micros(second));
                self.wait_for_timer(task, due, timer).await;
            }
            Step::Ticks(period) => {
                let mut ticks = interval(micros(period));
                let first = ticks.tick().await;
                for _ in 0..3 {
                    let tick = ticks.tick().await;
                    if sync::now() < tick || (tick - first).as_nanos() % u128::from(period) != 0 {
                        fail(&format!("a tick {:?} after the first", tick - first));
                    }
                }
            }
            Step::Read(wire, time) => self.read(task, wire, time).await,
            Step::Panic => {
                self.records.with(task, |record| record.panics = true);
                resume_unwind(Box::new(task));
            }
            Step::Forever => pending().await,
            _ => {}
        }
    }
}

/// What a task does.
async fn live(world: Arc<World>, task: usize) -> usize {
    let mut kept = Kept::new();
    for step in world.program.tasks[task].clone() {
        world.records.note(|| format!("task {task}: {step:?}"));
        if let Some(step) = world.act(step, &mut kept) {
            world.act_inside(task, step, &mut kept).await;
        }
        linger();
    }
    task
}
