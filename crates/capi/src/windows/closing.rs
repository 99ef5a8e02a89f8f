//! Sockets that are about to be closed.

use windows_sys::Win32::Networking::WinSock::closesocket;

use crate::errors::guarded;
use crate::handles;
use crate::windows::sockets;

/// Whatever the socket stood for has ended.
fn retire(socket: usize) {
    let Ok(number) = sockets::number_of(socket) else { return };
    let mut locked = sockets::lock(number);
    if let Some(registered) = locked.clear()
        && let Some(port) = handles::port_named(registered.port)
    {
        // Ended already, or its last packet is on the way: as good.
        let _ = port.raw().forget(registered.id);
    }
}

/// The socket is about to be closed by a call that is not of this library: whatever it stood for has ended.
#[unsafe(no_mangle)]
pub extern "C" fn cp_forget(socket: usize) {
    guarded((), || retire(socket));
}

/// Ends what the socket stands for, then closes it: `closesocket`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_socket(socket: usize) -> i32 {
    guarded((), || retire(socket));
    // SAFETY: closesocket fails for what is no open socket.
    // - that no thread uses one that is open is the caller's affair, as it is with the system's call.
    unsafe { closesocket(socket) }
}
