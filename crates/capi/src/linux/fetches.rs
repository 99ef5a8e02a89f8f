//! Parts of files to be sent over sockets, while the file engine reads them: the engine's side of a
//! part, and the side of the operation that waits for it.
//!
//! A part is sent from the memory it was read into, because the page cache may have dropped it by
//! then.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use completion_port::Buffer;
use completion_port::raw::{FileEnd, FileTask};

/// Unbuffered reads use whole blocks, at multiples of the block size, into aligned memory.
const BLOCK: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([MaybeUninit<u8>; BLOCK]);

/// Bytes read from a file.
pub(crate) struct Part {
    blocks: Box<[Block]>,
    /// The number of bytes, and their offset in the file.
    len: usize,
    offset: i64,
}

impl Part {
    /// Its bytes from this offset on: address and number.
    pub(crate) fn from(&self, offset: i64) -> (*const c_void, usize) {
        let skipped = offset.checked_sub(self.offset).and_then(|it| usize::try_from(it).ok());
        let skipped = skipped.unwrap_or(usize::MAX).min(self.len);
        let start: *const u8 = self.blocks.as_ptr().cast();
        (start.wrapping_add(skipped).cast(), self.len - skipped)
    }
}

/// The state of a part.
enum Stage {
    /// It is being read. This function is called at the end.
    Read(Box<dyn FnOnce() + Send>),
    /// The read has finished or failed.
    Ended(Result<Part, c_int>),
    /// Nothing waits for it any more.
    Over,
}

/// A part that is awaited.
pub(crate) struct Awaited(Mutex<Stage>);

impl Awaited {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part, or the error of its read; `None` while it is being read.
    pub(crate) fn take(&self) -> Option<Result<Part, c_int>> {
        let mut stage = self.lock();
        if let Stage::Read(_) = *stage {
            return None;
        }
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Ended(part) => Some(part),
            _ => Some(Err(libc::ECANCELED)),
        }
    }

    /// Nothing waits for it any more. Returns whether it is still being read.
    pub(crate) fn give_up(&self) -> bool {
        // Drops the function without a lock.
        let before = std::mem::replace(&mut *self.lock(), Stage::Over);
        matches!(before, Stage::Read(_))
    }
}

/// The file engine's side of a part.
pub(crate) struct Fetching {
    blocks: Box<[Block]>,
    offset: i64,
    awaited: Arc<Awaited>,
}

impl Fetching {
    /// That many bytes from there on, or a few more; the start of the read; `wake` is called after
    /// its end.
    pub(crate) fn new(
        offset: i64,
        size: usize,
        wake: impl FnOnce() + Send + 'static,
    ) -> (Self, u64, Arc<Awaited>) {
        let skipped = offset.cast_unsigned() % BLOCK as u64;
        let from = offset - skipped.cast_signed();
        let count = (size as u64 + skipped).div_ceil(BLOCK as u64);
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let blocks = vec![Block([MaybeUninit::uninit(); BLOCK]); count].into_boxed_slice();
        let awaited = Arc::new(Awaited(Mutex::new(Stage::Read(Box::new(wake)))));
        let fetching = Self { blocks, offset: from, awaited: Arc::clone(&awaited) };
        (fetching, from.cast_unsigned(), awaited)
    }
}

// SAFETY: the parts are always the same memory, on the heap: it does not move with the value.
unsafe impl Buffer for Fetching {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        self.blocks.iter_mut().for_each(|block| part(&mut block.0));
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

impl FileTask for Fetching {
    fn end(self, end: FileEnd) {
        let Self { blocks, offset, awaited } = self;
        let part = match end.error {
            // The bytes read before the error are sent first, and the rest fails again.
            Some(error) if end.bytes == 0 => Err(error.os_code().unwrap_or(libc::EIO)),
            _ if end.is_cancelled => Err(libc::ECANCELED),
            _ => Ok(Part { blocks, len: end.bytes, offset }),
        };
        let mut stage = awaited.lock();
        if let Stage::Over = *stage {
            return;
        }
        let before = std::mem::replace(&mut *stage, Stage::Ended(part));
        drop(stage);
        if let Stage::Read(wake) = before {
            wake();
        }
    }
}
