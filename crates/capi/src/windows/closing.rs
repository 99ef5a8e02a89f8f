//! Sockets that are about to be closed.

use windows_sys::Win32::Networking::WinSock::closesocket;

use crate::errors::guarded;
use crate::handles;
use crate::windows::sockets;

/// Ends the socket's registration.
fn retire(socket: usize) {
    let Ok(number) = sockets::number_of(socket) else { return };
    let mut locked = sockets::lock(number);
    if let Some(registered) = locked.clear()
        && let Some(port) = handles::port_named(registered.port)
    {
        // It may have ended already, or its last packet is queued.
        let _ = port.raw().forget(registered.id);
    }
}

/// Ends the registration of a socket that another library's call is about to close.
#[unsafe(no_mangle)]
pub extern "C" fn cp_forget(socket: usize) {
    guarded((), || retire(socket));
}

/// Ends the socket's registration, then closes it: `closesocket`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_socket(socket: usize) -> i32 {
    guarded((), || retire(socket));
    // SAFETY: closesocket fails for a socket that is not open.
    // - the caller guarantees that no thread uses an open one, as for the system's call.
    unsafe { closesocket(socket) }
}
