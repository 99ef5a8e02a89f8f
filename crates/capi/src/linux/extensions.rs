//! The extension functions of Winsock, looked up by GUID: `SIO_GET_EXTENSION_FUNCTION_POINTER`.

use std::ffi::c_void;

use crate::errors::guarded;
use crate::linux::connections::{cp_accept_ex, cp_accepted_addresses, cp_connect_ex};
use crate::linux::datagrams::{cp_receive_message, cp_send_message};
use crate::linux::disconnects::cp_disconnect_ex;
use crate::linux::transmit::{cp_transmit_file, cp_transmit_packets};

/// A GUID in memory order, and the function.
struct Extension([u8; 16], *const c_void);

// SAFETY: the address of a function may be known to every thread; nothing is read or written there.
unsafe impl Sync for Extension {}

/// Builds a GUID, whose first three parts are numbers.
const fn extension(
    first: u32,
    second: u16,
    third: u16,
    rest: u64,
    function: *const c_void,
) -> Extension {
    let (first, second, third) = (first.to_ne_bytes(), second.to_ne_bytes(), third.to_ne_bytes());
    let rest = rest.to_be_bytes();
    let mut bytes = [0; 16];
    let mut place = 0;
    while place < 16 {
        bytes[place] = match place {
            0..4 => first[place],
            4..6 => second[place - 4],
            6..8 => third[place - 6],
            _ => rest[place - 8],
        };
        place += 1;
    }
    Extension(bytes, function)
}

static EXTENSIONS: [Extension; 8] = [
    extension(
        0xb536_7df0,
        0xcbac,
        0x11cf,
        0x95ca_0080_5f48_a192,
        cp_transmit_file as *const c_void,
    ),
    extension(
        0xd968_9da0,
        0x1f90,
        0x11d3,
        0x9971_00c0_4f68_c876,
        cp_transmit_packets as *const c_void,
    ),
    extension(0xb536_7df1, 0xcbac, 0x11cf, 0x95ca_0080_5f48_a192, cp_accept_ex as *const c_void),
    extension(
        0xb536_7df2,
        0xcbac,
        0x11cf,
        0x95ca_0080_5f48_a192,
        cp_accepted_addresses as *const c_void,
    ),
    extension(
        0xf689_d7c8,
        0x6f1f,
        0x436b,
        0x8a53_e54f_e351_c322,
        cp_receive_message as *const c_void,
    ),
    extension(0xa441_e712, 0x754f, 0x43ca, 0x84a7_0dee_44cf_606d, cp_send_message as *const c_void),
    extension(0x25a2_07b9, 0xddf3, 0x4660, 0x8ee9_76e5_8c74_063e, cp_connect_ex as *const c_void),
    extension(
        0x7fda_2e11,
        0x8630,
        0x436f,
        0xa031_f536_a6ee_c157,
        cp_disconnect_ex as *const c_void,
    ),
];

/// The function with a GUID; null if there is none.
///
/// # Safety
///
/// `guid` points to 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_extension(guid: *const c_void) -> *const c_void {
    guarded(std::ptr::null(), || {
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it; bytes need no alignment.
        let wanted = unsafe { guid.cast::<[u8; 16]>().read_unaligned() };
        let found = EXTENSIONS.iter().find(|Extension(known, _)| *known == wanted);
        found.map_or(std::ptr::null(), |Extension(_, function)| *function)
    })
}
