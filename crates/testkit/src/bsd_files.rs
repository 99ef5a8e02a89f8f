//! Files to test operations on, on macOS, the BSDs and a simulated kernel.

use completion_port::sim;

use crate::{Socket, System, lacking};

/// What lets the operations on a file end that hang: those of a simulated kernel.
#[derive(Debug)]
pub struct Hanging(sim::Kernel);

impl Hanging {
    /// Waits until so many reads have begun, where one that has not begun is another thing. On a simulated kernel it is none.
    pub fn await_begun(&self, _count: usize) {}

    /// Lets a read end that has begun: it brings the byte `x`, if it was not called off.
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

    /// Whether threads do what has to wait. What they have begun they do not give up.
    #[must_use]
    pub fn has_file_threads(&self) -> bool {
        self.kernel().is_none()
    }

    /// Only the first `cached` bytes of a file are in memory from now on; as far as the system goes by that, which none of
    /// these does. A number of whole pages.
    pub fn set_cached(&self, file: &Socket, cached: usize) {
        if let (Some(kernel), Some(file)) = (self.kernel(), file.as_simulated()) {
            kernel.set_cached(file, cached);
        }
    }

    /// How many bytes of a file, beginning there, are in memory, as far as the system tells: none.
    #[must_use]
    pub fn cached_from(&self, _file: &Socket, _offset: usize, _most: usize) -> usize {
        0
    }

    /// A file from which reads hang until they are released; also those that the kernel has. Claims about such reads are skipped by
    /// their names on the system of this machine: none of its calls tells whether a thread has begun with one.
    #[must_use]
    pub fn hanging(&self) -> (Socket, Hanging) {
        let Some(kernel) = self.kernel() else {
            lacking("call that tells whether another thread reads");
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
