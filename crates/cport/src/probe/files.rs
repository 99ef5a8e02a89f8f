//! Operations on files: whether a read of cached data blocks.

use std::fs::File;
use std::io::Read as _;

use completion_port::{Error, FileEngine, FileSource, Operation, Port, Started};

use super::Trial;
use super::kit::{Lacking, QUIET, Seen, result, wait};

pub(super) const TRIALS: &[Trial] = &[Trial {
    rule: 69,
    what: "a read of the program, which is cached",
    expected: "read \"ELF\", nothing",
    run: no_waiting,
}];

fn no_waiting() -> Seen {
    // Every system has this engine.
    let port: Port<FileSource<File>> = Port::builder().file_engine(FileEngine::Threads).build()?;
    let mut program = File::open(std::env::current_exe()?)?;
    // Puts it into the page cache, even if memory is short.
    program.read_exact(&mut [0; 4])?;
    if !reads_from_cache(&program)? {
        return Err(Lacking("this file system has no RWF_NOWAIT").into());
    }
    let token = port.associate(FileSource::new(program)).map_err(Error::from)?;
    let read = Operation::read_at(Vec::with_capacity(3), 1);
    let started = token.start_now(read).map_err(Error::from)?;
    let Started::Completed((_token, now)) = started else { return Ok("it waits".to_owned()) };
    Ok(format!("{}, {}", result(&now), wait(&port, QUIET)?))
}

/// Whether the file system can read what is cached and nothing else. overlayfs and tmpfs can't.
#[cfg(target_os = "linux")]
fn reads_from_cache(file: &File) -> std::io::Result<bool> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let mut byte = [0];
    let parts = &mut [std::io::IoSliceMut::new(&mut byte)];
    match preadv2(file, parts, 0, ReadWriteFlags::NOWAIT) {
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(Errno::AGAIN) | Ok(_) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "as on Linux")]
fn reads_from_cache(_: &File) -> std::io::Result<bool> {
    Ok(true)
}
