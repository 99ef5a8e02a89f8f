#[completion_port_runtime::main]
struct Main;

fn main() {}
