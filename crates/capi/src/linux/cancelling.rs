//! Cancels operations of sockets and files: `CancelIo` and `CancelIoEx`.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use crate::abi::Handle;
use crate::errors::{code, succeeds};
use crate::linux::numbers::{self, InFlight};
use crate::linux::operations::open_descriptor;
use crate::linux::waits::this_thread;
use crate::linux::{file_operations, object, registrations};

/// Cancels operations of a number: the one with this OVERLAPPED or all, those of this thread or of any. Returns how many
/// there were.
fn cancel(descriptor: RawFd, address: Option<usize>, thread: Option<u64>) -> usize {
    let Some(number) = numbers::find(descriptor) else { return 0 };
    let cancel = |operation: &mut InFlight| {
        operation.is_called_off = true;
        *operation
    };
    let (receive, meant): (_, Vec<_>) = {
        let mut state = number.lock();
        let receive =
            registrations::cancel_receive(&mut state, |waiting, operation| match address {
                Some(address) => address == waiting,
                None => thread.is_none_or(|wanted| operation.thread == wanted),
            });
        let operations = &mut state.operations;
        let meant = match address {
            Some(address) => operations.get_mut(address).map(cancel).into_iter().collect(),
            None => {
                let all = operations.values_mut();
                let own = all.filter(|it| thread.is_none_or(|wanted| it.thread == wanted));
                own.map(cancel).collect()
            }
        };
        (receive, meant)
    };
    let of_receiver = usize::from(receive.is_some());
    if let Some(receive) = receive {
        receive.tell();
    }
    let others = meant.into_iter().filter(|operation| registrations::cancel(*operation)).count();
    of_receiver + others
}

/// Cancels the operations that the calling thread has started on a descriptor: `CancelIo`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_cancel_own(file: Handle) -> c_int {
    succeeds(|| {
        if let Ok(file) = object::file(file) {
            file_operations::cancel(&file, None, Some(this_thread()));
        } else {
            cancel(open_descriptor(file)?, None, Some(this_thread()));
        }
        Ok(())
    })
}

/// Cancels a descriptor's operation with this OVERLAPPED, or all its operations if that is null: `CancelIoEx`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_cancel(file: Handle, overlapped: *mut c_void) -> c_int {
    succeeds(|| {
        let address = (!overlapped.is_null()).then(|| overlapped.addr());
        let count = match object::file(file) {
            Ok(file) => file_operations::cancel(&file, address, None),
            Err(_) => cancel(open_descriptor(file)?, address, None),
        };
        if count == 0 { Err(code::NOT_FOUND) } else { Ok(()) }
    })
}
