use completion_port::{Interest, OneShot, Registration};

fn main() {
    let _ = Registration::owned(7_u32, Interest::IN, OneShot::Level);
}
