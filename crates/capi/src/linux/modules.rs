//! Look-up of the reference's modules and of some functions of this library.
//!
//! `GetProcAddress` looks first into the tables of the headers, which list all their functions. A
//! unit finds the functions listed here even if it does not include their headers.

use std::ffi::{CStr, c_char, c_void};

use crate::errors::{code, guarded, set_last};
use crate::linux::{callbacks, cancelling, connections, datagrams, operations, sockets, transmit};
use crate::{errors, notifications, queue};

/// A module's name, in lower case and without an ending, and its functions.
struct Module {
    name: &'static str,
    functions: &'static [(&'static str, Address)],
}

/// A function, as a plain address.
struct Address(*const c_void);

// SAFETY: the address of a function may be known to every thread; nothing is read or written there.
unsafe impl Sync for Address {}

macro_rules! functions {
    ($($name:literal => $function:expr),* $(,)?) => {
        &[$(($name, Address($function as *const c_void))),*]
    };
}

static MODULES: [Module; 8] = [
    Module {
        name: "ws2_32",
        functions: functions! {
            "ProcessSocketNotifications" => notifications::cp_process_notifications,
            "WSAGetLastError" => errors::cp_last_error,
            "WSASetLastError" => errors::cp_set_last_error,
            "WSACleanup" => sockets::cp_cleanup,
            "WSASendMsg" => datagrams::cp_send_message,
        },
    },
    Module {
        name: "kernel32",
        functions: functions! {
            "CreateIoCompletionPort" => queue::cp_create_io_completion_port,
            "CloseHandle" => queue::cp_close_handle,
            "GetQueuedCompletionStatus" => queue::cp_dequeue,
            "GetQueuedCompletionStatusEx" => queue::cp_dequeue_many,
            "PostQueuedCompletionStatus" => queue::cp_post,
            "GetLastError" => errors::cp_last_error,
            "SetLastError" => errors::cp_set_last_error,
            "BindIoCompletionCallback" => callbacks::cp_bind_routine,
            "QueueUserWorkItem" => callbacks::cp_queue_work,
            "CancelIo" => cancelling::cp_cancel_own,
            "CancelIoEx" => cancelling::cp_cancel,
            "SetFileCompletionNotificationModes" => operations::cp_set_completion_modes,
        },
    },
    Module {
        name: "mswsock",
        functions: functions! {
            "AcceptEx" => connections::cp_accept_ex,
            "GetAcceptExSockaddrs" => connections::cp_accepted_addresses,
            "TransmitFile" => transmit::cp_transmit_file,
        },
    },
    // All their functions are in headers, or absent.
    Module { name: "bcrypt", functions: &[] },
    Module { name: "iphlpapi", functions: &[] },
    Module { name: "ntdll", functions: &[] },
    Module { name: "user32", functions: &[] },
    Module { name: "winmm", functions: &[] },
];

/// A module by its name, with or without `.dll`, in any case; null if it is not one of ours.
///
/// # Safety
///
/// `name` is null or points to text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_module(name: *const c_char) -> *const c_void {
    guarded(std::ptr::null(), || {
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it for a non-null pointer.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes());
        let found = name.and_then(|name| {
            let name = name.to_ascii_lowercase();
            let plain = name.strip_suffix(b".dll").unwrap_or(&name);
            MODULES.iter().find(|module| module.name.as_bytes() == plain)
        });
        found.map_or_else(
            || {
                set_last(code::MOD_NOT_FOUND);
                std::ptr::null()
            },
            |module| (&raw const *module).cast(),
        )
    })
}

/// A function of a module by its name; null if there is none.
///
/// # Safety
///
/// `name` is null or points to text that ends with a zero. A number in its place is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_function(module: *const c_void, name: *const c_char) -> *const c_void {
    /// Below this, what looks like a name is a number.
    const FIRST_ADDRESS: usize = 0x1_0000;
    guarded(std::ptr::null(), || {
        let Some(module) = MODULES.iter().find(|it| (&raw const **it).cast() == module) else {
            set_last(code::INVALID_HANDLE);
            return std::ptr::null();
        };
        let name = (name.addr() >= FIRST_ADDRESS).then(|| {
            // SAFETY: `from_ptr` demands text that ends with a zero.
            // - the caller guarantees it for a value that is not a number.
            unsafe { CStr::from_ptr(name) }
        });
        let wanted = |(known, _): &&(&str, Address)| {
            name.is_some_and(|name| name.to_bytes() == known.as_bytes())
        };
        module.functions.iter().find(wanted).map_or_else(
            || {
                set_last(code::PROC_NOT_FOUND);
                std::ptr::null()
            },
            |(_, address)| address.0,
        )
    })
}
