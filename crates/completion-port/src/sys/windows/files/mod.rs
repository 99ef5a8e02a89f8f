//! Operations on files. The kernel's overlapped reads and writes perform them, or threads that wait
//! for each.
//!
//! No call reports what is in the system's cache, so each operation is a request. [`Service`]
//! performs it.

mod service;
#[cfg(test)]
mod tests;
mod waiting;

use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use windows_sys::Wdk::Storage::FileSystem::{
    FILE_INFORMATION_CLASS, FILE_NO_INTERMEDIATE_BUFFERING, FILE_WRITE_THROUGH,
    FileAccessInformation, FileModeInformation, NtQueryInformationFile,
};
use windows_sys::Win32::Foundation::{
    DUPLICATE_SAME_ACCESS, DuplicateHandle, ERROR_NOT_ENOUGH_MEMORY, HANDLE, INVALID_HANDLE_VALUE,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_NO_BUFFERING, FILE_FLAG_OVERLAPPED, FILE_FLAG_WRITE_THROUGH, FILE_GENERIC_READ,
    FILE_GENERIC_WRITE, FILE_SHARE_DELETE, FILE_SHARE_READ, FILE_SHARE_WRITE, FILE_TYPE_CHAR,
    FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType, ReOpenFile,
};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, IO_STATUS_BLOCK_0};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

use self::service::{Service, SystemCode};
use super::afd::Afd;
use super::options::{is_open, last_error, socket, system_fault};
use super::port::SystemPort;
use crate::backend::files::{FileRef, FileTarget, Files, Now};
use crate::backend::request::{FileRequest, Submit};
use crate::types::config::FileEngine;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The key of the packets that the kernel and [`Service`] queue for file operations.
const DONE: usize = 1;

fn handle_of(descriptor: Descriptor) -> HANDLE {
    ptr::without_provenance_mut(socket(descriptor))
}

/// Returns the type of object that a handle names, or 0 if it is unknown.
fn kind(descriptor: Descriptor) -> u32 {
    if !is_open(descriptor) {
        return 0;
    }
    // SAFETY: GetFileType has no memory requirements, and fails if the handle names no file.
    unsafe { GetFileType(handle_of(descriptor)) }
}

/// Queries 32 bits of information about a file from the kernel.
fn asked(descriptor: Descriptor, question: FILE_INFORMATION_CLASS) -> Option<u32> {
    let mut status = IO_STATUS_BLOCK { Anonymous: IO_STATUS_BLOCK_0 { Status: 0 }, Information: 0 };
    let mut answer = 0_u32;
    // SAFETY: NtQueryInformationFile writes a status at the second argument, and at most as many
    // bytes at the third as the fourth argument says.
    // - valid for writes: both are locals, and the second has four bytes.
    let code = unsafe {
        NtQueryInformationFile(
            handle_of(descriptor),
            &raw mut status,
            (&raw mut answer).cast(),
            4,
            question,
        )
    };
    (code == 0).then_some(answer)
}

/// An open file for requests. It never is the program's own handle, whose number may be closed and
/// reused.
struct JobFile {
    file: OwnedHandle,
    has_positions: bool,
    /// It was opened for this back end, and its packets come from the service's port. Otherwise a
    /// thread waits for each operation.
    is_overlapped: bool,
}

impl JobFile {
    fn handle(&self) -> HANDLE {
        self.file.as_raw_handle()
    }
}

impl FileRef for JobFile {
    fn descriptor(&self) -> Descriptor {
        // Only the lower 32 bits of a handle are significant.
        Descriptor::try_from(self.handle().addr()).unwrap_or(-1)
    }

    fn has_positions(&self) -> bool {
        self.has_positions
    }

    fn waits(&self) -> bool {
        !self.is_overlapped
    }
}

/// Takes ownership of a handle that a call has opened.
fn owned(handle: HANDLE) -> Option<OwnedHandle> {
    if handle.is_null() || handle == INVALID_HANDLE_VALUE {
        return None;
    }
    // SAFETY: `from_raw_handle` requires an open handle that nothing else owns.
    // - each caller passes a handle that ReOpenFile or DuplicateHandle has just returned; the
    //   values for failures were handled above.
    Some(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Opens the same file again for overlapped operations.
///
/// `None` if the file does not support that, or if the program's own handle does not share it.
fn opened_again(descriptor: Descriptor) -> Option<OwnedHandle> {
    let access = asked(descriptor, FileAccessInformation)?;
    let mode = asked(descriptor, FileModeInformation)?;
    let mut flags = FILE_FLAG_OVERLAPPED;
    if mode & FILE_WRITE_THROUGH != 0 {
        flags |= FILE_FLAG_WRITE_THROUGH;
    }
    if mode & FILE_NO_INTERMEDIATE_BUFFERING != 0 {
        flags |= FILE_FLAG_NO_BUFFERING;
    }
    let access = access & (FILE_GENERIC_READ | FILE_GENERIC_WRITE);
    let sharing = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    // SAFETY: ReOpenFile has no memory requirements.
    owned(unsafe { ReOpenFile(handle_of(descriptor), access, sharing, flags) })
}

/// Makes another handle of the same kernel object.
fn duplicate(of: HANDLE) -> Result<OwnedHandle, SystemCode> {
    let mut handle: HANDLE = ptr::null_mut();
    // SAFETY: GetCurrentProcess has no requirements.
    let process = unsafe { GetCurrentProcess() };
    // SAFETY: DuplicateHandle writes a handle at the pointer.
    // - valid for writes: `handle` is a local.
    let done = unsafe {
        DuplicateHandle(process, of, process, &raw mut handle, 0, 0, DUPLICATE_SAME_ACCESS)
    };
    if done == 0 {
        return Err(last_error());
    }
    owned(handle).ok_or(ERROR_NOT_ENOUGH_MEMORY)
}

/// Performs the file requests of a port. It starts with the first request.
pub(super) struct FileService {
    wanted: FileEngine,
    /// Made with the first file reference.
    service: OnceLock<Service>,
    starting: Mutex<()>,
}

impl FileService {
    pub(super) fn new(wanted: FileEngine) -> Self {
        Self { wanted, service: OnceLock::new(), starting: Mutex::new(()) }
    }

    fn service(&self) -> Result<&Service, Fault> {
        if self.service.get().is_none() {
            let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.service.get().is_none() {
                let made = Service::new(SystemPort::new()?);
                // `starting` is locked, so no other thread sets it.
                let _ = self.service.set(made);
            }
        }
        self.service.get().ok_or(Fault { kind: ErrorKind::Other, code: None })
    }
}

impl Submit<FileTarget> for FileService {
    fn prepare(&self) -> Result<(), Fault> {
        self.service()?.prepare()
    }

    fn submit(&self, request: FileRequest) {
        match self.service.get() {
            Some(service) => service.submit(request),
            None => unreachable!("the caller has prepared for it"),
        }
    }

    fn flush(&self) {
        if let Some(service) = self.service.get() {
            service.flush();
        }
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        self.service.get()?.cancel(id)
    }
}

impl Files for Afd {
    fn is_file(&self, descriptor: Descriptor) -> bool {
        // The reactor watches sockets.
        matches!(kind(descriptor), FILE_TYPE_DISK | FILE_TYPE_CHAR | FILE_TYPE_PIPE)
    }

    fn reads_now(&self, _descriptor: Descriptor) -> bool {
        false
    }

    fn read_now(
        &self,
        _descriptor: Descriptor,
        _position: u64,
        _room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        Now::Never
    }

    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
        let service = self.files.service()?;
        let is_disk = kind(descriptor) == FILE_TYPE_DISK;
        // Also for threads: an open file that is not overlapped performs only one operation at a
        // time.
        let again = if is_disk { opened_again(descriptor) } else { None };
        if let Some(file) = again {
            let is_overlapped = self.files.wanted != FileEngine::Threads;
            if is_overlapped {
                service.port().associate(&file, DONE)?;
            }
            return Ok(Arc::new(JobFile { file, has_positions: true, is_overlapped }));
        }
        let file = duplicate(handle_of(descriptor)).map_err(system_fault)?;
        Ok(Arc::new(JobFile { file, has_positions: is_disk, is_overlapped: false }))
    }

    fn file_requests(&self) -> &dyn Submit<FileTarget> {
        &self.files
    }

    fn files_name(&self) -> Option<&'static str> {
        let service = self.files.service.get()?;
        let name = if self.files.wanted == FileEngine::Threads { "threads" } else { "overlapped" };
        service.is_prepared().then_some(name)
    }
}
