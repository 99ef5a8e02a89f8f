use completion_port::Ready;
use std::cell::Cell;

fn shared<T: Sync>(_: &T) {}

fn look(ready: Ready<'_, Cell<u32>>) {
    shared(&ready);
}

fn main() {}
