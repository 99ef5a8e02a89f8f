//! Tables that each process has for itself.
//!
//! A forked child has a copy of its parent's tables with their locks, but without the threads that
//! held them: such a lock is held forever. So the child starts with new tables, unlocked and empty.
//! The C library announces the fork together with that to its own parts, which is when malloc
//! becomes usable in the child. In a child created without the C library, nothing here works.

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

/// A value that each process creates once, when it is first needed, and never frees.
pub(crate) struct Own<T: 'static> {
    /// Called by the C library in a forked child before other code runs there: calls
    /// [`pass_on`](Self::pass_on) of this table. It may also do anything a signal handler may do.
    begin_child: extern "C" fn(),
    /// The C library knows `begin_child`.
    is_announced: AtomicBool,
    own: AtomicPtr<T>,
    /// The parent's value, if the process was forked.
    inherited: AtomicPtr<T>,
}

impl<T: Sync> Own<T> {
    /// `begin_child` calls [`pass_on`](Self::pass_on) of this table. It may also do anything a signal handler may do.
    pub(crate) const fn new(begin_child: extern "C" fn()) -> Self {
        Self {
            begin_child,
            is_announced: AtomicBool::new(false),
            own: AtomicPtr::new(ptr::null_mut()),
            inherited: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The value of this process, if it exists.
    #[inline]
    pub(crate) fn find(&self) -> Option<&'static T> {
        let own = self.own.load(Acquire);
        // SAFETY: `as_ref` demands null or a value that lives on and changes only as its type
        // allows.
        // - only `make` stores a non-null pointer here: to memory that it has leaked.
        unsafe { own.as_ref() }
    }

    /// The same, creating it if necessary. `make` gets the parent's value.
    #[inline]
    pub(crate) fn get(&self, make: impl FnOnce(Option<&'static T>) -> Box<T>) -> &'static T {
        self.find().unwrap_or_else(|| self.make(make))
    }

    /// The value of the parent process, unless this process has its own by now.
    pub(crate) fn inherited(&self) -> Option<&'static T> {
        // SAFETY: as in `find`: it was there before the fork.
        unsafe { self.inherited.load(Relaxed).as_ref() }
    }

    #[cold]
    fn make(&self, make: impl FnOnce(Option<&'static T>) -> Box<T>) -> &'static T {
        // First: a child must never take a table for its own.
        self.notice_forks();
        let made = Box::into_raw(make(self.inherited()));
        let known = match self.own.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(known) => {
                // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
                // - it was just created, and the exchange that would have published it has failed.
                drop(unsafe { Box::from_raw(made) });
                known
            }
        };
        // SAFETY: a shared reference demands a value that lives on and changes only as its type
        // allows.
        // - it was leaked, by this call or by another one.
        unsafe { &*known }
    }

    /// This process is a child that was just forked. Async-signal-safe.
    pub(crate) fn pass_on(&self) {
        let own = self.own.swap(ptr::null_mut(), Relaxed);
        if !own.is_null() {
            self.inherited.store(own, Relaxed);
        }
    }

    /// Asks the C library to call `begin_child` in each child forked from now on.
    fn notice_forks(&self) {
        if !self.is_announced.load(Acquire) {
            // Two threads may do this twice, which is harmless.
            // SAFETY: pthread_atfork(3) demands functions that may be called as long as the library
            // is loaded, in a child with one thread.
            // - `new` is given a plain function, which at most exchanges pointers in atomics and
            //   closes descriptors.
            let refused = unsafe { libc::pthread_atfork(None, None, Some(self.begin_child)) };
            self.is_announced.store(refused == 0, Release);
        }
    }
}
