//! Replaces `src/sync/mod.rs`: the standard library's primitives, each use of which is a point
//! where another thread may run. Memory is sequentially consistent here. `crates/models` checks
//! weaker orderings.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{self, Ordering};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};

use crate::turns::{block, is_inside, point, wake};

pub(crate) use crate::turns::yield_now;

macro_rules! atomics {
    ($($name:ident $value:ty),*) => { $(
        #[derive(Debug, Default)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }
            pub(crate) fn load(&self, _: Ordering) -> $value {
                point();
                self.0.load(Ordering::SeqCst)
            }
            pub(crate) fn store(&self, value: $value, _: Ordering) {
                point();
                self.0.store(value, Ordering::SeqCst);
            }
            pub(crate) fn swap(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.swap(value, Ordering::SeqCst)
            }
            pub(crate) fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
            }
            pub(crate) fn compare_exchange_weak(
                &self,
                old: $value,
                new: $value,
                one: Ordering,
                other: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(old, new, one, other)
            }
        }
    )* };
}

macro_rules! counters {
    ($($name:ident $value:ty),*) => { $(
        impl $name {
            pub(crate) fn fetch_add(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.fetch_add(value, Ordering::SeqCst)
            }
            pub(crate) fn fetch_sub(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.fetch_sub(value, Ordering::SeqCst)
            }
            pub(crate) fn fetch_or(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.fetch_or(value, Ordering::SeqCst)
            }
            pub(crate) fn fetch_and(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.fetch_and(value, Ordering::SeqCst)
            }
            pub(crate) fn fetch_max(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.fetch_max(value, Ordering::SeqCst)
            }
            pub(crate) fn fetch_min(&self, value: $value, _: Ordering) -> $value {
                point();
                self.0.fetch_min(value, Ordering::SeqCst)
            }
        }
    )* };
}

atomics!(AtomicBool bool, AtomicU8 u8, AtomicU32 u32, AtomicU64 u64);
counters!(AtomicU8 u8, AtomicU32 u32, AtomicU64 u64);

pub(crate) fn fence(_: Ordering) {
    point();
}

pub(crate) fn barrier(own: &AtomicU32) {
    own.swap(0, Ordering::SeqCst);
}

pub(crate) fn barrier_behind_exchange() {}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<()>() as usize
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

#[derive(Debug)]
pub(crate) struct MutexGuard<'m, T> {
    mutex: &'m Mutex<T>,
    /// `None` only while it is being dropped.
    guard: Option<sync::MutexGuard<'m, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        point();
        Ok(self.lock_at_once())
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        point();
        match self.0.try_lock() {
            Ok(guard) => Ok(MutexGuard { mutex: self, guard: Some(guard) }),
            Err(_) => Err(TryLockError::WouldBlock),
        }
    }

    #[track_caller]
    fn lock_at_once(&self) -> MutexGuard<'_, T> {
        let guard = loop {
            if !is_inside() {
                break self.0.lock().unwrap_or_else(PoisonError::into_inner);
            }
            match self.0.try_lock() {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => block(address(self)),
            }
        };
        MutexGuard { mutex: self, guard: Some(guard) }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().unwrap()
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if self.guard.take().is_some() {
            wake(address(self.mutex), true);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    #[track_caller]
    pub(crate) fn wait<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
    ) -> LockResult<MutexGuard<'m, T>> {
        let mutex = guard.mutex;
        if !is_inside() {
            let inner = guard.guard.take().unwrap();
            let inner = self.0.wait(inner).unwrap_or_else(PoisonError::into_inner);
            return Ok(MutexGuard { mutex, guard: Some(inner) });
        }
        // There is no point between these two calls, so no notification is missed.
        drop(guard);
        block(address(self));
        Ok(mutex.lock_at_once())
    }

    /// Waits in real time. No thread of a run calls it.
    pub(crate) fn wait_timeout<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        timeout: std::time::Duration,
    ) -> LockResult<(MutexGuard<'m, T>, sync::WaitTimeoutResult)> {
        assert!(!is_inside());
        let (mutex, inner) = (guard.mutex, guard.guard.take().unwrap());
        let (inner, result) =
            self.0.wait_timeout(inner, timeout).unwrap_or_else(PoisonError::into_inner);
        Ok((MutexGuard { mutex, guard: Some(inner) }, result))
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
        wake(address(self), true);
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
        wake(address(self), false);
    }
}

#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(sync::RwLock<T>);

/// A guard for reading or writing.
#[derive(Debug)]
pub(crate) struct RwLockGuard<G> {
    address: usize,
    guard: Option<G>,
}

impl<G> Drop for RwLockGuard<G> {
    fn drop(&mut self) {
        drop(self.guard.take());
        wake(self.address, true);
    }
}

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    #[track_caller]
    fn guard<'l, G>(
        &'l self,
        attempt: impl Fn(&'l sync::RwLock<T>) -> sync::TryLockResult<G>,
    ) -> LockResult<RwLockGuard<G>> {
        point();
        let guard = loop {
            match attempt(&self.0) {
                Ok(guard) => break guard,
                Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if is_inside() => block(address(self)),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        };
        Ok(RwLockGuard { address: address(self), guard: Some(guard) })
    }

    #[track_caller]
    pub(crate) fn read(&self) -> LockResult<RwLockGuard<sync::RwLockReadGuard<'_, T>>> {
        self.guard(sync::RwLock::try_read)
    }

    #[track_caller]
    pub(crate) fn write(&self) -> LockResult<RwLockGuard<sync::RwLockWriteGuard<'_, T>>> {
        self.guard(sync::RwLock::try_write)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) fn tested(test: impl Fn()) {
        test();
    }
}
