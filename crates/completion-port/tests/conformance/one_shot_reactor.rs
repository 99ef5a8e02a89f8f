//! How ports behave differently with a reactor that is armed again for each report.

use completion_port::{Batch, Events, Interest, OneShot, Packet, Persistent, Registration};
use testkit::on_one_shot_systems;

use crate::kit::packets::{
    ONE_SHOT_LEVEL, assert_closed, assert_quiet, enable, leave_queued, port_on, ready, register,
    repeated, report, the_one,
};
use crate::kit::sockets::{POLLERR, await_facts, fill};

on_one_shot_systems! {
    /// Rule 17: a condition that begins to hold while a packet is queued is reported in the next
    /// one.
    fn what_becomes_true_while_a_packet_is_queued_is_in_the_next_one(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.unix_pair();
        let id = register(&port, &ours, "ours", Interest::ALL, ONE_SHOT_LEVEL);
        leave_queued(&port, system, 1);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::OUT);
        enable(&port, id, Interest::ALL, ONE_SHOT_LEVEL);
        assert_eq!(report(&port, system), Events::IN | Events::OUT);
    }

    /// Rule 20: hints are neither needed nor believed, since arming asks the kernel.
    fn a_wrong_hint_costs_nothing(system: &System) {
        let port = system.port::<&str, ()>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"xy").unwrap();
        port.register(Registration::new(&ours, "key", Interest::IN, OneShot::Level)).unwrap();
        for _ in 0..2 {
            let mut token = ready(&port, system);
            token.read_drained();
            token.rearm().unwrap();
        }
        assert!(ready(&port, system).events().is_in());
    }

    /// Rule 21: a persistent edge registration gets each change once.
    fn a_persistent_edge_registration_is_watched_until_it_ends(system: &System) {
        system.not_by_polls("edge trigger that reports undrained data only once");
        let port = system.port::<&str, ()>(1);
        let (ours, theirs) = system.unix_pair();
        let both = Interest::IN | Interest::OUT;
        port.register(Registration::new(&ours, "key", both, Persistent::Edge)).unwrap();
        let one = || {
            let Packet::Notified(notified) = the_one(&port, system) else { panic!("persistent") };
            notified.events()
        };
        assert_eq!(one(), Events::OUT);
        assert_quiet(&port, system);
        for _ in 0..3 {
            theirs.write(b"x").unwrap();
            assert!(one().is_in());
            assert_quiet(&port, system);
        }
    }

    /// Rules 25 and 27: an error that was reported and not fetched delays no other report.
    fn an_error_that_stays_keeps_no_room_back(system: &System) {
        system.not_by_afd("report that is newer than its request");
        let port = system.port::<&str, ()>(1);
        let (ours, theirs) = system.tcp_pair();
        let out = Interest::OUT;
        port.register(Registration::new(&ours, "key", out, Persistent::Level)).unwrap();
        fill(&ours);
        theirs.reset();
        await_facts(&ours, system, POLLERR);
        let Packet::Notified(notified) = the_one(&port, system) else { panic!("persistent") };
        assert_eq!(notified.events(), Events::OUT | Events::ERR);
    }

    /// Rule 31: a registration that was armed but not yet polled when the port is closed is not
    /// polled any more.
    fn a_closed_port_does_not_ask_any_more(system: &System) {
        let port = system.port::<&str, ()>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        port.register(repeated(&ours, "key")).unwrap();
        drop(the_one(&port, system));
        port.close();
        assert_closed(&port, system);
    }

    /// Rule 30: a duplicate of a closed descriptor is reported once, through its own entry.
    fn a_duplicate_of_a_closed_descriptor_is_reported_once(system: &System) {
        system.not_by_notifications("registrations that outlive their descriptor");
        let port = system.port::<&str, ()>(1);
        let (ours, theirs) = system.unix_pair();
        port.register(Registration::new(&ours, "key", Interest::IN, OneShot::Level)).unwrap();
        assert_quiet(&port, system);
        let duplicate = ours.dup().unwrap();
        drop(ours);
        for _ in 0..3 {
            theirs.write(b"x").unwrap();
            let mut batch = Batch::new();
            for packet in port.wait(&mut batch, system.quiet()).unwrap() {
                if let Packet::Ready(token) = packet {
                    token.rearm().unwrap();
                }
            }
        }
        assert_eq!(port.stats().registered, 0, "arming has found out");
        drop(duplicate);
    }
}
