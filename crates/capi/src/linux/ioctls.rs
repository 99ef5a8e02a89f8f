//! `ioctlsocket`.

use std::ffi::{c_int, c_ulong};

use crate::linux::sockets::{called, note_use, set_errno};
use crate::linux::{descriptors, memory, numbers};

/// `SOCKET_ERROR`.
const FAILED: c_int = -1;

/// `FIONBIO`, `FIONREAD` and `SIOCATMARK`, each with the system's number and the reference's.
const NON_BLOCKING: [u32; 2] = [0x5421, 0x8004_667e];
const UNREAD: [u32; 2] = [0x541b, 0x4004_667f];
const AT_MARK: [u32; 2] = [0x8905, 0x4004_7307];
/// The system's `SIOCATMARK`.
const SYSTEMS_AT_MARK: libc::Ioctl = 0x8905;

/// `ioctlsocket`.
///
/// # Safety
///
/// `argument` points to a number of eight bytes that no other thread uses meanwhile, or to no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_ioctl_socket(
    descriptor: c_int,
    request: c_ulong,
    argument: *mut c_ulong,
) -> c_int {
    called(|| {
        if !memory::is_there(argument, size_of::<c_ulong>()) {
            set_errno(libc::EFAULT);
            return FAILED;
        }
        #[allow(clippy::cast_possible_truncation, reason = "32 bits, with or without a sign")]
        let request = request as u32;
        let known =
            [(NON_BLOCKING, libc::FIONBIO), (UNREAD, libc::FIONREAD), (AT_MARK, SYSTEMS_AT_MARK)];
        let Some((_, call)) = known.into_iter().find(|(names, _)| names.contains(&request)) else {
            set_errno(libc::EINVAL);
            return FAILED;
        };
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it where there is memory.
        let mut value = c_int::from(unsafe { argument.read() } != 0);
        let wanted = value != 0;
        if call == libc::FIONBIO {
            note_use(descriptor);
        }
        let place = &raw mut value;
        // SAFETY: ioctl(2) with these requests reads or writes an int at the pointer.
        // - valid: `value` is a local of that type.
        let tell = || unsafe { libc::ioctl(descriptor, call, place) };
        let number = match call {
            libc::FIONBIO if descriptors::blocks(descriptor).is_some() => {
                numbers::entry(descriptor)
            }
            _ => None,
        };
        let done = match number {
            Some(number) => number.ask_nonblocking(wanted, tell),
            None => tell(),
        };
        if call == SYSTEMS_AT_MARK && done == 0 && value == 0 {
            // On the reference a stream without urgent data is at the mark.
            value = (!descriptors::has_urgent(descriptor)).into();
        }
        if done == 0 && call != libc::FIONBIO {
            let value = c_ulong::try_from(value).unwrap_or(0);
            // SAFETY: writing through a raw pointer demands that it is valid, and that no other
            // thread uses the memory.
            // - the caller guarantees it.
            unsafe { argument.write(value) };
        }
        done
    })
}
