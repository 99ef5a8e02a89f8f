#[completion_port_runtime::main]
async fn main(arguments: Vec<String>) {}
