use completion_port::{SharedCompleted, SharedId};
use std::net::TcpStream;
use std::sync::Arc;

fn arm(id: SharedId) {
    id.rearm().unwrap();
}

fn receive(id: SharedId) {
    id.recv(Vec::with_capacity(16)).unwrap();
}

fn change_the_key(mut finished: SharedCompleted<'_, Arc<TcpStream>>) {
    finished.key_mut();
}

fn main() {}
