use completion_port::{Interest, Persistent, Registration};
use std::net::UdpSocket;

struct Key;

fn main() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _ = Registration::persistent(&socket, Key, Interest::IN, Persistent::Level);
}
