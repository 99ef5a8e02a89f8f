use completion_port::{Batch, Packet, Port};

fn main() {
    let port = Port::<String>::new().unwrap();
    let mut batch = Batch::new();
    for packet in port.wait(&mut batch, None).unwrap() {
        if let Packet::Ready(mut ready) = packet {
            let key = ready.key_mut();
            ready.rearm().unwrap();
            key.push('x');
        }
    }
}
