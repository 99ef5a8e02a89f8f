//! Reads by the C library: one after the other, each done by its call, or many by packets.

use std::io;

use super::plan::Plan;
use super::scratch::{Memory, Scratch, Way};
use super::{IN_FLIGHT, Reader};
use crate::c_library::{File, Overlapped, Packet, Port};

/// A read, with its memory.
struct Read {
    overlapped: Overlapped,
    memory: Memory,
}

struct InC {
    file: File,
    port: Port,
    /// Never freed: a read may be in progress when another one has failed.
    reads: &'static mut [Read],
    packets: [Packet; IN_FLIGHT],
}

impl InC {
    fn new(scratch: &Scratch, way: Way, tells_all: bool) -> io::Result<Self> {
        let port = Port::new()?;
        let file = File::open(&scratch.path(), way == Way::Direct, &port, tells_all)?;
        let new = |_| Read { overlapped: Overlapped::default(), memory: Memory::new() };
        let reads: Vec<Read> = (0..IN_FLIGHT).map(new).collect();
        Ok(Self { file, port, reads: reads.leak(), packets: [Packet::NONE; IN_FLIGHT] })
    }

    /// Begins the read of this number.
    fn begin(&mut self, number: usize) -> io::Result<Option<usize>> {
        let Read { overlapped, memory } = &mut self.reads[number];
        let offset = memory.offset;
        // SAFETY: `read` demands that both stay valid and unused until the end.
        // - valid: they are never freed;
        // - unused: the callers access them after the end.
        unsafe { self.file.read(memory.bytes_mut(), offset, overlapped) }
    }

    /// The number of a packet's read.
    fn number_of(&self, packet: Packet) -> io::Result<usize> {
        let is_it = |read: &Read| (&raw const read.overlapped).addr() == packet.operation();
        self.reads.iter().position(is_it).ok_or_else(|| io::Error::other("a packet of no read"))
    }
}

/// The call that starts a read returns its outcome.
struct AtOnce(InC);

pub(super) fn at_once(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(AtOnce(InC::new(scratch, way, false)?)))
}

impl Reader for AtOnce {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let it = &mut self.0;
        while plan.aim(&mut it.reads[0].memory) {
            let count = match it.begin(0)? {
                Some(count) => count,
                // It was not in the system's memory.
                None => {
                    it.port.dequeue(&mut it.packets[..1])?;
                    it.packets[0].events as usize
                }
            };
            plan.check(&it.reads[0].memory, count)?;
        }
        Ok(())
    }
}

/// Each read makes a packet. Many are in flight.
struct ByPacket(InC);

pub(super) fn by_packet(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(ByPacket(InC::new(scratch, way, true)?)))
}

impl Reader for ByPacket {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let it = &mut self.0;
        let mut in_flight = 0;
        for number in 0..IN_FLIGHT {
            if plan.aim(&mut it.reads[number].memory) {
                it.begin(number)?;
                in_flight += 1;
            }
        }
        while in_flight > 0 {
            let taken = it.port.dequeue(&mut it.packets)?;
            for packet in 0..taken {
                let packet = it.packets[packet];
                let number = it.number_of(packet)?;
                plan.check(&it.reads[number].memory, packet.events as usize)?;
                if plan.aim(&mut it.reads[number].memory) {
                    it.begin(number)?;
                } else {
                    in_flight -= 1;
                }
            }
        }
        Ok(())
    }
}
