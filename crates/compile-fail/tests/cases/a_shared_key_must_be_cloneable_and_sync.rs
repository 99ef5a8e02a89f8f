use completion_port::Port;
use std::cell::Cell;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

#[derive(Clone)]
struct Counted(Arc<TcpStream>, Cell<u32>);

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn not_cloneable(port: &Port<TcpStream>, stream: TcpStream) {
    port.associate_shared(stream).unwrap();
}

fn not_sync(port: &Port<Counted>, counted: Counted) {
    port.associate_shared(counted).unwrap();
}

fn main() {}
