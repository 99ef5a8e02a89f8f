//! A name server with one answer: each name has the same IPv4 address. It receives and sends
//! datagrams in batches.
//!
//! `cargo run -p completion-port-runtime --example dns_echo 127.0.0.1:7003 192.0.2.1`. Then
//! `dig @127.0.0.1 -p 7003 example.org` prints the address.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use completion_port_runtime::net::{Datagrams, UdpSocket};
use completion_port_runtime::{signal, sleep, spawn};

/// The size of the header (RFC 1035, 4.1.1).
const HEADER: usize = 12;
/// The size of the record that follows the question.
const RECORD: usize = 16;
/// How many bytes a query may have. Longer ones would be sent in fragments.
pub(crate) const MOST: usize = 1232;

const TYPE_A: u16 = 1;
const CLASS_IN: u16 = 1;
/// Asks for all types, or all classes.
const ANY: u16 = 255;

const NO_ERROR: u8 = 0;
const FORMAT_ERROR: u8 = 1;
const NOT_IMPLEMENTED: u8 = 4;

/// How a query is answered.
pub(crate) struct Answer {
    code: u8,
    /// Where the question ends, which the answer repeats. Without a question, the header's end.
    end: usize,
    has_record: bool,
}

impl Answer {
    /// Reads a query. `None` if it must not be answered: two servers that answer each other's
    /// answers would never stop.
    pub(crate) fn to(query: &[u8]) -> Option<Self> {
        let header = query.first_chunk::<HEADER>()?;
        if header[2] & 0x80 != 0 {
            return None;
        }
        let refused = |code| Some(Self { code, end: HEADER, has_record: false });
        if header[2] & 0x78 != 0 {
            return refused(NOT_IMPLEMENTED);
        }
        let questions = u16::from_be_bytes([header[4], header[5]]);
        match question(query) {
            Some((end, kind, class)) if questions == 1 => {
                let has_record = [TYPE_A, ANY].contains(&kind) && [CLASS_IN, ANY].contains(&class);
                Some(Self { code: NO_ERROR, end, has_record })
            }
            _ => refused(FORMAT_ERROR),
        }
    }

    /// The number of its bytes. There is room for them where there is room for [`MOST`].
    pub(crate) fn len(&self) -> usize {
        self.end + if self.has_record { RECORD } else { 0 }
    }

    /// Turns the query into this answer, in a message of its length.
    pub(crate) fn write(&self, message: &mut [u8], address: Ipv4Addr) {
        // An answer, from the server of this name. The kind of query and whether it wants recursion
        // stay.
        message[2] = message[2] & 0x79 | 0x84;
        message[3] = self.code;
        let questions = u8::from(self.end > HEADER);
        message[4..HEADER].copy_from_slice(&[
            0,
            questions,
            0,
            u8::from(self.has_record),
            0,
            0,
            0,
            0,
        ]);
        if self.has_record {
            let record = &mut message[self.end..];
            // The name of the question, by its position.
            record[..2].copy_from_slice(&[0xc0, 12]);
            record[2..4].copy_from_slice(&TYPE_A.to_be_bytes());
            record[4..6].copy_from_slice(&CLASS_IN.to_be_bytes());
            // For a minute, 4 bytes.
            record[6..12].copy_from_slice(&[0, 0, 0, 60, 0, 4]);
            record[12..].copy_from_slice(&address.octets());
        }
    }
}

/// Returns the end of the first question, its type and its class.
fn question(query: &[u8]) -> Option<(usize, u16, u16)> {
    let mut at = HEADER;
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1 + length;
        // More than 63 is a reference to another name, but this is the first one.
        if length > 63 || at > HEADER + 255 {
            return None;
        }
        if length == 0 {
            break;
        }
    }
    let [kind, class] = [at, at + 2].map(|at| query.get(at..at + 2));
    let number = |bytes: &[u8]| u16::from_be_bytes([bytes[0], bytes[1]]);
    Some((at + 4, number(kind?), number(class?)))
}

/// Answers queries until the task is aborted.
pub(crate) async fn serve(socket: UdpSocket, address: Ipv4Addr) {
    let mut datagrams = Datagrams::new(32, MOST);
    loop {
        if socket.recv_many(&mut datagrams).await.is_err() {
            // Memory may be short for a while.
            sleep(Duration::from_millis(10)).await;
            continue;
        }
        datagrams.retain(|query| !query.is_truncated() && Answer::to(query.bytes()).is_some());
        for index in 0..datagrams.len() {
            let Some(mut datagram) = datagrams.get_mut(index) else { break };
            let Some(answer) = Answer::to(datagram.bytes_mut()) else { break };
            // It has the address that the query came from.
            datagram.set_len(answer.len());
            answer.write(datagram.bytes_mut(), address);
        }
        while socket.send_many(&mut datagrams).await.is_err() {
            // The first one has failed: its client is lost, and asks again.
            let mut index = 0;
            datagrams.retain(|_| {
                index += 1;
                index > 1
            });
        }
    }
}

#[completion_port_runtime::main]
#[allow(dead_code, reason = "a test and a benchmark call `serve`")]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(near), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err(io::Error::other("usage: dns_echo ADDRESS ANSWER"));
    };
    let address = address.parse().map_err(io::Error::other)?;
    let socket = UdpSocket::bind(near).await?;
    println!("listening on {}", socket.local_addr()?);
    let serving = spawn(serve(socket, address));
    signal::shutdown().await?;
    serving.abort();
    Ok(())
}
