//! A value of the process that is made when it is first needed.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::AcqRel, Ordering::Acquire};

/// Like [`OnceLock`](std::sync::OnceLock), but no thread waits for another one that is making the
/// value: in a forked child that thread does not exist. Several threads may make a value; all get
/// the same one.
pub(in crate::sys) struct Once<T>(AtomicPtr<T>);

impl<T: Copy + Send + Sync + 'static> Once<T> {
    pub(in crate::sys) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(in crate::sys) fn get_or_init(&self, make: impl FnOnce() -> T) -> T {
        let known = self.0.load(Acquire);
        let place = if known.is_null() { self.init(make()) } else { known };
        // SAFETY: dereferencing requires a valid object that nothing changes.
        // - valid: `init` has stored it, and it is never freed;
        // - nothing changes it after that.
        unsafe { *place }
    }

    #[cold]
    fn init(&self, value: T) -> *mut T {
        let made = Box::into_raw(Box::new(value));
        match self.0.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(first) => {
                // SAFETY: `from_raw` requires a pointer from `into_raw`, and takes it once.
                // - no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
                first
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn all_threads_get_what_the_first_has_made_and_wait_for_none() {
        static ONCE: Once<u32> = Once::new();
        let (say, heard) = mpsc::channel();
        let (begin, has_begun) = mpsc::channel();
        let slow = thread::spawn(move || {
            ONCE.get_or_init(|| {
                begin.send(()).unwrap();
                heard.recv().unwrap()
            })
        });
        has_begun.recv().unwrap();
        // Although the other thread is still making its value.
        assert_eq!(ONCE.get_or_init(|| 7), 7);
        say.send(8).unwrap();
        assert_eq!((slow.join().unwrap(), ONCE.get_or_init(|| 9)), (7, 7));
    }
}
