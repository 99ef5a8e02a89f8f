//! Simulated files: what is in them, what of that is in memory, and operations that end when they are told to.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::objects::{Code, FileId};
use super::reach::OnKernel;
use super::{Kernel, Object, Socket, State};
use crate::backend::files::{Files, Hold, Job, Now, What};
use crate::sys::codes;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// What becomes of operations on files that a port hands to a simulated kernel: of those that cannot be done at
/// once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileScript {
    /// Each is done by the call that starts it. There is a packet all the same.
    #[default]
    Done,
    /// They are not begun until [`Kernel::release_files`]. A port that calls one off has it back at once.
    Queued,
    /// They are under way until [`Kernel::release_files`]. One that is called off ends without effect then.
    Begun,
    /// They are under way until [`Kernel::release_files`], and are done then, whatever was called off.
    Stubborn,
}

/// What a regular file has in it.
#[derive(Debug)]
pub(super) struct Contents {
    bytes: Vec<u8>,
    /// How many of the first bytes are in memory.
    cached: usize,
}

impl Contents {
    pub(super) fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), cached: usize::MAX }
    }

    fn from(&self, position: u64) -> &[u8] {
        usize::try_from(position).ok().and_then(|begin| self.bytes.get(begin..)).unwrap_or(&[])
    }
}

/// What the kernel has of operations on files, and what is to become of them.
#[derive(Default)]
pub(super) struct FileState {
    script: FileScript,
    /// Oldest first, each with the set of its port.
    jobs: VecDeque<(u64, Job)>,
    /// Those of them that were called off.
    called_off: Vec<(u64, u64)>,
    /// After so many more steps, each counted from the one before.
    failures: VecDeque<(usize, Code)>,
    counts: VecDeque<usize>,
}

impl State {
    fn contents(&mut self, descriptor: Descriptor) -> Result<&mut Contents, Code> {
        let file = self.file(descriptor).ok_or(codes::EBADF)?;
        match self.objects.get(file) {
            Some(Object::File(contents)) => Ok(contents),
            _ => Err(codes::ESPIPE),
        }
    }

    /// Does a step of a job, as one system call would. Returns how many bytes were read or written.
    fn step(&mut self, job: &mut Job) -> Result<usize, Code> {
        self.calls.file_job += 1;
        match self.files.failures.front_mut() {
            Some((0, code)) => {
                let code = *code;
                self.files.failures.pop_front();
                return Err(code);
            }
            Some((steps, _)) => *steps -= 1,
            None => {}
        }
        let most = self.files.counts.pop_front().unwrap_or(usize::MAX);
        let position = job.position();
        if i64::try_from(position).is_err() {
            return Err(codes::EINVAL);
        }
        let contents = self.contents(job.file.descriptor())?;
        match (job.what, &mut job.loan) {
            (What::Read, Some(loan)) => {
                let room = loan.parts().iter().map(|part| part.len).sum::<usize>();
                let bytes = contents.from(position);
                let bytes = &bytes[..bytes.len().min(room).min(most)];
                loan.fill(bytes);
                // What was read is in memory from now on.
                let end = contents.bytes.len() - contents.from(position).len() + bytes.len();
                let len = bytes.len();
                contents.cached = contents.cached.max(end);
                Ok(len)
            }
            (What::Write | What::Append, Some(loan)) => {
                let bytes = loan.bytes(most);
                let begin = match job.what {
                    What::Append => contents.bytes.len(),
                    _ => usize::try_from(position).map_err(|_| codes::EFBIG)?,
                };
                let end = begin.checked_add(bytes.len()).ok_or(codes::EFBIG)?;
                if contents.bytes.len() < end {
                    contents.bytes.resize(end, 0);
                }
                contents.bytes[begin..end].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            _ => Ok(0),
        }
    }

    /// Does a job to its end.
    fn perform(&mut self, job: &mut Job) {
        loop {
            match self.step(job) {
                Ok(count) => {
                    job.advance(count);
                    if job.is_complete() {
                        return;
                    }
                    if count == 0 {
                        if matches!(job.what, What::Write | What::Append) {
                            // It would be so again, for ever.
                            job.fault = Some(fault(codes::EIO));
                        }
                        return;
                    }
                }
                Err(code) => {
                    job.fault = Some(fault(code));
                    return;
                }
            }
        }
    }

    /// The jobs that are to return now.
    fn finish(&mut self, all: bool) -> Vec<Job> {
        if !all && self.files.script != FileScript::Done {
            return Vec::new();
        }
        let is_stubborn = self.files.script == FileScript::Stubborn;
        let called_off = std::mem::take(&mut self.files.called_off);
        let mut finished = Vec::new();
        for (set, mut job) in std::mem::take(&mut self.files.jobs) {
            if !is_stubborn && called_off.contains(&(set, job.name)) {
                job.is_called_off = true;
            } else {
                self.perform(&mut job);
            }
            finished.push(job);
        }
        finished
    }

    /// The port of this set is gone, and what was not begun with it.
    pub(super) fn abandon_jobs(&mut self, set: u64) -> Vec<Job> {
        if self.files.script != FileScript::Queued {
            // As when they are called off.
            let names = self.files.jobs.iter().filter(|(of, _)| *of == set);
            self.files.called_off.extend(names.map(|(set, job)| (*set, job.name)));
            return Vec::new();
        }
        let (gone, left) = std::mem::take(&mut self.files.jobs)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(of, _)| *of == set);
        self.files.jobs = left;
        gone.into_iter().map(|(_, job)| job).collect()
    }
}

fn fault(code: Code) -> Fault {
    let kind = if code == codes::ENOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Other };
    Fault { kind, code: Some(code) }
}

impl Kernel {
    /// A regular file with these bytes in it, all of them in memory. No port can watch it.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn file(&self, bytes: &[u8]) -> std::io::Result<Socket> {
        self.adopt_new(Object::File(Contents::new(bytes)))
    }

    /// The bytes of a regular file; none of anything else.
    #[must_use]
    pub fn contents(&self, file: &Socket) -> Vec<u8> {
        let mut state = self.lock();
        state.contents_of(file.file()).map(|contents| contents.bytes.clone()).unwrap_or_default()
    }

    /// Cuts a regular file off, or makes it longer by zeros.
    pub fn set_length(&self, file: &Socket, length: usize) {
        let mut state = self.lock();
        if let Some(contents) = state.contents_of(file.file()) {
            contents.bytes.resize(length, 0);
        }
    }

    /// From now on only the first `cached` bytes of a regular file are in memory, until more is read.
    pub fn set_cached(&self, file: &Socket, cached: usize) {
        let mut state = self.lock();
        if let Some(contents) = state.contents_of(file.file()) {
            contents.cached = cached;
        }
    }

    /// What becomes of operations on files from now on.
    pub fn script_files(&self, script: FileScript) {
        self.lock().files.script = script;
    }

    /// Lets the operations on files go on that the kernel has: they end by this call. Returns how many there were.
    pub fn release_files(&self) -> usize {
        let finished = self.lock().finish(true);
        let count = finished.len();
        finished.into_iter().for_each(Job::give_back);
        count
    }

    /// How many operations on files the kernel has.
    #[must_use]
    pub fn held_files(&self) -> usize {
        self.lock().files.jobs.len()
    }

    /// Makes the next step of an operation on a file that the kernel has fail with an error code of the system,
    /// before it has done anything. Several are used up in order.
    pub fn fail_next_file(&self, code: i32) {
        self.fail_next_file_after(0, code);
    }

    /// The same for the step after so many more.
    pub fn fail_next_file_after(&self, steps: usize, code: i32) {
        self.lock().files.failures.push_back((steps, code));
    }

    /// Makes the next step of an operation on a file that the kernel has read or write so many bytes at most. Several
    /// are used up in order.
    pub fn shorten_next_file(&self, count: usize) {
        self.lock().files.counts.push_back(count);
    }
}

impl State {
    fn contents_of(&mut self, file: FileId) -> Option<&mut Contents> {
        match self.objects.get(file) {
            Some(Object::File(contents)) => Some(contents),
            _ => None,
        }
    }
}

/// One more number for a file.
struct Held(Socket);

impl Hold for Held {
    fn descriptor(&self) -> Descriptor {
        self.0.number()
    }

    fn has_positions(&self) -> bool {
        true
    }
}

impl<T: OnKernel> Files for T {
    fn is_file(&self, descriptor: Descriptor) -> bool {
        self.kernel().lock().contents(descriptor).is_ok()
    }

    fn reads_now(&self, _descriptor: Descriptor) -> bool {
        true
    }

    fn read_now(
        &self,
        descriptor: Descriptor,
        position: u64,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        if i64::try_from(position).is_err() {
            return Now::Failed(fault(codes::EINVAL));
        }
        let mut state = self.kernel().lock();
        state.calls.file_read += 1;
        let contents = match state.contents(descriptor) {
            Ok(contents) => contents,
            Err(codes::ESPIPE) => return Now::Never,
            Err(code) => return Now::Failed(fault(code)),
        };
        let there = contents.from(position);
        let begin = contents.bytes.len() - there.len();
        let cached = &there[..there.len().min(contents.cached.saturating_sub(begin))];
        if cached.is_empty() && !there.is_empty() {
            return Now::NotYet;
        }
        let places = room.iter_mut().flat_map(|part| part.iter_mut());
        Now::Read(places.zip(cached).map(|(place, byte)| place.write(*byte)).count())
    }

    fn hold(&self, descriptor: Descriptor) -> Result<Arc<dyn Hold>, Fault> {
        let mut state = self.kernel().lock();
        let file = state.file(descriptor).ok_or(fault(codes::EBADF))?;
        let number = state.duplicate(file).map_err(|code| match code {
            codes::EMFILE => Fault { kind: ErrorKind::DescriptorLimit, code: Some(code) },
            code => fault(code),
        })?;
        drop(state);
        Ok(Arc::new(Held(Socket::new(self.kernel().clone(), file, number))))
    }

    fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn put(&self, job: Job) {
        self.kernel().lock().files.jobs.push_back((self.port(), job));
    }

    fn go(&self) {
        let finished = self.kernel().lock().finish(false);
        finished.into_iter().for_each(Job::give_back);
    }

    fn take_back(&self, name: u64) -> Option<Job> {
        let mut state = self.kernel().lock();
        let files = &mut state.files;
        let mine = |(set, job): &(u64, Job)| (*set, job.name) == (self.port(), name);
        if files.script != FileScript::Queued {
            files.called_off.push((self.port(), name));
            return None;
        }
        let place = files.jobs.iter().position(mine)?;
        files.jobs.remove(place).map(|(_, job)| job)
    }

    fn files_name(&self) -> Option<&'static str> {
        Some("sim")
    }
}
