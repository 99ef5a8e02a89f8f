//! Registrations: the calls of a port that make, change and end them.

use std::time::Duration;

use crate::engine::{NewRegistration, name_parts};
use crate::port::Port;
use crate::port::current::current_worker;
use crate::port::operation::SharedId;
use crate::port::registration::{Id, Registration, SourceOwner};
use crate::port::token::Ready;
use crate::state::slot::Drained;
use crate::types::error::{Call, Error, ErrorKind, Refused, Result};
use crate::types::interest::{Interest, OneShot, Persistent};
use crate::types::source::{Descriptor, Source, SourceName};
use crate::types::trigger::{Terms, Trigger};

impl<K, M, B> Port<K, M, B> {
    /// Registers a descriptor and enables it. If a condition that the filter asks for holds
    /// already, a packet follows at once.
    ///
    /// # Errors
    ///
    /// The key is given back, and nothing is registered:
    /// - [`ErrorKind::AlreadyRegistered`]: on this port ([`Error::registration`] names it), or on another
    ///   one of the process ([`Error::is_on_another_port`]); that registration is untouched.
    /// - [`ErrorKind::BadDescriptor`], [`ErrorKind::NotPollable`]: closed, or of a kind that cannot
    ///   be watched, such as a regular file.
    /// - [`ErrorKind::WrongKernel`]: a simulated socket, and this port is not on its kernel, or a real
    ///   one on a simulated port.
    /// - [`ErrorKind::WatchLimit`], [`ErrorKind::OutOfMemory`]: may succeed later.
    /// - [`ErrorKind::Closed`], [`ErrorKind::Forked`].
    ///
    /// # Threads
    ///
    /// The first packet may be handled by another thread before this returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{ErrorKind, Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<String>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let named = |name: &str| {
    ///     Registration::new(&socket, name.to_owned(), Interest::IN, OneShot::Level)
    /// };
    /// let id = port.register(named("first"))?;
    /// let refused = port.register(named("second")).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
    /// assert_eq!(refused.error().registration(), Some(id));
    /// assert_eq!(refused.into_parts().1, "second"); // the key comes back
    /// assert_eq!(port.remove_and_wait(id, None)?, "first");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(&self, registration: Registration<'_, K>) -> Result<Id, Refused<K>> {
        self.register_as(Call::Register, registration, None, false)
    }

    /// Registers a descriptor. If it is `associated`, it is watched for that from the first, and not armed: a
    /// token has the key, which the caller makes, unless it is `shared`.
    fn register_as(
        &self,
        call: Call,
        registration: Registration<'_, K>,
        associated: Option<Interest>,
        shared: bool,
    ) -> Result<Id, Refused<K>> {
        let Registration { owner, kernel, number, key, terms, source_of } = registration;
        if kernel.is_some_and(|kernel| kernel != self.store.kernel) {
            // Its number may name something else here.
            let usable = self.store.engine.check_open(call);
            let wrong = Error::new(call, ErrorKind::WrongKernel);
            return Err(self.refused(usable.err().unwrap_or(wrong), number, key));
        }
        let reserve = |number| self.store.keys.cells.reserve(number);
        let index = match self.store.engine.reserve_slot(call, reserve) {
            Ok(index) => index,
            Err(error) => return Err(self.refused(error, number, key)),
        };
        self.store.keys.know_clone(terms.clone);
        if let Some(source_of) = source_of {
            self.store.keys.source_of.get_or_init(|| source_of);
        }
        // SAFETY: `put` demands that the caller owns the cell and that it is empty.
        // - owned: the slot was reserved just now, and no other thread knows it;
        // - empty: a slot is given up only after its key was moved out.
        unsafe { self.store.keys.cells.put(index, key) };
        let borrowed = !matches!(owner, SourceOwner::Key);
        let worker = || current_worker(&self.store.engine);
        let entry =
            NewRegistration { descriptor: number, mode: terms.mode, borrowed, associated, shared };
        self.store.engine.register(call, index, entry, worker).map(Id).map_err(|error| {
            // SAFETY: `take` demands that the caller owns the cell, with a value in it.
            // - owned: a refused slot was held by the call all the time, and is given up only below;
            // - a value: the key put there just now.
            let key = unsafe { self.store.keys.cells.take(index) };
            self.store.engine.cancel(index);
            self.refused(error, number, key)
        })
    }

    /// A registration of `number` was refused. A subscriber hears of it.
    #[cold]
    fn refused(&self, error: Error, number: Descriptor, key: K) -> Refused<K> {
        self.store.engine.trace_refused(&error, None, Some(number));
        Refused::new(error, key)
    }

    /// The registration of a source on this port; `None` if the source has none, or if its
    /// registration is being removed. The call asks the system, so that a descriptor that was
    /// closed is not mistaken for another one that has its number now.
    ///
    /// # Threads
    ///
    /// Another thread may end the registration, or make one, before this returns.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<u32>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_eq!(port.id_of(&socket), None);
    /// let id = port.register(Registration::new(&socket, 7, Interest::IN, OneShot::Level))?;
    /// assert_eq!(port.id_of(&socket), Some(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id_of<S: Source + ?Sized>(&self, source: &S) -> Option<Id> {
        let SourceName { kernel, number } = source.as_source().name;
        if kernel == self.store.kernel { self.store.engine.find(number).map(Id) } else { None }
    }

    /// Associates a key with the port, which owns its descriptor: nothing is asked for yet. The token says what
    /// comes first: an operation ([`Ready::start`](crate::Ready::start)), or readiness
    /// ([`Ready::rearm_as`](crate::Ready::rearm_as)).
    ///
    /// A registration that [`Port::register`] has made is an association, too, which is asked for readiness at
    /// once; the token of its packet starts operations as well.
    ///
    /// A file that no system can watch, such as a regular file or a directory, is associated as well. It has the
    /// operations of files ([`Operation::read_at`](crate::Operation::read_at) and so on), and no readiness: to arm it is
    /// refused with [`ErrorKind::NotPollable`].
    ///
    /// # Errors
    ///
    /// As for [`Port::register`], but that files are taken.
    ///
    /// # Platform notes
    ///
    /// Linux: as long as a file is associated, and has had an operation that had to wait, the port has a duplicate of
    /// its descriptor. When that is closed the process loses its POSIX record locks on the file
    /// ([fcntl(2)](https://man7.org/linux/man-pages/man2/F_SETLK.2const.html)), as with any descriptor of it.
    ///
    /// A Unix does not tell the port of a descriptor that other code closes by its number, under the key. An operation in
    /// operation ends when the port next finds the descriptor closed
    /// ([`ErrorKind::BadDescriptor`]), when it is cancelled, or at its deadline: perhaps never.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Operation, Outcome, Packet, Port};
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut near = TcpStream::connect(listener.local_addr()?)?;
    /// let (far, _) = listener.accept()?;
    /// port.associate(far)?.start(Operation::recv(Vec::with_capacity(16)))?;
    /// near.write_all(b"hello")?;
    ///
    /// for packet in port.wait(&mut Batch::new(), None)? {
    ///     let Packet::Completed(done) = packet else { panic!() };
    ///     let (token, Outcome::Received(Ok(5), buffer)) = done.into_parts() else { panic!() };
    ///     assert_eq!(buffer, b"hello");
    ///     token.start(Operation::send_all(buffer))?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn associate(&self, key: K) -> Result<Ready<'_, K, B>, Refused<K>>
    where
        K: Source,
    {
        self.associate_for(key, Interest::IN)
    }

    /// The same, watched for `expected` from the first.
    pub(crate) fn associate_for(
        &self,
        key: K,
        expected: Interest,
    ) -> Result<Ready<'_, K, B>, Refused<K>>
    where
        K: Source,
    {
        let registration = Registration::owned(key, Interest::NONE, OneShot::Level);
        let id = self.register_as(Call::Associate, registration, Some(expected), false)?;
        Ok(Ready::associated(&self.store, name_parts(id.0).0))
    }

    /// Associates a key whose operations are started by the association's name ([`Port::start`]), several at once:
    /// to receive and send, or sixteen accepts on one listener. Their packets bring clones of the key
    /// ([`Packet::SharedCompleted`](crate::Packet::SharedCompleted)), and never a token.
    ///
    /// [`Port::enable`] can ask it for readiness besides, with a persistent trigger. While operations of a
    /// direction are in flight, readiness of that direction is theirs, and is not reported.
    ///
    /// # Errors
    ///
    /// As for [`Port::register`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Operation, Outcome, Packet, Port};
    /// use std::net::{TcpListener, TcpStream};
    /// use std::sync::Arc;
    ///
    /// let port = Port::<Arc<TcpListener>>::new()?;
    /// let listener = Arc::new(TcpListener::bind("127.0.0.1:0")?);
    /// let address = listener.local_addr()?;
    /// let id = port.associate_shared(listener)?;
    /// for _ in 0..16 {
    ///     port.start(id, Operation::accept())?;
    /// }
    /// let _client = TcpStream::connect(address)?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::SharedCompleted(finished)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let (_listener, outcome) = finished.into_parts();
    /// assert!(matches!(outcome, Outcome::Accepted(Ok(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn associate_shared(&self, key: K) -> Result<SharedId, Refused<K>>
    where
        K: Source + Clone + Sync,
    {
        let registration = Registration::owned(key, Interest::NONE, Persistent::Level);
        let id = self.register_as(Call::Associate, registration, Some(Interest::IN), true)?;
        Ok(SharedId(id.0))
    }

    /// See [`Raw::associate_number`](crate::port::raw::Raw::associate_number).
    pub(crate) fn associate_number(
        &self,
        registration: Registration<'_, K>,
    ) -> Result<SharedId, Refused<K>> {
        let id = self.register_as(Call::Associate, registration, Some(Interest::IN), true)?;
        Ok(SharedId(id.0))
    }

    /// Enables a registration by its name, and overwrites its filter and trigger. The registration
    /// may be parked, disabled or enabled already. Its key must be with the port; a handler that
    /// has the key rearms its token instead, by [`Ready::rearm`](crate::Ready::rearm). If a
    /// condition holds, a packet follows at once, whatever the trigger. A packet that is queued
    /// already is checked against the new filter. To add to what a registration reports, whatever state
    /// it is in, call [`Port::enable_also`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::KeyHeld`] if the key is out with a handler, which alone can rearm it;
    /// [`ErrorKind::NotPollable`] if it is a file, which has no readiness;
    /// [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`],
    /// [`ErrorKind::Forked`]. A refused call has changed nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<u32>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = port.register(Registration::new(&socket, 7, Interest::IN, OneShot::Level))?;
    /// port.enable(id, Interest::OUT, OneShot::Level)?; // a UDP socket can be written to at once
    /// let mut batch = Batch::new();
    /// let packet = port.wait(&mut batch, None)?.next();
    /// assert!(matches!(packet, Some(Packet::Ready(ready)) if ready.events().is_out()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable(&self, id: Id, interest: Interest, trigger: impl Trigger<K>) -> Result<()> {
        self.enable_with(id, trigger.terms(interest), || Drained::NONE)
    }

    /// Asks for one more report of a registration: as soon as something of `interest` holds, one packet
    /// tells so, whatever the registration's filter is. It is how the handler of one connection has the
    /// handler of another one called, when that connection can be written to, say.
    ///
    /// The call merges into whatever state the registration is in, and neither waits nor fails for
    /// it:
    ///
    /// - It is enabled: its next packets report `interest` as well, beside its filter.
    /// - A packet of it is queued: that packet reports what holds of `interest` by then.
    /// - Its key is out with a handler: whatever filter that handler rearms it with, `interest`
    ///   is added. So a request that comes while the handler is just finishing is not lost.
    /// - It is parked or disabled: it is enabled with `interest` as its filter, and the trigger that
    ///   it has. A handler that rearms it later says by [`Ready::rearm_as`](crate::Ready::rearm_as) for what.
    ///
    /// What was asked for is forgotten when a packet has reported it, and by [`Port::disable`].
    /// [`Port::enable`], rearming and parking do not forget it. If several threads ask for
    /// the same before that packet, there is one packet. Nothing is asked for by [`Interest::NONE`].
    ///
    /// What a thread did before the call is visible to the handler of that packet: a thread that first
    /// puts data into a queue, and then asks for OUT, can be sure that a handler sees the data.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`]: there is nothing left to
    /// be told. [`ErrorKind::Forked`]. A refused call has changed nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut far, _) = listener.accept()?;
    /// let id = port.register(Registration::owned(near, Interest::IN, OneShot::Level))?;
    /// let mut batch = Batch::new();
    ///
    /// far.write_all(b"x")?;
    /// let mut packets = port.wait(&mut batch, None)?;
    /// let Some(Packet::Ready(mut ready)) = packets.next() else { unreachable!() };
    /// port.enable_also(id, Interest::OUT)?; // another thread may do so, while the key is out
    /// std::io::Read::read(ready.key_mut(), &mut [0; 16])?;
    /// ready.rearm()?; // for IN, and once for OUT
    /// drop(packets);
    ///
    /// let Some(Packet::Ready(ready)) = port.wait(&mut batch, None)?.next() else { unreachable!() };
    /// assert!(ready.events().is_out());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enable_also(&self, id: Id, interest: Interest) -> Result<()> {
        let worker = || current_worker(&self.store.engine);
        self.told(id, self.store.engine.enable_also(id.0, interest, worker))
    }

    #[inline]
    pub(crate) fn enable_with(
        &self,
        id: Id,
        terms: Terms<K>,
        drained: impl Fn() -> Drained,
    ) -> Result<()> {
        self.store.keys.know_clone(terms.clone);
        if self.store.engine.enable_plainly(id.0, terms.mode, &drained) {
            return Ok(());
        }
        self.enable_otherwise(id, terms, drained)
    }

    /// The same in all but the common case.
    #[inline(never)]
    fn enable_otherwise(
        &self,
        id: Id,
        terms: Terms<K>,
        drained: impl Fn() -> Drained,
    ) -> Result<()> {
        let worker = || current_worker(&self.store.engine);
        self.told(id, self.store.engine.enable(id.0, terms.mode, drained, worker))
    }

    /// Disables a registration: nothing is reported of it until it is enabled again. It keeps its
    /// key, and makes no packet. A packet that a thread has not come to yet is not delivered. While
    /// the key is out with a handler this changes nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// let port = Port::<u32>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = port.register(Registration::new(&socket, 7, Interest::OUT, OneShot::Level))?;
    /// port.disable(id)?;
    /// assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO)?.count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disable(&self, id: Id) -> Result<()> {
        self.told(id, self.store.engine.disable(id.0))
    }

    /// Removes a registration, enabled or not. One packet follows, the last one:
    /// [`Packet::Removed`](crate::Packet::Removed), which gives the key back. While the key is out
    /// with a handler, that packet is made when the handler rearms or parks its token; if the
    /// handler drops the token or keeps the key, there is none. The descriptor may be registered
    /// again at once, here or elsewhere.
    ///
    /// Operations of the registration that are in flight are cancelled. Each makes its packet, and
    /// the last packet comes behind these.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotRegistered`] if there is no such registration, or its last packet has been
    /// taken; no packet is made. A second call while that packet is on its way succeeds, and makes
    /// no second packet. [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
    /// use std::net::UdpSocket;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    /// port.remove(id)?;
    /// for packet in port.wait(&mut Batch::new(), None)? {
    ///     let Packet::Removed(removed, socket) = packet else { continue };
    ///     assert_eq!(removed, id);
    ///     drop(socket); // only now is it closed
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, id: Id) -> Result<()> {
        self.told(id, self.store.engine.remove(id.0))
    }

    /// What a call about a registration has come to. A subscriber hears of a refusal.
    #[inline]
    fn told<R>(&self, id: Id, outcome: Result<R>) -> Result<R> {
        outcome.inspect_err(|error| self.store.engine.trace_refused(error, Some(id.0), None))
    }

    /// Removes a registration and waits for its key, which is returned here instead of in a packet.
    /// Packets of it that no thread has come to yet are not delivered.
    ///
    /// # Waiting
    ///
    /// Returns at once unless the key is out with a handler, or operations are in flight. Then it
    /// returns when the handler rearms or parks its token, at most after `timeout` (`None`: no
    /// limit); meanwhile the thread counts as in [`Port::blocking`]. A handler that waits here for a
    /// key that it holds itself waits in vain.
    ///
    /// Operations in flight are cancelled, and each makes its packet. It returns when other threads
    /// have taken all of these packets, and the token that one may bring has come back. So a thread
    /// that is the only one at the port waits for ever, if there is an operation in flight and no
    /// limit: call [`Port::remove`] there, and wait for the packet.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`]: the key is still out; the registration is being removed, as by
    ///   [`Port::remove`].
    /// - [`ErrorKind::NotRegistered`]: there is no such registration, or the handler has dropped or
    ///   kept the key, which ended it.
    /// - [`ErrorKind::Removing`]: it is being removed already; its key comes with the packet.
    /// - [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Interest, OneShot, Port, Registration};
    /// use std::net::UdpSocket;
    /// use std::time::Duration;
    ///
    /// let port = Port::<UdpSocket>::new()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let address = socket.local_addr()?;
    /// let id = port.register(Registration::owned(socket, Interest::IN, OneShot::Level))?;
    /// let socket = port.remove_and_wait(id, Duration::from_secs(1))?;
    /// assert_eq!(socket.local_addr()?, address);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_and_wait(&self, id: Id, timeout: impl Into<Option<Duration>>) -> Result<K> {
        let timeout = timeout.into();
        self.told(id, self.blocking(|| self.store.engine.collect(id.0, timeout)))?;
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - owned: `collect` has made the node this thread's;
        // - a value: the key lies in its cell whenever the slot is not held.
        let key = unsafe { self.store.keys.cells.take(name_parts(id.0).0) };
        self.store.engine.free(id.0);
        Ok(key)
    }
}
