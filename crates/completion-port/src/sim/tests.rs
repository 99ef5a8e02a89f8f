//! The simulated kernel as a back end.

use std::thread;
use std::time::Duration;

use super::{Kernel, Socket};
use crate::backend::Backend;
use crate::backend::reactor::{Until, Watch};
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::state::moment::Moment;
use crate::sys::codes;
use crate::types::error::ErrorKind;
use crate::types::fd::OwnedFd;
use crate::types::source::Descriptor;
use crate::types::source::{KernelId, OwnedSource, Source, SourceName};

/// Real time that is ample for another thread to do its part.
const SOON: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);

const BOTH: Facts = Facts::of_directions(0b11);

fn tokens(set: &dyn Backend) -> Vec<u64> {
    let mut edges = Vec::with_capacity(64);
    set.poll(&mut edges, Some(Duration::ZERO)).unwrap();
    edges.iter().map(|edge| edge.name).collect()
}

fn number(socket: &Socket) -> Descriptor {
    socket.number()
}

fn refusal(set: &dyn Backend, descriptor: Descriptor) -> Option<ErrorKind> {
    set.attach(descriptor, 9, BOTH).err().map(|fault| fault.kind)
}

#[test]
fn what_cannot_be_attached_is_refused_by_kind() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let event = kernel.event().unwrap();
    let file = kernel.regular_file().unwrap();
    assert_eq!(refusal(&*set, number(&file)), Some(ErrorKind::NotPollable));
    drop(file);
    assert_eq!(refusal(&*set, 1), Some(ErrorKind::BadDescriptor));
    assert_eq!(refusal(&*set, -1), Some(ErrorKind::BadDescriptor));
    assert_eq!(refusal(&*set, Descriptor::MAX), Some(ErrorKind::BadDescriptor));
    kernel.fail_next_attach(ErrorKind::WatchLimit);
    kernel.fail_next_attach(ErrorKind::OutOfMemory);
    assert_eq!(refusal(&*set, number(&event)), Some(ErrorKind::WatchLimit));
    assert_eq!(refusal(&*set, number(&event)), Some(ErrorKind::OutOfMemory));
    assert_eq!(refusal(&*set, number(&event)), None);
    assert_eq!(refusal(&*set, number(&event)), Some(ErrorKind::AlreadyRegistered));
    // Another set does not watch it.
    assert_eq!(refusal(&*kernel.backend(false), number(&event)), None);
}

#[test]
fn a_duplicate_keeps_the_entry_of_a_closed_number() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let (reader, writer) = kernel.pipe().unwrap();
    let old = number(&reader);
    set.attach(old, 1, BOTH).unwrap();
    assert!(set.watches(old));
    let again = reader.dup().unwrap();
    assert!(!set.watches(number(&again)));
    drop(reader);
    // Neither number finds the entry any more, but the set still watches the file.
    assert!(!set.watches(old));
    set.detach(old);
    set.detach(number(&again));
    writer.write(b"x").unwrap();
    assert_eq!(tokens(&*set), [1]);
    // The duplicate is another descriptor: both entries report.
    set.attach(number(&again), 2, BOTH).unwrap();
    assert_eq!(tokens(&*set), [2]);
    writer.write(b"x").unwrap();
    // Their order depends on the numbers.
    let mut both = tokens(&*set);
    both.sort_unstable();
    assert_eq!(both, [1, 2]);
    // A new set has only the live entry.
    set.rebuild(
        &mut [Watch { descriptor: number(&again), name: 2, wanted: BOTH, until: Until::Detached }]
            .into_iter(),
    )
    .unwrap();
    assert_eq!(tokens(&*set), [2]);
    writer.write(b"x").unwrap();
    assert_eq!(tokens(&*set), [2]);
    drop(again);
    drop(writer);
    assert_eq!(tokens(&*set), [0; 0]);
}

#[test]
fn the_lowest_free_number_is_given_out() {
    let kernel = Kernel::new();
    let mut events: Vec<_> = (0..5).map(|_| kernel.event().unwrap()).collect();
    let numbers = |events: &[Socket]| events.iter().map(number).collect::<Vec<_>>();
    assert_eq!(numbers(&events), [0, 1, 2, 3, 4]);
    // Closed in any order.
    drop(events.remove(3));
    drop(events.remove(1));
    let again = events[0].dup().unwrap();
    assert_eq!(number(&again), 1, "a duplicate has a number of its own");
    let (reader, writer) = kernel.pipe().unwrap();
    assert_eq!((number(&reader), number(&writer)), (3, 5));
    assert_eq!(kernel.open_descriptors(), 6);
    // The object lives as long as its last number.
    let first = events.remove(0);
    first.write(&7_u64.to_ne_bytes()).unwrap();
    drop(first);
    assert_eq!(kernel.unread(&again), None);
    assert!(kernel.facts(&again).contains(super::Conditions::IN));
    assert_eq!(number(&again.dup().unwrap()), 0);
    drop((again, events, reader, writer));
    assert_eq!(kernel.open_descriptors(), 0);
    assert!(kernel.lock().objects.files.is_empty());
}

#[test]
fn a_number_that_is_given_out_again_is_another_descriptor() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let old = kernel.event().unwrap();
    let descriptor = number(&old);
    set.attach(descriptor, 1, BOTH).unwrap();
    drop(old);
    let new = kernel.event().unwrap();
    assert_eq!(number(&new), descriptor);
    assert!(!set.watches(descriptor));
    new.write(&1_u64.to_ne_bytes()).unwrap();
    assert_eq!(tokens(&*set), [0; 0]);
    set.attach(descriptor, 2, BOTH).unwrap();
    assert_eq!(tokens(&*set), [2]);
}

#[test]
fn what_is_adopted_reports_under_its_new_token() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let event = kernel.event().unwrap();
    assert_eq!(set.adopt(number(&event), 1, BOTH).unwrap_err().code, Some(codes::ENOENT));
    set.attach(number(&event), 1, BOTH).unwrap();
    // No poll has returned the edge of the first token yet.
    set.adopt(number(&event), 2, BOTH).unwrap();
    assert_eq!(tokens(&*set), [2]);
    set.adopt(number(&event), 3, BOTH).unwrap();
    assert_eq!(tokens(&*set), [3]);
    assert_eq!(set.adopt(Descriptor::MAX, 4, BOTH).unwrap_err().kind, ErrorKind::BadDescriptor);
}

#[test]
fn an_edge_whose_cause_is_gone_is_no_edge() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let (reader, writer) = kernel.pipe().unwrap();
    set.attach(number(&reader), 1, BOTH).unwrap();
    writer.write(b"x").unwrap();
    reader.read(&mut [0]).unwrap();
    assert_eq!(tokens(&*set), [0; 0]);
    writer.write(b"x").unwrap();
    set.detach(number(&reader));
    assert_eq!(tokens(&*set), [0; 0]);
}

#[test]
fn a_poll_takes_no_more_than_there_is_room_for() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let events: Vec<Socket> = (0..5).map(|_| kernel.event().unwrap()).collect();
    for (token, event) in (0..).zip(&events) {
        set.attach(number(event), token, BOTH).unwrap();
    }
    let mut edges: Vec<Edge> = Vec::with_capacity(4);
    let room = edges.capacity();
    set.poll(&mut edges, Some(Duration::ZERO)).unwrap();
    assert_eq!((edges.len(), edges.capacity()), (room, room));
    assert_eq!(tokens(&*set).len(), 5 - room);
}

#[test]
fn probes_answer_what_holds() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    let gone = kernel.event().unwrap();
    let closed = number(&gone);
    drop(gone);
    theirs.write(b"four").unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let ask = |descriptor| Probe { descriptor, facts: Facts::NONE };
    let mut probes = [ask(number(&ours)), ask(number(&theirs)), ask(closed)];
    set.probe(&mut probes).unwrap();
    assert_eq!(probes[0].facts, Facts::IN | Facts::OUT | Facts::RDHUP);
    assert_eq!(probes[1].facts, Facts::OUT);
    assert_eq!(probes[2].facts, Facts::CLOSED);
    assert_eq!(set.unread(number(&ours), AtEnd::Peer), Some(4));
    assert_eq!(set.kind(number(&ours)), DescriptorKind::Stream);
    assert_eq!(set.kind(closed), DescriptorKind::NoSocket);
    let calls = kernel.calls();
    assert_eq!((calls.probe, calls.probed, calls.unread, calls.kind), (1, 3, 1, 2));
    assert_eq!(calls.total(), 4);
}

#[test]
fn the_automatic_clock_jumps_to_the_deadline() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let mut edges = Vec::with_capacity(4);
    set.poll(&mut edges, Some(SECOND)).unwrap();
    assert_eq!(set.now().since(Moment::ZERO), SECOND);
    let here = set.this_thread();
    here.park(Some(SECOND));
    assert_eq!(kernel.now(), 2 * SECOND);
    // A pending wake-up takes no time.
    set.wake();
    set.poll(&mut edges, Some(SECOND)).unwrap();
    here.unpark();
    here.park(Some(SECOND));
    assert_eq!(kernel.now(), 2 * SECOND);
    // Both wake-ups were taken.
    set.poll(&mut edges, Some(SECOND)).unwrap();
    here.park(Some(SECOND));
    assert_eq!(kernel.now(), 4 * SECOND);
}

#[test]
fn the_manual_clock_moves_by_hand_only() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let set = kernel.backend(false);
    let event = kernel.event().unwrap();
    thread::scope(|scope| {
        let poller = scope.spawn(|| {
            let mut edges = Vec::with_capacity(4);
            set.poll(&mut edges, Some(2 * SECOND)).unwrap();
            edges.len()
        });
        assert!(kernel.wait_for_sleepers(1, SOON));
        kernel.advance(SECOND);
        assert_eq!(kernel.sleeping(), 1);
        kernel.advance(SECOND);
        assert_eq!(poller.join().unwrap(), 0);

        let poller = scope.spawn(|| {
            let mut edges = Vec::with_capacity(4);
            set.poll(&mut edges, Some(2 * SECOND)).unwrap();
            edges.len()
        });
        assert!(kernel.wait_for_sleepers(1, SOON));
        set.attach(number(&event), 1, BOTH).unwrap();
        assert_eq!(poller.join().unwrap(), 1);
    });
    assert_eq!(kernel.now(), 2 * SECOND);
}

#[test]
fn a_parked_thread_sleeps_until_it_is_unparked() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let (give, take) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let set = &set;
        scope.spawn(move || {
            let here = std::sync::Arc::new(set.this_thread());
            give.send(std::sync::Arc::clone(&here)).unwrap();
            here.park(None);
        });
        let other = take.recv_timeout(SOON).unwrap();
        assert!(kernel.wait_for_sleepers(1, SOON));
        assert_eq!(other.asleep(), Some(true));
        other.unpark();
        assert!(kernel.wait_for_sleepers(0, SOON));
    });
    let ended = thread::scope(|scope| scope.spawn(|| set.this_thread()).join().unwrap());
    assert_eq!(ended.asleep(), Some(true));
    let here = set.this_thread();
    assert_eq!(here.asleep(), Some(false));
    kernel.set_thread_asleep(thread::current().id(), true);
    assert_eq!(here.asleep(), Some(true));
    kernel.set_thread_asleep(thread::current().id(), None);
    assert_eq!(here.asleep(), None);
}

#[test]
fn a_connection_that_could_not_be_accepted_stays_in_the_queue() {
    let kernel = Kernel::new();
    let listener = kernel.tcp_listener(0).unwrap();
    let (first, second) = (kernel.tcp_fresh().unwrap(), kernel.tcp_fresh().unwrap());
    first.connect(listener.address()).unwrap_err();
    second.connect(listener.address()).unwrap_err();
    kernel.fail_next_descriptor();
    assert_eq!(listener.accept().unwrap_err().raw_os_error(), Some(codes::EMFILE));
    let accepted = listener.accept().unwrap();
    first.write(b"1").unwrap();
    assert_eq!(accepted.read(&mut [0]).unwrap(), 1);
    // Now there is room for the other client.
    let accepted = listener.accept().unwrap();
    second.write(b"2").unwrap();
    assert_eq!(accepted.read(&mut [0]).unwrap(), 1);
}

#[test]
fn a_failed_rebuild_leaves_the_old_set() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let event = kernel.event().unwrap();
    set.attach(number(&event), 1, BOTH).unwrap();
    kernel.fail_next_rebuild(ErrorKind::DescriptorLimit);
    let refused = set.rebuild(&mut std::iter::empty()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::DescriptorLimit);
    assert_eq!(tokens(&*set), [1]);
}

#[test]
fn nothing_is_left_when_all_is_dropped() {
    let kernel = Kernel::new();
    let set = kernel.backend(false);
    let listener = kernel.unix_listener(4).unwrap();
    let client = kernel.unix_fresh().unwrap();
    client.connect(listener.address()).unwrap();
    let pairs = (kernel.tcp_pair(), kernel.udp_pair(), kernel.unix_datagram_pair(), kernel.pipe());
    set.attach(number(&client), 1, BOTH).unwrap();
    drop((pairs, listener, client, set));
    assert_eq!((kernel.open_descriptors(), kernel.ports()), (0, 0));
    assert!(kernel.lock().objects.files.is_empty());
}

#[test]
fn a_socket_made_by_a_port_is_of_one_kernel() {
    let event = Kernel::new().event().unwrap();
    let (number, kernel) = (event.number(), event.kernel().clone());
    let socket = OwnedSource::from(event);
    assert_eq!(socket.as_source().name, SourceName { kernel: kernel.id(), number });
    let shown = format!("{socket:?}");
    assert!(shown.contains("simulated: true"), "{shown}");
    let socket = socket.into_descriptor().unwrap_err().into_simulated().unwrap();
    assert_eq!((socket.number(), kernel.open_descriptors()), (number, 1));
    drop(OwnedSource::from(socket));
    assert_eq!(kernel.open_descriptors(), 0);
}

#[test]
#[should_panic(expected = "a simulated socket has no descriptor")]
fn a_simulated_socket_is_no_descriptor() {
    let event = Kernel::new().event().unwrap();
    let _ = OwnedFd::from(OwnedSource::from(event));
}

#[test]
fn a_descriptor_is_no_simulated_socket() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let socket = OwnedSource::from(OwnedFd::from(listener));
    let number = socket.as_source().name.number;
    assert_eq!(socket.as_source().name.kernel, KernelId::SYSTEM);
    let socket = socket.into_simulated().unwrap_err();
    let descriptor = socket.into_descriptor().unwrap();
    assert_eq!(descriptor.as_source().name.number, number);
    assert_eq!(std::net::TcpListener::from(descriptor).local_addr().unwrap(), address);
}
