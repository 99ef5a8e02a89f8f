//! A read that has to wait for a disk, if there is one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::process;
use std::sync::OnceLock;

use rustix::fs::{Advice, fadvise};

/// The length of the file.
const LENGTH: usize = 64 << 10;

/// Reads a whole file, by `std::fs::read`, after the system was asked to forget it. The directory for
/// temporary files may be in memory; then the read is a copy.
pub(crate) fn read_uncached() -> io::Result<()> {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = match FILE.get() {
        Some(file) => file,
        None => {
            let made = make()?;
            FILE.get_or_init(|| made)
        }
    };
    fadvise(file, 0, None, Advice::DontNeed)?;
    // Its name is gone.
    let read = fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if read.len() == LENGTH { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

fn make() -> io::Result<File> {
    let path = std::env::temp_dir().join(format!("cport-bench-{}", process::id()));
    // Another thread may make it at the same time, so the name may be taken or gone.
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    let _ = fs::remove_file(&path);
    file.write_all(&vec![0x5a; LENGTH])?;
    // Written pages cannot be forgotten.
    file.sync_all()?;
    Ok(file)
}
