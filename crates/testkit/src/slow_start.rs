//! A process that is long in starting, while the thread that starts it is suspended: vfork(2), as
//! posix_spawn(3) uses it.

use std::ffi::{CString, c_char};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

/// A FIFO without a writer, which the process opens for reading before it runs its program.
#[derive(Debug)]
pub(crate) struct SlowStart {
    fifo: PathBuf,
    /// Once it is present, the process no longer waits.
    writer: Mutex<Option<File>>,
}

impl SlowStart {
    pub(crate) fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, SeqCst);
        let name = format!("completion-port.{}.{number}", std::process::id());
        let this = Self { fifo: std::env::temp_dir().join(name), writer: Mutex::default() };
        // SAFETY: mkfifo(3) reads text that ends with a zero at the pointer.
        // - it is that of a `CString` that lives until the call returns.
        let made = unsafe { libc::mkfifo(this.path().as_ptr(), 0o600) };
        assert_eq!(made, 0, "{}", io::Error::last_os_error());
        this
    }

    fn path(&self) -> CString {
        CString::new(self.fifo.as_os_str().as_bytes()).unwrap()
    }

    /// Starts the process, and waits until it has ended.
    pub(crate) fn start(&self) {
        let path = self.path();
        let mut actions = MaybeUninit::uninit();
        // SAFETY: posix_spawn_file_actions_init(3) writes a value at the pointer.
        // - valid for writes: `actions` is a local.
        assert_eq!(unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) }, 0);
        // SAFETY: `assume_init` demands a value.
        // - it has just been written.
        let mut actions: libc::posix_spawn_file_actions_t = unsafe { actions.assume_init() };
        let reading = libc::O_RDONLY;
        // SAFETY: posix_spawn_file_actions_addopen(3) changes the value at the first pointer, and reads text
        // that ends with a zero at the second.
        // - both are locals.
        let added = unsafe {
            libc::posix_spawn_file_actions_addopen(&raw mut actions, 0, path.as_ptr(), reading, 0)
        };
        assert_eq!(added, 0);
        let name: *mut c_char = c"true".as_ptr().cast_mut();
        let (arguments, environment) = ([name, ptr::null_mut()], [ptr::null_mut()]);
        let mut process = 0;
        // SAFETY: posix_spawn(3) writes a number at the first pointer and reads what the others point to:
        // text, actions, and lists of texts that end with null. It writes to none of them.
        // - valid: they are locals and literals.
        let refused = unsafe {
            libc::posix_spawn(
                &raw mut process,
                c"/bin/true".as_ptr(),
                &raw const actions,
                ptr::null(),
                arguments.as_ptr(),
                environment.as_ptr(),
            )
        };
        assert_eq!(refused, 0, "{}", io::Error::from_raw_os_error(refused));
        // SAFETY: posix_spawn_file_actions_destroy(3) demands a value that is not used again.
        // - it is not.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut actions) };
        let mut status = 0;
        // SAFETY: waitpid(2) writes a status at the pointer.
        // - valid for writes: `status` is a local.
        assert_eq!(unsafe { libc::waitpid(process, &raw mut status, 0) }, process);
        assert_eq!(status, 0);
    }

    /// From now on it starts immediately.
    pub(crate) fn clear(&self) {
        // For reading as well, so that the open waits for no other end.
        let writer = OpenOptions::new().read(true).write(true).open(&self.fifo).unwrap();
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(writer);
    }
}

impl Drop for SlowStart {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.fifo);
    }
}
