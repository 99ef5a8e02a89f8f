use completion_port::{Operation, Ready};
use std::net::TcpStream;

fn of_ones_own(token: Ready<'_, TcpStream>) {
    let mut buffer = Vec::with_capacity(16);
    token.recv(buffer).unwrap();
    buffer.push(1);
}

fn borrowed(token: Ready<'_, TcpStream, &'static [u8]>) {
    let buffer = [0; 16];
    token.start(Operation::send_all(buffer.as_slice())).unwrap();
}

fn main() {}
