use completion_port::{Batch, Port};

fn main() {
    let port = Port::<u32>::new().unwrap();
    let mut batch = Batch::new();
    let packets = port.wait(&mut batch, None).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || packets.count());
    });
}
