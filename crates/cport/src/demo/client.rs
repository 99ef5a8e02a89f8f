//! The clients of the scenarios: ordinary blocking programs without a port.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::pattern::Pattern;
use super::progress::Progress;
use crate::retry::uninterrupted;

/// The result of a client, with a message on failure.
pub(crate) type Told<T> = Result<T, String>;

/// How often a waiting client checks whether its scenario is stuck.
const LOOK: Duration = Duration::from_secs(1);

/// Repeats a socket call every [`LOOK`] until the scenario is stuck.
fn patiently<R>(progress: &Progress, mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match uninterrupted(&mut call) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                    && !progress.time_left().is_zero() => {}
            outcome => return outcome,
        }
    }
}

/// Sends all bytes.
fn send(mut stream: &TcpStream, mut bytes: &[u8], progress: &Progress) -> Told<()> {
    while !bytes.is_empty() {
        let sent = patiently(progress, || stream.write(bytes))
            .map_err(|error| format!("sending: {error}"))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Fills `room`.
fn receive(mut stream: &TcpStream, mut room: &mut [u8], progress: &Progress) -> Told<()> {
    while !room.is_empty() {
        match patiently(progress, || stream.read(room)) {
            Ok(0) => return Err("receiving the echo: the server has ended the connection".into()),
            Ok(received) => room = &mut room[received..],
            Err(error) => return Err(format!("receiving the echo: {error}")),
        }
    }
    Ok(())
}

/// Sends `total` bytes and disconnects.
pub(crate) fn send_and_disconnect(
    server: SocketAddr,
    pattern: Pattern,
    total: u64,
    progress: &Progress,
) -> Told<()> {
    let stream = connect(server)?;
    let mut buffer = vec![0; 64 * 1024];
    let mut sent = 0;
    while sent < total {
        let left = usize::try_from(total - sent).unwrap_or(usize::MAX);
        let part = left.min(buffer.len());
        let bytes = &mut buffer[..part];
        pattern.fill(sent, bytes);
        send(&stream, bytes, progress)?;
        sent += part as u64;
    }
    Ok(())
}

/// Sends `rounds` messages of up to `most` bytes, waits for each echo and checks it. Then
/// disconnects in order: shuts down its sending half, and waits until the server has closed the
/// connection.
pub(crate) fn talk(
    server: SocketAddr,
    pattern: Pattern,
    rounds: u64,
    most: usize,
    progress: &Progress,
) -> Told<()> {
    let mut stream = connect(server)?;
    let (mut message, mut echo) = (vec![0; most], vec![0; most]);
    let mut place = 0;
    for round in 0..rounds {
        let length = pattern.length(round, most);
        let (message, echo) = (&mut message[..length], &mut echo[..length]);
        pattern.fill(place, message);
        send(&stream, message, progress)?;
        receive(&stream, echo, progress)?;
        if let Some(wrong) = pattern.first_wrong(place, echo) {
            return Err(format!("byte {wrong} of the echo is wrong"));
        }
        place += length as u64;
        progress.advance(length);
    }
    stream.shutdown(Shutdown::Write).map_err(|error| format!("disconnecting: {error}"))?;
    match patiently(progress, || stream.read(&mut [0])) {
        Ok(0) => Ok(()),
        Ok(_) => Err("more came back than was sent".into()),
        Err(error) => Err(format!("waiting for the end: {error}")),
    }
}

/// Connects and sends nothing until the server closes the connection; returns how long that took.
pub(crate) fn stay_silent(server: SocketAddr, progress: &Progress) -> Told<Duration> {
    let begin = Instant::now();
    let mut stream = connect(server)?;
    match patiently(progress, || stream.read(&mut [0])) {
        Ok(0) => Ok(begin.elapsed()),
        Ok(_) => Err("something came".into()),
        Err(error) => Err(format!("waiting for the end: {error}")),
    }
}

fn connect(server: SocketAddr) -> Told<TcpStream> {
    let prepared = || {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        Ok(stream)
    };
    prepared().map_err(|error: std::io::Error| format!("connecting: {error}"))
}

/// Sends bursts of `burst` datagrams of `length` bytes each, and waits for their echoes after each
/// burst. Nothing is sent twice: a lost notification on the server shows as a missing echo. Returns
/// the number of echoes.
pub(crate) fn bursts(
    server: SocketAddr,
    pattern: Pattern,
    (bursts, burst, length): (u64, u64, usize),
    progress: &Progress,
) -> Told<u64> {
    let prepared = || {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(LOOK))?;
        Ok(socket)
    };
    let socket = prepared().map_err(|error: std::io::Error| format!("connecting: {error}"))?;
    let (mut datagram, mut echo) = (vec![0; length], vec![0; length + 1]);
    let mut echoes = 0;
    for first in (0..bursts).map(|number| number * burst) {
        for number in first..first + burst {
            numbered(pattern, number, &mut datagram);
            uninterrupted(|| socket.send(&datagram))
                .map_err(|error| format!("sending: {error}"))?;
        }
        let mut missing = (first..first + burst).collect::<Vec<_>>();
        while !missing.is_empty() {
            let received = patiently(progress, || socket.recv(&mut echo)).map_err(|error| {
                format!("{} echoes are missing after {echoes}: {error}", missing.len())
            })?;
            let number = number_of(&echo[..received]);
            let Some(place) = missing.iter().position(|expected| Some(*expected) == number) else {
                return Err(format!("an echo arrived that no request waits for: {number:?}"));
            };
            numbered(pattern, missing.swap_remove(place), &mut datagram);
            if echo[..received] != datagram {
                return Err(format!("the echo of datagram {number:?} is wrong"));
            }
            echoes += 1;
            progress.advance(received);
        }
    }
    Ok(echoes)
}

/// A datagram: its number, then its bytes of the pattern.
fn numbered(pattern: Pattern, number: u64, datagram: &mut [u8]) {
    pattern.fill(number * datagram.len() as u64, datagram);
    datagram[..8].copy_from_slice(&number.to_le_bytes());
}

fn number_of(datagram: &[u8]) -> Option<u64> {
    datagram.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
