//! How often the runtime allocates memory.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use completion_port_runtime::time::sleep_until;
use completion_port_runtime::{Runtime, spawn};
use testkit::alloc::{Counting, count_all_threads};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TASKS: usize = 5_000;

/// Lets tasks wait until the same time, which is `lead` from now. Returns how often memory was
/// allocated while they ended; `None` if some had ended before all were waiting.
fn expire(runtime: &Runtime, lead: Duration) -> Option<u64> {
    let ended = Arc::new(AtomicUsize::new(0));
    let at = Instant::now() + lead;
    runtime.block_on(async {
        for _ in 0..TASKS {
            let ended = Arc::clone(&ended);
            drop(spawn(async move {
                sleep_until(at).await;
                ended.fetch_add(1, SeqCst);
            }));
        }
        // The only thread that runs tasks has come to this one after those.
        spawn(async {}).await.unwrap();
    });
    let (had_ended, allocations) = count_all_threads(|| {
        let had_ended = ended.load(SeqCst);
        while ended.load(SeqCst) < TASKS || runtime.handle().metrics().tasks > 0 {
            thread::yield_now();
        }
        had_ended
    });
    (had_ended == 0).then_some(allocations)
}

/// A list that grew here would ask for large pieces of memory. Before `malloc` of glibc looks for
/// one, it merges all small pieces that were freed. After many tasks that takes milliseconds.
#[test]
fn many_timers_that_expire_hardly_allocate() {
    // No other thread is started meanwhile.
    let runtime = Runtime::builder().concurrency(1).thread_limit(2).build().unwrap();
    let leads = (0..10).map(|attempt| Duration::from_millis(300) * (1 << attempt));
    let allocations = leads.into_iter().find_map(|lead| expire(&runtime, lead));
    // A thread that is found asleep makes a few.
    assert!(allocations.is_some_and(|number| number < 64), "{allocations:?}");
}
