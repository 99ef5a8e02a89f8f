//! Reads by threads that wait for the disk: a pool of one's own, and that of tokio.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;

use futures_util::future::try_join_all;

use super::plan::Plan;
use super::scratch::{Memory, Scratch, Way};
use super::{IN_FLIGHT, Reader};

/// As many threads as there are reads in flight. Each has its share of the reads and hands nothing over, so
/// that no pool is cheaper.
struct Pool(File);

pub(super) fn pool(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(Pool(scratch.open(way)?)))
}

impl Reader for Pool {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let read = |mut plan: Plan| -> io::Result<Plan> {
            let mut memory = Memory::new();
            while plan.aim(&mut memory) {
                let offset = memory.offset;
                let count = self.0.read_at(memory.bytes_mut(), offset)?;
                plan.check(&memory, count)?;
            }
            Ok(plan)
        };
        thread::scope(|scope| {
            let threads: Vec<_> =
                plan.deal(IN_FLIGHT).into_iter().map(|part| scope.spawn(|| read(part))).collect();
            for thread in threads {
                let part = thread.join().map_err(|_| io::Error::other("a thread panicked"))?;
                plan.add(&part?);
            }
            Ok(())
        })
    }
}

/// tokio's `spawn_blocking`, as its own files use it.
struct Tokio {
    file: Arc<File>,
    runtime: tokio::runtime::Runtime,
}

pub(super) fn tokio(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(IN_FLIGHT).build()?;
    Ok(Box::new(Tokio { file: Arc::new(scratch.open(way)?), runtime }))
}

impl Reader for Tokio {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let (plan, file) = (&RefCell::new(plan), &self.file);
        let one_after_another = async |_| {
            let mut memory = Memory::new();
            while plan.borrow_mut().aim(&mut memory) {
                let file = Arc::clone(file);
                let read = tokio::task::spawn_blocking(move || {
                    let offset = memory.offset;
                    (file.read_at(memory.bytes_mut(), offset), memory)
                });
                let (count, back) = read.await?;
                memory = back;
                plan.borrow_mut().check(&memory, count?)?;
            }
            Ok(())
        };
        let all = try_join_all((0..IN_FLIGHT).map(&one_after_another));
        self.runtime.block_on(all).map(drop::<Vec<()>>)
    }
}
