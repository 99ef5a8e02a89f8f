#[completion_port_runtime::main(thread_limit = "many")]
async fn main() {}
