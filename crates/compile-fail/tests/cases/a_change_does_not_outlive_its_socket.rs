use completion_port::{Changes, Interest, OneShot, Registration};
use std::net::UdpSocket;

fn main() {
    let mut changes = Changes::new();
    {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        changes.register(Registration::new(&socket, 7_u32, Interest::IN, OneShot::Level));
    }
    assert_eq!(changes.len(), 1);
}
