use completion_port::{Id, Operation, Port};
use std::net::TcpStream;
use std::sync::Arc;

fn start_by_the_name_of_a_registration(port: &Port<Arc<TcpStream>>, id: Id) {
    port.start(id, Operation::recv(Vec::new())).unwrap();
}

fn main() {}
