//! The port, by each way in which a registration can end.

use std::io;
use std::net::UdpSocket;

use completion_port::{Batch, Id, Interest, OneShot, Packet, Port, Ready, Refused, Registration};

use super::{Taken, in_use, timed};

fn failed<K>(refused: Refused<K>) -> io::Error {
    refused.error().into()
}

/// What a port has taken beyond the keys.
fn bytes_above_keys<K>(before: usize, keys: usize) -> usize {
    in_use().saturating_sub(before + keys * size_of::<K>())
}

fn register_owned(
    port: &Port<UdpSocket>,
    sockets: &mut Vec<UdpSocket>,
    ids: &mut Vec<Id>,
    interest: Interest,
) -> io::Result<()> {
    for socket in sockets.drain(..) {
        let registration = Registration::owned(socket, interest, OneShot::Level);
        ids.push(port.register(registration).map_err(failed)?);
    }
    Ok(())
}

/// Keys that are the sockets, taken back one by one.
pub(super) fn owned(sockets: &mut Vec<UdpSocket>) -> io::Result<Taken> {
    let count = sockets.len();
    let mut ids = Vec::with_capacity(count);
    let before = in_use();
    let port = Port::<UdpSocket>::new()?;
    let registration = timed(|| register_owned(&port, sockets, &mut ids, Interest::IN))?;
    let bytes = bytes_above_keys::<UdpSocket>(before, count);
    let removal = timed(|| {
        for id in ids {
            sockets.push(port.remove_and_wait(id, None)?);
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}

/// Keys that are numbers.
pub(super) fn plain(sockets: &[UdpSocket]) -> io::Result<Taken> {
    let mut ids = Vec::with_capacity(sockets.len());
    let before = in_use();
    let port = Port::<usize>::new()?;
    let registration = timed(|| {
        for (number, socket) in sockets.iter().enumerate() {
            let registration = Registration::new(socket, number, Interest::IN, OneShot::Level);
            ids.push(port.register(registration).map_err(failed)?);
        }
        Ok(())
    })?;
    let bytes = bytes_above_keys::<usize>(before, sockets.len());
    let removal = timed(|| {
        for (number, id) in ids.into_iter().enumerate() {
            if port.remove_and_wait(id, None)? != number {
                return Err(io::Error::other("another key came back"));
            }
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}

/// Keys that are the sockets, each given back by its last packet.
pub(super) fn with_packets(sockets: &mut Vec<UdpSocket>) -> io::Result<Taken> {
    let count = sockets.len();
    let mut ids = Vec::with_capacity(count);
    let before = in_use();
    let port = Port::<UdpSocket>::new()?;
    let registration = timed(|| register_owned(&port, sockets, &mut ids, Interest::IN))?;
    let bytes = bytes_above_keys::<UdpSocket>(before, count);
    let mut batch = Batch::new();
    let removal = timed(|| {
        ids.into_iter().try_for_each(|id| port.remove(id))?;
        while sockets.len() < count {
            for packet in port.wait(&mut batch, None)? {
                if let Packet::Removed(_, socket) = packet {
                    sockets.push(socket);
                }
            }
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}

/// Keys that are the sockets, kept by the handler who holds the token. The time in which they become
/// ready is not counted.
pub(super) fn by_tokens(sockets: &mut Vec<UdpSocket>) -> io::Result<Taken> {
    let count = sockets.len();
    let mut ids = Vec::with_capacity(count);
    let port;
    let mut tokens: Vec<Ready<'_, UdpSocket>> = Vec::with_capacity(count);
    let before = in_use();
    port = Port::<UdpSocket>::new()?;
    let registration = timed(|| register_owned(&port, sockets, &mut ids, Interest::OUT))?;
    let bytes = bytes_above_keys::<UdpSocket>(before, count);
    let mut batch = Batch::new();
    while tokens.len() < count {
        for packet in port.wait(&mut batch, None)? {
            if let Packet::Ready(ready) = packet {
                tokens.push(ready);
            }
        }
    }
    let removal = timed(|| {
        sockets.extend(tokens.drain(..).map(Ready::into_key));
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}

/// Keys that are the sockets, each with a receive that waits without a buffer, and ends when it is cancelled.
pub(super) fn receiving(sockets: &mut Vec<UdpSocket>) -> io::Result<Taken> {
    let count = sockets.len();
    let mut receives = Vec::with_capacity(count);
    let before = in_use();
    let port = Port::<UdpSocket>::new()?;
    let registration = timed(|| {
        for socket in sockets.drain(..) {
            let token = port.associate(socket).map_err(failed)?;
            receives.push(token.recv(Vec::new()).map_err(|refused| refused.error())?);
        }
        Ok(())
    })?;
    let bytes = bytes_above_keys::<UdpSocket>(before, count);
    let mut batch = Batch::new();
    let removal = timed(|| {
        for receive in receives {
            port.cancel(receive)?;
        }
        while sockets.len() < count {
            for packet in port.wait(&mut batch, None)? {
                if let Packet::Completed(done) = packet {
                    sockets.push(done.into_parts().0.into_key());
                }
            }
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}
