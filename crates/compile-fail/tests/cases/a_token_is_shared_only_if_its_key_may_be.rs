use completion_port::{OwnedReady, Ready};
use std::cell::Cell;

fn shared<T: Sync>(_: &T) {}

fn look(ready: Ready<'_, Cell<u32>>) {
    shared(&ready);
}

fn look_at_owned(ready: OwnedReady<Cell<u32>>) {
    shared(&ready);
}

fn main() {}
