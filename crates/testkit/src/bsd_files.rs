//! Files to test operations on, on macOS, the BSDs and a simulated kernel.

use completion_port::sim;

use crate::{Socket, System, lacking};

/// Releases hanging operations on a file: those of a simulated kernel.
#[derive(Debug)]
pub struct Hanging(sim::Kernel);

impl Hanging {
    /// Waits until that many reads have begun, on systems that distinguish these. A simulated
    /// kernel does not.
    pub fn await_begun(&self, _count: usize) {}

    /// Lets a read that has begun end: it returns the byte `x`, unless it was cancelled.
    pub fn release(&self) {
        self.0.release_files();
    }
}

impl System {
    /// Whether operations on files can be done here as the ports of this system are to do them.
    #[must_use]
    pub fn has_its_file_engine(&self) -> bool {
        true
    }

    /// Whether threads do the blocking work. They do not give up work in progress.
    #[must_use]
    pub fn has_file_threads(&self) -> bool {
        self.kernel().is_none()
    }

    /// From now on only the first `cached` bytes of a file are in memory, if the system respects
    /// this, which none of these does. A number of whole pages.
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

    /// A file from which reads hang until they are released, including those in the kernel. Claims
    /// about such reads are skipped, with a message, on the system of this machine: none of its
    /// calls reports whether a thread has begun one.
    #[must_use]
    pub fn hanging(&self) -> (Socket, Hanging) {
        let Some(kernel) = self.kernel() else {
            lacking("call that reports whether another thread reads");
        };
        kernel.script_files(sim::FileScript::Begun);
        let file = kernel.file(b"x").unwrap();
        kernel.set_cached(&file, 0);
        (self.own_simulated(file), Hanging(kernel.clone()))
    }

    /// The same, of which a read hangs in the call that begins it, where that is another thing.
    #[must_use]
    pub fn hanging_in_calls(&self) -> (Socket, Hanging) {
        self.hanging()
    }
}
