//! Simulated files: their bytes, how many are in memory, and operations that a test completes.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Arc;

use super::objects::{Code, FileId};
use super::reach::OnKernel;
use super::{Kernel, KernelState, Object, Socket};
use crate::backend::files::{FileKind, FileRef, FileTarget, Files, Now};
use crate::backend::request::{FileRequest, Submit};
use crate::sys::codes;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// How a simulated kernel treats file operations that cannot be done immediately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileScript {
    /// The call that submits an operation carries it out. It still ends with a packet.
    #[default]
    Done,
    /// Operations do not start until [`Kernel::release_files`]. A cancelled one returns
    /// immediately.
    Queued,
    /// Operations are in progress until [`Kernel::release_files`]. A cancelled one then ends
    /// without effect.
    Begun,
    /// Operations are in progress until [`Kernel::release_files`], and then succeed even if
    /// cancelled.
    Stubborn,
}

/// The contents of a regular file.
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

/// The submitted file operations, and the script for them.
#[derive(Default)]
pub(super) struct FileState {
    script: FileScript,
    /// Oldest first, each with the set of its port.
    requests: VecDeque<(u64, FileRequest)>,
    /// The cancelled requests: set and request id.
    cancelled: Vec<(u64, u64)>,
    /// Each failure follows the previous one after this number of successful steps.
    failures: VecDeque<(usize, Code)>,
    counts: VecDeque<usize>,
}

impl KernelState {
    fn contents(&mut self, descriptor: Descriptor) -> Result<&mut Contents, Code> {
        let file = self.file(descriptor).ok_or(codes::EBADF)?;
        match self.objects.get(file) {
            Some(Object::File(contents)) => Ok(contents),
            _ => Err(codes::ESPIPE),
        }
    }

    /// Does one step of a request, as one system call would.
    ///
    /// Returns how many bytes were read or written.
    fn step(&mut self, request: &mut FileRequest) -> Result<usize, Code> {
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
        let position = request.position();
        if i64::try_from(position).is_err() {
            return Err(codes::EINVAL);
        }
        let contents = self.contents(request.target.file.descriptor())?;
        match (request.kind, &mut request.buffer) {
            (FileKind::Read, Some(buffer)) => {
                let room = buffer.parts().iter().map(|part| part.len).sum::<usize>();
                let bytes = contents.from(position);
                let bytes = &bytes[..bytes.len().min(room).min(most)];
                buffer.fill(bytes);
                // The bytes that were read are in memory from now on.
                let end = contents.bytes.len() - contents.from(position).len() + bytes.len();
                let len = bytes.len();
                contents.cached = contents.cached.max(end);
                Ok(len)
            }
            (FileKind::Write | FileKind::Append, Some(buffer)) => {
                let bytes = buffer.bytes(most);
                let begin = match request.kind {
                    FileKind::Append => contents.bytes.len(),
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

    /// Carries out a request to its end.
    fn perform(&mut self, request: &mut FileRequest) {
        loop {
            match self.step(request) {
                Ok(count) => {
                    request.advance(count);
                    if request.is_complete() {
                        return;
                    }
                    if count == 0 {
                        if matches!(request.kind, FileKind::Write | FileKind::Append) {
                            // A retry would write nothing again, without end.
                            request.fault = Some(fault(codes::EIO));
                        }
                        return;
                    }
                }
                Err(code) => {
                    request.fault = Some(fault(code));
                    return;
                }
            }
        }
    }

    /// Returns the requests that end now.
    fn finish(&mut self, all: bool) -> Vec<FileRequest> {
        if !all && self.files.script != FileScript::Done {
            return Vec::new();
        }
        let is_stubborn = self.files.script == FileScript::Stubborn;
        let cancelled = std::mem::take(&mut self.files.cancelled);
        let mut finished = Vec::new();
        for (set, mut request) in std::mem::take(&mut self.files.requests) {
            if !is_stubborn && cancelled.contains(&(set, request.id)) {
                request.is_cancelled = true;
            } else {
                self.perform(&mut request);
            }
            finished.push(request);
        }
        finished
    }

    /// Removes the requests of a port that is gone, and returns those that have not started.
    pub(super) fn abandon_requests(&mut self, set: u64) -> Vec<FileRequest> {
        if self.files.script != FileScript::Queued {
            // Requests in progress count as cancelled.
            let names = self.files.requests.iter().filter(|(of, _)| *of == set);
            self.files.cancelled.extend(names.map(|(set, request)| (*set, request.id)));
            return Vec::new();
        }
        let (gone, left) = std::mem::take(&mut self.files.requests)
            .into_iter()
            .partition::<VecDeque<_>, _>(|(of, _)| *of == set);
        self.files.requests = left;
        gone.into_iter().map(|(_, request)| request).collect()
    }
}

fn fault(code: Code) -> Fault {
    let kind = if code == codes::ENOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Other };
    Fault { kind, code: Some(code) }
}

impl Kernel {
    /// Makes a regular file with these bytes, all of them in memory. Ports cannot watch it.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn file(&self, bytes: &[u8]) -> std::io::Result<Socket> {
        self.adopt_new(Object::File(Contents::new(bytes)))
    }

    /// Returns the bytes of a regular file, or an empty vector if `file` is none.
    #[must_use]
    pub fn contents(&self, file: &Socket) -> Vec<u8> {
        let mut state = self.lock();
        state.contents_of(file.file()).map(|contents| contents.bytes.clone()).unwrap_or_default()
    }

    /// Truncates a regular file, or extends it with zeros.
    pub fn set_length(&self, file: &Socket, length: usize) {
        let mut state = self.lock();
        if let Some(contents) = state.contents_of(file.file()) {
            contents.bytes.resize(length, 0);
        }
    }

    /// Keeps only the first `cached` bytes of a regular file in memory, until more are read.
    pub fn set_cached(&self, file: &Socket, cached: usize) {
        let mut state = self.lock();
        if let Some(contents) = state.contents_of(file.file()) {
            contents.cached = cached;
        }
    }

    /// Sets how file operations end from now on.
    pub fn script_files(&self, script: FileScript) {
        self.lock().files.script = script;
    }

    /// Ends the file operations that the kernel has, and returns how many there were.
    pub fn release_files(&self) -> usize {
        let finished = self.lock().finish(true);
        let count = finished.len();
        finished.into_iter().for_each(FileRequest::complete);
        count
    }

    /// Returns how many file operations the kernel has.
    #[must_use]
    pub fn held_files(&self) -> usize {
        self.lock().files.requests.len()
    }

    /// Makes the next step of a submitted file operation fail with the system's error `code`.
    ///
    /// The step then has no effect.
    ///
    /// Several scripted failures apply in order.
    pub fn fail_next_file(&self, code: i32) {
        self.fail_next_file_after(0, code);
    }

    /// Like [`Kernel::fail_next_file`], after `steps` further successful steps.
    pub fn fail_next_file_after(&self, steps: usize, code: i32) {
        self.lock().files.failures.push_back((steps, code));
    }

    /// Makes the next step of a submitted file operation read or write at most `count` bytes.
    ///
    /// Several scripted limits apply in order.
    pub fn shorten_next_file(&self, count: usize) {
        self.lock().files.counts.push_back(count);
    }
}

impl KernelState {
    fn contents_of(&mut self, file: FileId) -> Option<&mut Contents> {
        match self.objects.get(file) {
            Some(Object::File(contents)) => Some(contents),
            _ => None,
        }
    }
}

/// An additional descriptor of a file.
struct SimulatedFile(Socket);

impl FileRef for SimulatedFile {
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

    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
        let mut state = self.kernel().lock();
        let file = state.file(descriptor).ok_or(fault(codes::EBADF))?;
        let number = state.duplicate(file).map_err(|code| match code {
            codes::EMFILE => Fault { kind: ErrorKind::DescriptorLimit, code: Some(code) },
            code => fault(code),
        })?;
        drop(state);
        Ok(Arc::new(SimulatedFile(Socket::new(self.kernel().clone(), file, number))))
    }

    fn file_requests(&self) -> &dyn Submit<FileTarget> {
        self
    }

    fn files_name(&self) -> Option<&'static str> {
        Some("sim")
    }
}

impl<T: OnKernel> Submit<FileTarget> for T {
    fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn submit(&self, request: FileRequest) {
        self.kernel().lock().files.requests.push_back((self.port(), request));
    }

    fn flush(&self) {
        let finished = self.kernel().lock().finish(false);
        finished.into_iter().for_each(FileRequest::complete);
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        let mut state = self.kernel().lock();
        let files = &mut state.files;
        if files.script != FileScript::Queued {
            files.cancelled.push((self.port(), id));
            return None;
        }
        let mine = |(set, request): &(u64, FileRequest)| (*set, request.id) == (self.port(), id);
        let place = files.requests.iter().position(mine)?;
        files.requests.remove(place).map(|(_, request)| request)
    }
}
