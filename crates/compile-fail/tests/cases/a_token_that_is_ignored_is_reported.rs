#![deny(unused_must_use)]
use completion_port::{Port, Ready};

fn first(_port: &Port<u32>) -> Ready<'_, u32> {
    unimplemented!()
}

fn main() {
    let port = Port::<u32>::new().unwrap();
    first(&port);
}
