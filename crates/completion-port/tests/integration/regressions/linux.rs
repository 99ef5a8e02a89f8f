//! Fixed defects that only Linux shows: it reuses numbers immediately, and lets pipes be reopened
//! by path.

use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use completion_port::{
    Batch, FileEngine, Interest, OneShot, Operation, Outcome, Packet, Port, Registration,
};

/// The kernel doesn't report whether a file is already in the set. The port wrongly reported that
/// it was, because of a registration whose descriptor had been closed.
#[test]
fn a_file_gets_the_number_of_a_socket_that_was_closed() {
    let any = || File::open("/proc/self/exe").unwrap();
    for _ in 0..1000 {
        let port = Port::<File>::new().unwrap();
        let key = any();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let number = socket.as_raw_fd();
        port.register(Registration::new(&socket, key, Interest::IN, OneShot::Level)).unwrap();
        drop(socket);
        let file = any();
        if file.as_raw_fd() == number {
            drop(port.associate(file).unwrap());
            return;
        }
        // Another test took the number first.
    }
    panic!("the number was never the file's");
}

/// With threads as the file engine, a read of a pipe that the program had made non-blocking failed
/// immediately. An offset above the maximum also failed the first read, though a pipe has no
/// positions.
#[test]
fn a_read_of_a_non_blocking_pipe_waits() {
    const O_NONBLOCK: i32 = 0o4000;
    let (reader, mut writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let pipe = File::options().read(true).custom_flags(O_NONBLOCK).open(path).unwrap();
    let engine = FileEngine::Threads;
    let port: Port<File> = Port::builder().file_engine(engine).build().unwrap();
    let read = Operation::read_at(Vec::with_capacity(16), u64::MAX);
    port.associate(pipe).unwrap().start(read).unwrap();
    let mut batch = Batch::new();
    assert!(port.wait(&mut batch, Duration::from_millis(20)).unwrap().next().is_none());
    writer.write_all(b"late").unwrap();
    let Some(Packet::Completed(done)) = port.wait(&mut batch, None).unwrap().next() else {
        panic!("the read has its packet");
    };
    let Outcome::Read(read, buffer) = done.into_parts().1 else { panic!("another outcome") };
    assert_eq!((read.unwrap(), &buffer[..]), (4, &b"late"[..]));
}
