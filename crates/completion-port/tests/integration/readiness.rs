//! The builder chooses how the system reports readiness, where there is a choice.

use std::net::UdpSocket;
use std::time::Duration;

use completion_port::{
    Batch, Call, Error, ErrorKind, Interest, OneShot, Packet, Port, Readiness, Registration, Result,
};
use testkit::SOON;

fn made(readiness: Readiness) -> Result<Port<()>> {
    testkit::port_builder().readiness(readiness).build()
}

fn assert_refused(error: Error) {
    assert_eq!((error.call(), error.kind()), (Call::Create, ErrorKind::Unsupported));
    let said = error.to_string();
    assert!(said.contains("the system does not offer it here"), "{said}");
}

/// Checks that the port reports a socket, and that a message wakes its wait.
fn assert_works(port: &Port<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    port.register(Registration::new(&socket, (), Interest::IN, OneShot::Level)).unwrap();
    let mut batch = Batch::new();
    assert_eq!(port.wait(&mut batch, Duration::from_millis(20)).unwrap().count(), 0);
    socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
    let packet = port.wait(&mut batch, SOON).unwrap().next();
    let Some(Packet::Ready(ready)) = packet else { panic!("nothing was reported") };
    assert!(ready.events().is_in());
}

#[test]
fn a_port_of_windows_polls_by_default() {
    let port = Port::<()>::new().unwrap();
    let backend = port.stats().backend;
    assert_eq!(backend == "afd", cfg!(windows), "{backend}");
    assert_works(&port);
    let chosen = made(Readiness::Automatic).unwrap();
    assert_eq!(chosen.stats().backend, backend);
}

#[test]
fn polls_are_there_on_every_windows_and_nowhere_else() {
    match made(Readiness::Polls) {
        Ok(port) if cfg!(windows) => {
            assert_eq!(port.stats().backend, "afd");
            assert_works(&port);
        }
        Ok(port) => panic!("{port:?}"),
        Err(error) if cfg!(windows) => panic!("{error}"),
        Err(error) => assert_refused(error),
    }
}

#[test]
fn notifications_are_there_or_refused_by_name() {
    match made(Readiness::Notifications) {
        Ok(port) => {
            assert_eq!(port.stats().backend, "notifications");
            assert_works(&port);
        }
        Err(error) => assert_refused(error),
    }
}

#[test]
fn the_choice_stays_when_buffers_are_chosen() {
    let port = Port::builder().readiness(Readiness::Polls).buffers::<Box<[u8]>>();
    match port.build::<(), ()>() {
        Ok(port) => assert_eq!(port.stats().backend, "afd"),
        Err(error) => assert_refused(error),
    }
}
