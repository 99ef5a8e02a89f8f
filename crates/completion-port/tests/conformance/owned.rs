//! Rule 46: a key that owns its descriptor and shares it with its clones.

use completion_port::{
    Batch, ErrorKind, Events, Id, Interest, OneShot, Packet, Persistent, Port, Registration,
    SharedSource,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::packets::{notified, ready};

/// A socket that all clones share.
type Key = SharedSource<Socket>;

const BOTH: [Persistent; 2] = [Persistent::Level, Persistent::Edge];

fn port_on(on: &System) -> Port<Key> {
    on.port(1)
}

fn owned(socket: Socket, trigger: Persistent) -> Registration<'static, Key> {
    Registration::owned(Key::new(socket), Interest::IN, trigger)
}

/// Drops a clone. Returns whether it was the last one.
fn is_last(key: Key) -> bool {
    SharedSource::into_inner(key).is_some()
}

/// Returns all packets of one wait.
fn packets<'p>(port: &'p Port<Key>, on: &System) -> Vec<Packet<'p, Key, ()>> {
    port.wait(&mut Batch::new(), on.quiet()).unwrap().collect()
}

/// Ends a registration, and drops the port's own key if it is returned.
type End = fn(Port<Key>, Id, &System) -> Option<Port<Key>>;

/// Every way in which a persistent registration ends.
const ENDS: [(&str, End); 4] = [
    ("removed", |port, id, on| {
        port.remove(id).unwrap();
        let removed = port.wait(&mut Batch::new(), on.soon()).unwrap().next();
        assert!(matches!(removed, Some(Packet::Removed(name, _)) if name == id), "{removed:?}");
        drop(removed);
        Some(port)
    }),
    ("removed and waited for", |port, id, _| {
        drop(port.remove_and_wait(id, None).unwrap());
        Some(port)
    }),
    ("shut down", |port, _, on| {
        port.shutdown().unwrap();
        let mut batch = Batch::new();
        while let Ok(packets) = port.wait(&mut batch, on.soon()) {
            drop(packets.collect::<Vec<_>>());
        }
        Some(port)
    }),
    ("dropped with its port", |port, _, _| {
        drop(port);
        None
    }),
];

on_every_system! {
    /// Rule 46.
    fn packets_of_an_owned_key_bring_clones_that_share_its_descriptor(system: &System) {
        for trigger in BOTH {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = port.register(owned(ours, trigger)).unwrap();
            for _ in 0..3 {
                theirs.write(b"x").unwrap();
                let packet = notified(&port, system);
                assert_eq!((packet.id(), packet.events()), (id, Events::IN), "{trigger:?}");
                assert_eq!(packet.key().drain(), 1);
                // The clone is dropped, and the port's own key keeps the socket open.
                drop(packet);
                assert_eq!(packets(&port, system).len(), 0, "{trigger:?}");
            }
            let key = port.remove_and_wait(id, None).unwrap();
            assert!(is_last(key), "the port has kept a clone");
        }
    }

    /// Rule 46.
    fn clones_keep_the_descriptor_of_an_ended_registration_open(system: &System) {
        for ((how, end), trigger) in ENDS.into_iter().flat_map(|end| BOTH.map(|t| (end, t))) {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = port.register(owned(ours, trigger)).unwrap();
            theirs.write(b"x").unwrap();
            let clone = notified(&port, system).into_key();
            clone.drain();
            let port = end(port, id, system);

            // Nothing more is reported, although the socket is open and readable.
            theirs.write(b"y").unwrap();
            if let Some(port) = &port
                && let Ok(mut packets) = port.wait(&mut Batch::new(), system.quiet())
            {
                assert!(packets.next().is_none(), "{how}, {trigger:?}");
            }
            assert_eq!(clone.read_within(system.soon(), 1), b"y", "{how}, {trigger:?}");

            // It can be registered again, also on another port.
            let other = port_on(system);
            let again = Registration::owned(clone.clone(), Interest::IN, trigger);
            let again = other.register(again).unwrap();
            theirs.write(b"z").unwrap();
            assert_eq!(notified(&other, system).id(), again, "{how}, {trigger:?}");
            drop(other.remove_and_wait(again, None).unwrap());

            // The last clone closes it.
            clone.drain();
            assert!(is_last(clone), "{how}, {trigger:?}: a key was leaked");
            assert_eq!(theirs.read_within(system.soon(), 1), b"", "{how}, {trigger:?}");
        }
    }

    /// Rule 46.
    fn a_descriptor_that_clones_keep_open_is_registered_once(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = port.register(owned(ours, Persistent::Level)).unwrap();
        theirs.write(b"x").unwrap();
        let clone = notified(&port, system).into_key();
        let again = Registration::owned(clone, Interest::IN, Persistent::Level);
        let refused = port.register(again).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
        assert_eq!(refused.error().registration(), Some(id));
        assert_eq!(refused.into_parts().1.drain(), 1, "the clone comes back");
    }

    /// Rules 9 and 46.
    fn an_owned_key_may_become_persistent_and_one_shot_again(system: &System) {
        for trigger in BOTH {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let new = Registration::owned(Key::new(ours), Interest::IN, OneShot::Level);
            let id = port.register(new).unwrap();
            theirs.write(b"x").unwrap();
            let token = ready(&port, system);
            // Its handler arms it persistently.
            token.key().drain();
            token.rearm_as(Interest::IN, trigger).unwrap();
            for _ in 0..2 {
                assert_eq!(packets(&port, system).len(), 0, "{trigger:?}");
                theirs.write(b"x").unwrap();
                assert_eq!(notified(&port, system).into_key().drain(), 1, "{trigger:?}");
            }
            assert_eq!(packets(&port, system).len(), 0, "{trigger:?}");
            // Enabling by id makes it one-shot again.
            port.enable(id, Interest::IN, OneShot::Level).unwrap();
            theirs.write(b"x").unwrap();
            let token = ready(&port, system);
            assert_eq!(token.id(), id);
            let key = token.into_key();
            assert!(is_last(key), "{trigger:?}: the port has kept a clone");
        }
    }
}
