//! Invalid pointers that a program passes by mistake.
//!
//! The reference rejects them, mostly in its kernel. Here the system rejects pointers that are passed on to it. Before this
//! library itself reads or writes memory, it checks the pointer. Calls that move data only check whether the address can be
//! valid at all, which costs nothing. All other calls check whether there is memory.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// A program has no memory below this address. Null pointers are below, and numbers mistaken for pointers.
const LEAST: usize = 1 << 16;

/// Whether the program can own a pointer with this value.
#[inline]
pub(crate) fn may_be<T>(place: *const T) -> bool {
    place.addr() >= LEAST
}

/// Whether a page is mapped. If the system does not answer, the page counts as mapped.
fn is_page(page: usize, size: usize) -> bool {
    let mut residence = 0_u8;
    let place = std::ptr::without_provenance_mut::<c_void>(page);
    // SAFETY: mincore(2) writes one byte for each page at the pointer, and touches none of the pages.
    // - valid: it is one page, and the byte is a local.
    let done = unsafe { libc::mincore(place, size, &raw mut residence) };
    done == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
}

/// Whether there is memory for that many bytes, judging by the first and the last byte. Does not check whether it is
/// writable.
pub(crate) fn is_there<T>(place: *const T, size: usize) -> bool {
    static PAGE: OnceLock<usize> = OnceLock::new();
    let page = *PAGE.get_or_init(|| {
        // SAFETY: sysconf(3) demands nothing of memory.
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
    });
    let Some(last) = place.addr().checked_add(size.max(1) - 1) else { return false };
    let [first, last] = [place.addr(), last].map(|address| address / page * page);
    may_be(place) && is_page(first, page) && (first == last || is_page(last, page))
}

/// Whether there is memory for that many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cp_is_memory(place: usize, size: usize) -> c_int {
    is_there(std::ptr::without_provenance::<u8>(place), size).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_there_and_nothing_else_is() {
        let bytes = vec![0_u8; 100_000];
        assert!(is_there(bytes.as_ptr(), bytes.len()));
        assert!(is_there(&raw const bytes, 0));
        for address in [0, 1, 65_535, usize::MAX, usize::MAX / 2, 1 << 47] {
            let place = std::ptr::without_provenance::<u8>(address);
            assert!(!is_there(place, 4), "{address:#x}");
        }
        // The last byte is beyond the address space.
        assert!(!is_there(bytes.as_ptr(), usize::MAX / 4));
        assert!(!is_there(bytes.as_ptr(), usize::MAX));
    }
}
