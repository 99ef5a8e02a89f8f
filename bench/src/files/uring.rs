//! `io_uring` with nothing in between: one thread, one ring, plain reads.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use io_uring::{IoUring, opcode, types};

use super::plan::Plan;
use super::scratch::{Memory, PAGE, Scratch, Way};
use super::{IN_FLIGHT, Reader};

struct Uring {
    ring: IoUring,
    file: File,
    /// Where each read goes.
    slots: Vec<Memory>,
    /// Slots that the kernel does not have.
    free: Vec<usize>,
}

/// A ring for one thread, with room for that many requests.
pub(super) fn ring(requests: usize) -> io::Result<IoUring> {
    let entries = u32::try_from(requests).map_err(io::Error::other)?;
    let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries);
    ring.or_else(|_| IoUring::new(entries))
}

pub(super) fn build(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    let ring = ring(IN_FLIGHT)?;
    let slots = (0..IN_FLIGHT).map(|_| Memory::new()).collect();
    let free = (0..IN_FLIGHT).collect();
    Ok(Box::new(Uring { ring, file: scratch.open(way)?, slots, free }))
}

impl Uring {
    fn push(&mut self, slot: usize) -> io::Result<()> {
        let offset = self.slots[slot].offset;
        let memory = self.slots[slot].bytes_mut();
        let length = u32::try_from(PAGE).map_err(io::Error::other)?;
        let file = types::Fd(self.file.as_raw_fd());
        let read = opcode::Read::new(file, memory.as_mut_ptr(), length).offset(offset).build();
        // SAFETY: everything the request refers to must be valid until it ends.
        // - the file: the kernel has its own reference from the submission on, and until then it is
        //   open;
        // - the memory: the slot is in use, and nothing touches it, until its completion has been
        //   taken. If the reader is dropped before, the memory is never freed.
        unsafe { self.ring.submission().push(&read.user_data(slot as u64)) }
            .map_err(io::Error::other)
    }
}

impl Reader for Uring {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        loop {
            while let Some(slot) = self.free.pop() {
                if !plan.aim(&mut self.slots[slot]) {
                    self.free.push(slot);
                    break;
                }
                self.push(slot)?;
            }
            if self.free.len() == IN_FLIGHT {
                return Ok(());
            }
            self.ring.submit_and_wait(1)?;
            for completion in self.ring.completion() {
                let slot = usize::try_from(completion.user_data()).map_err(io::Error::other)?;
                self.free.push(slot);
                let count = usize::try_from(completion.result())
                    .map_err(|_| io::Error::from_raw_os_error(-completion.result()))?;
                plan.check(&self.slots[slot], count)?;
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.free.len() < IN_FLIGHT {
            // The kernel still writes there.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}
