use completion_port::raw::Raw;
use std::rc::Rc;

fn sent<T: Send>(_: T) {}
fn shared<T: Sync>(_: &T) {}

fn with_keys(raw: Raw<'_, Rc<u32>>) {
    sent(raw);
    shared(&raw);
}

fn with_messages(raw: Raw<'_, u32, Rc<u32>>) {
    sent(raw);
    shared(&raw);
}

fn main() {}
