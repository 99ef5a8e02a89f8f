use completion_port::Port;
use std::cell::Cell;

fn associated(port: &Port<Cell<u32>>, key: Cell<u32>) {
    port.raw().associate_number(0, key).unwrap();
}

fn main() {}
