#[completion_port_runtime::main]
async unsafe fn main() {}
