#[completion_port_runtime::main]
fn main() {}
