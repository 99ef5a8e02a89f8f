use completion_port::{Batch, Port};

fn main() {
    let port = Port::<u32>::new().unwrap();
    let mut batch = Batch::new();
    let first = port.wait(&mut batch, None).unwrap();
    let second = port.wait(&mut batch, None).unwrap();
    drop((first, second));
}
