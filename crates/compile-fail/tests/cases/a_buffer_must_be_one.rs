use completion_port::{Buffer, Operation, Port, Ready};
use std::mem::MaybeUninit;
use std::net::TcpStream;

struct Promised;

impl Buffer for Promised {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

fn build() {
    let _: Port<TcpStream, (), String> = Port::builder().buffers::<String>().build().unwrap();
}

fn start(token: Ready<'_, TcpStream, String>) {
    token.start(Operation::send(String::new())).unwrap();
}

fn main() {}
