//! Operations on files: where they read and write, what they do not wait for, and how they end.

use std::fs::File;
use std::io::{PipeWriter, Read as _, Write as _};
use std::sync::Arc;

use completion_port::{
    Batch, Error, FileEngine, FileSource, Operation, Packet, Port, SharedId, Started,
};

use super::Trial;
use super::kit::{QUIET, Seen, result, soon, wait};
use crate::system::{as_file, unnamed_file};

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 68,
        what: "\"abc\" is written at 2; three bytes are read at 3",
        expected: "done: wrote 3; done: read \"bc\"",
        run: positions,
    },
    Trial {
        rule: 69,
        what: "a read hangs, and a message is posted; the program is read, which is in memory",
        expected: "posted 1; read \"ELF\", nothing",
        run: no_waiting,
    },
    Trial {
        rule: 70,
        what: "a file is put on the disk",
        expected: "done: on the disk",
        run: synced,
    },
    Trial {
        rule: 71,
        what: "a read hangs, and another one is started on the same file",
        expected: "2 in flight; finished: read \"a\", finished: read \"b\"",
        run: together,
    },
    Trial {
        rule: 72,
        what: "a read that hangs is cancelled, and its pipe written to",
        expected: "finished: Cancelled or read",
        run: cancelled,
    },
    Trial {
        rule: 73,
        what: "a port is dropped with a read that hangs",
        expected: "it is gone",
        run: dropped,
    },
    Trial {
        rule: 74,
        what: "what does operations, before one has to wait and afterwards",
        expected: "none, threads",
        run: engines,
    },
];

type Key = FileSource<Arc<File>>;
type Files = Port<Key, u32>;

/// By threads, which every system has.
fn files() -> completion_port::Result<Files> {
    Port::builder().file_engine(FileEngine::Threads).build()
}

/// A file without a name, of these bytes.
fn scratch(bytes: &[u8]) -> std::io::Result<Key> {
    let mut file = unnamed_file()?;
    file.write_all(bytes)?;
    Ok(key(file))
}

fn key(file: File) -> Key {
    FileSource::new(Arc::new(file))
}

fn room(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes)
}

/// A pipe, which a read waits for as for a disk.
fn hanging(port: &Files) -> Result<(SharedId, PipeWriter), Box<dyn std::error::Error>> {
    let (reader, writer) = std::io::pipe()?;
    Ok((port.associate_shared(key(as_file(reader))).map_err(Error::from)?, writer))
}

fn read_one(port: &Files, id: SharedId) -> completion_port::Result<completion_port::OpId> {
    port.start(id, Operation::read_at(room(1), 0)).map_err(Error::from)
}

fn positions() -> Seen {
    let port = files()?;
    let token = port.associate(scratch(b"")?).map_err(Error::from)?;
    token.write_at(b"abc".to_vec(), 2).map_err(Error::from)?;
    let mut batch = Batch::new();
    let Some(Packet::Done(done)) = port.wait(&mut batch, soon())?.next() else {
        return Ok("nothing".to_owned());
    };
    let (token, written) = done.into_parts();
    token.read_at(room(3), 3).map_err(Error::from)?;
    Ok(format!("done: {}; {}", result(&written), wait(&port, soon())?))
}

fn no_waiting() -> Seen {
    let port = files()?;
    let (id, _writer) = hanging(&port)?;
    read_one(&port, id)?;
    port.post(1)?;
    let packet = wait(&port, soon())?;
    let mut program = File::open(std::env::current_exe()?)?;
    // Even if the system is short of memory, it has this in memory now.
    program.read_exact(&mut [0; 4])?;
    let token = port.associate(key(program)).map_err(Error::from)?;
    let started = token.start_now(Operation::read_at(room(3), 1)).map_err(Error::from)?;
    let Started::Finished((_token, now)) = started else { return Ok("it waits".to_owned()) };
    Ok(format!("{packet}; {}, {}", result(&now), wait(&port, QUIET)?))
}

fn synced() -> Seen {
    let port = files()?;
    let token = port.associate(scratch(b"abc")?).map_err(Error::from)?;
    token.sync_all().map_err(Error::from)?;
    Ok(wait(&port, soon())?)
}

fn together() -> Seen {
    let port = files()?;
    let (id, mut writer) = hanging(&port)?;
    let started = [read_one(&port, id)?, read_one(&port, id)?];
    let mut words = Vec::new();
    for byte in [b"a", b"b"] {
        writer.write_all(byte)?;
        words.push(wait(&port, soon())?);
    }
    Ok(format!("{} in flight; {}", started.len(), words.join(", ")))
}

fn cancelled() -> Seen {
    let port = files()?;
    let (id, mut writer) = hanging(&port)?;
    let read = read_one(&port, id)?;
    port.cancel(read)?;
    writer.write_all(b"a")?;
    let seen = wait(&port, soon())?;
    let is_either = ["finished: Cancelled", "finished: read \"a\""].contains(&seen.as_str());
    Ok(if is_either { "finished: Cancelled or read".to_owned() } else { seen })
}

fn dropped() -> Seen {
    let port = files()?;
    let (id, _writer) = hanging(&port)?;
    read_one(&port, id)?;
    drop(port);
    Ok("it is gone".to_owned())
}

fn engines() -> Seen {
    let port = files()?;
    let before = port.stats().file_engine;
    let (id, _writer) = hanging(&port)?;
    read_one(&port, id)?;
    Ok(format!("{before}, {}", port.stats().file_engine))
}
