//! Code shared by the example servers: the listening address, the end, non-blocking reads and
//! writes, and locks.

mod end;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

pub(crate) use end::asked_to_end;

/// Listens on the address in the program's first argument, or on a free port, and prints it.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}

/// Returns the next connection, if there is one.
pub(crate) fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept() {
        Ok((stream, _)) => {
            // A short answer does not wait for the acknowledgement of the previous one.
            let is_set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            is_set.is_ok().then_some(stream)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        // For instance, no descriptor is left. The listener stays ready, so the next attempt would
        // come immediately.
        Err(_) => {
            thread::park_timeout(Duration::from_millis(10));
            None
        }
    }
}

/// The result of a read.
#[allow(dead_code, reason = "one of the servers reads by itself")]
#[derive(PartialEq)]
pub(crate) enum Found {
    Bytes,
    Nothing,
    End,
}

/// Appends the available data to `bytes`, at most some thousand bytes.
#[allow(dead_code, reason = "one of the servers reads by itself")]
pub(crate) fn receive(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<Found> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer) {
        Ok(0) => Ok(Found::End),
        Ok(read) => {
            bytes.extend_from_slice(&buffer[..read]);
            Ok(Found::Bytes)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Found::Nothing),
        Err(error) => Err(error),
    }
}

/// Writes as much of `bytes` as there is room for, and removes it.
pub(crate) fn send(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut sent = 0;
    let outcome = loop {
        if sent == bytes.len() {
            break Ok(());
        }
        match stream.write(&bytes[sent..]) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bytes.drain(..sent);
    outcome
}

/// Locks a mutex that a handler may have held when it panicked. Such a handler has corrupted at
/// most its own client.
#[allow(dead_code, reason = "some of the servers have nothing to lock")]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
