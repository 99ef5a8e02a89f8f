use completion_port::{Batch, Packet, Port, Ready};

fn main() {
    let mut kept: Option<Ready<'_, u32>> = None;
    {
        let port = Port::<u32>::new().unwrap();
        let mut batch = Batch::new();
        for packet in port.wait(&mut batch, None).unwrap() {
            if let Packet::Ready(ready) = packet {
                kept = Some(ready);
            }
        }
    }
    drop(kept);
}
