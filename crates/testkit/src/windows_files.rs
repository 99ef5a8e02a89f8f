//! Files to test operations on, and pipes whose reads do not end, on Windows and on a simulated kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::{FromRawHandle, OwnedHandle};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use completion_port::{FileEngine, sim};
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_DELETE_ON_CLOSE, FILE_FLAG_OVERLAPPED, PIPE_ACCESS_INBOUND,
};
use windows_sys::Win32::System::Pipes::CreateNamedPipeW;

use crate::{Socket, System};

/// Releases hanging operations on a file.
#[derive(Debug)]
pub struct Hanging(End);

#[derive(Debug)]
enum End {
    /// The other end of a pipe.
    Native(File),
    Simulated(sim::Kernel),
}

/// A name that nothing else has.
fn name() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("completion-port.{}.{}", std::process::id(), LAST.fetch_add(1, SeqCst))
}

/// The reading and the writing end of a pipe. Reads from it are overlapped.
fn pipe() -> (File, File) {
    let path = PathBuf::from(r"\\.\pipe\".to_owned() + &name());
    let wide: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let mode = PIPE_ACCESS_INBOUND | FILE_FLAG_OVERLAPPED;
    // SAFETY: CreateNamedPipeW reads a name that ends with a zero at the first pointer, and
    // attributes at the last.
    // - `wide` does, and null means no attributes.
    let reader = unsafe { CreateNamedPipeW(wide.as_ptr(), mode, 0, 1, 4096, 4096, 0, ptr::null()) };
    assert!(reader != INVALID_HANDLE_VALUE, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_handle` demands an open handle that nothing else owns.
    // - the call above has just returned it.
    let reader = unsafe { OwnedHandle::from_raw_handle(reader) };
    let writer = OpenOptions::new().write(true).open(path).unwrap();
    (reader.into(), writer)
}

impl Hanging {
    /// Waits until that many reads have begun, on systems that distinguish these. This one does
    /// not.
    pub fn await_begun(&self, _count: usize) {}

    /// Lets a read that has begun end: it returns the byte `x`, unless it was cancelled.
    pub fn release(&self) {
        match &self.0 {
            // If nothing is reading any more, there is nothing to release.
            End::Native(writer) => drop((&*writer).write(b"x")),
            End::Simulated(kernel) => {
                kernel.release_files();
            }
        }
    }
}

impl System {
    /// The system of this machine, with operations on files for which threads wait.
    #[must_use]
    pub fn native_with_threads() -> Self {
        Self::native().one_shot().with_files(FileEngine::Threads)
    }

    /// Whether operations on files can be done here as the ports of this system are to do them.
    #[must_use]
    pub fn has_its_file_engine(&self) -> bool {
        true
    }

    /// Whether threads do the blocking work.
    #[must_use]
    pub fn has_file_threads(&self) -> bool {
        self.kernel().is_none() && self.file_engine() == FileEngine::Threads
    }

    /// A file with these bytes in it. It goes when it is closed.
    #[must_use]
    pub fn file(&self, bytes: &[u8]) -> Socket {
        match self.kernel() {
            Some(kernel) => self.own_simulated(kernel.file(bytes).unwrap()),
            None => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(true);
                options.custom_flags(FILE_FLAG_DELETE_ON_CLOSE);
                let mut file = options.open(std::env::temp_dir().join(name())).unwrap();
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
                let file = file.file();
                let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
                let read = file.seek_read(&mut bytes, 0).unwrap();
                assert_eq!(read, bytes.len());
                bytes
            }
        }
    }

    /// Cuts a file off.
    pub fn set_length(&self, file: &Socket, length: usize) {
        match (self.kernel(), file.as_simulated()) {
            (Some(kernel), Some(file)) => kernel.set_length(file, length),
            _ => file.file().set_len(length as u64).unwrap(),
        }
    }

    /// From now on only the first `cached` bytes of a file are in memory, if the system respects
    /// this. A number of whole pages.
    pub fn set_cached(&self, file: &Socket, cached: usize) {
        if let (Some(kernel), Some(file)) = (self.kernel(), file.as_simulated()) {
            kernel.set_cached(file, cached);
        }
    }

    /// How many bytes of a file are in memory from there on, as far as the system reports: none.
    #[must_use]
    pub fn cached_from(&self, _file: &Socket, _offset: usize, _most: usize) -> usize {
        0
    }

    /// A file from which reads hang until they are released; also those that the kernel has.
    #[must_use]
    pub fn hanging(&self) -> (Socket, Hanging) {
        match self.kernel() {
            Some(kernel) => {
                kernel.script_files(sim::FileScript::Begun);
                let file = kernel.file(b"x").unwrap();
                kernel.set_cached(&file, 0);
                (self.own_simulated(file), Hanging(End::Simulated(kernel.clone())))
            }
            None => {
                let (reader, writer) = pipe();
                (self.own(reader.into()), Hanging(End::Native(writer)))
            }
        }
    }

    /// The same, of which a read hangs in the call that begins it.
    #[must_use]
    pub fn hanging_in_calls(&self) -> (Socket, Hanging) {
        if self.kernel().is_some() {
            return self.hanging();
        }
        let (reader, writer) = io::pipe().unwrap();
        let [reader, writer] = [OwnedHandle::from(reader), writer.into()].map(File::from);
        (self.own(reader.into()), Hanging(End::Native(writer)))
    }
}
