//! Rules 3 and 32: a process forks while it has a port. A simulated kernel has no processes.

use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, Call, Changes, Error, ErrorKind, Events, Id, Interest, OneShot, Packet, Port, Ready,
    Refused, Registration,
};
use testkit::{Socket, System, exit, fork, in_a_process_of_its_own, in_forked_child};

use crate::kit::packets::{
    ONE_SHOT_LEVEL, assert_quiet, leave_queued, one_shot, packet, port_on, ready, register, report,
    the_one, the_token,
};
use crate::kit::threads::{End, settle};

/// Rule 32: the child may create its own port, independent of its parent's. A simulated kernel has
/// no processes, so only the real one is tested.
#[test]
fn a_forked_child_may_make_a_port_of_its_own_epoll() {
    if !in_a_process_of_its_own("children::a_forked_child_may_make_a_port_of_its_own_epoll") {
        return;
    }
    testkit::run(System::native, |on| {
        let port = on.port::<&str, usize>(1);
        let (ours, theirs) = on.unix_pair();
        port.register(one_shot(&ours, "parent's")).unwrap();
        let Some(child) = fork() else {
            // The same number on another port: in the child, no port has registered it.
            let own = on.port::<&str, usize>(1);
            let mut batch = Batch::new();
            let mut packets = || own.wait(&mut batch, on.soon()).map_or(0, Iterator::count);
            let done = own.register(one_shot(&ours, "child's")).is_ok()
                && theirs.write(b"x").is_ok()
                && packets() == 1
                && own.post(1).is_ok()
                && packets() == 1
                && ours.drain() == 1;
            drop(own);
            exit(u8::from(!done));
        };
        assert_eq!(child.status(), 0, "the child's own port does not work");
        assert_quiet(&port, on);
        theirs.write(b"x").unwrap();
        assert_eq!(*the_token(&port, on).key(), "parent's");
        assert_quiet(&port, on);
    });
}

/// Rule 32: a batch belongs to the parent alone, even if it was half taken. A simulated kernel has
/// no processes, so only the real one is tested.
#[test]
fn a_forked_child_takes_nothing_of_its_parents_batch_epoll() {
    if !in_a_process_of_its_own("children::a_forked_child_takes_nothing_of_its_parents_batch_epoll")
    {
        return;
    }
    testkit::run(System::native, |on| {
        let port = on.port::<(), usize>(1);
        (0..3).for_each(|message| port.post(message).unwrap());
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, on.soon()).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(0))));
        let Some(child) = fork() else {
            let nothing = packets.next().is_none() && port.stats().packets.total() == 0;
            drop(packets);
            exit(u8::from(!nothing));
        };
        assert_eq!(child.status(), 0, "the child has a packet of its parent's");
        assert!(matches!(packets.next(), Some(Packet::Posted(1))));
        assert!(matches!(packets.next(), Some(Packet::Posted(2))));
    });
}

/// Rule 32. A simulated kernel has no processes, so only the real one is tested. Runs in a child
/// process, since a fork would keep the sockets of other tests open.
#[test]
fn a_forked_child_is_told_so_and_the_parent_goes_on_epoll() {
    if !in_a_process_of_its_own("children::a_forked_child_is_told_so_and_the_parent_goes_on_epoll")
    {
        return;
    }
    testkit::run(System::native, |on| {
        let port = on.port::<Socket, usize>(1);
        let (ours, theirs) = on.unix_pair();
        let (more, more_theirs) = on.unix_pair();
        let (held, held_theirs) = on.unix_pair();
        let owned = |socket| Registration::owned(socket, Interest::IN, OneShot::Level);
        let first = port.register(owned(held)).unwrap();
        held_theirs.write(b"x").unwrap();
        let token = the_token(&port, on);
        let id = port.register(owned(ours)).unwrap();
        port.post(1).unwrap();

        let Some(child) = fork() else {
            let code = in_the_child(&port, token, id, more, [&more_theirs, &held_theirs]);
            drop(port);
            exit(code);
        };
        assert_eq!(child.status(), 0, "the child failed at the step with that number");

        // Everything is unchanged: the epoll set, the wake-up, the queue and the keys.
        assert!(matches!(the_one(&port, on), Packet::Posted(1)));
        theirs.write(b"x").unwrap();
        assert_eq!(the_token(&port, on).id(), id);
        assert_eq!(token.key().drain(), 1);
        token.rearm().unwrap();
        assert_quiet(&port, on);
        held_theirs.write(b"x").unwrap();
        assert_eq!(the_token(&port, on).id(), first);
        port.register(owned(more)).unwrap();
        more_theirs.write(b"x").unwrap();
        drop(the_token(&port, on));
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let waiter = scope.spawn(|| port.wait(&mut Batch::new(), None).unwrap().count());
            settle(on, &port, 1);
            port.post(2).unwrap();
            assert_eq!(waiter.join().unwrap(), 1);
        });
    });
}

/// Checks that each call reports the fork and that nothing affects the parent's kernel objects.
/// Returns 0, or the number of the step that failed.
fn in_the_child(
    port: &Port<Socket, usize>,
    token: Ready<'_, Socket>,
    id: Id,
    more: Socket,
    peers: [&Socket; 2],
) -> u8 {
    fn is_forked<T>(outcome: Result<T, Error>) -> bool {
        outcome.is_err_and(|error| error.kind() == ErrorKind::Forked)
    }
    let mut batch = Batch::new();
    let mut changes = Changes::new();
    changes.remove(id);
    let registered = port.register(Registration::owned(more, Interest::IN, OneShot::Level));
    let more = registered.map_err(Refused::into_parts);
    let armed = token.rearm().map_err(Refused::into_parts);
    let steps = [
        is_forked(port.wait(&mut batch, None)),
        is_forked(port.process(&mut changes, &mut batch, None)),
        changes.len() == 1,
        port.post(2)
            .is_err_and(|refused| refused.kind() == ErrorKind::Forked && *refused.value() == 2),
        // The keys are returned, and the sockets can be used.
        more.is_err_and(|(error, socket)| {
            error.kind() == ErrorKind::Forked && peers[0].write(b"y").is_ok() && socket.drain() == 1
        }),
        armed.is_err_and(|(error, socket)| {
            error.kind() == ErrorKind::Forked && socket.write(b"y").is_ok() && peers[1].drain() == 1
        }),
        is_forked(port.enable(id, Interest::IN, OneShot::Level)),
        is_forked(port.enable_also(id, Interest::OUT)),
        is_forked(port.disable(id)),
        is_forked(port.remove(id)),
        is_forked(port.remove_and_wait(id, None)),
        is_forked(port.shutdown()),
        port.blocking(|| 7) == 7,
    ];
    port.close();
    steps.iter().position(|done| !done).map_or(0, |step| u8::try_from(step + 1).unwrap_or(99))
}

/// The failed check of a forked child, as its exit status. 0 means none.
type Findings = u8;

/// Numbers the checks of a child, which has no other way to report which one failed.
struct Checks(Findings, Findings);

impl Checks {
    fn new() -> Self {
        Self(0, 0)
    }

    fn check(&mut self, holds: bool) {
        self.0 += 1;
        if !holds && self.1 == 0 {
            self.1 = self.0;
        }
    }
}

/// Rules 3 and 32: the simulated kernel exists in the memory of one process.
#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on_on_epoll() {
    if !in_a_process_of_its_own(
        "children::a_forked_child_is_refused_and_its_parent_goes_on_on_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |system| {
        let port: Port<&str, u32> = system.port(1);
        let (ours, theirs) = system.tcp_pair();
        let (other, other_peer) = system.tcp_pair();
        let id = register(&port, &other, "other", Interest::IN, ONE_SHOT_LEVEL);
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let mut held = Some(ready(&port, system));
        let (timed, timed_peer) = system.tcp_pair();
        register(&port, &timed, "timed", Interest::IN, ONE_SHOT_LEVEL);
        timed_peer.write(b"x").unwrap();
        let mut held_timed = Some(ready(&port, system));
        port.post(7).unwrap();
        let mut batch = Batch::new();
        let (fresh, _fresh_peer) = system.tcp_pair();
        let mut changes = Changes::new();
        let timer = port.post_at(Duration::from_secs(3600), 11).unwrap();
        changes.remove(id);
        let findings = in_forked_child(|| {
            let mut checks = Checks::new();
            let forked = ErrorKind::Forked;
            let new = Registration::new(&fresh, "fresh", Interest::IN, OneShot::Level);
            let refused = port.register(new).unwrap_err().into_parts();
            checks.check((refused.0.kind(), refused.1) == (forked, "fresh"));
            let kind = |done: completion_port::Result<()>| done.err().map(|error| error.kind());
            checks.check(kind(port.enable(id, Interest::IN, OneShot::Level)) == Some(forked));
            checks.check(kind(port.enable_also(id, Interest::OUT)) == Some(forked));
            checks.check(kind(port.disable(id)) == Some(forked));
            checks.check(kind(port.remove(id)) == Some(forked));
            checks.check(kind(port.remove_and_wait(id, None).map(drop)) == Some(forked));
            checks.check(port.post(8).is_err_and(|it| it.kind() == forked && *it.value() == 8));
            let after = port.post_after(9);
            checks.check(after.is_err_and(|it| it.kind() == forked && *it.value() == 9));
            let later = port.post_at(Duration::ZERO, 10);
            checks.check(later.is_err_and(|it| it.kind() == forked && *it.value() == 10));
            checks.check(port.cancel_post(timer).is_none());
            checks.check(kind(port.wait(&mut batch, None).map(drop)) == Some(forked));
            checks.check(
                kind(port.process(&mut changes, &mut batch, None).map(drop)) == Some(forked),
            );
            checks.check(changes.len() == 1);
            checks.check(kind(port.shutdown()) == Some(forked));
            port.close();
            checks.check(port.blocking(|| 5) == 5);
            let (error, key) = held.take().unwrap().rearm().unwrap_err().into_parts();
            checks.check((error.kind(), key) == (forked, "ours"));
            let until = held_timed.take().unwrap().rearm_until(Duration::from_secs(3600));
            let (error, key) = until.unwrap_err().into_parts();
            checks.check((error.kind(), error.call(), key) == (forked, Call::Rearm, "timed"));
            checks.1
        });
        assert_eq!(findings, 0, "the check of this number failed in the child");
        // The parent's port is unchanged.
        held.take().unwrap().rearm().unwrap();
        held_timed.take().unwrap().park().unwrap();
        assert!(matches!(packet(&port, system), Packet::Posted(7)));
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
        other_peer.write(b"x").unwrap();
        let other = ready(&port, system);
        assert_eq!((other.id(), *other.key()), (id, "other"));
        drop(changes);
    });
}

/// Rules 3 and 32: the simulated kernel exists in the memory of one process.
#[test]
fn a_port_that_a_forked_child_drops_goes_on_in_its_parent_on_epoll() {
    if !in_a_process_of_its_own(
        "children::a_port_that_a_forked_child_drops_goes_on_in_its_parent_on_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |system| {
        let port: Port<Socket, u32> = system.port(1);
        let (ours, theirs) = system.tcp_pair();
        let number = ours.number();
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
        theirs.write(b"x").unwrap();
        leave_queued(&port, system, 1);
        let mut port = Some(port);
        let findings = in_forked_child(|| {
            drop(port.take());
            0
        });
        assert_eq!(findings, 0);
        let port = port.unwrap();
        let held = ready(&port, system);
        assert_eq!((held.key().number(), held.events()), (number, Events::IN));
        held.key().drain();
        held.rearm().unwrap();
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
    });
}

/// Rules 3 and 32: the simulated kernel exists in the memory of one process.
#[test]
fn a_forked_child_may_make_a_port_of_its_own_on_epoll() {
    if !in_a_process_of_its_own("children::a_forked_child_may_make_a_port_of_its_own_on_epoll") {
        return;
    }
    testkit::run(System::native, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "parent", Interest::IN, ONE_SHOT_LEVEL);
        let findings = in_forked_child(|| {
            let mut checks = Checks::new();
            let own = port_on(system);
            // The parent's registration of this number does not affect the child.
            let new = Registration::new(&ours, "child", Interest::OUT, OneShot::Level);
            checks.check(own.register(new).is_ok());
            checks.check(matches!(ready(&own, system), held if *held.key() == "child"));
            checks.check(port.post(7).is_err_and(|it| it.kind() == ErrorKind::Forked));
            checks.1
        });
        assert_eq!(findings, 0, "the check of this number failed in the child");
        assert_quiet(&port, system);
        theirs.write(b"x").unwrap();
        assert_eq!(*ready(&port, system).key(), "parent");
    });
}

/// Rule 3: only the real system limits descriptors. The child has the limit to itself.
#[test]
fn a_port_that_finds_no_descriptor_left_is_refused_on_epoll() {
    if !in_a_process_of_its_own(
        "children::a_port_that_finds_no_descriptor_left_is_refused_on_epoll",
    ) {
        return;
    }
    let parent = port_on(&System::native());
    let findings = in_forked_child(|| {
        let mut checks = Checks::new();
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: setrlimit(2) reads a limit at the pointer.
        // - valid for reads: `none` is a local.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        checks.check(set == 0);
        let error = Port::<u32>::new().unwrap_err();
        checks.check(error.kind() == ErrorKind::DescriptorLimit);
        checks.check(error.call() == Call::Create);
        checks.check(error.os_code() == Some(libc::EMFILE));
        checks.1
    });
    assert_eq!(findings, 0, "the check of this number failed in the child");
    drop(parent);
}
