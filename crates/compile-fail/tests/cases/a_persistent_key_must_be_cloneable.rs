use completion_port::{Interest, Persistent, Ready, Registration};
use std::net::UdpSocket;

struct Key;

fn arm_persistently(ready: Ready<'_, UdpSocket>) {
    ready.rearm_as(Interest::IN, Persistent::Level).unwrap();
}

fn main() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let _ = Registration::new(&socket, Key, Interest::IN, Persistent::Level);
    let _ = Registration::owned(socket, Interest::IN, Persistent::Level);
}
