//! The zoo: small programs after reports of runtimes that stall. Each reports whether its other tasks
//! continue while some of them block or compute.
//!
//! What blocks does so until the others have continued or [`PATIENCE`] has passed. So it doesn't matter how
//! long the report's program slept, nor how busy the machine is.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::api::Runtime;

/// A program stalls if the others have not gone on for so long.
const PATIENCE: Duration = Duration::from_secs(2);

/// The workers of the contender that gets more of them than processors.
pub(super) const WORKERS: usize = 16;

/// Tasks that block at the same time.
const MANY: usize = 64;

/// A program: its name in the command, and the title of its cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Animal {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

pub(super) const ANIMALS: [Animal; 8] = [
    Animal {
        name: "bad-task",
        about: "a job blocks after a timer, requests with timers go on (tokio 4730)",
    },
    Animal { name: "bad-loop", about: "a job computes without end, the same (tokio 4730)" },
    Animal {
        name: "driver",
        about: "the task that a socket woke blocks, other sockets answer (tokio 6315, 8010)",
    },
    Animal { name: "lifo", about: "a task wakes another one and blocks (tokio 4941, 6315)" },
    Animal { name: "all-sleep", about: "64 tasks block, another one runs (tokio 6315)" },
    Animal {
        name: "all-compute",
        about: "a task for each processor computes without end, another one runs (tokio 6315)",
    },
    Animal {
        name: "one-sleeper",
        about: "one task sleeps, as many as processors compute at once (dotnet/runtime 46077)",
    },
    Animal {
        name: "sync-over-async",
        about: "tasks block until tasks that they have spawned end (dotnet/runtime 7657)",
    },
];

/// What a program is given: the end of its blocking, and how it blocks.
#[derive(Clone)]
struct World {
    is_over: Arc<(Mutex<bool>, Condvar, AtomicBool)>,
    offloads: bool,
    processors: usize,
}

impl World {
    /// Sleeps on a condition variable until the program ends.
    fn sleep(&self) {
        let (over, changed, _) = &*self.is_over;
        let mut over = over.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            over = changed.wait(over).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Computes until the program ends.
    fn spin(&self) {
        while !self.is_over.2.load(SeqCst) {
            std::hint::spin_loop();
        }
    }

    fn end(&self) {
        let (over, changed, flag) = &*self.is_over;
        *over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        flag.store(true, SeqCst);
        changed.notify_all();
    }

    /// Calls what blocks, where the task is or by `spawn_blocking`.
    async fn block<R: Runtime, T: Send + 'static>(
        &self,
        work: impl FnOnce(&World) -> T + Send + 'static,
    ) -> T {
        if self.offloads {
            let world = self.clone();
            R::spawn_blocking(move || work(&world)).await
        } else {
            work(self)
        }
    }
}

/// Runs a program. Returns whether it stalls, or `None` if there is none of that name.
pub(super) fn stalls<R: Runtime>(
    runtime: &R,
    name: &str,
    offloads: bool,
    processors: usize,
) -> Option<bool> {
    let world = World { is_over: Arc::default(), offloads, processors };
    // The tasks outlive this call if they are stuck, so what they report to is shared.
    let (went_on_to, went_on) = mpsc::channel();
    let done = move || {
        let _ = went_on_to.send(());
    };
    match name {
        "bad-task" => runtime.begin(after_timer::<R>(world.clone(), World::sleep, done)),
        "bad-loop" => runtime.begin(after_timer::<R>(world.clone(), World::spin, done)),
        "driver" => driver(runtime, &world, done),
        "lifo" => runtime.begin(lifo::<R>(world.clone(), done)),
        "all-sleep" => {
            runtime.begin(all::<R>(world.clone(), MANY, World::sleep, done));
        }
        "all-compute" => {
            runtime.begin(all::<R>(world.clone(), processors, World::spin, done));
        }
        "one-sleeper" => runtime.begin(one_sleeper::<R>(world.clone(), done)),
        "sync-over-async" => runtime.begin(sync_over_async::<R>(world.clone(), done)),
        _ => return None,
    }
    let stalls = went_on.recv_timeout(PATIENCE).is_err();
    world.end();
    Some(stalls)
}

/// A job begins after a timer and blocks; requests, each a task with a timer, continue.
async fn after_timer<R: Runtime>(
    world: World,
    block: fn(&World),
    done: impl FnOnce() + Send + 'static,
) {
    let begun = Arc::new(AtomicBool::new(false));
    R::detach(R::spawn({
        let (world, begun) = (world.clone(), Arc::clone(&begun));
        async move {
            R::sleep(Duration::from_millis(20)).await;
            begun.store(true, SeqCst);
            world.block::<R, ()>(block).await;
        }
    }));
    let mut requests = 0;
    while requests < 20 {
        R::spawn(R::sleep(Duration::from_millis(2))).await;
        requests += usize::from(begun.load(SeqCst));
    }
    done();
}

/// A connection's task blocks at its first message; then another connection sends one.
fn driver<R: Runtime>(runtime: &R, world: &World, done: impl FnOnce() + Send + 'static) {
    let pair = || {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok::<_, std::io::Error>((client, listener.accept()?.0))
    };
    let (mut bad_client, bad) = pair().expect("a connection over loopback");
    let (mut client, server) = pair().expect("a connection over loopback");
    let streams = runtime.stream(bad).and_then(|bad| Ok((bad, runtime.stream(server)?)));
    let (mut bad, mut good) = streams.expect("the runtime takes over a connection");
    let (blocked_to, blocked) = mpsc::channel();
    runtime.begin({
        let world = world.clone();
        async move {
            let _ = R::read(&mut bad, &mut [0; 8]).await;
            let block = move |world: &World| {
                let _ = blocked_to.send(());
                world.sleep();
            };
            world.block::<R, ()>(block).await;
        }
    });
    runtime.begin(async move {
        let mut buffer = [0; 8];
        while let Ok(1..) = R::read(&mut good, &mut buffer).await {
            let _ = R::write_all(&mut good, b"x").await;
        }
    });
    thread::spawn(move || {
        let _ = bad_client.write_all(b"x");
        let _ = blocked.recv();
        for _ in 0..20 {
            if client.write_all(b"x").is_err() || client.read_exact(&mut [0]).is_err() {
                return;
            }
        }
        done();
        // Neither connection ends before the program does.
        drop(bad_client);
    });
}

/// A task is woken by one that then blocks.
async fn lifo<R: Runtime>(world: World, done: impl FnOnce() + Send + 'static) {
    let (to, from) = async_channel::bounded(1);
    let (waits_to, waits) = async_channel::bounded(1);
    R::detach(R::spawn(async move {
        let _ = waits_to.send(()).await;
        if from.recv().await.is_ok() {
            done();
        }
    }));
    let _ = waits.recv().await;
    // It waits for the message as soon as it runs again.
    R::sleep(Duration::from_millis(5)).await;
    let _ = to.send(()).await;
    world.block::<R, ()>(World::sleep).await;
}

/// That many tasks block; then another one is spawned from outside.
async fn all<R: Runtime>(
    world: World,
    tasks: usize,
    block: fn(&World),
    done: impl FnOnce() + Send + 'static,
) {
    for _ in 0..tasks {
        let world = world.clone();
        R::detach(R::spawn(async move { world.block::<R, ()>(block).await }));
    }
    // This task runs again after those that were ready before it.
    for _ in 0..3 {
        R::yield_now().await;
        R::sleep(Duration::from_millis(2)).await;
    }
    done();
}

/// A task sleeps all the time; others compute until all of them run at the same time.
async fn one_sleeper<R: Runtime>(world: World, done: impl FnOnce() + Send + 'static) {
    // Not a channel: a task that is woken by the sleeper might have to wait for it.
    let sleeps = Arc::new(AtomicBool::new(false));
    R::detach(R::spawn({
        let (world, sleeps) = (world.clone(), Arc::clone(&sleeps));
        async move {
            let block = move |world: &World| {
                sleeps.store(true, SeqCst);
                world.sleep();
            };
            world.block::<R, ()>(block).await;
        }
    }));
    while !sleeps.load(SeqCst) {
        R::sleep(Duration::from_millis(1)).await;
    }
    let running = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(Mutex::new(Some(done)));
    for _ in 0..world.processors {
        let (world, running, done) = (world.clone(), Arc::clone(&running), Arc::clone(&done));
        R::detach(R::spawn(async move {
            running.fetch_add(1, SeqCst);
            while running.load(SeqCst) < world.processors && !world.is_over.2.load(SeqCst) {
                std::hint::spin_loop();
            }
            if running.load(SeqCst) == world.processors
                && let Some(done) = done.lock().unwrap_or_else(PoisonError::into_inner).take()
            {
                done();
            }
        }));
    }
}

/// Tasks that each spawn another one, and block until it has ended.
async fn sync_over_async<R: Runtime>(world: World, done: impl FnOnce() + Send + 'static) {
    let tasks: Vec<_> = (0..MANY)
        .map(|number| {
            let world = world.clone();
            R::spawn(async move {
                let (to, from) = mpsc::channel();
                R::detach(R::spawn(async move {
                    R::yield_now().await;
                    let _ = to.send(number);
                }));
                world.block::<R, bool>(move |_| from.recv() == Ok(number)).await
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await, "another task's number");
    }
    done();
}

#[cfg(test)]
mod tests {
    use super::super::api::{Ours, Tokio};
    use super::*;

    /// Ours continues in every program, however many processors there are.
    #[test]
    fn our_runtime_does_not_stall() {
        let runtime = Ours::start(Some(2)).unwrap();
        for Animal { name, .. } in ANIMALS {
            // On a busy machine, patience may end too soon; then the others have another chance.
            let stalls = (0..10).all(|_| stalls(&runtime, name, false, 2).unwrap());
            assert!(!stalls, "{name}");
        }
        assert_eq!(stalls(&runtime, "unicorn", false, 2), None);
    }

    /// The programs can tell: tokio has two workers, which all block.
    #[test]
    fn tokio_stalls_where_all_its_workers_block() {
        for name in ["all-sleep", "lifo", "one-sleeper", "sync-over-async"] {
            let runtime = Tokio::start(Some(2)).unwrap();
            assert_eq!(stalls(&runtime, name, false, 2), Some(true), "{name}");
            let stalls = (0..10).all(|_| {
                let runtime = Tokio::start(Some(2)).unwrap();
                stalls(&runtime, name, true, 2).unwrap()
            });
            assert!(!stalls, "{name} with spawn_blocking");
            // Its drop would wait for tasks that never end.
            std::mem::forget(runtime);
        }
    }
}
