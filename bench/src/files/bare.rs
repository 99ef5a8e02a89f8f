//! Reads by the thread that wants them, one after the other.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use super::plan::Plan;
use super::scratch::{Memory, Scratch, Way};
use super::{IN_FLIGHT, Reader};

/// pread(2).
struct Pread {
    file: File,
    memory: Memory,
}

pub(super) fn pread(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(Pread { file: scratch.open(way)?, memory: Memory::new() }))
}

impl Reader for Pread {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Pread { file, memory } = self;
        while plan.aim(memory) {
            let offset = memory.offset;
            let count = file.read_at(memory.bytes_mut(), offset)?;
            plan.check(memory, count)?;
        }
        Ok(())
    }
}

/// The same into several buffers in turn, as many as the contenders with reads in flight have: data
/// that does not fit into the processor's first-level cache comes from the second.
struct Around {
    file: File,
    memories: Vec<Memory>,
}

pub(super) fn pread_around(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    let memories = (0..IN_FLIGHT).map(|_| Memory::new()).collect();
    Ok(Box::new(Around { file: scratch.open(way)?, memories }))
}

impl Reader for Around {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Around { file, memories } = self;
        loop {
            for memory in &mut *memories {
                if !plan.aim(memory) {
                    return Ok(());
                }
                let offset = memory.offset;
                let count = file.read_at(memory.bytes_mut(), offset)?;
                plan.check(memory, count)?;
            }
        }
    }
}

/// preadv2(2) with `RWF_NOWAIT`; pread(2) where that would wait.
struct NoWait(Pread);

pub(super) fn no_wait(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(NoWait(Pread { file: scratch.open(way)?, memory: Memory::new() })))
}

/// `None` if the read would have to wait.
fn read_now(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    let position = i64::try_from(offset).map_err(io::Error::other)?;
    let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: preadv2(2) reads that many parts at the pointer, here one, and writes at most as many
    // bytes to each as it says.
    // - valid for reads: `part` lives until the call returns;
    // - valid for writes: `bytes` is borrowed mutably, and has that length.
    let count =
        unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, position, libc::RWF_NOWAIT) };
    if let Ok(count) = usize::try_from(count) {
        return Ok(Some(count));
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        error => Err(error),
    }
}

impl Reader for NoWait {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Pread { file, memory } = &mut self.0;
        while plan.aim(memory) {
            let offset = memory.offset;
            let count = match read_now(file, memory.bytes_mut(), offset)? {
                Some(count) => count,
                None => file.read_at(memory.bytes_mut(), offset)?,
            };
            plan.check(memory, count)?;
        }
        Ok(())
    }
}
