//! Test cases for attempts at socket operations. They run on the system's sockets and on simulated
//! ones.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::backend::sockets::{PARTS, Received, SocketAttempt, Transport};
use crate::sim;
use crate::state::facts::{Facts, Probe};
use crate::types::address::Address;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::{OwnedSource, Source as _};

mod simulated;
// Its tests run on every system.
#[path = "../bsd/sleepers.rs"]
mod sleepers;

/// Ample time for events that happen by themselves.
const SOON: Duration = Duration::from_secs(120);

/// A system, and the helpers that the cases need.
pub(super) trait World {
    fn backend(&self) -> &dyn Backend;
    /// Each listener queues one connection more than `backlog`.
    fn tcp_listener(&self, backlog: usize) -> OwnedSource;
    fn unix_listener(&self, backlog: usize) -> OwnedSource;
    fn unix_pair(&self) -> (OwnedSource, OwnedSource);
    /// With an address.
    fn udp(&self) -> OwnedSource;
    fn unix_datagram_pair(&self) -> (OwnedSource, OwnedSource);
    /// An object that is not a socket.
    fn event(&self) -> OwnedSource;
    fn address(&self, socket: &OwnedSource) -> Address;
    /// An address without a TCP or UDP socket.
    fn unused_address(&self) -> Address;
    /// An address of another kernel.
    fn foreign_address(&self) -> Address;
    fn shut_writing(&self, socket: &OwnedSource);
    /// Closes a TCP socket so that its connection is reset.
    fn reset(&self, socket: OwnedSource);
}

/// Returns an address of a kernel other than the system's.
pub(super) fn simulated_address() -> Address {
    sim::Kernel::new().unused_address().into()
}

/// A [`SocketAttempt`] that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told<T> {
    Done(T),
    Blocked,
    OutOfResources,
    Failed(ErrorKind, Option<i32>),
}

use Told::{Blocked, Done, Failed, OutOfResources};

pub(super) fn told<T>(attempt: SocketAttempt<T>) -> Told<T> {
    match attempt {
        SocketAttempt::Done(value) => Done(value),
        SocketAttempt::Blocked => Blocked,
        SocketAttempt::Idle => unreachable!("only a task is idle"),
        SocketAttempt::OutOfResources => OutOfResources,
        SocketAttempt::NeedsSystem => unreachable!("neither system carries operations out"),
        SocketAttempt::Yielded => unreachable!("a call has no share of time"),
        SocketAttempt::Failed(Fault { kind, code }) => Failed(kind, code),
    }
}

impl<T> Told<T> {
    /// Returns the result without its value.
    pub(super) fn blank(self) -> Told<()> {
        match self {
            Done(_) => Done(()),
            Blocked => Blocked,
            OutOfResources => OutOfResources,
            Failed(kind, code) => Failed(kind, code),
        }
    }
}

/// Returns a failure with `ErrorKind::Other`.
pub(super) fn other<T>(code: i32) -> Told<T> {
    Failed(ErrorKind::Other, Some(code))
}

#[track_caller]
pub(super) fn done<T: Debug>(attempt: SocketAttempt<T>) -> T {
    match attempt {
        SocketAttempt::Done(value) => value,
        other => panic!("not done: {other:?}"),
    }
}

pub(super) fn number(socket: &OwnedSource) -> Descriptor {
    socket.as_source().name.number
}

/// Waits until one of `facts` holds for `socket`.
#[track_caller]
pub(super) fn wait_for(w: &dyn World, socket: &OwnedSource, facts: Facts) {
    let end = Instant::now() + SOON;
    loop {
        let mut probe = [Probe { descriptor: number(socket), facts: Facts::NONE }];
        w.backend().probe(&mut probe).unwrap();
        if probe[0].facts.any(facts) {
            return;
        }
        assert!(Instant::now() < end, "{facts:?} does not come: {:?}", probe[0].facts);
        thread::yield_now();
    }
}

/// The content of places that were not written.
const UNTOUCHED: u8 = b'.';

/// Room in parts of given sizes, and its content.
pub(super) struct Room(Vec<Vec<MaybeUninit<u8>>>);

impl Room {
    pub(super) fn new(sizes: &[usize]) -> Self {
        let part = |size: &usize| vec![MaybeUninit::new(UNTOUCHED); *size];
        Self(sizes.iter().map(part).collect())
    }

    pub(super) fn parts(&mut self) -> Vec<&mut [MaybeUninit<u8>]> {
        self.0.iter_mut().map(Vec::as_mut_slice).collect()
    }

    /// Returns the first `len` bytes. Asserts that the rest is untouched.
    #[track_caller]
    pub(super) fn take(self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self
            .0
            .into_iter()
            .flatten()
            // SAFETY: `assume_init` requires an initialized value.
            // - `new` gave each place one, and a receive writes only bytes.
            .map(|place| unsafe { place.assume_init() })
            .collect();
        assert!(bytes[len..].iter().all(|byte| *byte == UNTOUCHED), "written behind the end");
        bytes.truncate(len);
        bytes
    }
}

/// Receives into parts of these sizes. Returns the bytes and whether the datagram was cut.
#[track_caller]
pub(super) fn receive(
    w: &dyn World,
    socket: &OwnedSource,
    sizes: &[usize],
) -> Told<(Vec<u8>, bool)> {
    let mut room = Room::new(sizes);
    let transport = w.backend().transport(number(socket));
    let received = w.backend().receive(number(socket), transport, &mut room.parts());
    match told(received) {
        Done(Received { len, is_cut }) => Done((room.take(len), is_cut)),
        Blocked => Blocked,
        OutOfResources => OutOfResources,
        Failed(kind, code) => Failed(kind, code),
    }
}

/// Like [`receive`], but waits for data.
#[track_caller]
fn receive_soon(w: &dyn World, socket: &OwnedSource, sizes: &[usize]) -> Told<(Vec<u8>, bool)> {
    wait_for(w, socket, Facts::IN | Facts::ERR);
    receive(w, socket, sizes)
}

/// Like [`receive`], with the sender's address.
#[track_caller]
fn receive_from(
    w: &dyn World,
    socket: &OwnedSource,
    sizes: &[usize],
) -> Told<(Vec<u8>, bool, Option<Address>)> {
    let mut room = Room::new(sizes);
    let transport = w.backend().transport(number(socket));
    match told(w.backend().receive_from(number(socket), transport, &mut room.parts())) {
        Done((Received { len, is_cut }, from)) => Done((room.take(len), is_cut, from)),
        Blocked => Blocked,
        OutOfResources => OutOfResources,
        Failed(kind, code) => Failed(kind, code),
    }
}

pub(super) fn send(w: &dyn World, socket: &OwnedSource, parts: &[&[u8]]) -> Told<usize> {
    told(w.backend().send(number(socket), parts, None))
}

fn send_to(w: &dyn World, socket: &OwnedSource, parts: &[&[u8]], to: &Address) -> Told<usize> {
    told(w.backend().send(number(socket), parts, Some(to)))
}

/// Returns the result of a receive that was not cut.
fn whole(bytes: &[u8]) -> Told<(Vec<u8>, bool)> {
    Done((bytes.to_vec(), false))
}

/// Makes a socket and starts its connect to `listener`.
#[track_caller]
pub(super) fn connect(w: &dyn World, listener: &OwnedSource) -> OwnedSource {
    let address = w.address(listener);
    let socket = w.backend().open_stream(&address).unwrap();
    match told(w.backend().begin_connect(number(&socket), &address)) {
        Done(()) | Blocked => socket,
        refused => panic!("{refused:?}"),
    }
}

#[track_caller]
pub(super) fn accept(w: &dyn World, listener: &OwnedSource) -> (OwnedSource, Option<Address>) {
    wait_for(w, listener, Facts::IN);
    done(w.backend().accept(number(listener)))
}

pub(super) fn tcp_pair(w: &dyn World) -> (OwnedSource, OwnedSource) {
    let listener = w.tcp_listener(4);
    let first = connect(w, &listener);
    let (second, _) = accept(w, &listener);
    wait_for(w, &first, Facts::OUT);
    assert_eq!(told(w.backend().end_connect(number(&first))), Done(()));
    (first, second)
}

fn udp_pair(w: &dyn World) -> (OwnedSource, OwnedSource) {
    let (first, second) = (w.udp(), w.udp());
    for (one, other) in [(&first, &second), (&second, &first)] {
        let connected = w.backend().begin_connect(number(one), &w.address(other));
        assert_eq!(told(connected), Done(()));
    }
    (first, second)
}

/// Runs a case on both families of streams.
fn on_streams(w: &dyn World, case: impl Fn(OwnedSource, OwnedSource)) {
    let (first, second) = tcp_pair(w);
    case(first, second);
    let (first, second) = w.unix_pair();
    case(first, second);
}

/// Runs a case on both families of datagrams.
fn on_datagrams(w: &dyn World, case: impl Fn(OwnedSource, OwnedSource)) {
    let (first, second) = udp_pair(w);
    case(first, second);
    let (first, second) = w.unix_datagram_pair();
    case(first, second);
}

/// Sends until a hundred attempts in a row, a millisecond apart, find no room.
///
/// The other end of a TCP connection may delay its last acknowledgement by 40 ms, which makes room
/// for a few more bytes.
#[allow(clippy::disallowed_methods, reason = "it waits for nothing to happen")]
fn fill(w: &dyn World, socket: &OwnedSource) -> usize {
    let (mut sum, mut blocked) = (0, 0);
    while blocked < 100 {
        match send(w, socket, &[&[b'x'; 4096]]) {
            Done(count) => {
                sum += count;
                blocked = 0;
            }
            Blocked => {
                blocked += 1;
                thread::sleep(Duration::from_millis(1));
            }
            refused => panic!("{refused:?}"),
        }
    }
    sum
}

/// Makes a test of each case on each system.
macro_rules! cases {
    ($($name:ident)*) => {
        mod on_native {
            $(
                #[test]
                #[cfg_attr(miri, ignore = "Miri has no sockets")]
                fn $name() {
                    super::$name(&crate::sys::linux::tests::Native::new());
                }
            )*
        }

        mod on_sim {
            $(
                #[test]
                fn $name() {
                    super::$name(&super::simulated::Simulated::new());
                }
            )*
        }
    };
}

cases! {
    a_listener_without_a_connection_would_wait
    connections_are_accepted_one_by_one_with_the_addresses_of_their_peers
    what_cannot_be_accepted_from_is_refused
    a_connection_that_was_reset_in_the_queue_fails_when_it_is_used
    a_connect_ends_as_done_and_the_socket_is_connected
    a_connect_that_is_refused_says_so_once_and_the_socket_can_be_used_again
    a_connect_for_which_there_is_no_room_goes_on
    a_connect_that_is_abandoned_leaves_the_socket_as_new
    a_connect_of_a_local_stream_is_done_or_refused_at_once
    a_connect_of_a_local_stream_to_a_full_queue_is_scarce
    a_socket_for_datagrams_is_connected_at_once_even_to_itself
    an_address_of_another_kernel_is_refused
    an_error_is_told_when_nothing_was_begun
    a_receive_brings_what_has_come
    a_receive_of_several_parts_fills_one_after_the_other
    a_receive_after_the_end_brings_nothing
    a_receive_after_a_reset_fails_once
    a_datagram_that_is_longer_than_the_room_is_cut
    a_datagram_brings_the_address_of_its_sender
    a_stream_has_no_sender
    a_receive_without_room_is_done_when_something_could_be_received
    a_receive_without_room_leaves_datagrams_in_their_place
    a_receive_without_room_takes_an_error
    a_send_takes_as_much_as_there_is_room_for
    a_send_of_several_parts_sends_them_in_order
    a_send_without_bytes_sends_an_empty_datagram_and_nothing_on_a_stream
    a_send_to_a_peer_that_is_gone_fails
    a_send_of_a_datagram_needs_an_address
    a_stream_takes_the_first_parts_of_a_long_list
    datagrams_of_a_long_list_are_refused
    transports_are_told_apart
    what_is_no_socket_is_refused
    what_is_not_open_is_refused
}

fn a_listener_without_a_connection_would_wait(w: &dyn World) {
    for listener in [w.tcp_listener(1), w.unix_listener(1)] {
        assert_eq!(told(w.backend().accept(number(&listener))).blank(), Blocked);
    }
}

fn connections_are_accepted_one_by_one_with_the_addresses_of_their_peers(w: &dyn World) {
    let listener = w.tcp_listener(4);
    let clients = [connect(w, &listener), connect(w, &listener)];
    for client in &clients {
        let (accepted, from) = accept(w, &listener);
        assert_eq!(from, Some(w.address(client)));
        assert_eq!(send(w, &accepted, &[b"welcome"]), Done(7));
        assert_eq!(receive_soon(w, client, &[16]), whole(b"welcome"));
    }
    assert_eq!(told(w.backend().accept(number(&listener))).blank(), Blocked);
    // Clients of this family have no name.
    let listener = w.unix_listener(4);
    let _clients = [connect(w, &listener), connect(w, &listener)];
    assert_eq!(accept(w, &listener).1, None);
    assert_eq!(accept(w, &listener).1, None);
    assert_eq!(told(w.backend().accept(number(&listener))).blank(), Blocked);
}

fn what_cannot_be_accepted_from_is_refused(w: &dyn World) {
    let refused = |socket: &OwnedSource| told(w.backend().accept(number(socket))).blank();
    let (stream, _) = tcp_pair(w);
    assert_eq!(refused(&stream), other(libc::EINVAL));
    assert_eq!(refused(&w.unix_pair().0), other(libc::EINVAL));
    assert_eq!(refused(&w.udp()), other(libc::EOPNOTSUPP));
    assert_eq!(refused(&w.event()), other(libc::ENOTSOCK));
}

fn a_connection_that_was_reset_in_the_queue_fails_when_it_is_used(w: &dyn World) {
    let listener = w.tcp_listener(4);
    let client = connect(w, &listener);
    wait_for(w, &client, Facts::OUT);
    w.reset(client);
    let (accepted, _) = accept(w, &listener);
    assert_eq!(receive_soon(w, &accepted, &[1]), other(libc::ECONNRESET));
}

fn a_connect_ends_as_done_and_the_socket_is_connected(w: &dyn World) {
    let listener = w.tcp_listener(4);
    let address = w.address(&listener);
    let client = w.backend().open_stream(&address).unwrap();
    let begin = || told(w.backend().begin_connect(number(&client), &address));
    let end = || told(w.backend().end_connect(number(&client)));
    assert_eq!(begin(), Blocked);
    wait_for(w, &client, Facts::OUT);
    assert_eq!(end(), Done(()));
    assert_eq!(end(), Done(()));
    let (accepted, _) = accept(w, &listener);
    assert_eq!(send(w, &client, &[b"hello"]), Done(5));
    assert_eq!(receive_soon(w, &accepted, &[16]), whole(b"hello"));
    assert_eq!(begin(), other(libc::EISCONN));
    // Nor does a connect to another address take over a completed connect whose result was not
    // queried.
    let client = w.backend().open_stream(&address).unwrap();
    let begin = |address: &Address| told(w.backend().begin_connect(number(&client), address));
    assert_eq!(begin(&address), Blocked);
    wait_for(w, &client, Facts::OUT);
    let another = w.tcp_listener(4);
    assert_eq!(begin(&w.address(&another)), other(libc::EISCONN));
}

fn a_connect_that_is_abandoned_leaves_the_socket_as_new(w: &dyn World) {
    let (full, other_one) = (w.tcp_listener(0), w.tcp_listener(4));
    let (_first, refusing) = (connect(w, &full), w.unused_address());
    let listening = w.tcp_listener(4);
    let first = [w.address(&full), w.address(&listening), refusing];
    for (first, shows) in first.iter().zip([Facts::NONE, Facts::OUT, Facts::HUP]) {
        let client = w.backend().open_stream(first).unwrap();
        let begin = |address: &Address| told(w.backend().begin_connect(number(&client), address));
        assert_eq!(begin(first), Blocked);
        if shows != Facts::NONE {
            wait_for(w, &client, shows);
        }
        assert!(w.backend().abandon_connect(number(&client)));
        assert_eq!(begin(&w.address(&other_one)), Blocked);
        wait_for(w, &client, Facts::OUT);
        assert_eq!(told(w.backend().end_connect(number(&client))), Done(()));
        let (accepted, _) = accept(w, &other_one);
        assert_eq!(send(w, &client, &[b"hello"]), Done(5));
        assert_eq!(receive_soon(w, &accepted, &[16]), whole(b"hello"));
    }
    // A local stream connects immediately or not at all, so there is nothing to cancel.
    let listener = w.unix_listener(4);
    let client = connect(w, &listener);
    assert!(!w.backend().abandon_connect(number(&client)));
    let (accepted, _) = accept(w, &listener);
    assert_eq!(send(w, &client, &[b"hello"]), Done(5));
    assert_eq!(receive_soon(w, &accepted, &[16]), whole(b"hello"));
}

fn a_connect_that_is_refused_says_so_once_and_the_socket_can_be_used_again(w: &dyn World) {
    let listener = w.tcp_listener(4);
    let address = w.address(&listener);
    let client = w.backend().open_stream(&address).unwrap();
    let begin = |address: &Address| told(w.backend().begin_connect(number(&client), address));
    let end = || told(w.backend().end_connect(number(&client)));
    assert_eq!(begin(&w.unused_address()), Blocked);
    wait_for(w, &client, Facts::HUP);
    assert_eq!(end(), other(libc::ECONNREFUSED));
    assert_eq!(end(), other(libc::ECONNABORTED));
    assert_eq!(begin(&address), Blocked);
    wait_for(w, &client, Facts::OUT);
    assert_eq!(end(), Done(()));
    // If the result was not queried, the next connect returns it.
    let client = w.backend().open_stream(&address).unwrap();
    let begin = |address: &Address| told(w.backend().begin_connect(number(&client), address));
    assert_eq!(begin(&w.unused_address()), Blocked);
    wait_for(w, &client, Facts::HUP);
    assert_eq!(begin(&address), other(libc::ECONNREFUSED));
    assert_eq!(begin(&address), Blocked);
}

fn a_connect_for_which_there_is_no_room_goes_on(w: &dyn World) {
    let listener = w.tcp_listener(0);
    let first = connect(w, &listener);
    wait_for(w, &first, Facts::OUT);
    let second = connect(w, &listener);
    let end = || told(w.backend().end_connect(number(&second)));
    assert_eq!(end(), Blocked);
    assert_eq!(end(), Blocked);
    let again = w.backend().begin_connect(number(&second), &w.address(&listener));
    assert_eq!(told(again), other(libc::EALREADY));
    assert_eq!(send(w, &second, &[b"early"]), Blocked);
    assert_eq!(receive(w, &second, &[1]), Blocked);
    accept(w, &listener);
    // The client retries after a second.
    wait_for(w, &second, Facts::OUT);
    assert_eq!(end(), Done(()));
}

fn a_connect_of_a_local_stream_is_done_or_refused_at_once(w: &dyn World) {
    let listener = w.unix_listener(4);
    let address = w.address(&listener);
    let client = w.backend().open_stream(&address).unwrap();
    let begin = |client| told(w.backend().begin_connect(number(client), &address));
    assert_eq!(begin(&client), Done(()));
    assert_eq!(told(w.backend().end_connect(number(&client))), Done(()));
    assert_eq!(begin(&client), other(libc::EISCONN));
    let late = w.backend().open_stream(&address).unwrap();
    drop(listener);
    assert_eq!(begin(&late), other(libc::ECONNREFUSED));
}

fn a_connect_of_a_local_stream_to_a_full_queue_is_scarce(w: &dyn World) {
    let listener = w.unix_listener(0);
    let address = w.address(&listener);
    let _first = connect(w, &listener);
    let second = w.backend().open_stream(&address).unwrap();
    let begin = || told(w.backend().begin_connect(number(&second), &address));
    assert_eq!(begin(), OutOfResources);
    assert_eq!(begin(), OutOfResources);
    accept(w, &listener);
    assert_eq!(begin(), Done(()));
}

fn a_socket_for_datagrams_is_connected_at_once_even_to_itself(w: &dyn World) {
    let socket = w.udp();
    let connected = w.backend().begin_connect(number(&socket), &w.address(&socket));
    assert_eq!(told(connected), Done(()));
    assert_eq!(told(w.backend().end_connect(number(&socket))), Done(()));
    assert_eq!(send(w, &socket, &[b"myself"]), Done(6));
    assert_eq!(receive_soon(w, &socket, &[16]), whole(b"myself"));
}

fn an_address_of_another_kernel_is_refused(w: &dyn World) {
    let address = w.foreign_address();
    let socket = w.udp();
    let opened = w.backend().open_stream(&address).map(drop).map_err(|fault| fault.kind);
    assert_eq!(opened, Err(ErrorKind::WrongKernel));
    let connected = w.backend().begin_connect(number(&socket), &address);
    assert_eq!(told(connected), Failed(ErrorKind::WrongKernel, None));
    let sent = send_to(w, &socket, &[b"x"], &address);
    assert_eq!(sent, Failed(ErrorKind::WrongKernel, None));
}

fn an_error_is_told_when_nothing_was_begun(w: &dyn World) {
    let listener = w.tcp_listener(1);
    let fresh = w.backend().open_stream(&w.address(&listener)).unwrap();
    assert_eq!(receive(w, &fresh, &[1]), other(libc::ENOTCONN));
    assert_eq!(send(w, &fresh, &[b"x"]), other(libc::EPIPE));
    assert_eq!(receive(w, &listener, &[1]), other(libc::ENOTCONN));
    let fresh = w.backend().open_stream(&w.address(&w.unix_listener(1))).unwrap();
    assert_eq!(receive(w, &fresh, &[1]), other(libc::EINVAL));
    assert_eq!(send(w, &fresh, &[b"x"]), other(libc::ENOTCONN));
}

fn a_receive_brings_what_has_come(w: &dyn World) {
    on_streams(w, |ours, theirs| {
        assert_eq!(receive(w, &ours, &[10]), Blocked);
        assert_eq!(send(w, &theirs, &[b"0123456789"]), Done(10));
        assert_eq!(receive_soon(w, &ours, &[3]), whole(b"012"));
        assert_eq!(receive(w, &ours, &[7]), whole(b"3456789"));
        assert_eq!(receive(w, &ours, &[7]), Blocked);
        assert_eq!(send(w, &theirs, &[b"abc"]), Done(3));
        assert_eq!(receive_soon(w, &ours, &[100]), whole(b"abc"));
    });
    on_datagrams(w, |ours, theirs| {
        assert_eq!(receive(w, &ours, &[10]), Blocked);
        for datagram in [b"first".as_slice(), b"", b"third"] {
            assert_eq!(send(w, &theirs, &[datagram]), Done(datagram.len()));
        }
        assert_eq!(receive_soon(w, &ours, &[100]), whole(b"first"));
        assert_eq!(receive_soon(w, &ours, &[100]), whole(b""));
        assert_eq!(receive_soon(w, &ours, &[100]), whole(b"third"));
        assert_eq!(receive(w, &ours, &[100]), Blocked);
    });
}

fn a_receive_of_several_parts_fills_one_after_the_other(w: &dyn World) {
    // More parts than the array on the stack has, some of them without room.
    let many: Vec<usize> = (0..40).map(|size| size % 3).collect();
    for sizes in [[2, 3, 20].as_slice(), &[0, 4, 0, 21, 0], &[1, 24], &many] {
        on_streams(w, |ours, theirs| {
            assert_eq!(receive(w, &ours, sizes), Blocked);
            assert_eq!(send(w, &theirs, &[b"0123456789"]), Done(10));
            assert_eq!(receive_soon(w, &ours, sizes), whole(b"0123456789"));
        });
        on_datagrams(w, |ours, theirs| {
            assert_eq!(send(w, &theirs, &[b"0123456789"]), Done(10));
            assert_eq!(send(w, &theirs, &[b"abc"]), Done(3));
            assert_eq!(receive_soon(w, &ours, sizes), whole(b"0123456789"));
            assert_eq!(receive_soon(w, &ours, sizes), whole(b"abc"));
        });
    }
}

fn a_receive_after_the_end_brings_nothing(w: &dyn World) {
    on_streams(w, |ours, theirs| {
        assert_eq!(send(w, &theirs, &[b"last"]), Done(4));
        w.shut_writing(&theirs);
        wait_for(w, &ours, Facts::RDHUP);
        assert_eq!(receive(w, &ours, &[100]), whole(b"last"));
        assert_eq!(receive(w, &ours, &[100]), whole(b""));
        assert_eq!(receive(w, &ours, &[1, 1]), whole(b""));
        assert_eq!(receive(w, &ours, &[]), whole(b""));
    });
}

fn a_receive_after_a_reset_fails_once(w: &dyn World) {
    let (ours, theirs) = tcp_pair(w);
    assert_eq!(send(w, &theirs, &[b"lost or not"]), Done(11));
    wait_for(w, &ours, Facts::IN);
    w.reset(theirs);
    wait_for(w, &ours, Facts::HUP);
    // Data that arrived before can be read.
    assert_eq!(receive(w, &ours, &[100]), whole(b"lost or not"));
    assert_eq!(receive(w, &ours, &[100]), other(libc::ECONNRESET));
    assert_eq!(receive(w, &ours, &[100]), whole(b""));
}

fn a_datagram_that_is_longer_than_the_room_is_cut(w: &dyn World) {
    on_datagrams(w, |ours, theirs| {
        for _ in 0..3 {
            assert_eq!(send(w, &theirs, &[b"0123456789"]), Done(10));
        }
        assert_eq!(send(w, &theirs, &[b"abc"]), Done(3));
        assert_eq!(receive_soon(w, &ours, &[9]), Done((b"012345678".to_vec(), true)));
        assert_eq!(receive_soon(w, &ours, &[2, 0, 2]), Done((b"0123".to_vec(), true)));
        assert_eq!(receive_soon(w, &ours, &[10]), whole(b"0123456789"));
        assert_eq!(receive_soon(w, &ours, &[1, 2]), whole(b"abc"));
        assert_eq!(receive(w, &ours, &[1]), Blocked);
    });
}

fn a_datagram_brings_the_address_of_its_sender(w: &dyn World) {
    let (ours, first, second) = (w.udp(), w.udp(), w.udp());
    let to = w.address(&ours);
    assert_eq!(receive_from(w, &ours, &[4]), Blocked);
    assert_eq!(send_to(w, &first, &[b"one"], &to), Done(3));
    assert_eq!(send_to(w, &second, &[b"tw", b"o!"], &to), Done(4));
    let from = [&first, &second].map(|sender| Some(w.address(sender)));
    wait_for(w, &ours, Facts::IN);
    // A receive without room returns the sender.
    assert_eq!(receive_from(w, &ours, &[]), Done((vec![], false, from[0].clone())));
    assert_eq!(receive_from(w, &ours, &[4]), Done((b"one".to_vec(), false, from[0].clone())));
    wait_for(w, &ours, Facts::IN);
    assert_eq!(receive_from(w, &ours, &[3]), Done((b"two".to_vec(), true, from[1].clone())));
    let back = from[1].clone().unwrap();
    assert_eq!(send_to(w, &ours, &[b"back"], &back), Done(4));
    assert_eq!(receive_soon(w, &second, &[4]), whole(b"back"));
}

fn a_stream_has_no_sender(w: &dyn World) {
    on_streams(w, |ours, theirs| {
        assert_eq!(receive_from(w, &ours, &[4]), Blocked);
        assert_eq!(send(w, &theirs, &[b"hello"]), Done(5));
        wait_for(w, &ours, Facts::IN);
        assert_eq!(receive_from(w, &ours, &[4]), Done((b"hell".to_vec(), false, None)));
        assert_eq!(receive_from(w, &ours, &[0]), Done((vec![], false, None)));
        assert_eq!(receive_from(w, &ours, &[4, 4]), Done((b"o".to_vec(), false, None)));
    });
}

fn a_receive_without_room_is_done_when_something_could_be_received(w: &dyn World) {
    on_streams(w, |ours, theirs| {
        for sizes in [[].as_slice(), &[0], &[0, 0]] {
            assert_eq!(receive(w, &ours, sizes), Blocked);
            assert_eq!(send(w, &theirs, &[b"0123456789"]), Done(10));
            assert_eq!(receive_soon(w, &ours, sizes), whole(b""));
            assert_eq!(receive(w, &ours, sizes), whole(b""));
            assert_eq!(receive(w, &ours, &[4]), whole(b"0123"));
            assert_eq!(receive(w, &ours, sizes), whole(b""));
            assert_eq!(receive(w, &ours, &[100]), whole(b"456789"));
        }
        assert_eq!(receive(w, &ours, &[0]), Blocked);
        drop(theirs);
        wait_for(w, &ours, Facts::RDHUP);
        assert_eq!(receive(w, &ours, &[0]), whole(b""));
    });
}

fn a_receive_without_room_leaves_datagrams_in_their_place(w: &dyn World) {
    on_datagrams(w, |ours, theirs| {
        assert_eq!(receive(w, &ours, &[0]), Blocked);
        for datagram in [b"first".as_slice(), b""] {
            assert_eq!(send(w, &theirs, &[datagram]), Done(datagram.len()));
            assert_eq!(receive_soon(w, &ours, &[0]), whole(b""));
            assert_eq!(receive(w, &ours, &[]), whole(b""));
            assert_eq!(receive(w, &ours, &[9]), whole(datagram));
            assert_eq!(receive(w, &ours, &[0]), Blocked);
        }
    });
}

fn a_receive_without_room_takes_an_error(w: &dyn World) {
    let (ours, theirs) = tcp_pair(w);
    w.reset(theirs);
    wait_for(w, &ours, Facts::HUP);
    assert_eq!(receive(w, &ours, &[]), other(libc::ECONNRESET));
    assert_eq!(receive(w, &ours, &[]), whole(b""));
    let (ours, theirs) = udp_pair(w);
    drop(theirs);
    assert_eq!(send(w, &ours, &[b"into nothing"]), Done(12));
    wait_for(w, &ours, Facts::ERR);
    assert_eq!(receive(w, &ours, &[]), other(libc::ECONNREFUSED));
    assert_eq!(receive(w, &ours, &[]), Blocked);
}

fn a_send_takes_as_much_as_there_is_room_for(w: &dyn World) {
    on_streams(w, |ours, theirs| {
        let long = vec![b'y'; 64 * 1024 * 1024];
        let Done(sent) = send(w, &ours, &[&long]) else { panic!("there was room") };
        assert!(sent > 0 && sent < long.len(), "{sent}");
        let mut sum = sent + fill(w, &ours);
        assert_eq!(send(w, &ours, &[b"x"]), Blocked);
        assert_eq!(send(w, &ours, &[b"x", b"y"]), Blocked);
        while sum > 0 {
            let Done((bytes, false)) = receive_soon(w, &theirs, &[256 * 1024]) else {
                panic!("what was sent has come")
            };
            assert!(!bytes.is_empty(), "it has not ended");
            sum -= bytes.len();
        }
        assert_eq!(receive(w, &theirs, &[1]), Blocked);
        wait_for(w, &ours, Facts::OUT);
        assert_eq!(send(w, &ours, &[b"x", b"y"]), Done(2));
    });
    let (ours, theirs) = w.unix_datagram_pair();
    assert!(fill(w, &ours) > 0);
    while matches!(receive(w, &theirs, &[4096]), Done(_)) {}
    wait_for(w, &ours, Facts::OUT);
    assert_eq!(send(w, &ours, &[b"x"]), Done(1));
}

fn a_send_of_several_parts_sends_them_in_order(w: &dyn World) {
    let digits: Vec<&[u8]> = b"0123456789".chunks(1).collect();
    let with_gaps: Vec<&[u8]> = digits.iter().flat_map(|digit| [b"".as_slice(), digit]).collect();
    for parts in [&[b"0123".as_slice(), b"456789"], &[b"", b"0123456789"], &*digits, &with_gaps] {
        on_streams(w, |ours, theirs| {
            assert_eq!(send(w, &theirs, parts), Done(10));
            assert_eq!(receive_soon(w, &ours, &[100]), whole(b"0123456789"));
        });
        on_datagrams(w, |ours, theirs| {
            assert_eq!(send(w, &theirs, parts), Done(10));
            assert_eq!(receive_soon(w, &ours, &[100]), whole(b"0123456789"));
        });
    }
}

fn a_send_without_bytes_sends_an_empty_datagram_and_nothing_on_a_stream(w: &dyn World) {
    for parts in [[].as_slice(), &[b"".as_slice()], &[b"", b""]] {
        on_datagrams(w, |ours, theirs| {
            assert_eq!(send(w, &theirs, parts), Done(0));
            assert_eq!(receive_soon(w, &ours, &[100]), whole(b""));
            assert_eq!(receive(w, &ours, &[100]), Blocked);
        });
        on_streams(w, |ours, theirs| {
            assert_eq!(send(w, &theirs, parts), Done(0));
            assert_eq!(receive(w, &ours, &[100]), Blocked);
            // Not even if there is no peer.
            drop(ours);
            wait_for(w, &theirs, Facts::RDHUP);
            let is_local = w.backend().transport(number(&theirs)) == Transport::Stream;
            let sent = if is_local { other(libc::EPIPE) } else { Done(0) };
            assert_eq!(send(w, &theirs, parts), sent);
        });
    }
}

fn a_send_to_a_peer_that_is_gone_fails(w: &dyn World) {
    let (ours, theirs) = tcp_pair(w);
    w.reset(theirs);
    wait_for(w, &ours, Facts::HUP);
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::ECONNRESET));
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::EPIPE));
    assert_eq!(send(w, &ours, &[b"x", b"y"]), other(libc::EPIPE));
    // The send does not know yet that the peer has closed. The peer answers it with a reset.
    let (ours, theirs) = tcp_pair(w);
    drop(theirs);
    wait_for(w, &ours, Facts::RDHUP);
    assert_eq!(send(w, &ours, &[b"x"]), Done(1));
    wait_for(w, &ours, Facts::HUP);
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::EPIPE));
    let (ours, theirs) = tcp_pair(w);
    w.shut_writing(&ours);
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::EPIPE));
    drop(theirs);
    let (ours, theirs) = w.unix_pair();
    drop(theirs);
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::EPIPE));
    assert_eq!(send(w, &ours, &[b"x", b"y"]), other(libc::EPIPE));
    let (ours, theirs) = udp_pair(w);
    drop(theirs);
    assert_eq!(send(w, &ours, &[b"x"]), Done(1));
    wait_for(w, &ours, Facts::ERR);
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::ECONNREFUSED));
    let (ours, theirs) = w.unix_datagram_pair();
    drop(theirs);
    assert_eq!(send(w, &ours, &[b"x"]), other(libc::ECONNREFUSED));
}

fn a_send_of_a_datagram_needs_an_address(w: &dyn World) {
    let socket = w.udp();
    assert_eq!(send(w, &socket, &[b"x"]), other(libc::EDESTADDRREQ));
    assert_eq!(send(w, &socket, &[b"x", b"y"]), other(libc::EDESTADDRREQ));
    // A datagram to an unused address is lost silently.
    assert_eq!(send_to(w, &socket, &[b"x"], &w.unused_address()), Done(1));
    assert_eq!(receive(w, &socket, &[1]), Blocked);
}

fn a_stream_takes_the_first_parts_of_a_long_list(w: &dyn World) {
    let bytes: Vec<u8> = (b'a'..=b'z').cycle().take(PARTS + 10).collect();
    let parts: Vec<&[u8]> = bytes.chunks(1).collect();
    let with_gaps: Vec<&[u8]> = parts.iter().flat_map(|part| [b"".as_slice(), part]).collect();
    for parts in [&parts, &with_gaps] {
        on_streams(w, |ours, theirs| {
            assert_eq!(send(w, &theirs, parts), Done(PARTS));
            assert_eq!(send(w, &theirs, &[&bytes[PARTS..]]), Done(10));
            let mut come = Vec::new();
            while come.len() < bytes.len() {
                // One byte each, with empty parts among them.
                let sizes: Vec<usize> = (0..3 * PARTS).map(|at| at % 2).collect();
                let Done((more, false)) = receive_soon(w, &ours, &sizes) else {
                    panic!("what was sent has come")
                };
                assert!(!more.is_empty() && more.len() <= PARTS, "{}", more.len());
                come.extend(more);
            }
            assert_eq!(come, bytes);
        });
    }
}

fn datagrams_of_a_long_list_are_refused(w: &dyn World) {
    let bytes = [b'x'; PARTS + 1];
    let parts: Vec<&[u8]> = bytes.chunks(1).collect();
    on_datagrams(w, |ours, theirs| {
        assert_eq!(send(w, &theirs, &parts), other(libc::EMSGSIZE));
        assert_eq!(receive(w, &ours, &[1]), Blocked);
        assert_eq!(send(w, &theirs, &parts[1..]), Done(PARTS));
        wait_for(w, &ours, Facts::IN);
        assert_eq!(receive(w, &ours, &[1; PARTS + 1]), other(libc::EMSGSIZE));
        // The datagram is still queued, and parts without room do not count.
        let sizes: Vec<usize> = (0..2 * PARTS).map(|at| at % 2).collect();
        assert_eq!(receive(w, &ours, &sizes), whole(&bytes[1..]));
    });
}

fn transports_are_told_apart(w: &dyn World) {
    let transport = |socket: &OwnedSource| w.backend().transport(number(socket));
    let (tcp, _) = tcp_pair(w);
    assert_eq!(transport(&tcp), Transport::DrainedStream);
    assert_eq!(transport(&w.unix_pair().0), Transport::Stream);
    assert!(matches!(transport(&w.udp()), Transport::Messages | Transport::Datagrams));
    assert_eq!(transport(&w.unix_datagram_pair().0), Transport::Messages);
    assert_eq!(transport(&w.event()), Transport::Messages);
    for (number, expected) in
        [(false, false), (true, false), (true, true), (false, false)].into_iter().enumerate()
    {
        let transport = Transport::of(u8::try_from(number).unwrap());
        assert_eq!(transport as usize, number);
        assert_eq!((transport.is_stream(), transport.is_drained_by_short_receive()), expected);
    }
}

fn what_is_no_socket_is_refused(w: &dyn World) {
    let event = w.event();
    let descriptor = number(&event);
    assert!(w.backend().make_nonblocking(descriptor).is_ok());
    for sizes in [[].as_slice(), &[8], &[4, 4]] {
        assert_eq!(receive(w, &event, sizes), other(libc::ENOTSOCK));
        assert_eq!(receive_from(w, &event, sizes), other(libc::ENOTSOCK));
    }
    assert_eq!(send(w, &event, &[&[0; 8]]), other(libc::ENOTSOCK));
    assert_eq!(told(w.backend().end_connect(descriptor)), other(libc::ENOTSOCK));
    let address = w.unused_address();
    assert_eq!(told(w.backend().begin_connect(descriptor, &address)), other(libc::ENOTSOCK));
}

fn what_is_not_open_is_refused(w: &dyn World) {
    let refused = Failed(ErrorKind::BadDescriptor, Some(libc::EBADF));
    let address = w.unused_address();
    for transport in [Transport::Messages, Transport::Stream, Transport::Datagrams] {
        let mut room = Room::new(&[4]);
        let received = w.backend().receive(-1, transport, &mut room.parts());
        assert_eq!(told(received).blank(), refused);
        let received = w.backend().receive_from(-1, transport, &mut room.parts());
        assert_eq!(told(received).blank(), refused);
    }
    assert_eq!(told(w.backend().send(-1, &[b"x"], None)).blank(), refused);
    assert_eq!(told(w.backend().accept(-1)).blank(), refused);
    assert_eq!(told(w.backend().begin_connect(-1, &address)), refused);
    assert_eq!(told(w.backend().end_connect(-1)), refused);
    let fault = w.backend().make_nonblocking(-1).unwrap_err();
    assert_eq!((fault.kind, fault.code), (ErrorKind::BadDescriptor, Some(libc::EBADF)));
    assert_eq!(w.backend().transport(-1), Transport::Messages);
}
