//! Reads by the completion port: one after the other by a token, or many by the name of a shared association
//! or by many tokens.

use std::fs::File;
use std::io;
use std::sync::Arc;

use completion_port::{
    Batch, FileEngine, Operation, Outcome, Packet, Port, Ready, SharedId, Started,
};

use super::plan::Plan;
use super::scratch::{Memory, Scratch, Way};
use super::{IN_FLIGHT, Reader};

/// The bytes that a read has brought, and where they are.
pub(crate) fn read_of(outcome: Outcome<Memory>) -> io::Result<(usize, Memory)> {
    match outcome {
        Outcome::Read(count, memory) => Ok((count?, memory)),
        other => Err(io::Error::other(format!("a read had another outcome: {:?}", other.error()))),
    }
}

fn batch() -> Batch {
    Batch::with_capacity(IN_FLIGHT)
}

/// Files without tokens as long as nothing is read, with memory for each.
struct Tokens {
    port: Port<File, (), Memory>,
    idle: Vec<(File, Memory)>,
    batch: Batch,
}

impl Tokens {
    fn new(scratch: &Scratch, way: Way, count: usize) -> io::Result<Tokens> {
        let idle = (0..count).map(|_| Ok((scratch.open(way)?, Memory::new())));
        let idle = idle.collect::<io::Result<_>>()?;
        Ok(Tokens { port: Port::builder().buffers().build()?, idle, batch: batch() })
    }
}

/// The call that starts a read returns its outcome.
struct AtOnce(Tokens);

pub(super) fn at_once(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(AtOnce(Tokens::new(scratch, way, 1)?)))
}

impl Reader for AtOnce {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Tokens { port, idle, batch } = &mut self.0;
        let Some((file, mut memory)) = idle.pop() else { return Ok(()) };
        let mut token = port.associate(file).map_err(|refused| refused.error())?;
        while plan.aim(&mut memory) {
            let offset = memory.offset;
            let started = token.start_now(Operation::read_at(memory, offset));
            let (same, outcome) = match started.map_err(|refused| refused.error())? {
                Started::Completed(ended) => ended,
                // It was not in the system's memory.
                Started::InFlight(_) => loop {
                    if let Some(Packet::Completed(done)) = port.wait(batch, None)?.next() {
                        break done.into_parts();
                    }
                },
            };
            token = same;
            let (count, back) = read_of(outcome)?;
            memory = back;
            plan.check(&memory, count)?;
        }
        idle.push((token.into_key(), memory));
        Ok(())
    }
}

/// Each read makes a packet. Many are in flight, each with its own token.
struct ByTokens(Tokens);

pub(super) fn by_tokens(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(ByTokens(Tokens::new(scratch, way, IN_FLIGHT)?)))
}

/// Starts a token's next read. Returns the token if there is none.
fn go_on<'p>(
    token: Ready<'p, File, Memory>,
    mut memory: Memory,
    plan: &mut Plan,
) -> io::Result<Option<(File, Memory)>> {
    if !plan.aim(&mut memory) {
        return Ok(Some((token.into_key(), memory)));
    }
    let offset = memory.offset;
    token.start(Operation::read_at(memory, offset)).map_err(|refused| refused.error())?;
    Ok(None)
}

impl Reader for ByTokens {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Tokens { port, idle, batch } = &mut self.0;
        let mut in_flight = 0;
        for (file, memory) in std::mem::take(idle) {
            let token = port.associate(file).map_err(|refused| refused.error())?;
            match go_on(token, memory, plan)? {
                Some(back) => idle.push(back),
                None => in_flight += 1,
            }
        }
        while in_flight > 0 {
            for packet in port.wait(batch, None)? {
                let Packet::Completed(done) = packet else { continue };
                let (token, outcome) = done.into_parts();
                let (count, memory) = read_of(outcome)?;
                plan.check(&memory, count)?;
                if let Some(back) = go_on(token, memory, plan)? {
                    idle.push(back);
                    in_flight -= 1;
                }
            }
        }
        Ok(())
    }
}

/// A shared association of one file.
struct Shared {
    port: Port<Arc<File>, (), Memory>,
    id: SharedId,
    /// Memory that no read has.
    idle: Vec<Memory>,
    batch: Batch,
}

impl Shared {
    fn new(scratch: &Scratch, way: Way, engine: FileEngine) -> io::Result<Shared> {
        let port = Port::builder().file_engine(engine).buffers().build()?;
        let file = Arc::new(scratch.open(way)?);
        let id = port.associate_shared(file).map_err(|refused| refused.error())?;
        let idle = (0..IN_FLIGHT).map(|_| Memory::new()).collect();
        Ok(Shared { port, id, idle, batch: batch() })
    }
}

/// Like [`AtOnce`], with a shared ID.
struct SharedAtOnce(Shared);

pub(super) fn shared_at_once(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(SharedAtOnce(Shared::new(scratch, way, FileEngine::default())?)))
}

impl Reader for SharedAtOnce {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Shared { port, id, idle, batch } = &mut self.0;
        let Some(mut memory) = idle.pop() else { return Ok(()) };
        while plan.aim(&mut memory) {
            let offset = memory.offset;
            let started = port.start_now(*id, Operation::read_at(memory, offset));
            let outcome = match started.map_err(|refused| refused.error())? {
                Started::Completed(outcome) => outcome,
                Started::InFlight(_) => loop {
                    if let Some(Packet::SharedCompleted(finished)) = port.wait(batch, None)?.next()
                    {
                        break finished.into_parts().1;
                    }
                },
            };
            let (count, back) = read_of(outcome)?;
            memory = back;
            plan.check(&memory, count)?;
        }
        idle.push(memory);
        Ok(())
    }
}

/// Each read makes a packet. Many are in flight, with a shared ID.
struct ByPacket(Shared);

pub(super) fn by_packet(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(ByPacket(Shared::new(scratch, way, FileEngine::default())?)))
}

/// The ring performs operations that wait for the disk.
pub(super) fn by_ring(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(ByPacket(Shared::new(scratch, way, FileEngine::Ring)?)))
}

/// The same by the port's pool.
pub(super) fn by_threads(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>> {
    Ok(Box::new(ByPacket(Shared::new(scratch, way, FileEngine::Threads)?)))
}

impl Reader for ByPacket {
    fn read(&mut self, plan: &mut Plan) -> io::Result<()> {
        let Shared { port, id, idle, batch } = &mut self.0;
        let start =
            |idle: &mut Vec<Memory>, mut memory: Memory, plan: &mut Plan| -> io::Result<bool> {
                if !plan.aim(&mut memory) {
                    idle.push(memory);
                    return Ok(false);
                }
                let offset = memory.offset;
                let started = port.start(*id, Operation::read_at(memory, offset));
                started.map_err(|refused| refused.error())?;
                Ok(true)
            };
        let mut in_flight = 0;
        for memory in std::mem::take(idle) {
            in_flight += usize::from(start(idle, memory, plan)?);
        }
        while in_flight > 0 {
            for packet in port.wait(batch, None)? {
                let Packet::SharedCompleted(finished) = packet else { continue };
                let (count, memory) = read_of(finished.into_parts().1)?;
                plan.check(&memory, count)?;
                in_flight -= usize::from(!start(idle, memory, plan)?);
            }
        }
        Ok(())
    }
}
