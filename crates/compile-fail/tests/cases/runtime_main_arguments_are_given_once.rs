#[completion_port_runtime::main(concurrency = 1, concurrency = 2)]
async fn main() {}
