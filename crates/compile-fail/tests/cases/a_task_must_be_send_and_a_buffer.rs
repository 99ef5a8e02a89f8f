use completion_port::raw::{Attempt, Ending, FileEnd, FileTask, Side, Task};
use completion_port::{Buffer, Port, SharedId};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::rc::Rc;

struct Counted(Rc<u32>);

// SAFETY: there is no room.
unsafe impl Buffer for Counted {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

struct Plain;

impl Task for Plain {
    fn attempt(&mut self, _: RawFd) -> Attempt {
        Attempt::Done
    }
    fn end(self, _: Ending) {}
}

impl FileTask for Plain {
    fn end(self, _: FileEnd) {}
}

fn started(port: &Port<u32>, id: SharedId) {
    port.raw().start_task(id, Side::In, Vec::<u8>::new()).unwrap();
}

fn named(port: &Port<u32>) {
    let _ = port.raw().file_tasks::<Vec<u8>>().name();
}

fn main() {}
