//! Requests from their start to their end.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io::{Write as _, pipe};
use std::mem::MaybeUninit;
use std::os::windows::fs::OpenOptionsExt as _;
use std::os::windows::io::AsRawHandle;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_PARAMETER, HANDLE, STATUS_ACCESS_DENIED,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_FLAG_DELETE_ON_CLOSE, FILE_FLAG_OVERLAPPED};
use windows_sys::Win32::System::IO::{IO_STATUS_BLOCK, OVERLAPPED};

use super::super::afd::Afd;
use super::super::afd::driver::is_error;
use super::service::{OverlappedCall, PerformCall, SharedService, conclude};
use crate::backend::files::{FileKind, FileRef, FileTarget, Files as _, Issuer};
use crate::backend::request::FileRequest;
use crate::types::config::FileEngine;
use crate::types::io_buffer::IoBuffer;
use crate::types::source::Descriptor;

const SOON: Duration = Duration::from_secs(120);

struct TestIssuer(Mutex<Sender<FileRequest>>);

impl Issuer for TestIssuer {
    fn complete(&self, request: FileRequest) {
        let _ = self.0.lock().unwrap().send(request);
    }
}

fn issuer() -> (Arc<TestIssuer>, Receiver<FileRequest>) {
    let (say, heard) = mpsc::channel();
    (Arc::new(TestIssuer(Mutex::new(say))), heard)
}

fn path() -> PathBuf {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let name = format!("port-files.{}.{}", std::process::id(), LAST.fetch_add(1, SeqCst));
    std::env::temp_dir().join(name)
}

/// Makes a file with these flags, which others may open as `sharing` allows.
fn file(sharing: u32, flags: u32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).share_mode(sharing);
    options.custom_flags(flags | FILE_FLAG_DELETE_ON_CLOSE).open(path()).unwrap()
}

fn number(file: &impl AsRawHandle) -> Descriptor {
    Descriptor::try_from(file.as_raw_handle().addr()).unwrap()
}

fn request(
    issuer: &Arc<TestIssuer>,
    file: &Arc<dyn FileRef>,
    id: u64,
    kind: FileKind,
    buffer: Option<IoBuffer>,
) -> FileRequest {
    let issuer: Weak<TestIssuer> = Arc::downgrade(issuer);
    let target = FileTarget { file: Arc::clone(file), offset: 3, issuer };
    FileRequest::new(id, target, kind, buffer)
}

fn bytes(bytes: &'static [u8]) -> Option<IoBuffer> {
    let mut io_buffer = IoBuffer::new(bytes.chunks(4).collect::<Vec<_>>());
    io_buffer.lend_bytes(|buffer: &Vec<&'static [u8]>, part| {
        buffer.iter().for_each(|bytes| part(bytes))
    });
    Some(io_buffer)
}

/// Room to fill, and a reference that shows when it is dropped.
struct Room(Vec<Vec<u8>>, #[allow(dead_code, reason = "its drop is what counts")] Arc<()>);

fn shared_room(parts: usize, len: usize, share: &Arc<()>) -> Option<IoBuffer> {
    let mut io_buffer = IoBuffer::new(Room(vec![vec![0; len]; parts], Arc::clone(share)));
    io_buffer.lend_room(|buffer: &mut Room, part| {
        for bytes in &mut buffer.0 {
            let (start, len) = (bytes.as_mut_ptr().cast::<MaybeUninit<u8>>(), bytes.len());
            // SAFETY: a slice from a pointer requires that nothing else uses the memory during its
            // lifetime.
            // - it is that of the vector's elements, which is borrowed mutably.
            part(unsafe { std::slice::from_raw_parts_mut(start, len) });
        }
    });
    Some(io_buffer)
}

fn room(parts: usize, len: usize) -> Option<IoBuffer> {
    shared_room(parts, len, &Arc::default())
}

fn perform(afd: &Afd, heard: &Receiver<FileRequest>, request: FileRequest) -> FileRequest {
    afd.file_requests().prepare().unwrap();
    afd.file_requests().submit(request);
    afd.file_requests().flush();
    heard.recv_timeout(SOON).unwrap()
}

/// Writes, flushes and reads in whichever way the file supports.
#[track_caller]
fn assert_served(engine: FileEngine, file: &File, waits: bool) {
    let afd = Afd::new(engine).unwrap();
    let (issuer, heard) = issuer();
    let held = afd.file_ref(number(file)).unwrap();
    assert_eq!(held.waits(), waits);
    assert!(held.has_positions() && held.descriptor() != number(file));
    let done =
        perform(&afd, &heard, request(&issuer, &held, 1, FileKind::Write, bytes(b"some bytes")));
    assert_eq!((done.id, done.done, done.fault.is_none(), done.is_cancelled), (1, 10, true, false));
    let done = perform(&afd, &heard, request(&issuer, &held, 2, FileKind::SyncAll, None));
    assert!(done.fault.is_none());
    let done = perform(&afd, &heard, request(&issuer, &held, 3, FileKind::Read, room(2, 7)));
    assert_eq!((done.done, done.fault.is_none()), (10, true));
    let Room(read, _) = done.buffer.unwrap().into_buffer();
    assert_eq!(read.concat(), b"some bytes\0\0\0\0");
    let done =
        perform(&afd, &heard, request(&issuer, &held, 4, FileKind::Append, bytes(b" and more")));
    assert_eq!((done.done, done.fault.is_none()), (9, true));
    let done = perform(&afd, &heard, request(&issuer, &held, 6, FileKind::Read, room(1, 100)));
    let Room(read, _) = done.buffer.unwrap().into_buffer();
    assert_eq!(read[0][..done.done], *b"some bytes and more");
    let mut far = request(&issuer, &held, 5, FileKind::Write, bytes(b"x"));
    far.target.offset = u64::MAX;
    let done = perform(&afd, &heard, far);
    assert_eq!(done.fault.unwrap().code, Some(ERROR_INVALID_PARAMETER.cast_signed()));
    assert_eq!(file.metadata().unwrap().len(), 3 + 10 + 9);
}

#[test]
fn a_file_is_opened_again_if_it_allows_that() {
    const ALL: u32 = 7;
    for flags in [0, FILE_FLAG_OVERLAPPED] {
        assert_served(FileEngine::Automatic, &file(ALL, flags), false);
        assert_served(FileEngine::Threads, &file(ALL, flags), true);
        // No other handle may open it: a thread waits for each operation, on a duplicate of the
        // handle.
        assert_served(FileEngine::Automatic, &file(0, flags), true);
    }
}

#[test]
fn what_a_handle_does_not_allow_fails() {
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (issuer, heard) = issuer();
    let held = afd.file_ref(number(&file)).unwrap();
    let done = perform(&afd, &heard, request(&issuer, &held, 1, FileKind::Write, bytes(b"x")));
    assert_eq!(done.fault.unwrap().code, Some(ERROR_ACCESS_DENIED.cast_signed()));
    let done = perform(&afd, &heard, request(&issuer, &held, 2, FileKind::Read, room(1, 8)));
    assert_eq!(done.done, 8);
}

/// How a packet reports a refused call: with a status or without.
type RefusedStatus = Option<i32>;

/// The service of the only test that uses [`refused_and_told`], and how it treats the next refused
/// call.
static REFUSALS: Mutex<(Weak<SharedService>, Option<RefusedStatus>)> =
    Mutex::new((Weak::new(), None));

/// Makes a call. If it is refused, a packet reports that too, and another thread seems to take it
/// before the caller continues.
///
/// # Safety
///
/// As for [`OverlappedCall::perform`]; the context is the address of the call's OVERLAPPED.
unsafe fn refused_and_told(
    call: &OverlappedCall,
    what: FileKind,
    event: HANDLE,
    context: *mut c_void,
    block: *mut IO_STATUS_BLOCK,
) -> i32 {
    // SAFETY: `perform` requires what this function requires.
    let status = unsafe { call.perform(what, event, context, block) };
    if !is_error(status) {
        return status;
    }
    let mut refusals = REFUSALS.lock().unwrap();
    let (service, refusal) = (refusals.0.upgrade(), refusals.1.take());
    drop(refusals);
    let (Some(service), Some(refusal)) = (service, refusal) else { return status };
    let overlapped = context.cast::<OVERLAPPED>();
    if let Some(status) = refusal {
        // SAFETY: writing through a pointer requires a valid object that nothing else uses.
        // - the caller promises that it is valid; the call was refused, so the kernel kept nothing,
        //   and no thread has taken the memory back.
        unsafe { (*overlapped).Internal = status.cast_unsigned() as usize };
    }
    service.take_packet(overlapped);
    status
}

/// Returns a reactor that reads and writes files by this function.
fn afd_with(perform: PerformCall) -> Afd {
    let mut afd = Afd::new(FileEngine::Automatic).unwrap();
    afd.files.service().unwrap();
    let service = afd.files.service.get_mut().unwrap();
    Arc::get_mut(&mut service.0).unwrap().perform = perform;
    afd
}

/// Wine reports some calls by both, and another thread may take the packet first: with a status, so
/// that it continues the request, or without one.
#[test]
fn a_request_that_a_refusal_and_a_packet_tell_of_returns_once() {
    let file = File::open(std::env::current_exe().unwrap()).unwrap();
    let afd = afd_with(refused_and_told);
    REFUSALS.lock().unwrap().0 = Arc::downgrade(&afd.files.service().unwrap().0);
    let (issuer, heard) = issuer();
    let held = afd.file_ref(number(&file)).unwrap();
    let share = Arc::new(());
    for (name, status) in [None, Some(STATUS_ACCESS_DENIED), None].into_iter().enumerate() {
        REFUSALS.lock().unwrap().1 = Some(status);
        let mut io_buffer = IoBuffer::new(Room(vec![vec![1; 8]], Arc::clone(&share)));
        io_buffer.lend_bytes(|buffer: &Room, part| part(&buffer.0[0]));
        let refused = request(&issuer, &held, name as u64, FileKind::Write, Some(io_buffer));
        let done = perform(&afd, &heard, refused);
        assert_eq!(done.fault.unwrap().code, Some(ERROR_ACCESS_DENIED.cast_signed()));
        assert_eq!((done.id, done.done, done.is_cancelled), (name as u64, 0, false));
        assert_eq!(REFUSALS.lock().unwrap().1, None, "the call was refused");
        drop(done.buffer);
        let done = perform(&afd, &heard, request(&issuer, &held, 10, FileKind::Read, room(1, 8)));
        assert_eq!((done.id, done.done), (10, 8), "{:?}", done.fault);
    }
    assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "a request has returned twice");
    assert_eq!(Arc::strong_count(&share), 1);
}

#[test]
fn only_files_and_pipes_are_files() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    assert!(afd.is_file(number(&file(7, 0))));
    assert!(!afd.is_file(-1) && !afd.is_file(0x7f_f000));
    assert_eq!(afd.files_name(), None);
    afd.file_requests().prepare().unwrap();
    assert_eq!(afd.files_name(), Some("overlapped"));
}

#[test]
fn a_service_lasts_until_it_has_let_go_of_the_last_buffer() {
    let file = file(7, 0);
    file.set_len(1 << 20).unwrap();
    for round in 0..50 {
        let afd = Afd::new(FileEngine::Automatic).unwrap();
        let (issuer, heard) = issuer();
        let held = afd.file_ref(number(&file)).unwrap();
        let share = Arc::new(());
        afd.file_requests().prepare().unwrap();
        for name in 0..8 {
            afd.file_requests().submit(request(
                &issuer,
                &held,
                name,
                FileKind::Read,
                shared_room(3, 4096, &share),
            ));
            afd.file_requests().flush();
        }
        drop(afd.file_requests().cancel(round % 8));
        drop(afd);
        drop((issuer, heard));
        // The kernel cancels its operations, and the threads drop their requests.
        let end = Instant::now() + SOON;
        while Arc::strong_count(&share) > 1 {
            assert!(Instant::now() < end, "a buffer was lost");
            thread::yield_now();
        }
    }
}

/// How calls are made. With the second one, a cancelled call has not started yet.
const CALLS: [PerformCall; 2] = [OverlappedCall::perform, late_call];

/// Makes a call 50 milliseconds after the thread has announced it.
///
/// # Safety
///
/// As for [`OverlappedCall::perform`].
#[allow(clippy::disallowed_methods, reason = "what takes time is what is tested")]
unsafe fn late_call(
    call: &OverlappedCall,
    what: FileKind,
    event: HANDLE,
    context: *mut c_void,
    block: *mut IO_STATUS_BLOCK,
) -> i32 {
    thread::sleep(Duration::from_millis(50));
    // SAFETY: `perform` requires what this function requires.
    unsafe { call.perform(what, event, context, block) }
}

/// Starts reads of a pipe, and waits until threads have started `begun` of them.
fn read_pipe(afd: &Afd, requests: impl Iterator<Item = FileRequest>, begun: usize) {
    afd.file_requests().prepare().unwrap();
    for request in requests {
        afd.file_requests().submit(request);
        afd.file_requests().flush();
    }
    let at_work = || {
        let state = afd.files.service().unwrap().0.lock();
        state.pools.iter().map(|pool| pool.at_work.len()).sum::<usize>()
    };
    await_true("threads begin", || at_work() == begun);
}

#[track_caller]
fn await_true(what: &str, mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_call_that_waits_is_left_whenever_its_request_is_cancelled() {
    for call in CALLS {
        let (reader, mut writer) = pipe().unwrap();
        let afd = afd_with(call);
        let (issuer, heard) = issuer();
        let held = afd.file_ref(number(&reader)).unwrap();
        assert!(held.waits() && !held.ends_by_itself());
        let share = Arc::new(());
        let requests =
            |name| request(&issuer, &held, name, FileKind::Read, shared_room(1, 8, &share));
        // By one handle that is not overlapped.
        read_pipe(&afd, (0..3).map(requests), 3);
        for name in [1, 2, 0] {
            assert!(afd.file_requests().cancel(name).is_none());
            let done = heard.recv_timeout(SOON).unwrap();
            assert_eq!((done.id, done.done, done.is_cancelled), (name, 0, true));
            assert!(done.fault.is_none());
        }
        assert_eq!(Arc::strong_count(&share), 1);
        // The thread can still be used.
        writer.write_all(b"some").unwrap();
        let done = perform(&afd, &heard, requests(3));
        assert_eq!((done.id, done.done, done.is_cancelled), (3, 4, false));
    }
}

#[test]
fn a_service_ends_that_calls_are_waiting_for() {
    for call in CALLS {
        let (reader, _writer) = pipe().unwrap();
        let afd = afd_with(call);
        let (issuer, heard) = issuer();
        let held = afd.file_ref(number(&reader)).unwrap();
        let share = Arc::new(());
        let last = Arc::downgrade(&afd.files.service().unwrap().0);
        let requests =
            |name| request(&issuer, &held, name, FileKind::Read, shared_room(1, 8, &share));
        read_pipe(&afd, (0..12).map(requests), 8);
        drop(afd);
        drop((issuer, heard));
        await_true("the buffers are dropped", || Arc::strong_count(&share) == 1);
        await_true("the threads end", || last.strong_count() == 0);
    }
}

#[test]
fn silent_pipes_hold_up_no_disk() {
    let pipes: Vec<_> = (0..20).map(|_| pipe().unwrap()).collect();
    for engine in [FileEngine::Automatic, FileEngine::Threads] {
        let afd = Afd::new(engine).unwrap();
        let (issuer, heard) = issuer();
        let held = |number: usize| afd.file_ref(self::number(&pipes[number].0)).unwrap();
        let reads = (0..20).map(|number| {
            request(&issuer, &held(number), number as u64, FileKind::Read, room(1, 8))
        });
        read_pipe(&afd, reads, 8);
        // Opened again, and by a duplicate.
        for file in [file(7, 0), file(0, 0)] {
            let held = afd.file_ref(number(&file)).unwrap();
            for name in 100..110 {
                let write = request(&issuer, &held, name, FileKind::Write, bytes(b"some bytes"));
                assert_eq!(perform(&afd, &heard, write).done, 10);
                let read = request(&issuer, &held, name, FileKind::Read, room(2, 5));
                assert_eq!(perform(&afd, &heard, read).done, 10);
                let sync = request(&issuer, &held, name, FileKind::SyncData, None);
                assert!(perform(&afd, &heard, sync).fault.is_none());
            }
        }
        // The others follow the cancelled ones.
        for name in 0..20 {
            let back = afd.file_requests().cancel(name);
            let back = back.unwrap_or_else(|| heard.recv_timeout(SOON).unwrap());
            assert_eq!(back.id, name);
        }
    }
}

/// On a disk with blocks of 4,096 bytes, a read at any other position fails, even if the file ended
/// there.
#[test]
fn past_the_cache_a_read_ends_where_the_file_has_ended_within_a_block() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (issuer, _heard) = issuer();
    let file = file(7, 0);
    let held = afd.file_ref(number(&file)).unwrap();
    for (end, is_end) in [(512, true), (4096 + 1, true), (0, false), (4096, false)] {
        let mut request = request(&issuer, &held, 1, FileKind::Read, room(2, 4096));
        if end > 0 {
            assert!(!conclude(&mut request, Ok(end), false));
        }
        assert!(conclude(&mut request, Err(ERROR_INVALID_PARAMETER), false));
        assert_eq!((request.done, request.fault.is_none()), (end, is_end));
    }
}
