use completion_port::{Batch, Packet, Port};

fn main() {
    let port = Port::<u32>::new().unwrap();
    let mut batch = Batch::new();
    for packet in port.wait(&mut batch, None).unwrap() {
        if let Packet::Ready(ready) = packet {
            ready.rearm().unwrap();
            ready.rearm().unwrap();
        }
    }
}
