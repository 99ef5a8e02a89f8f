use completion_port::Port;
use std::rc::Rc;

fn main() {
    let port = Port::builder().build::<u32, Rc<u32>>().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| port.stats());
    });
}
