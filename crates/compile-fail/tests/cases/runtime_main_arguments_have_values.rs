#[completion_port_runtime::main(concurrency)]
async fn main() {}
