//! The calls of a port that make, change and end registrations.

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
    /// Registers a descriptor and enables it.
    ///
    /// If a requested condition already holds, a packet follows immediately.
    ///
    /// # Errors
    ///
    /// On failure, nothing is registered and the error returns the key:
    /// - [`ErrorKind::AlreadyRegistered`]: the descriptor is registered on this port
    ///   ([`Error::registration`] names the registration), or on another port of the process
    ///   ([`Error::is_on_another_port`]). That registration is untouched.
    /// - [`ErrorKind::BadDescriptor`], [`ErrorKind::NotPollable`]: the descriptor is closed, or of
    ///   a kind that cannot be watched, such as a regular file.
    /// - [`ErrorKind::WrongKernel`]: a simulated socket whose kernel is not this port's, or a real
    ///   socket on a simulated port.
    /// - [`ErrorKind::WatchLimit`], [`ErrorKind::OutOfMemory`]: the call may succeed later.
    /// - [`ErrorKind::Closed`], [`ErrorKind::Forked`].
    ///
    /// # Threads
    ///
    /// Another thread may handle the first packet before this returns.
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

    /// Registers a descriptor, or associates it.
    ///
    /// With `associated`, the port watches the descriptor for that interest from the start, but
    /// doesn't arm it. Unless it is `shared`, the caller makes a token, which holds the key.
    fn register_as(
        &self,
        call: Call,
        registration: Registration<'_, K>,
        associated: Option<Interest>,
        shared: bool,
    ) -> Result<Id, Refused<K>> {
        let Registration { owner, kernel, number, key, terms, source_of, deadline } = registration;
        if kernel.is_some_and(|kernel| kernel != self.store.kernel) {
            // On this port, its number may name another descriptor.
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
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - owned: the slot was just reserved, and no other thread knows it;
        // - empty: a slot is freed only after its key was moved out.
        unsafe { self.store.keys.cells.put(index, key) };
        let borrowed = !matches!(owner, SourceOwner::Key);
        let worker = || current_worker(&self.store.engine);
        let entry =
            NewRegistration { descriptor: number, mode: terms.mode, borrowed, associated, shared };
        let engine = &self.store.engine;
        let registered = match deadline {
            None => engine.register(call, index, entry, worker),
            Some(deadline) => {
                let at = deadline.moment(engine.backend());
                engine.register_until(call, index, entry, at, worker)
            }
        };
        registered.map(Id).map_err(|error| {
            // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
            // - owned: this call holds the slot from its reservation until `cancel` below frees it;
            // - a value: the key that was just put there.
            let key = unsafe { self.store.keys.cells.take(index) };
            self.store.engine.cancel(index);
            self.refused(error, number, key)
        })
    }

    /// Makes the error of a refused registration of `number`, and reports it to the tracing
    /// subscriber.
    #[cold]
    fn refused(&self, error: Error, number: Descriptor, key: K) -> Refused<K> {
        self.store.engine.trace_refused(&error, None, Some(number));
        Refused::new(error, key)
    }

    /// Returns the registration of a source on this port.
    ///
    /// Returns `None` if the source has no registration, or if its registration is being removed.
    /// The call asks the system, so that it doesn't mistake a closed descriptor for a new one with
    /// the same number.
    ///
    /// # Threads
    ///
    /// Another thread may end or make the registration before this returns.
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

    /// Associates a key, which owns its descriptor, with the port.
    ///
    /// The port reports nothing yet. The returned token starts an operation
    /// ([`Ready::start`](crate::Ready::start)) or arms the association for readiness
    /// ([`Ready::rearm_as`](crate::Ready::rearm_as)).
    ///
    /// [`Port::register`] makes an association as well, and arms it immediately. The token of its
    /// packet can start operations too.
    ///
    /// Files that the system cannot watch, such as regular files and directories, can also be
    /// associated. They support the operations on files
    /// ([`Operation::read_at`](crate::Operation::read_at) and so on), but not readiness: arming one
    /// fails with [`ErrorKind::NotPollable`].
    ///
    /// # Errors
    ///
    /// As for [`Port::register`], except that files are accepted.
    ///
    /// # Platform notes
    ///
    /// Linux: once an operation on an associated file had to wait, the port keeps a duplicate of
    /// its descriptor until the association ends. Closing that duplicate releases the process's
    /// POSIX record locks on the file
    /// ([fcntl(2)](https://man7.org/linux/man-pages/man2/F_SETLK.2const.html)), as closing any
    /// descriptor of the file does.
    ///
    /// Unix: the system does not notify the port if other code closes the key's descriptor by its
    /// number. An operation in flight ends when the port next finds the descriptor closed
    /// ([`ErrorKind::BadDescriptor`]), when it is cancelled, or at its deadline. It may never end.
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

    /// Associates a key, and watches its descriptor for `expected` from the start.
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

    /// Associates a key whose operations are started by the association's name ([`Port::start`]).
    ///
    /// Several operations can be in flight simultaneously: a receive and a send, or sixteen accepts
    /// on one listener. Their packets carry clones of the key
    /// ([`Packet::SharedCompleted`](crate::Packet::SharedCompleted)), and never a token. One wait
    /// brings the packets of all that can be done, up to 64, or 16 where several threads may run.
    ///
    /// [`Port::enable`] also arms it for readiness, with a persistent trigger. While operations of
    /// a direction are in flight, readiness of that direction belongs to them and is not reported.
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

    /// Takes the key of a shared association back, as a token. The registration and its name stay
    /// the same.
    ///
    /// It is the opposite of [`Ready::share`](crate::Ready::share), and works for any shared
    /// association. The call makes no system call and no packet, and doesn't wait. If the
    /// association was enabled, it is disabled. The token's first rearming reports what arrived
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// If the call fails, nothing has changed:
    /// - [`ErrorKind::KeyShared`]: an operation is in flight, which it is until its packet was
    ///   taken. Or a packet of readiness is queued, or a thread is about to make one; disable the
    ///   association, and try again when a thread has waited on the port.
    /// - [`ErrorKind::NotShared`]: a token, or an operation of a token, has the key.
    /// - [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`],
    ///   [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// See [`Ready::share`](crate::Ready::share).
    pub fn unshare(&self, id: SharedId) -> Result<Ready<'_, K, B>> {
        self.told(id.id(), self.store.engine.unshare_key(id.0))?;
        Ok(Ready::associated(&self.store, name_parts(id.0).0))
    }

    /// See [`Raw::associate_number`](crate::port::raw::Raw::associate_number).
    pub(crate) fn associate_number(
        &self,
        registration: Registration<'_, K>,
    ) -> Result<SharedId, Refused<K>> {
        let id = self.register_as(Call::Associate, registration, Some(Interest::IN), true)?;
        Ok(SharedId(id.0))
    }

    /// Enables a registration by its name and overwrites its filter and trigger.
    ///
    /// The registration may be parked, disabled or already enabled, but no handler may hold its
    /// key. A handler that holds the key rearms its token instead, with
    /// [`Ready::rearm`](crate::Ready::rearm). If a condition holds, a packet follows immediately,
    /// whatever the trigger. A packet that is already queued is checked against the new filter.
    ///
    /// To add to what a registration reports in any state, call [`Port::enable_also`].
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::KeyHeld`]: a handler holds the key, and only that handler can rearm it.
    /// - [`ErrorKind::NotPollable`]: it is a file, which has no readiness.
    /// - [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`],
    ///   [`ErrorKind::Forked`].
    ///
    /// A refused call has changed nothing.
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

    /// Requests one extra report of a registration, whatever state it is in.
    ///
    /// As soon as a condition of `interest` holds, one packet reports it, whatever the
    /// registration's filter is. Use it to wake another connection's handler, for example when that
    /// connection can be written to.
    ///
    /// The effect depends on the state of the registration. The call neither waits nor fails
    /// because of it:
    ///
    /// - Enabled: its next packets report `interest` in addition to its filter.
    /// - A packet is queued: that packet reports the conditions of `interest` that hold when it is
    ///   taken.
    /// - A handler holds the key: `interest` is added to whatever filter the handler rearms it
    ///   with. So a request that arrives while the handler is finishing is not lost.
    /// - Parked or disabled: it is enabled with `interest` as its filter, and with its current
    ///   trigger. A handler that rearms it later chooses the filter with
    ///   [`Ready::rearm_as`](crate::Ready::rearm_as).
    ///
    /// A packet that reports the request clears it, and so does [`Port::disable`].
    /// [`Port::enable`], rearming and parking keep it. Requests that several threads make before
    /// that packet share the one packet. [`Interest::NONE`] requests nothing.
    ///
    /// The handler of that packet sees everything that the calling thread did before the call. So a
    /// thread that first pushes data into a queue and then requests OUT can be sure that a handler
    /// sees the data.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotRegistered`], [`ErrorKind::Removing`], [`ErrorKind::Closed`]: the
    ///   registration has ended or is ending, or the port is closed, so there is no handler to
    ///   wake.
    /// - [`ErrorKind::Forked`].
    ///
    /// A refused call has changed nothing.
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

    /// Enables a registration in every case except the common one, in which no remembered state
    /// needs a check.
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

    /// Returns whether a short read of a TCP stream has left nothing that this registration reported.
    ///
    /// A short read returns at least one byte, and fewer than it had room for. The same holds for a
    /// batch of datagrams that [has emptied](crate::Datagrams::is_drained) its socket. Call this
    /// after the read. If it returns true, whatever comes next makes a new edge: a handler of an edge-triggered
    /// registration need not read again until [`WouldBlock`](std::io::ErrorKind::WouldBlock).
    ///
    /// Returns false once the system has reported urgent data, an error or the end of the stream: a
    /// read may stop in front of each of them. Also returns false if the port doesn't know the
    /// registration, and always on Windows, which makes no edge unasked. FreeBSD and NetBSD do not
    /// report urgent data.
    ///
    /// For a short read, the caller makes sure that the socket is a TCP stream, that no layer of the
    /// kernel lies above it (kTLS), and that this process has not shut its reading half.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration};
    /// use std::io::{Read, Write};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let mut far = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut near, _) = listener.accept()?;
    /// near.set_nonblocking(true)?;
    /// let port = Port::<()>::new()?;
    /// let interest = Interest::IN | Interest::HANGUP;
    /// let id = port.register(Registration::new(&near, (), interest, Persistent::Edge))?;
    ///
    /// let (mut received, mut buffer) = (0, [0; 64]);
    /// far.write_all(b"hello")?;
    /// while received < 5 {
    ///     port.wait(&mut Batch::new(), None)?.next();
    ///     loop {
    ///         let read = match near.read(&mut buffer) {
    ///             Ok(read) => read,
    ///             Err(_) => break, // it would block
    ///         };
    ///         received += read;
    ///         if read < buffer.len() && port.is_drained_by_short_read(id) {
    ///             break; // the same, without another system call
    ///         }
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_drained_by_short_read(&self, id: Id) -> bool {
        self.store.engine.is_drained_by_short_read(id.0)
    }

    /// Disables a registration: nothing is reported until it is enabled again.
    ///
    /// It keeps its key and makes no packet. A queued packet that no thread has reached yet is not
    /// delivered. While a handler holds the key, this changes nothing.
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

    /// Removes a registration, enabled or not.
    ///
    /// One last packet follows, [`Packet::Removed`](crate::Packet::Removed), which returns the key.
    /// If a handler holds the key, that packet is made when the handler rearms or parks its token.
    /// If the handler drops the token or keeps the key, there is no packet. The descriptor may be
    /// registered again immediately, here or elsewhere.
    ///
    /// The registration's operations in flight are cancelled. Each makes its packet, and the last
    /// packet follows these.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::NotRegistered`]: there is no such registration, or its last packet was
    ///   already taken. No packet is made.
    /// - [`ErrorKind::Forked`].
    ///
    /// A second call before the last packet is taken succeeds and makes no second packet.
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

    /// Returns the outcome of a call about a registration, and reports a refusal to the tracing
    /// subscriber.
    #[inline]
    pub(super) fn told<R>(&self, id: Id, outcome: Result<R>) -> Result<R> {
        outcome.inspect_err(|error| self.store.engine.trace_refused(error, Some(id.0), None))
    }

    /// Removes a registration, waits for its key and returns it.
    ///
    /// There is no last packet. Packets of the registration that no thread has reached yet are not
    /// delivered.
    ///
    /// # Waiting
    ///
    /// Returns immediately unless a handler holds the key or operations are in flight. If a handler
    /// holds the key, the call returns when the handler rearms or parks its token, or after
    /// `timeout` (`None`: no limit). Meanwhile, the thread counts as in [`Port::blocking`]. A
    /// handler that holds the key itself waits for nothing but the timeout.
    ///
    /// Operations in flight are cancelled, and each makes its packet. The call returns when other
    /// threads have taken all these packets, and any token among them has been returned. So if the
    /// calling thread is the only one at the port, an operation is in flight and there is no limit,
    /// the call never returns. In that case call [`Port::remove`] and wait for the packet.
    ///
    /// # Errors
    ///
    /// - [`ErrorKind::TimedOut`]: the key is still held, or operations are still in flight. The
    ///   registration is being removed, as by [`Port::remove`].
    /// - [`ErrorKind::NotRegistered`]: there is no such registration, or the handler has ended it
    ///   by dropping or keeping the key.
    /// - [`ErrorKind::Removing`]: it is already being removed; its key comes with the packet.
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
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: `collect` has made the node this thread's;
        // - a value: the key is in its cell whenever the slot is not held.
        let key = unsafe { self.store.keys.cells.take(name_parts(id.0).0) };
        self.store.engine.free(id.0);
        Ok(key)
    }
}
