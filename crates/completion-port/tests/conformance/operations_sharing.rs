//! Rule 65: shared associations, and readiness of associations.

use std::sync::mpsc;
use std::thread;

use completion_port::{
    Batch, ErrorKind, Events, Interest, OneShot, Operation, Packet, Persistent, Port, Registration,
};
use testkit::on_every_system;

use crate::kit::operations::{
    Shared, all, assert_connected, bytes, done, finished, next, room, sent, shared_on, silent,
    sockets_on, sort, why,
};
use crate::kit::packets::{each_packet, notified, ready, refused};
use crate::kit::threads::{End, hear};

on_every_system! {
    /// Rule 65: each packet brings a clone and names its operation.
    fn packets_of_a_shared_association_bring_clones(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let receive = port.start(id, Operation::recv(room(4))).unwrap();
        let send = port.start(id, Operation::send(b"x".to_vec())).unwrap();
        far.write(b"y").unwrap();
        let mut clones = Vec::new();
        let mut names = Vec::new();
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            assert_eq!(finished.id(), id);
            names.push(finished.operation());
            clones.push(finished.into_parts().0);
        }
        names.sort_unstable();
        let mut wanted = [receive, send];
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        assert_eq!(far.read_within(system.soon(), 1), b"x");
        assert_connected(&clones[0], &far, system);
        // The port has its own clone, so the others may be dropped.
        clones.clear();
        port.start(id, Operation::recv(room(4))).unwrap();
        far.write(b"z").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"z");
        port.remove(id.id()).unwrap();
        let Packet::Removed(_, key) = next(&port, system) else { panic!("no removal") };
        let near = Shared::into_inner(key).expect("nothing else has the key");
        assert_connected(&near, &far, system);
    }

    /// Rule 65: a one-shot packet would move out a key that operations share.
    fn a_shared_key_is_never_a_handlers_own(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        for in_flight in [false, true] {
            if in_flight {
                port.start(id, Operation::recv(room(4))).unwrap();
            }
            for trigger in [OneShot::Level, OneShot::Edge] {
                let kind = refused(port.enable(id.id(), Interest::IN, trigger));
                assert_eq!(kind, ErrorKind::KeyShared);
            }
        }
        far.write(b"x").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
        port.enable(id.id(), Interest::OUT, Persistent::Edge).unwrap();
        assert!(notified(&port, system).events().is_out());
        assert_eq!(
            refused(port.enable(id.into(), Interest::IN, OneShot::Level)),
            ErrorKind::KeyShared
        );
    }

    /// Rule 65: an operation started by a token holds the key.
    fn a_key_is_held_by_the_operation_of_a_token(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let token = port.associate(near).unwrap();
        let id = token.id();
        assert_eq!(refused(port.enable(id, Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
        token.recv(room(4)).unwrap();
        assert_eq!(refused(port.enable(id, Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
        // Disabling changes nothing while the key is out.
        port.disable(id).unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"x");
        assert_eq!(refused(port.enable(id, Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
        token.park().unwrap();
        port.enable(id, Interest::OUT, OneShot::Level).unwrap();
        assert_eq!(ready(&port, system).events(), Events::OUT);
    }

    /// Rules 12 and 65: a request by `enable_also` is kept until an operation returns the key.
    fn what_is_asked_for_besides_is_reported_when_the_operation_is_done(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let token = port.associate(near).unwrap();
        let id = token.id();
        token.recv(room(4)).unwrap();
        port.enable_also(id, Interest::OUT).unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"x");
        // It is kept through another operation.
        token.send(b"y".to_vec()).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(sent(&outcome), Ok(1));
        token.park().unwrap();
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::OUT);
        token.park().unwrap();
        silent(&port, system);
    }

    /// Rule 65: it is enabled while operations are in flight, and disabled again, which ends none
    /// of them.
    fn a_shared_association_is_enabled_and_disabled(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        assert!(notified(&port, system).events().is_in());
        assert_eq!(near.read(&mut [0; 4]).unwrap(), 1);
        port.start(id, Operation::recv(room(4))).unwrap();
        port.disable(id.id()).unwrap();
        silent(&port, system);
        far.write(b"y").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"y");
        far.write(b"z").unwrap();
        silent(&port, system);
        port.enable_also(id.id(), Interest::IN).unwrap();
        let report = notified(&port, system);
        assert!(report.events().is_in() && report.id() == id.id());
    }

    /// Rule 65: a receive and a send start on one association while a report is queued.
    fn operations_start_while_a_report_is_queued(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
        far.write(b"x").unwrap();
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(port.stats().queued, 1);
        port.start(id, Operation::recv(room(4))).unwrap();
        let mut sorts: Vec<_> = Vec::new();
        let mut batch = Batch::new();
        loop {
            let before = sorts.len();
            for packet in port.wait(&mut batch, system.quiet()).unwrap() {
                sorts.push(sort(&packet));
                if let Packet::SharedCompleted(finished) = packet {
                    assert_eq!(bytes(finished.into_parts().1), b"x");
                }
            }
            if sorts.len() == before {
                break;
            }
        }
        // The report was first. Its check may or may not drop it.
        assert!(sorts == ["finished"] || sorts == ["notified", "finished"], "{sorts:?}");
    }

    /// Rule 65: a token's association may continue as a registration with any trigger.
    fn a_token_may_be_rearmed_as_persistent(system: &System) {
        let port: Port<Shared, u32> = system.port(1);
        let (near, far) = system.unix_pair();
        port.associate(Shared::new(near)).unwrap().recv(room(4)).unwrap();
        far.write(b"x").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"x");
        let id = token.id();
        token.rearm_as(Interest::IN, Persistent::Level).unwrap();
        silent(&port, system);
        far.write(b"y").unwrap();
        let report = notified(&port, system);
        assert!(report.events().is_in() && report.id() == id);
        assert_eq!(report.key().read(&mut [0; 4]).unwrap(), 1);
        port.enable(id, Interest::OUT, OneShot::Level).unwrap();
        let token = loop {
            match next(&port, system) {
                Packet::Ready(token) => break token,
                Packet::Notified(_) => {}
                other => panic!("{}", sort(&other)),
            }
        };
        assert_eq!(token.events(), Events::OUT);
        token.send(b"z".to_vec()).unwrap();
        assert_eq!(sent(&done(&port, system).1), Ok(1));
    }

    /// Rule 65: several threads send and receive on one association, and start the next operations.
    fn several_threads_start_operations_by_one_name(system: &System) {
        const EACH: usize = 200;
        system.several_threads_wait();
        let port: Port<Shared, u32> = system.port(0);
        let (near, far) = system.unix_pair();
        let [near, far] = [near, far].map(|socket| {
            port.associate_shared(Shared::new(socket)).unwrap()
        });
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for _ in 0..2 {
                let (port, say) = (&port, say.clone());
                scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(3), |packet| {
                            let Packet::SharedCompleted(finished) = packet else { panic!() };
                            let is_receive = finished.id() == far;
                            let outcome = finished.into_parts().1;
                            assert!(outcome.error().is_none(), "{outcome:?}");
                            let len = if is_receive { bytes(outcome).len() } else { 0 };
                            say.send((is_receive, len)).unwrap();
                    });
                });
            }
            for _ in 0..2 {
                let port = &port;
                scope.spawn(move || {
                    for _ in 0..EACH {
                        port.start(near, Operation::send_all(vec![7; 10])).unwrap();
                        port.start(far, Operation::recv(room(10))).unwrap();
                    }
                });
            }
            let (mut received, mut packets) = (0, 0);
            while packets < 2 * 2 * EACH {
                let (_, len) = hear(system, &heard, "each makes its packet");
                received += len;
                packets += 1;
            }
            assert_eq!(received, 2 * EACH * 10);
        });
    }

    /// Rule 65: a persistent registration has no token and starts no operations.
    fn a_borrowed_persistent_registration_starts_nothing(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let near = Shared::new(near);
        let trigger = Persistent::Level;
        let id = port.register(Registration::owned(near, Interest::IN, trigger)).unwrap();
        let (other, other_far) = system.unix_pair();
        let shared = port.associate_shared(Shared::new(other)).unwrap();
        assert!(shared.id() != id);
        let receive = port.start(shared, Operation::recv(room(4))).unwrap();
        port.remove(id).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        assert!(port.cancel(receive).unwrap());
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
        drop(other_far);
    }
}
