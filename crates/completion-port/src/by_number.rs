//! The calls for those who know a descriptor by its number alone and a key by its copy: other
//! languages, whose handlers keep no token.

use std::os::fd::RawFd;
use std::time::Duration;

use crate::batch::Batch;
use crate::engine::token_parts;
use crate::error::{Refused, Result};
use crate::interest::Interest;
use crate::membership::current_seat;
use crate::packet::Packets;
use crate::port::Port;
use crate::registration::{Id, Registration};
use crate::state::slot::{Drained, Mode};
use crate::trigger;

/// Filter and trigger of a registration, of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "terms do nothing until a registration is made or enabled with them"]
pub struct Terms(Mode);

impl Terms {
    /// Reports `interest`: begins to hold (`edge`) or holds (otherwise), once (`one_shot`) or until
    /// it is disabled (otherwise).
    pub const fn new(interest: Interest, edge: bool, one_shot: bool) -> Self {
        Self(Mode { interest, edge, one_shot })
    }
}

/// What is known about a descriptor when its registration is enabled again: nothing, unless said.
///
/// It must have been found out after the last packet of the registration was taken, and before it is
/// enabled. See [`Ready::read_drained`](crate::Ready::read_drained) for when that is so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "hints do nothing until a registration is enabled with them"]
pub struct Hints(Drained);

impl Hints {
    /// Whether the next read would block, and whether the next write would.
    pub const fn new(read_drained: bool, write_full: bool) -> Self {
        let read = if read_drained { Drained::READ } else { Drained::NONE };
        let write = if write_full { Drained::WRITE } else { Drained::NONE };
        Self(read.and(write))
    }
}

impl<K: Clone, M> Port<K, M> {
    /// Registers a descriptor by its number. As [`Port::register`], for a descriptor that stays with
    /// the caller, and with any trigger.
    ///
    /// # Errors
    ///
    /// As for [`Port::register`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Hints, Interest, Packet, Port, Terms};
    /// use std::net::UdpSocket;
    /// use std::os::fd::AsRawFd;
    ///
    /// let port = Port::<usize>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let once = Terms::new(Interest::OUT, false, true);
    /// let id = port.register_number(socket.as_raw_fd(), 7, once)?;
    /// for _ in 0..2 {
    ///     let mut batch = Batch::new();
    ///     let packet = port.wait_cloned(&mut batch, None)?.next();
    ///     let Some(Packet::Notified(notified)) = packet else { panic!("{packet:?}") };
    ///     assert_eq!((notified.id(), *notified.key()), (id, 7));
    ///     port.enable_again(id, once, Hints::default)?; // there is no token
    /// }
    /// assert!(port.is_current(id));
    /// port.forget(id)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register_number(
        &self,
        descriptor: RawFd,
        key: K,
        terms: Terms,
    ) -> std::result::Result<Id, Refused<K>> {
        let terms = trigger::Terms { mode: terms.0, clone: Some(K::clone as fn(&K) -> K) };
        self.register(Registration::numbered(descriptor, key, terms))
    }

    /// Enables a registration, and overwrites its filter and trigger. As [`Port::enable`], with any
    /// trigger, and with hints that spare the question whether a condition holds still. `hints` is
    /// asked, perhaps more than once, when the state is known that is about to be changed: a packet that
    /// was taken before shows in whatever the clone of its key has counted. Nobody else may enable this
    /// registration meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`Port::enable`].
    pub fn enable_again(&self, id: Id, terms: Terms, hints: impl Fn() -> Hints) -> Result<()> {
        let terms = trigger::Terms { mode: terms.0, clone: Some(K::clone as fn(&K) -> K) };
        self.enable_with(id, terms, || hints().0)
    }

    /// Waits for packets, as [`Port::wait`]; but each packet of a registration is
    /// [`Packet::Notified`](crate::Packet::Notified), with a clone of the key. One that is one-shot
    /// keeps its key, and is disabled until somebody enables it by its name.
    ///
    /// The key is cloned before the packet is taken: a clone that counts tells whether a packet was
    /// taken since.
    ///
    /// # Waiting
    ///
    /// As for [`Port::wait`].
    ///
    /// # Errors
    ///
    /// As for [`Port::wait`].
    pub fn wait_cloned<'b, 'p>(
        &'p self,
        batch: &'b mut Batch,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<Packets<'b, 'p, K, M>> {
        self.keys().know_clone(Some(K::clone));
        self.wait(batch, timeout).map(Packets::with_clones)
    }
}

impl<K, M> Port<K, M> {
    /// Ends a registration at once and without a packet, as if its descriptor had been closed. Its key
    /// is dropped; if it is out with a handler, when he gives it back. A packet that another thread has
    /// taken is his.
    ///
    /// The descriptor should still be open: then nothing is left behind in the kernel, whatever
    /// duplicates there are.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`](crate::ErrorKind::NotRegistered) if there is no such registration, or it is being removed; its last
    /// packet comes then. [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    pub fn forget(&self, id: Id) -> Result<()> {
        if self.engine().abolish(id.0)? {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: `abolish` has made the node this thread's;
            // - a value: the key lies in its cell whenever the slot is not held.
            let key = unsafe { self.keys().cells.take(token_parts(id.0).0) };
            self.engine().free(id.0);
            drop(key);
        }
        Ok(())
    }

    /// Whether a registration goes on and its descriptor is the one that was registered: false if that
    /// was closed since, also if its number has been given out again. A system call.
    #[must_use]
    pub fn is_current(&self, id: Id) -> bool {
        self.engine().is_current(id.0)
    }

    /// Whether a packet is queued, that is, whether a wait would bring one if its thread may run. None is
    /// taken, and the calling thread does not count as one that waits or runs. What the kernel has to report
    /// is queued by this call, unless a thread sits in the kernel's wait, which does so.
    ///
    /// What the calling thread has not looked at in its own iterator counts, since its next wait takes that
    /// back; unless the registration was enabled again meanwhile, so that it needs another look. What another
    /// thread has in its iterator, or is looking at in this moment, does not count.
    ///
    /// A registration that was disabled or changed while its packet was queued may leave an entry in the
    /// queue that comes to nothing. One call looks at no more than 256 entries, and puts those that come to
    /// nothing at the end of the queue: it may say false if more of them stand before the first packet, and
    /// a later call, or a wait, finds that.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) if the port is closed and nothing is left in it,
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port};
    ///
    /// let port: Port<(), u32> = Port::builder().build()?;
    /// let mut batch = Batch::new();
    /// assert!(!port.has_packets(&mut batch)?);
    /// port.post(1)?;
    /// assert!(port.has_packets(&mut batch)?);
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// assert!(!port.has_packets(&mut batch)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn has_packets(&self, batch: &mut Batch) -> Result<bool> {
        let own = current_seat(self.engine());
        self.engine().has_packets(own.as_deref(), &mut batch.scratch)
    }

    /// Closes the port and leaves what is queued: all waits end at once with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), and
    /// its descriptors can be registered elsewhere.
    ///
    /// To get what is queued, call [`Port::close`]; to get every key back, [`Port::shutdown`].
    pub fn abandon(&self) {
        if !self.engine().forked() {
            self.engine().abandon();
        }
    }

    /// Whether this process is a forked child of the one that made the port, which every other call
    /// answers with [`ErrorKind::Forked`](crate::ErrorKind::Forked).
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.engine().forked()
    }
}
