//! The buffers into which the kernel receives, and the ring by which it gets them.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::work::BUFFER;

/// The group's number, which selects these buffers in a request.
pub(super) const GROUP: u16 = 0;

/// How many there are; a power of two. They are used in turn, so that many of them displace more of
/// the cache than they save requests that find none.
const COUNT: u16 = 256;

/// From one buffer to the next: a cache line more than the greatest length, since the beginnings of buffers
/// that are a page apart compete for the same few places in the cache.
const STRIDE: usize = BUFFER + 64;

/// The kernel wants it to begin at a page.
#[repr(C, align(4096))]
struct Ring([BufRingEntry; COUNT as usize]);

/// All buffers of a ring.
pub(super) struct Buffers {
    ring: *mut Ring,
    memory: *mut [u8; STRIDE],
    /// The length of each, as registered in the kernel.
    length: u32,
    /// How many were given to the kernel so far.
    given: u16,
}

/// A buffer that the kernel has filled, ours until it is given back.
#[derive(Debug)]
pub(super) struct Filled {
    id: u16,
    length: usize,
}

impl Buffers {
    /// Makes buffers of this length, up to [`BUFFER`], and gives them to the kernel. They stay for as
    /// long as the process lives.
    pub(super) fn register(submitter: &Submitter<'_>, length: usize) -> io::Result<Self> {
        assert!(length <= BUFFER, "buffers of {length} bytes");
        let length = u32::try_from(length).unwrap_or(0);
        let zeroed = Box::<Ring>::new_zeroed();
        // SAFETY: all bytes zero must be a value of the type.
        // - it is: an entry has nothing but integers in it.
        let ring = Box::into_raw(unsafe { zeroed.assume_init() });
        let memory = Box::leak(vec![[0; STRIDE]; usize::from(COUNT)].into_boxed_slice());
        let mut buffers = Buffers { ring, memory: memory.as_mut_ptr(), length, given: 0 };
        let address = ring.expose_provenance() as u64;
        // SAFETY: the ring's address and length must be valid until it is unregistered or the
        // `io_uring` is closed.
        // - valid: it has that many entries, and is never freed.
        unsafe { submitter.register_buf_ring_with_flags(address, COUNT, GROUP, 0) }?;
        for id in 0..COUNT {
            buffers.give_back(Filled { id, length: 0 });
        }
        Ok(buffers)
    }

    /// Takes the buffer that a completion names.
    ///
    /// # Safety
    ///
    /// A completion of a request of this group has named it, said that `length` bytes of it are
    /// filled, and this has not been called for that completion before.
    pub(super) unsafe fn take(&self, id: u16, length: usize) -> Filled {
        debug_assert!(id < COUNT && length <= BUFFER);
        Filled { id, length }
    }

    /// The bytes in it.
    pub(super) fn bytes(&self, filled: &Filled) -> &[u8] {
        // SAFETY: the offset must stay within one allocation.
        // - it does: the kernel knows no other numbers than those below `COUNT`.
        let start = unsafe { self.memory.add(usize::from(filled.id)) };
        // SAFETY: that many bytes must be there, initialised, and not written to meanwhile.
        // - there and initialised: a buffer has more, all of them zeroed at first;
        // - not written to: the buffer is not the kernel's until it is given back, for which the
        //   borrowed `self` would have to be borrowed mutably.
        unsafe { std::slice::from_raw_parts(start.cast(), filled.length) }
    }

    /// Gives it to the kernel again.
    pub(super) fn give_back(&mut self, filled: Filled) {
        // SAFETY: the offset must stay within one allocation.
        // - it does: as in `bytes`.
        let start = unsafe { self.memory.add(usize::from(filled.id)) };
        let index = usize::from(self.given % COUNT);
        // SAFETY: the offset must stay within one allocation.
        // - it does: the index is below `COUNT`.
        let entry = unsafe { self.ring.cast::<BufRingEntry>().add(index) };
        // SAFETY: the pointer must be valid, and the entry used by nobody else meanwhile.
        // - valid: the ring is never freed;
        // - nobody else: the kernel reads only entries before the tail, and there are as many
        //   entries as buffers, so this one is not before it.
        let entry = unsafe { &mut *entry };
        entry.set_addr(start.expose_provenance() as u64);
        entry.set_len(self.length);
        entry.set_bid(filled.id);
        self.given = self.given.wrapping_add(1);
        // SAFETY: the pointer must be that of the first entry of a ring.
        // - it is.
        let tail = unsafe { BufRingEntry::tail(self.ring.cast()) };
        // SAFETY: the pointer must be valid, and written to by atomic operations only.
        // - valid: as above; a `u16` is aligned there, and it lies in the unused part of an entry;
        // - atomic: nothing else writes to it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // The entry must be complete before the kernel may read it.
        tail.store(self.given, Ordering::Release);
    }
}
