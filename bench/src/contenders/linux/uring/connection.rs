//! A connection of a ring, and its data to send.

use std::net::TcpStream;

use super::buffers::{Buffers, Filled};
use crate::work::{Carry, process};

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    carry: Carry,
    /// Sent with the next turn, or after the unsent data.
    pub(super) answer: Answer,
    /// What found no room, and is being sent by a request that waits for it.
    pub(super) unsent: Option<Vec<u8>>,
    /// Nothing is received any more.
    pub(super) ended: bool,
}

/// Bytes to be sent.
#[derive(Debug)]
pub(super) enum Answer {
    Nothing,
    /// Where they were received.
    Buffer(Filled),
    /// Put together.
    Copy(Vec<u8>),
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        Connection {
            stream,
            carry: Carry::default(),
            answer: Answer::Nothing,
            unsent: None,
            ended: false,
        }
    }

    /// Processes the requests, and adds the bytes to the answer.
    pub(super) fn received(&mut self, filled: Filled, buffers: &mut Buffers) {
        process(&mut self.carry, buffers.bytes(&filled));
        self.answer = match std::mem::replace(&mut self.answer, Answer::Nothing) {
            Answer::Nothing if self.unsent.is_none() => Answer::Buffer(filled),
            // A slow reader must not keep buffers from others.
            former => {
                let mut bytes = former.into_bytes(buffers);
                bytes.extend_from_slice(buffers.bytes(&filled));
                buffers.give_back(filled);
                Answer::Copy(bytes)
            }
        };
    }

    /// Whether nothing of it is under way and nothing will come.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.unsent.is_none() && matches!(self.answer, Answer::Nothing)
    }
}

impl Answer {
    pub(super) fn bytes<'b>(&'b self, buffers: &'b Buffers) -> &'b [u8] {
        match self {
            Answer::Nothing => &[],
            Answer::Buffer(filled) => buffers.bytes(filled),
            Answer::Copy(bytes) => bytes,
        }
    }

    /// The bytes in separate memory.
    pub(super) fn into_bytes(self, buffers: &mut Buffers) -> Vec<u8> {
        match self {
            Answer::Nothing => Vec::new(),
            Answer::Buffer(filled) => {
                let bytes = buffers.bytes(&filled).to_vec();
                buffers.give_back(filled);
                bytes
            }
            Answer::Copy(bytes) => bytes,
        }
    }

    /// Throws the bytes away.
    pub(super) fn discard(self, buffers: &mut Buffers) {
        if let Answer::Buffer(filled) = self {
            buffers.give_back(filled);
        }
    }
}
