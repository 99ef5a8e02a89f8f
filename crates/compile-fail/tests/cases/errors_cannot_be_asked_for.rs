use completion_port::{Events, OneShot, Registration};
use std::net::UdpSocket;

fn main() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _ = Registration::new(&socket, 7_u32, Events::ERR, OneShot::Level);
}
