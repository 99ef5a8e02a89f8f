//! A slow disk: a file system of this process (FUSE) with the same files, which answers each read
//! after a delay. Any number of reads wait at the same time. A file that is opened again is another
//! one to the kernel, so it is not in the kernel's cache.
//!
//! The messages are those of `linux/fuse.h`, see also fuse(4). Numbers are in the order of the
//! machine's bytes. The kernel accepts that a file system doesn't know most of the requests.
//!
//! Reads past the cache (`FOPEN_DIRECT_IO`) would be simpler. But then an io_uring of Linux 6.18
//! continues a read that has met the end of the file at the place where it has begun.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{getgid, getuid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::system;

/// The time that a read takes.
pub(super) const DELAY: Duration = Duration::from_millis(10);

/// The kernel wants room for 8192 bytes or more. No request to a read-only file system is longer.
const LONGEST: usize = 16 << 10;
const HEADER: usize = 40;
/// The number of the folder; those of files follow it.
const ROOT: u64 = 1;
/// How long the kernel remembers a length, in seconds.
const REMEMBERED: u64 = 1 << 30;

/// The mounted file system. It is gone when this is dropped, or the process has ended.
#[derive(Debug)]
pub(super) struct SlowDisk(PathBuf);

impl SlowDisk {
    /// Mounts it on a folder, with files of these lengths, for this thread and the processes that
    /// it starts from now on. That needs root's rights.
    pub(super) fn mount(on: &Path, lengths: &'static [usize], delay: Duration) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let device =
            options.read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/fuse")?;
        // A mount of this thread's own: nothing of it is left even if the process is killed.
        // SAFETY: unshare(2) affects no memory, and with this flag no descriptors.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        // The workers of nginx belong to another user.
        let options = format!(
            "fd={},rootmode=40000,user_id={user},group_id={group},allow_other\0",
            device.as_raw_fd()
        );
        let options = CStr::from_bytes_until_nul(options.as_bytes());
        let options = options.map_err(io::Error::other)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
        mount("cport-bench", on, "fuse", flags, options)?;
        let disk = SlowDisk(on.to_owned());
        // It ends when the file system is gone.
        let serve = move || {
            if let Err(error) = Answering::new(device, lengths, delay).serve() {
                eprintln!("slow disk: {error}");
            }
        };
        thread::Builder::new().name("slow disk".to_owned()).spawn(serve)?;
        Ok(disk)
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // A file that is still open keeps it alive.
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// The thread that answers the kernel.
struct Answering {
    device: File,
    contents: Vec<u8>,
    lengths: &'static [usize],
    delay: Duration,
    /// How often a file was looked up.
    lookups: u64,
    /// Answers to reads, and when each is due.
    waiting: VecDeque<(Instant, Vec<u8>)>,
}

/// Requests, by their numbers.
mod request {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const READ: u32 = 15;
    pub(super) const INIT: u32 = 26;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}

impl Answering {
    fn new(device: File, lengths: &'static [usize], delay: Duration) -> Self {
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let contents = crate::http::file::contents(longest);
        Answering { device, contents, lengths, delay, lookups: 0, waiting: VecDeque::new() }
    }

    fn serve(&mut self) -> io::Result<()> {
        let _punctual = system::be_punctual();
        let mut room = vec![0; LONGEST];
        loop {
            let now = Instant::now();
            while let Some((due, answer)) = self.waiting.front()
                && *due <= now
            {
                self.send(answer);
                self.waiting.pop_front();
            }
            let left = self.waiting.front().map(|(due, _)| due.saturating_duration_since(now));
            let left = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
            let mut wanted = [PollFd::new(&self.device, PollFlags::IN)];
            match poll(&mut wanted, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match (&self.device).read(&mut room) {
                Ok(count) => self.answer(&room[..count])?,
                // Not found: the request was interrupted meanwhile.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotFound
                    ) => {}
                // The file system is gone.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn send(&self, answer: &[u8]) {
        // It is refused if the request was interrupted.
        let _: io::Result<usize> = (&self.device).write(answer);
    }

    fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        let (kind, unique, node) = (word(message, 4)?, long(message, 8)?, long(message, 16)?);
        let body = match kind {
            // These have no answer.
            request::FORGET | request::BATCH_FORGET | request::INTERRUPT => return Ok(()),
            request::INIT => Ok(init()),
            request::LOOKUP => self.lookup(message.get(HEADER..).unwrap_or_default()),
            request::GETATTR => self.length(node).map(|length| {
                let head = Message::default().long(REMEMBERED).long(0);
                head.attributes(node, length)
            }),
            request::READ => {
                let (offset, most) = (long(message, HEADER + 8)?, word(message, HEADER + 16)?);
                self.read(node, offset, most)
            }
            _ => Err(Errno::NOSYS),
        };
        let is_read =
            kind == request::READ && matches!(&body, Ok(Message(part)) if !part.is_empty());
        let answer = whole(unique, body);
        // Nothing is read at the end of a file.
        if is_read {
            self.waiting.push_back((Instant::now() + self.delay, answer));
        } else {
            self.send(&answer);
        }
        Ok(())
    }

    /// The length of a file; that of the folder is zero.
    fn length(&self, node: u64) -> Result<usize, Errno> {
        if node == ROOT {
            return Ok(0);
        }
        let which = (node - ROOT - 1) % self.lengths.len() as u64;
        let index = usize::try_from(which).map_err(|_| Errno::NOENT)?;
        Ok(self.lengths[index])
    }

    /// A file's name is its length. Its number is a new one each time, and says which file it is.
    fn lookup(&mut self, name: &[u8]) -> Result<Message, Errno> {
        let name = name.strip_suffix(b"\0").and_then(|name| std::str::from_utf8(name).ok());
        let is_it = |length: &&usize| name == Some(&length.to_string());
        let (which, length) =
            (0..).zip(self.lengths).find(|(_, length)| is_it(length)).ok_or(Errno::NOENT)?;
        let node = ROOT + 1 + which + self.lookups * self.lengths.len() as u64;
        self.lookups += 1;
        // The kernel remembers no name.
        let head = Message::default().long(node).long(0).long(0).long(REMEMBERED).long(0);
        Ok(head.attributes(node, *length))
    }

    fn read(&self, node: u64, offset: u64, most: u32) -> Result<Message, Errno> {
        let file = &self.contents[..self.length(node)?];
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let end = begin.saturating_add(most).min(file.len());
        Ok(Message(file[begin..end].to_vec()))
    }
}

/// A number of a request.
fn long(message: &[u8], at: usize) -> io::Result<u64> {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map(u64::from_ne_bytes).ok_or_else(too_short)
}

fn word(message: &[u8], at: usize) -> io::Result<u32> {
    let bytes = message.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().map(u32::from_ne_bytes).ok_or_else(too_short)
}

fn too_short() -> io::Error {
    io::Error::other("a request of the kernel is too short")
}

/// The body of an answer.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn long(mut self, number: u64) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    fn word(mut self, number: u32) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    fn half(mut self, number: u16) -> Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    /// `struct fuse_attr`.
    fn attributes(self, node: u64, length: usize) -> Self {
        let (mode, links) = if node == ROOT { (0o040_555, 2) } else { (0o100_444, 1) };
        let length = length as u64;
        // Number, length, blocks of 512 bytes; three times, and their nanoseconds.
        let head = self.long(node).long(length).long(length.div_ceil(512));
        let times = head.long(0).long(0).long(0).word(0).word(0).word(0);
        // User and group, device, the size of a block, flags.
        times.word(mode).word(links).word(0).word(0).word(0).word(4096).word(0)
    }
}

/// `struct fuse_init_out`: version 7.31. As many requests as there are may wait.
fn init() -> Message {
    const MOST_AHEAD: u32 = 1 << 20;
    const ASYNC_READ: u32 = 1;
    let head = Message::default().word(7).word(31).word(MOST_AHEAD).word(ASYNC_READ);
    let limits = head.half(u16::MAX).half(u16::MAX).word(4096).word(1).half(1).half(0).word(0);
    (0..7).fold(limits, |message, _| message.word(0))
}

/// An answer with its header.
fn whole(unique: u64, body: Result<Message, Errno>) -> Vec<u8> {
    let (error, Message(body)) = match body {
        Ok(body) => (0, body),
        Err(error) => (-error.raw_os_error(), Message::default()),
    };
    let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
    let header = Message::default().word(length).word(error.cast_unsigned()).long(unique);
    [header.0, body].concat()
}
