//! Host names and addresses: the system's calls with Winsock's codes, which are also the last error.

use std::ffi::{CStr, c_char, c_int};

use libc::{addrinfo, sockaddr, socklen_t};

use crate::errors::{code, guarded, set_last};
use crate::linux::errno::code_of_errno;

/// The name exists, but has no address of the requested family. musl does not define these two.
const EAI_NODATA: c_int = -5;
const EAI_ADDRFAMILY: c_int = -9;

/// Converts a resolver's error to a code, 0 if there is none. `EAI_SYSTEM` means that `errno` has the error.
fn code_of_resolver(error: c_int, errno: i32) -> u32 {
    match error {
        0 => code::SUCCESS,
        libc::EAI_BADFLAGS => code::WSAEINVAL,
        libc::EAI_NONAME => code::WSAHOST_NOT_FOUND,
        libc::EAI_AGAIN => code::WSATRY_AGAIN,
        EAI_NODATA | EAI_ADDRFAMILY => code::WSANO_DATA,
        libc::EAI_FAMILY => code::WSAEAFNOSUPPORT,
        libc::EAI_SOCKTYPE => code::WSAESOCKTNOSUPPORT,
        libc::EAI_SERVICE => code::WSATYPE_NOT_FOUND,
        libc::EAI_MEMORY => code::NOT_ENOUGH_MEMORY,
        libc::EAI_OVERFLOW => code::INSUFFICIENT_BUFFER,
        libc::EAI_SYSTEM => code_of_errno(errno),
        _ => code::WSANO_RECOVERY,
    }
}

/// Calls the resolver. Returns its error, and makes it the last error.
fn resolved(call: impl FnOnce() -> Result<c_int, u32>) -> c_int {
    let failed = |code: u32| {
        if code != code::SUCCESS {
            set_last(code);
        }
        code.cast_signed()
    };
    guarded(code::INTERNAL_ERROR.cast_signed(), || match call() {
        Ok(error) => {
            let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
            failed(code_of_resolver(error, errno))
        }
        Err(code) => failed(code),
    })
}

/// `getaddrinfo`, with Winsock's codes. An empty name is this host's name.
///
/// # Safety
///
/// As for getaddrinfo(3); `result` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const addrinfo,
    result: *mut *mut addrinfo,
) -> c_int {
    resolved(|| {
        if result.is_null() {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: writing demands a valid place.
        // - the caller guarantees it for a non-null `result`.
        unsafe { result.write(std::ptr::null_mut()) };
        // SAFETY: `as_ref` demands null or a struct that nothing writes meanwhile.
        // - the caller guarantees it.
        let hints_given = unsafe { hints.as_ref() };
        let has_more = hints_given.is_some_and(|hints| {
            hints.ai_addrlen != 0
                || !hints.ai_addr.is_null()
                || !hints.ai_canonname.is_null()
                || !hints.ai_next.is_null()
        });
        if has_more {
            return Err(code::WSANO_RECOVERY);
        }
        // C libraries have different errors for it.
        if hints_given.is_some_and(|hints| !(0..=libc::SOCK_RAW).contains(&hints.ai_socktype)) {
            return Err(code::WSAESOCKTNOSUPPORT);
        }
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it for a non-null name.
        let is_own = !node.is_null() && unsafe { CStr::from_ptr(node) }.is_empty();
        let mut own = [0; 256];
        if is_own {
            // The last byte stays zero.
            // SAFETY: gethostname demands room for that many bytes.
            // - the array has one more.
            if unsafe { libc::gethostname(own.as_mut_ptr(), own.len() - 1) } != 0 {
                return Err(code::WSAHOST_NOT_FOUND);
            }
        }
        let node = if is_own { own.as_ptr() } else { node };
        // SAFETY: as the caller guarantees; the host's own name ends with a zero.
        Ok(unsafe { libc::getaddrinfo(node, service, hints, result) })
    })
}

/// `freeaddrinfo`.
///
/// # Safety
///
/// `list` is null, or a list returned by [`cp_getaddrinfo`] that nobody has freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_freeaddrinfo(list: *mut addrinfo) {
    if !list.is_null() {
        // SAFETY: as the caller guarantees.
        unsafe { libc::freeaddrinfo(list) };
    }
}

/// `getnameinfo`, with Winsock's codes.
///
/// # Safety
///
/// As for getnameinfo(3); each pointer may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_getnameinfo(
    address: *const sockaddr,
    size: socklen_t,
    node: *mut c_char,
    node_size: socklen_t,
    service: *mut c_char,
    service_size: socklen_t,
    flags: c_int,
) -> c_int {
    resolved(|| {
        if address.is_null() {
            return Err(code::WSAEFAULT);
        }
        if (!node.is_null() && node_size == 0) || (!service.is_null() && service_size == 0) {
            return Err(code::WSAEINVAL);
        }
        // A null pointer has no room, whatever its size.
        let node_size = if node.is_null() { 0 } else { node_size };
        let service_size = if service.is_null() { 0 } else { service_size };
        // The family must fit, or it cannot be read.
        if (size as usize) < size_of::<libc::sa_family_t>() {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: as the caller guarantees.
        let ask = |flags| unsafe {
            libc::getnameinfo(address, size, node, node_size, service, service_size, flags)
        };
        Ok(match ask(flags) {
            // No name server has answered: the host's name is its number, unless it must be a name.
            libc::EAI_AGAIN if flags & libc::NI_NAMEREQD == 0 => ask(flags | libc::NI_NUMERICHOST),
            done => done,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_of_the_resolver_has_a_code() {
        let codes = [
            (0, 0),
            (libc::EAI_BADFLAGS, 10022),
            (libc::EAI_NONAME, 11001),
            (libc::EAI_AGAIN, 11002),
            (libc::EAI_FAIL, 11003),
            (EAI_NODATA, 11004),
            (EAI_ADDRFAMILY, 11004),
            (libc::EAI_FAMILY, 10047),
            (libc::EAI_SOCKTYPE, 10044),
            (libc::EAI_SERVICE, 10109),
            (libc::EAI_MEMORY, 8),
            (libc::EAI_OVERFLOW, 122),
            (libc::EAI_SYSTEM, 10024),
            (-1000, 11003),
        ];
        for (error, code) in codes {
            assert_eq!(code_of_resolver(error, libc::EMFILE), code, "{error}");
        }
    }
}
