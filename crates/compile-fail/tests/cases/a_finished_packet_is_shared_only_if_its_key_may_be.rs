use completion_port::{SharedCompleted, Notified};
use std::cell::Cell;
use std::rc::Rc;

fn sent<T: Send>(_: &T) {}
fn shared<T: Sync>(_: &T) {}

fn look(finished: SharedCompleted<'_, Cell<u32>, Vec<u8>>, notified: Notified<Cell<u32>>) {
    shared(&finished);
    shared(&notified);
}

fn send(finished: SharedCompleted<'_, Rc<u32>, Vec<u8>>, notified: Notified<Rc<u32>>) {
    sent(&finished);
    sent(&notified);
}

fn main() {}
