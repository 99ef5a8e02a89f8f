use completion_port::Port;
use std::rc::Rc;

fn main() {
    let port = Port::<Rc<u32>>::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| port.stats());
    });
}
