#[completion_port_runtime::main]
async fn main() -> Result<(), std::io::Error> {
    7
}
