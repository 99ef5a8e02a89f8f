//! The simulated kernel under the shared cases, and tests of its own sockets.

use std::net::{Shutdown, SocketAddr};

use super::{
    Told, World as _, accept, connect, done, number, other, receive, send, tcp_pair, told,
};
use crate::backend::Backend;
use crate::sim::{Calls, Conditions, Kernel, Socket};
use crate::state::facts::Facts;
use crate::types::address::Address;
use crate::types::error::ErrorKind;
use crate::types::source::{OwnedKind, OwnedSource};

pub(super) struct Simulated {
    kernel: Kernel,
    backend: Box<dyn Backend>,
}

impl Simulated {
    pub(super) fn new() -> Self {
        let kernel = Kernel::new();
        let backend = kernel.backend(false);
        Self { kernel, backend }
    }
}

fn owned(socket: Socket) -> OwnedSource {
    OwnedSource(OwnedKind::Simulated(socket))
}

fn both((first, second): (Socket, Socket)) -> (OwnedSource, OwnedSource) {
    (owned(first), owned(second))
}

fn simulated(socket: &OwnedSource) -> &Socket {
    match &socket.0 {
        OwnedKind::Simulated(socket) => socket,
        OwnedKind::System(_) => panic!("a socket of the system"),
    }
}

impl super::World for Simulated {
    fn backend(&self) -> &dyn Backend {
        &*self.backend
    }
    fn tcp_listener(&self, backlog: usize) -> OwnedSource {
        owned(self.kernel.tcp_listener(backlog).unwrap())
    }
    fn unix_listener(&self, backlog: usize) -> OwnedSource {
        owned(self.kernel.unix_listener(backlog).unwrap())
    }
    fn unix_pair(&self) -> (OwnedSource, OwnedSource) {
        both(self.kernel.unix_pair().unwrap())
    }
    fn udp(&self) -> OwnedSource {
        owned(self.kernel.udp_bound().unwrap())
    }
    fn unix_datagram_pair(&self) -> (OwnedSource, OwnedSource) {
        both(self.kernel.unix_datagram_pair().unwrap())
    }
    fn event(&self) -> OwnedSource {
        owned(self.kernel.event().unwrap())
    }
    fn address(&self, socket: &OwnedSource) -> Address {
        simulated(socket).address().into()
    }
    fn unused_address(&self) -> Address {
        self.kernel.unused_address().into()
    }
    fn foreign_address(&self) -> Address {
        SocketAddr::from(([127, 0, 0, 1], 1)).into()
    }
    fn shut_writing(&self, socket: &OwnedSource) {
        simulated(socket).shutdown(Shutdown::Write).unwrap();
    }
    fn reset(&self, socket: OwnedSource) {
        socket.into_simulated().unwrap().reset();
    }
}

#[test]
fn an_accept_without_a_descriptor_is_scarce_and_leaves_the_connection_in_its_place() {
    let w = Simulated::new();
    let listener = w.tcp_listener(1);
    let client = connect(&w, &listener);
    w.kernel.fail_next_descriptor();
    let backend = w.backend();
    assert_eq!(told(backend.accept(number(&listener))).blank(), Told::OutOfResources);
    let from = accept(&w, &listener).1;
    assert_eq!(from.and_then(|from| from.as_simulated()), Some(simulated(&client).address()));
    w.kernel.fail_next_descriptor();
    let address = w.address(&listener);
    let fault = backend.open_stream(&address).unwrap_err();
    assert_eq!(fault.kind, ErrorKind::DescriptorLimit);
}

#[test]
fn a_connection_that_is_given_up_in_the_queue_is_passed_over() {
    let w = Simulated::new();
    let listener = w.tcp_listener(4);
    let [first, second, third] = [(); 3].map(|()| connect(&w, &listener));
    w.kernel.abort_next_accept();
    w.kernel.abort_next_accept();
    let before = w.kernel.calls();
    let from = accept(&w, &listener).1;
    assert_eq!(from.and_then(|from| from.as_simulated()), Some(simulated(&third).address()));
    assert_eq!((w.kernel.calls() - before).accept, 3);
    // Their clients get an edge.
    for client in [first, second] {
        assert!(w.kernel.facts(simulated(&client)).contains(Conditions::RDHUP));
    }
    // A scripted abort waits for a connection if the queue is empty.
    w.kernel.abort_next_accept();
    let backend = w.backend();
    assert_eq!(told(backend.accept(number(&listener))).blank(), Told::Blocked);
    let _client = connect(&w, &listener);
    assert_eq!(told(backend.accept(number(&listener))).blank(), Told::Blocked);
}

#[test]
fn attempts_fail_as_they_are_told() {
    let w = Simulated::new();
    let (ours, theirs) = tcp_pair(&w);
    assert_eq!(send(&w, &theirs, &[b"hello"]), Told::Done(5));
    w.kernel.fail_next_receive(libc::ENOMEM);
    w.kernel.fail_next_receive(libc::ENOBUFS);
    w.kernel.fail_next_receive(libc::EIO);
    w.kernel.fail_next_receive(libc::EAGAIN);
    assert_eq!(receive(&w, &ours, &[8]), Told::OutOfResources);
    assert_eq!(receive(&w, &ours, &[8]), other(libc::ENOBUFS));
    assert_eq!(receive(&w, &ours, &[0]), other(libc::EIO));
    assert_eq!(receive(&w, &ours, &[8]), Told::Blocked);
    assert_eq!(receive(&w, &ours, &[8]), Told::Done((b"hello".to_vec(), false)));
    w.kernel.fail_next_send(libc::ENOMEM);
    w.kernel.fail_next_send(libc::EHOSTUNREACH);
    assert_eq!(send(&w, &ours, &[b"x"]), Told::OutOfResources);
    assert_eq!(send(&w, &ours, &[b"x"]), other(libc::EHOSTUNREACH));
    assert_eq!(receive(&w, &theirs, &[8]), Told::Blocked);
    assert_eq!(send(&w, &ours, &[b"y"]), Told::Done(1));
    assert_eq!(receive(&w, &theirs, &[8]), Told::Done((b"y".to_vec(), false)));
    let listener = w.tcp_listener(4);
    let address = w.address(&listener);
    let backend = w.backend();
    let client = backend.open_stream(&address).unwrap();
    let begin = || told(backend.begin_connect(number(&client), &address));
    w.kernel.fail_next_connect(libc::EAGAIN);
    w.kernel.fail_next_connect(libc::ENETUNREACH);
    assert_eq!(begin(), Told::OutOfResources);
    assert_eq!(begin(), other(libc::ENETUNREACH));
    assert_eq!(begin(), Told::Blocked);
    assert_eq!(told(backend.end_connect(number(&client))), Told::Done(()));
}

#[test]
fn attempts_are_counted() {
    let w = Simulated::new();
    let listener = w.tcp_listener(4);
    let address = w.address(&listener);
    let backend = w.backend();
    let before = w.kernel.calls();
    backend.make_nonblocking(number(&listener)).unwrap();
    let client = backend.open_stream(&address).unwrap();
    assert_eq!(told(backend.begin_connect(number(&client), &address)), Told::Blocked);
    assert_eq!(told(backend.end_connect(number(&client))), Told::Done(()));
    let accepted = done(backend.accept(number(&listener))).0;
    assert_eq!(send(&w, &accepted, &[b"x"]), Told::Done(1));
    // It queries the transport first.
    assert_eq!(receive(&w, &client, &[1]), Told::Done((b"x".to_vec(), false)));
    let seen = w.kernel.calls() - before;
    let expected = Calls {
        nonblocking: 1,
        open: 1,
        connect: 2,
        accept: 1,
        send: 1,
        receive: 1,
        kind: 1,
        ..Calls::default()
    };
    assert_eq!((seen, seen.total()), (expected, 8));
}

#[test]
fn what_is_done_makes_edges() {
    let w = Simulated::new();
    let backend = w.backend();
    let listener = w.tcp_listener(4);
    backend.attach(number(&listener), 1, Facts::IN).unwrap();
    let (ours, theirs) = tcp_pair(&w);
    backend.attach(number(&ours), 2, Facts::IN).unwrap();
    let edges = || {
        let mut edges = Vec::with_capacity(8);
        backend.poll(&mut edges, Some(std::time::Duration::ZERO)).unwrap();
        edges.iter().map(|edge| edge.name).collect::<Vec<_>>()
    };
    assert_eq!(edges(), []);
    let _client = connect(&w, &listener);
    assert_eq!(edges(), [1]);
    // There is nothing to send.
    assert_eq!(send(&w, &theirs, &[b""]), Told::Done(0));
    assert_eq!(edges(), []);
    assert_eq!(send(&w, &theirs, &[b"x"]), Told::Done(1));
    assert_eq!(edges(), [2]);
}
