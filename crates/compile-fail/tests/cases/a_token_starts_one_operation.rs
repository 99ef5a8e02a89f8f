use completion_port::Ready;
use std::net::TcpStream;

fn receive_twice(token: Ready<'_, TcpStream>) {
    token.recv(Vec::with_capacity(16)).unwrap();
    token.recv(Vec::with_capacity(16)).unwrap();
}

fn receive_and_rearm(token: Ready<'_, TcpStream>) {
    token.recv(Vec::with_capacity(16)).unwrap();
    token.rearm().unwrap();
}

fn read_meanwhile(mut token: Ready<'_, TcpStream>) {
    let stream = token.key_mut();
    token.recv(Vec::with_capacity(16)).unwrap();
    stream.take_error().unwrap();
}

fn main() {}
