//! Parts of files that are to go over sockets, and that have to be waited for: what the file engine has of one while it
//! reads it, and what the operation has that waits for it.
//!
//! A part is sent from the memory to which it was read, and not from the page cache, from which it may be gone by then.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use completion_port::Buffer;
use completion_port::raw::{FileEnd, FileTask};

/// Past the cache a file is read in whole blocks, at multiples of one, into memory that lies so.
const BLOCK: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Block([MaybeUninit<u8>; BLOCK]);

/// Bytes of a file, which were read.
pub(crate) struct Part {
    blocks: Box<[Block]>,
    /// How many bytes there are, and where in the file they begin.
    len: usize,
    offset: i64,
}

impl Part {
    /// What it has of the file from there on: so many bytes at that place.
    pub(crate) fn from(&self, offset: i64) -> (*const c_void, usize) {
        let skipped = offset.checked_sub(self.offset).and_then(|it| usize::try_from(it).ok());
        let skipped = skipped.unwrap_or(usize::MAX).min(self.len);
        let start: *const u8 = self.blocks.as_ptr().cast();
        (start.wrapping_add(skipped).cast(), self.len - skipped)
    }
}

/// What has become of a part.
enum Stage {
    /// It is being read. Then this is called.
    Read(Box<dyn FnOnce() + Send>),
    /// It was read, or could not be.
    Ended(Result<Part, c_int>),
    /// Nothing waits for it, or has it already.
    Over,
}

/// A part that is awaited.
pub(crate) struct Awaited(Mutex<Stage>);

impl Awaited {
    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part, or what its read has failed with; `None` as long as it is being read.
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

    /// Nothing waits for it any more. Whether it is being read still.
    pub(crate) fn give_up(&self) -> bool {
        // What was to be called is dropped when nothing is locked.
        let before = std::mem::replace(&mut *self.lock(), Stage::Over);
        matches!(before, Stage::Read(_))
    }
}

/// What the file engine has of it.
pub(crate) struct Fetching {
    blocks: Box<[Block]>,
    offset: i64,
    awaited: Arc<Awaited>,
}

impl Fetching {
    /// So many bytes from there on, or somewhat more; where the read begins; and `wake` is called behind its end.
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

// SAFETY: the parts are always the same memory, which is on the heap: it does not move with the
// value.
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
            // What came before it goes first, and what is left fails once more.
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
