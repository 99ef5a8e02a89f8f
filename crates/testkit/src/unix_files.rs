//! Files of the systems of Unix's kind, and of a simulated kernel, to test operations on.

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::{Socket, System};

impl System {
    /// A file with these bytes in it, all of them in memory. It has no name.
    #[must_use]
    pub fn file(&self, bytes: &[u8]) -> Socket {
        match self.kernel() {
            Some(kernel) => self.own_simulated(kernel.file(bytes).unwrap()),
            None => {
                let mut file = nameless_in(&std::env::temp_dir(), 0).unwrap();
                file.write_all(bytes).unwrap();
                self.own(file.into())
            }
        }
    }

    /// All that is in a file.
    #[must_use]
    pub fn contents(&self, file: &Socket) -> Vec<u8> {
        match (self.kernel(), file.as_simulated()) {
            (Some(kernel), Some(file)) => kernel.contents(file),
            _ => {
                let file = File::from(file.descriptor().try_clone_to_owned().unwrap());
                let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            }
        }
    }

    /// Cuts a file off.
    pub fn set_length(&self, file: &Socket, length: usize) {
        match (self.kernel(), file.as_simulated()) {
            (Some(kernel), Some(file)) => kernel.set_length(file, length),
            _ => {
                let file = File::from(file.descriptor().try_clone_to_owned().unwrap());
                file.set_len(length as u64).unwrap();
            }
        }
    }
}

/// A file in this directory that no other process finds, for reading and writing, opened with these flags besides.
pub(crate) fn nameless_in(directory: &Path, flags: c_int) -> io::Result<File> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("completion-port.{}.{}", std::process::id(), LAST.fetch_add(1, SeqCst));
    let path = directory.join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    let file = options.custom_flags(flags).open(&path);
    // Some systems have made it before they refuse the flags.
    let removed = std::fs::remove_file(&path);
    let file = file?;
    removed.map(|()| file)
}
