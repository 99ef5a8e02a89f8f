use completion_port::raw::{AnyTrigger, Hints};
use completion_port::{Batch, Id, Interest, OneShot, Persistent, Port};

struct Key;

fn registered(port: &Port<Key>) {
    port.raw().register_number(0, Key, Interest::IN, OneShot::Level).unwrap();
}

fn associated(port: &Port<Key>) {
    port.raw().associate_number(0, Key).unwrap();
}

fn enabled(port: &Port<Key>, id: Id) {
    port.raw().enable(id, Interest::IN, OneShot::Level, Hints::default).unwrap();
}

fn enabled_by_any_trigger(port: &Port<Key>, id: Id) {
    port.enable(id, Interest::IN, AnyTrigger::from(Persistent::Level)).unwrap();
}

fn waited_for(port: &Port<Key>, batch: &mut Batch) {
    let _ = port.raw().wait_cloned(batch, None);
}

fn main() {}
