//! Waits that call a function when their object is signalled: `RegisterWaitForSingleObject`.
//!
//! Each wait has its own thread, which waits and calls the function. So a function may block, and the flags that choose a
//! thread have no effect. The object lives as long as the wait, even if its handle is closed.

use std::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::errors::code;
use crate::linux::driver;
use crate::linux::waitable::{ABANDONED, Awaited, Kind, Waitable, abandon_owned, wait};

/// `WAITORTIMERCALLBACK`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void, u8);

/// The function to call.
pub(crate) struct Call {
    pub(crate) callback: Callback,
    pub(crate) context: *mut c_void,
}

// SAFETY: another thread than the one that has asked for the call may make it, though it has a pointer.
// - any thread may call the callback with its context, as `cp_register_wait` demands.
unsafe impl Send for Call {}

#[derive(Default)]
struct State {
    is_calling: bool,
    has_ended: bool,
    /// An event to set at the end.
    tell: Option<Arc<Waitable>>,
}

/// See the module's documentation.
pub(crate) struct Registered {
    /// Signalled when the wait must end.
    stop: Arc<Waitable>,
    /// Signalled when the wait has ended.
    end: Arc<Waitable>,
    state: Mutex<State>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").finish_non_exhaustive()
    }
}

fn event() -> Arc<Waitable> {
    Waitable::new(Kind::Event, false, 0).into()
}

impl Registered {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { stop: event(), end: event(), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread. `awaited` has one object or port, at index 0.
    pub(crate) fn start(
        self: &Arc<Self>,
        mut awaited: Awaited,
        call: Call,
        limit: Option<Duration>,
        once: bool,
    ) -> Result<(), u32> {
        let places = awaited.objects.iter_mut().map(|it| &mut it.0);
        places.chain(awaited.ports.iter_mut().map(|it| &mut it.0)).for_each(|place| *place = 1);
        awaited.objects.insert(0, (0, Arc::clone(&self.stop)));
        let own = Arc::clone(self);
        driver::spawn("cp-wait", move || own.serve(&awaited, &call, limit, once))
    }

    fn serve(&self, awaited: &Awaited, call: &Call, limit: Option<Duration>, once: bool) {
        loop {
            let is_over = match wait(awaited.clone(), false, limit) {
                Ok(place) if place % ABANDONED == 1 => false,
                Err(code::WAIT_TIMEOUT) => true,
                _ => break,
            };
            if !self.begin_call() {
                break;
            }
            // SAFETY: the callback demands the arguments that the reference passes.
            // - they are passed; the program allows any thread to call it at any time.
            unsafe { (call.callback)(call.context, u8::from(is_over)) };
            self.lock().is_calling = false;
            if once {
                break;
            }
        }
        abandon_owned();
        let mut state = self.lock();
        state.has_ended = true;
        let tell = state.tell.take();
        drop(state);
        tell.inspect(|event| event.set());
        self.end.set();
    }

    /// Whether the function may be called. It may not once the wait is unregistered.
    fn begin_call(&self) -> bool {
        let mut state = self.lock();
        state.is_calling = !self.stop.is_signalled();
        state.is_calling
    }

    /// Prevents further calls. If a call has begun, `tell` is set when it ends. Returns whether a call has begun.
    pub(crate) fn stop(&self, tell: Option<Arc<Waitable>>) -> bool {
        let mut state = self.lock();
        self.stop.set();
        let is_calling = state.is_calling;
        let ended = if state.has_ended {
            tell
        } else {
            state.tell = tell;
            None
        };
        drop(state);
        ended.inspect(|event| event.set());
        is_calling
    }

    /// Waits until the wait has ended.
    pub(crate) fn until_ended(&self) {
        let awaited = Awaited { objects: vec![(0, Arc::clone(&self.end))], ports: Vec::new() };
        let _ = wait(awaited, false, None);
    }
}
