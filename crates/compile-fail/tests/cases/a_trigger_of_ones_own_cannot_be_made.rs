use completion_port::Trigger;

#[derive(Clone, Copy)]
struct Sometimes;

impl Trigger<u32> for Sometimes {}

fn main() {}
