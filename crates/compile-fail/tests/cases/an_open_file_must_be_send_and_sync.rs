use completion_port::raw::OpenFile;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;

struct Counted(Cell<u32>);

impl OpenFile for Counted {
    fn descriptor(&self) -> RawFd {
        0
    }
    fn has_positions(&self) -> bool {
        true
    }
}

struct OnOneThread(Rc<u32>);

impl OpenFile for OnOneThread {
    fn descriptor(&self) -> RawFd {
        0
    }
    fn has_positions(&self) -> bool {
        true
    }
}

struct Borrowed<'f>(&'f u32);

impl OpenFile for Borrowed<'_> {
    fn descriptor(&self) -> RawFd {
        0
    }
    fn has_positions(&self) -> bool {
        true
    }
}

fn main() {}
