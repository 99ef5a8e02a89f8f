//! The reactor on simulated notifications.

use std::sync::mpsc;
use std::thread;

use super::*;
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::sim::Socket;
use crate::state::facts::{Edge, Facts};
use crate::sys::portable::winsock_notifications::PATIENCE;
use crate::types::error::Fault;

const BOTH: Facts = Facts::of_directions(0b11);
const SOON: Duration = Duration::from_secs(10);

fn reactor(kernel: &Kernel) -> WinsockNotifications<SimulatedPort> {
    WinsockNotifications::new(SimulatedPort::new(kernel.clone()))
}

fn edges(reactor: &dyn Reactor) -> Vec<(u64, Facts)> {
    let mut edges: Vec<Edge> = Vec::with_capacity(8);
    reactor.poll(&mut edges, Some(Duration::ZERO)).unwrap();
    edges.iter().map(|edge| (edge.name, edge.facts)).collect()
}

fn want(reactor: &dyn Reactor, socket: &Socket, name: u64, wanted: Facts, until: Until) {
    reactor.want(socket.number(), name, wanted, until).unwrap();
}

/// Takes the first packet out of the queue, like a thread that has not processed it yet.
fn take_first(reactor: &WinsockNotifications<SimulatedPort>) -> Option<Queued> {
    let mut state = reactor.calls.kernel.lock();
    state.notifiers.get_mut(&reactor.calls.port).unwrap().packets.pop_front()
}

fn put_back(
    reactor: &WinsockNotifications<SimulatedPort>,
    packets: impl IntoIterator<Item = Queued>,
) {
    let mut state = reactor.calls.kernel.lock();
    state.notifiers.get_mut(&reactor.calls.port).unwrap().packets.extend(packets);
}

fn enabled(reactor: &WinsockNotifications<SimulatedPort>) -> usize {
    let state = reactor.calls.kernel.lock();
    let queue = &state.notifiers[&reactor.calls.port];
    let is_asked =
        |it: &&SimulatedRegistration| it.stage == SimulatedStage::Enabled && it.filter != 0;
    queue.registrations.values().filter(is_asked).count()
}

/// Returns whether nothing is attached, being removed or still to be enabled.
fn has_nothing(reactor: &WinsockNotifications<SimulatedPort>) -> bool {
    let state = reactor.state();
    state.records.is_empty() && state.waiting.is_empty() && state.owed.is_empty()
}

#[test]
fn what_is_asked_for_goes_with_the_next_poll_or_at_once_if_a_thread_sleeps() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    theirs.write(b"x").unwrap();
    assert_eq!(edges(&reactor), [], "it is not asked about yet");
    want(&reactor, &ours, 2, Facts::IN, Until::Edge);
    assert_eq!(enabled(&reactor), 0);
    assert_eq!(edges(&reactor), [(2, Facts::IN)], "by the call that asks");
    assert_eq!(edges(&reactor), [], "once");
    ours.read(&mut [0]).unwrap();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut edges = Vec::with_capacity(8);
            assert!(!reactor.poll(&mut edges, None).unwrap());
            edges.iter().map(|edge| (edge.name, edge.facts)).collect::<Vec<_>>()
        });
        assert!(kernel.wait_for_sleepers(1, SOON));
        want(&reactor, &ours, 3, Facts::IN, Until::Edge);
        assert_eq!(enabled(&reactor), 1);
        theirs.write(b"x").unwrap();
        assert_eq!(sleeper.join().unwrap(), [(3, Facts::IN)]);
    });
}

/// Queues a packet for an operation. The operation has ended if it has a name.
fn end(
    reactor: &WinsockNotifications<SimulatedPort>,
    place: usize,
    socket: &Socket,
    name: Option<u64>,
) {
    let mut state = reactor.calls.kernel.lock();
    let queue = state.notifiers.get_mut(&reactor.calls.port).unwrap();
    queue.ends.insert(place, (socket.number(), name));
    queue.packets.push_back(Queued::Ended(place));
    reactor.calls.kernel.publish(state);
}

#[test]
fn the_ends_of_operations_come_with_what_is_ready() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    want(&reactor, &ours, 1, Facts::IN, Until::Edge);
    assert_eq!(edges(&reactor), []);
    end(&reactor, 64, &ours, Some(71));
    theirs.write(b"x").unwrap();
    // The packets of a call that is not an operation here, and of one that continues.
    kernel
        .lock()
        .notifiers
        .get_mut(&reactor.calls.port)
        .unwrap()
        .packets
        .push_back(Queued::Ended(8));
    end(&reactor, 72, &ours, None);
    // `watches` registers the socket again, which requests the same conditions again.
    let mut told = edges(&reactor);
    told.extend(edges(&reactor));
    told.sort_unstable_by_key(|(name, _)| *name);
    told.dedup();
    assert_eq!(told, [(1, Facts::IN), (71, Facts::NONE)]);
    assert_eq!(edges(&reactor), []);
}

#[test]
fn more_ends_than_there_is_room_for_are_told_by_the_next_polls() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, _theirs) = kernel.tcp_pair().unwrap();
    let other = kernel.udp_bound().unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    for name in 1..=200 {
        end(&reactor, 8 * name, &ours, Some(name as u64));
    }
    // Scanning the queue for the end of a removal takes these packets and loses none.
    reactor.attach(other.number(), 900, BOTH).unwrap();
    reactor.detach(other.number());
    reactor.attach(other.number(), 901, BOTH).unwrap();
    let mut names: Vec<u64> = Vec::new();
    loop {
        let told = edges(&reactor);
        assert!(told.len() <= 8);
        names.extend(told.iter().map(|(name, _)| *name));
        if told.is_empty() {
            break;
        }
    }
    names.sort_unstable();
    assert_eq!(names, (1..=200).collect::<Vec<_>>());
    // A removed socket reports nothing.
    reactor.detach(ours.number());
    end(&reactor, 8, &ours, Some(1));
    assert_eq!(edges(&reactor), []);
}

#[test]
fn an_end_gets_a_sleeper_up_and_a_part_of_an_operation_does_not() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, _theirs) = kernel.tcp_pair().unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    let asked = told(&reactor, || {
        assert!(kernel.wait_for_sleepers(1, SOON));
        end(&reactor, 8, &ours, None);
        end(&reactor, 16, &ours, Some(5));
    });
    assert_eq!(asked, [5]);
    // Another due look also ends a poll.
    edges(&reactor);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut edges: Vec<Edge> = Vec::with_capacity(1);
            let is_woken = reactor.poll(&mut edges, None).unwrap();
            (is_woken, edges.len())
        });
        assert!(kernel.wait_for_sleepers(1, SOON));
        end(&reactor, 24, &ours, None);
        assert!(kernel.wait_for_sleepers(1, SOON));
        reactor.wake();
        assert_eq!(sleeper.join().unwrap(), (true, 0));
    });
}

#[test]
fn a_reactor_that_others_do_not_find_any_more_keeps_no_socket_from_them() {
    let kernel = Kernel::new();
    let (former, next) = (reactor(&kernel), reactor(&kernel));
    let (ours, _theirs) = kernel.tcp_pair().unwrap();
    former.attach(ours.number(), 1, BOTH).unwrap();
    former.detach(ours.number());
    // Its port is closed a moment later.
    let share = Arc::clone(&former.0);
    drop(former);
    next.attach(ours.number(), 2, BOTH).unwrap();
    drop(share);
}

#[test]
fn a_socket_may_be_attached_again_while_its_removal_is_on_its_way() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    let other = kernel.udp_bound().unwrap();
    reactor.attach(other.number(), 7, BOTH).unwrap();
    want(&reactor, &other, 7, Facts::OUT, Until::Edge);
    theirs.write(b"x").unwrap();
    for name in 1..4 {
        reactor.attach(ours.number(), name, BOTH).unwrap();
        want(&reactor, &ours, name, Facts::IN, Until::Edge);
        // The other socket's queued packet is not lost.
        let told = edges(&reactor);
        assert!(told.contains(&(name, Facts::IN)), "{told:?}");
        want(&reactor, &other, 7, Facts::OUT, Until::Edge);
        reactor.detach(ours.number());
        assert!(!reactor.watches(ours.number()));
    }
    assert_eq!(edges(&reactor), [(7, Facts::OUT)]);
    drop(ours);
    assert_eq!(edges(&reactor), []);
    let state = reactor.calls.kernel.lock();
    let queue = &state.notifiers[&reactor.calls.port];
    assert_eq!((queue.registrations.len(), queue.packets.len()), (1, 0));
}

#[test]
fn what_is_ready_keeps_its_order_when_the_queue_is_looked_through() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let mut sockets: Vec<_> = (0..100).map(|_| kernel.udp_bound().unwrap()).collect();
    for (name, socket) in (1..).zip(&sockets) {
        reactor.attach(socket.number(), name, BOTH).unwrap();
        want(&reactor, socket, name, Facts::OUT, Until::Edge);
    }
    let other = kernel.udp_bound().unwrap();
    reactor.attach(other.number(), 200, BOTH).unwrap();
    let mut told = edges(&reactor);
    // The others are in the queue. One is closed, and one is requested again, behind all of them.
    drop(sockets.pop());
    assert!(reactor.watches(other.number()));
    assert!(reactor.watches(sockets[50].number()));
    want(&reactor, &sockets[50], 51, Facts::OUT, Until::Edge);
    loop {
        let more = edges(&reactor);
        if more.is_empty() {
            break;
        }
        told.extend(more);
    }
    let names: Vec<_> = told.iter().map(|(name, _)| *name).collect();
    let expected: Vec<_> = (1..=99).filter(|name| *name != 51).chain([51]).collect();
    assert_eq!(names, expected);
}

#[test]
fn a_socket_may_be_attached_elsewhere_while_its_removal_is_on_its_way() {
    let kernel = Kernel::new();
    let (one, other) = (reactor(&kernel), reactor(&kernel));
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    for name in 1..4 {
        for at in [&one, &other] {
            at.attach(ours.number(), name, BOTH).unwrap();
            want(at, &ours, name, Facts::IN, Until::Edge);
            assert_eq!(edges(at), [(name, Facts::IN)]);
            assert!(at.watches(ours.number()));
            at.detach(ours.number());
        }
    }
    // The engine also moves a number to another port after abandoning it, without a call to the
    // former port.
    one.attach(ours.number(), 8, BOTH).unwrap();
    other.attach(ours.number(), 9, BOTH).unwrap();
    assert!(other.watches(ours.number()) && !one.watches(ours.number()));
    drop(other);
    one.attach(ours.number(), 8, BOTH).unwrap();
}

#[test]
fn a_removal_that_another_thread_has_taken_puts_a_registration_off() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    reactor.detach(ours.number());
    // The packet is out of the queue, and the registration is still being removed.
    let last = take_first(&reactor);
    reactor.attach(ours.number(), 2, BOTH).unwrap();
    want(&reactor, &ours, 2, Facts::IN, Until::Edge);
    assert_eq!(edges(&reactor), []);
    put_back(&reactor, last);
    assert_eq!(edges(&reactor), [], "that packet");
    assert_eq!(edges(&reactor), [(2, Facts::IN)]);
}

#[test]
fn a_socket_is_attached_elsewhere_however_few_packets_a_call_brings() {
    let kernel = Kernel::new();
    let (one, other) = (reactor(&kernel), reactor(&kernel));
    kernel.lock().notifiers.get_mut(&one.calls.port).unwrap().brings_one = true;
    // More sockets than attempts to make the port give one up.
    let sockets: Vec<_> = (0..=PATIENCE).map(|_| kernel.udp_bound().unwrap()).collect();
    for (name, socket) in (1..).zip(&sockets) {
        one.attach(socket.number(), name, BOTH).unwrap();
    }
    for socket in &sockets {
        one.detach(socket.number());
    }
    other.attach(sockets.last().unwrap().number(), 1, BOTH).unwrap();
}

#[test]
fn a_removal_that_a_thread_of_another_reactor_has_taken_is_waited_for() {
    let kernel = Kernel::new();
    let (one, other) = (reactor(&kernel), reactor(&kernel));
    let ours = kernel.udp_bound().unwrap();
    one.attach(ours.number(), 1, BOTH).unwrap();
    one.detach(ours.number());
    let take = || kernel.lock().notifiers.get_mut(&one.calls.port).unwrap().packets.pop_front();
    let last = take();
    let polls = kernel.lock().calls.poll;
    thread::scope(|scope| {
        let attached = scope.spawn(|| other.attach(ours.number(), 2, BOTH));
        while kernel.lock().calls.poll == polls {
            // It has not looked for the removal yet.
            thread::yield_now();
        }
        kernel.lock().notifiers.get_mut(&one.calls.port).unwrap().packets.extend(last);
        attached.join().unwrap().unwrap();
    });
    assert!(other.watches(ours.number()));
}

#[test]
fn what_another_part_of_the_program_has_is_said_to_be_registered() {
    let kernel = Kernel::new();
    let (theirs, reactor) = (SimulatedPort::new(kernel.clone()), reactor(&kernel));
    let ours = kernel.udp_bound().unwrap();
    let mut change = NotificationChange {
        descriptor: ours.number(),
        key: 1,
        filter: event::IN,
        operation: ChangeKind::Enable,
        trigger: NotificationTrigger::LevelOnce,
        result: 0,
    };
    theirs.process(std::slice::from_mut(&mut change), &mut [], None).unwrap();
    assert_eq!(change.result, 0);
    let refused = |outcome: Result<(), Fault>| outcome.unwrap_err().kind;
    let already = ErrorKind::AlreadyRegistered;
    assert_eq!(refused(reactor.attach(ours.number(), 2, BOTH)), already);
    assert_eq!(refused(reactor.adopt(ours.number(), 2, BOTH)), already);
}

fn refuse(reactor: &WinsockNotifications<SimulatedPort>, refusals: &[u32]) {
    let mut state = reactor.calls.kernel.lock();
    state.notifiers.get_mut(&reactor.calls.port).unwrap().refusals.extend(refusals);
}

/// Returns how many scripted refusals remain.
fn refusals(reactor: &WinsockNotifications<SimulatedPort>) -> usize {
    reactor.calls.kernel.lock().notifiers[&reactor.calls.port].refusals.len()
}

/// Runs `then` and returns the edges of `THREADS` threads, each of which sleeps until it gets one.
#[track_caller]
fn told<const THREADS: usize>(
    reactor: &WinsockNotifications<SimulatedPort>,
    then: impl FnOnce(),
) -> [u64; THREADS] {
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let say = say.clone();
            scope.spawn(move || {
                let mut edges: Vec<Edge> = Vec::with_capacity(1);
                while !reactor.poll(&mut edges, None).unwrap() && edges.is_empty() {}
                say.send(edges.first().map(|edge| edge.name)).unwrap();
            });
        }
        then();
        let mut told = [0; THREADS];
        for told in &mut told {
            let next = heard.recv_timeout(SOON);
            if next.is_err() {
                (0..THREADS).for_each(|_| reactor.wake());
            }
            *told = next.expect("a thread sleeps on").unwrap();
        }
        told.sort_unstable();
        told
    })
}

#[test]
fn what_there_was_no_memory_for_is_asked_by_the_next_poll() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    want(&reactor, &ours, 2, Facts::IN, Until::Edge);
    refuse(&reactor, &[NOT_ENOUGH_MEMORY, NO_SYSTEM_RESOURCES]);
    assert_eq!(edges(&reactor), []);
    assert_eq!(edges(&reactor), []);
    assert_eq!(edges(&reactor), [(2, Facts::IN)]);
    assert_eq!(edges(&reactor), []);
    // By edge the change fails, or is repeated later where no caller can get the error.
    refuse(&reactor, &[NOT_ENOUGH_MEMORY]);
    let refused = reactor.want(ours.number(), 3, Facts::IN, Until::Detached);
    assert_eq!(refused.unwrap_err().kind, ErrorKind::OutOfMemory);
    let until = Until::Detached;
    refuse(&reactor, &[NOT_ENOUGH_MEMORY; 2]);
    let live = Watch { descriptor: ours.number(), name: 4, wanted: Facts::IN, until };
    reactor.rebuild(&mut [live].into_iter()).unwrap();
    assert_eq!(edges(&reactor), []);
    assert_eq!(edges(&reactor), [], "a look is due");
    assert_eq!(edges(&reactor), [(4, Facts::IN)]);
    assert_eq!(edges(&reactor), []);
    theirs.write(b"x").unwrap();
    assert_eq!(edges(&reactor), [(4, Facts::IN)]);
    assert_eq!(refusals(&reactor), 0);
}

#[test]
fn a_registration_that_is_owed_a_question_is_removed_like_others() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    let other = kernel.udp_bound().unwrap();
    theirs.write(b"x").unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    reactor.detach(ours.number());
    let last = take_first(&reactor);
    reactor.attach(ours.number(), 2, BOTH).unwrap();
    want(&reactor, &ours, 2, Facts::IN, Until::Edge);
    put_back(&reactor, last);
    kernel.fail_next_attach(ErrorKind::OutOfMemory);
    assert_eq!(edges(&reactor), [], "there was no memory");
    // A poll without room for the report.
    reactor.poll(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
    reactor.attach(other.number(), 3, BOTH).unwrap();
    refuse(&reactor, &[NOT_ENOUGH_MEMORY]);
    assert!(reactor.watches(other.number()));
    assert_eq!(refusals(&reactor), 0, "what was reported is asked anew");
    reactor.detach(ours.number());
    reactor.detach(other.number());
    assert_eq!(edges(&reactor), []);
    assert!(has_nothing(&reactor));
    assert!(kernel.lock().notifiers[&reactor.calls.port].registrations.is_empty());
}

#[test]
fn what_is_owed_to_a_registration_is_made_up_for_by_a_thread_that_sleeps() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    let (other, others) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    reactor.attach(other.number(), 2, BOTH).unwrap();
    refuse(&reactor, &[NOT_ENOUGH_MEMORY; 2]);
    want(&reactor, &ours, 1, Facts::IN, Until::Edge);
    assert_eq!(told(&reactor, || {}), [1], "it has asked before it slept");
    let asked = told(&reactor, || {
        assert!(kernel.wait_for_sleepers(1, SOON));
        refuse(&reactor, &[NO_SYSTEM_RESOURCES; 2]);
        want(&reactor, &ours, 1, Facts::IN, Until::Edge);
    });
    assert_eq!(asked, [1]);
    for _ in 0..10 {
        want(&reactor, &other, 2, Facts::IN, Until::Edge);
        let asked = told(&reactor, || {
            assert!(kernel.wait_for_sleepers(2, SOON));
            refuse(&reactor, &[NOT_ENOUGH_MEMORY; 3]);
            want(&reactor, &ours, 1, Facts::IN, Until::Edge);
            // The thread that was to retry has something else to do.
            others.write(b"x").unwrap();
        });
        assert_eq!(asked, [1, 2]);
        assert_eq!(refusals(&reactor), 0);
        other.read(&mut [0; 8]).unwrap();
    }
}

#[test]
fn a_registration_that_was_put_off_is_made_when_there_is_memory() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    for asks in [true, false] {
        reactor.attach(ours.number(), 1, BOTH).unwrap();
        reactor.detach(ours.number());
        let packets = || {
            let mut state = kernel.lock();
            std::mem::take(&mut state.notifiers.get_mut(&reactor.calls.port).unwrap().packets)
        };
        let last = packets();
        reactor.attach(ours.number(), 2, BOTH).unwrap();
        if asks {
            want(&reactor, &ours, 2, Facts::IN, Until::Edge);
        }
        put_back(&reactor, last);
        kernel.fail_next_attach(ErrorKind::OutOfMemory);
        kernel.fail_next_attach(ErrorKind::WatchLimit);
        assert_eq!(edges(&reactor), [], "that packet");
        assert!(reactor.watches(ours.number()));
        assert_eq!(edges(&reactor), [], "no memory yet");
        assert!(reactor.watches(ours.number()));
        if !asks {
            reactor.adopt(ours.number(), 3, BOTH).unwrap();
            assert_eq!(edges(&reactor), [], "it is there, and was asked nothing");
            want(&reactor, &ours, 2, Facts::IN, Until::Edge);
        }
        assert_eq!(edges(&reactor), [(2, Facts::IN)]);
        reactor.detach(ours.number());
        assert_eq!(edges(&reactor), []);
    }
    // `watches` registers the socket again.
    for until in [Until::Edge, Until::Detached] {
        reactor.attach(ours.number(), 5, BOTH).unwrap();
        want(&reactor, &ours, 5, Facts::IN, until);
        kernel.fail_next_attach(ErrorKind::OutOfMemory);
        assert!(reactor.watches(ours.number()));
        let told: Vec<_> = (0..3).flat_map(|_| edges(&reactor)).collect();
        assert_eq!(told, [(5, Facts::IN)], "{until:?}");
        reactor.detach(ours.number());
        assert_eq!(edges(&reactor), []);
    }
    assert!(has_nothing(&reactor));
}

#[test]
fn what_was_put_off_until_a_removal_is_asked_by_the_poll_that_takes_it() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    let (other, _others) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    reactor.attach(other.number(), 2, BOTH).unwrap();
    reactor.detach(ours.number());
    let last = take_first(&reactor);
    reactor.attach(ours.number(), 3, BOTH).unwrap();
    want(&reactor, &ours, 3, Facts::IN, Until::Edge);
    put_back(&reactor, last);
    // By the same call.
    want(&reactor, &other, 2, Facts::IN, Until::Edge);
    assert_eq!(told(&reactor, || {}), [3]);
}

#[test]
fn a_number_that_is_given_out_again_is_found_out() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    theirs.write(b"x").unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    want(&reactor, &ours, 1, BOTH, Until::Edge);
    assert!(reactor.watches(ours.number()));
    assert_eq!(enabled(&reactor), 1, "it is registered anew, and does not wait");
    assert_eq!(edges(&reactor), [(1, BOTH)], "it is asked what it was asked");
    let number = ours.number();
    drop(ours);
    let (latter, peer) = kernel.tcp_pair().unwrap();
    assert_eq!(latter.number(), number);
    peer.write(b"x").unwrap();
    assert!(!reactor.watches(number));
    assert_eq!(edges(&reactor), []);
    reactor.attach(number, 2, BOTH).unwrap();
    want(&reactor, &latter, 2, BOTH, Until::Edge);
    assert_eq!(edges(&reactor), [(2, BOTH)]);
}

#[test]
fn what_is_watched_until_it_is_detached_is_told_of_what_holds_and_of_changes() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    want(&reactor, &ours, 1, BOTH, Until::Detached);
    assert_eq!(edges(&reactor), [(1, Facts::OUT)]);
    for _ in 0..3 {
        assert_eq!(edges(&reactor), []);
        theirs.write(b"x").unwrap();
        assert!(edges(&reactor)[0].1.has(Facts::IN));
    }
    theirs.reset();
    assert!(edges(&reactor)[0].1.has(Facts::ERR | Facts::HUP));
    // `watches` reports nothing again.
    assert!(reactor.watches(ours.number()));
    assert_eq!(edges(&reactor), []);
}

#[test]
fn what_is_in_the_queue_is_not_lost_by_a_question_whether_a_socket_is_there() {
    let kernel = Kernel::new();
    let reactor = reactor(&kernel);
    let (ours, theirs) = kernel.tcp_pair().unwrap();
    reactor.attach(ours.number(), 1, BOTH).unwrap();
    want(&reactor, &ours, 1, Facts::IN, Until::Detached);
    drop(theirs);
    // Neither the due look nor an edge is lost.
    assert!(reactor.watches(ours.number()));
    let ended = [(1, Facts::IN | Facts::RDHUP)];
    assert_eq!(edges(&reactor), ended);
    assert!(reactor.watches(ours.number()));
    assert_eq!(edges(&reactor), [], "it was told");
    ours.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(reactor.watches(ours.number()));
    assert_eq!(edges(&reactor), ended);
}
