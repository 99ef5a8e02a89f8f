#[completion_port_runtime::main]
async fn main<T: Default>() {}
