//! System calls of all threads of this process, counted by the kernel.

use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// `struct perf_event_attr` in its first published form, which every kernel still takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const SIZE: u32 = 64;
const _: () = assert!(size_of::<Attributes>() == SIZE as usize);
const KIND_TRACEPOINT: u32 = 2;
/// Threads that are made later are counted too.
const INHERIT: u64 = 1 << 1;
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// A counter of the kernel, made before the threads it is to count.
#[derive(Debug)]
pub(crate) struct Counters {
    system_calls: OwnedFd,
}

impl Counters {
    /// Begins to count for the calling thread and for all it makes from now on.
    pub(crate) fn begin() -> Result<Counters, String> {
        let system_calls = open(KIND_TRACEPOINT, tracepoint("raw_syscalls/sys_enter")?)
            .map_err(|error| format!("perf_event_open (raw_syscalls:sys_enter): {error}"))?;
        Ok(Counters { system_calls })
    }

    /// System calls so far.
    pub(crate) fn read(&self) -> io::Result<u64> {
        value(&self.system_calls)
    }
}

/// The number of a tracepoint, where it can be read.
fn tracepoint(name: &str) -> Result<u64, String> {
    let mut refused = None;
    for root in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        match fs::read_to_string(format!("{root}/events/{name}/id")) {
            Ok(text) => return text.trim().parse().map_err(|_| format!("{name}: odd number")),
            Err(error) => refused = refused.or(Some(format!("{root}: {error}"))),
        }
    }
    Err(refused.unwrap_or_default())
}

fn open(kind: u32, config: u64) -> io::Result<OwnedFd> {
    let attributes =
        Attributes { kind, size: SIZE, config, flags: INHERIT, ..Attributes::default() };
    let (this_thread, any_processor, no_group) = (0, -1, -1);
    // SAFETY: `perf_event_open` reads `size` bytes from the pointer it gets:
    // - the pointer is that of a structure which is alive during the call,
    // - `SIZE` is the size of the structure, which is checked when this is compiled, and all its
    //   bytes are initialised, as it has no padding.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            this_thread,
            any_processor,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let Ok(descriptor @ 0..) = i32::try_from(result) else {
        return Err(io::Error::last_os_error());
    };
    // SAFETY: `from_raw_fd` takes over a descriptor that is open and nobody else's:
    // - the kernel has just made it for this call, and it is kept nowhere else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn value(counter: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut file = fs::File::from(counter.try_clone()?);
    file.read_exact(&mut bytes).map_err(|error| {
        io::Error::new(error.kind(), format!("counter {}: {error}", counter.as_raw_fd()))
    })?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that is made later, and ends before the counters are read, makes 1000 calls.
    #[test]
    fn the_calls_of_later_threads_are_counted() {
        let counters = match Counters::begin() {
            Ok(counters) => counters,
            Err(reason) => {
                eprintln!("not tested, the kernel's counters are out of reach: {reason}");
                return;
            }
        };
        let before = counters.read().unwrap();
        let worker = std::thread::spawn(|| {
            for _ in 0..1000 {
                rustix::thread::sched_yield();
            }
        });
        worker.join().unwrap();
        let after = counters.read().unwrap();
        let calls = after - before;
        assert!((1000..1200).contains(&calls), "{calls}");
    }
}
