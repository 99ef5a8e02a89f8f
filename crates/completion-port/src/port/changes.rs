//! A batch of changes, for the one call that applies them and takes packets.

use std::fmt;
use std::vec::Drain;

use crate::port::Port;
use crate::port::registration::{Id, Registration};
use crate::port::token::Ready;
use crate::state::slot::Drained;
use crate::types::error::{Error, Refused, Result};
use crate::types::interest::Interest;
use crate::types::trigger::{Terms, Trigger};

/// Changes to registrations. [`Port::process`] applies them in the order they were added, and
/// leaves one result for each.
///
/// There are two levels of failure. If the *call* fails, it has applied nothing, and every change
/// is still here. If the call succeeds, each change has its own result, and the keys of refused
/// changes are returned. This includes a call whose batch is empty because its timeout has expired.
/// A call in which a change was refused does not sleep, so that its caller sees the refusal.
///
/// # Examples
///
/// ```
/// use completion_port::{
///     Batch, Changes, ErrorKind, FileSource, Interest, OneShot, Port, Registration,
/// };
/// use std::fs::File;
/// use std::net::UdpSocket;
/// use std::time::Duration;
///
/// let port = Port::<&str>::new()?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let file = FileSource::new(File::open(std::env::current_exe()?)?);
/// let (mut changes, mut batch) = (Changes::new(), Batch::new());
/// changes.register(Registration::new(&socket, "socket", Interest::IN, OneShot::Level));
/// changes.register(Registration::new(&file, "file", Interest::IN, OneShot::Level));
///
/// let packets = port.process(&mut changes, &mut batch, Duration::ZERO)?;
/// assert_eq!(packets.count(), 0);
/// assert!(changes.results()[0].is_ok());
/// for refused in changes.refused() {
///     let (error, key) = refused.into_parts();
///     assert_eq!((error.kind(), key), (ErrorKind::NotPollable, Some("file")));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Changes<'c, K, B = Vec<u8>> {
    list: Vec<PortChange<'c, K, B>>,
    results: Vec<Result<Id>>,
    refused: Vec<RefusedChange<K>>,
}

enum PortChange<'c, K, B> {
    Register(Registration<'c, K>),
    Rearm(Ready<'c, K, B>, Option<Terms<K>>),
    Enable(Id, Terms<K>),
    EnableAlso(Id, Interest),
    Disable(Id),
    Remove(Id),
}

impl<'c, K, B> Changes<'c, K, B> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self { list: Vec::new(), results: Vec::new(), refused: Vec::new() }
    }

    /// Adds a registration, as [`Port::register`] makes it.
    pub fn register(&mut self, registration: Registration<'c, K>) {
        self.list.push(PortChange::Register(registration));
    }

    /// Adds the rearming of a token, as by [`Ready::rearm`]. The token is rearmed on its own port.
    pub fn rearm(&mut self, ready: Ready<'c, K, B>) {
        self.list.push(PortChange::Rearm(ready, None));
    }

    /// Adds the rearming of a token with another filter and trigger, as by [`Ready::rearm_as`].
    pub fn rearm_as(
        &mut self,
        ready: Ready<'c, K, B>,
        interest: Interest,
        trigger: impl Trigger<K>,
    ) {
        self.list.push(PortChange::Rearm(ready, Some(trigger.terms(interest))));
    }

    /// Adds the enabling of a registration by its name, as by [`Port::enable`].
    pub fn enable(&mut self, id: Id, interest: Interest, trigger: impl Trigger<K>) {
        self.list.push(PortChange::Enable(id, trigger.terms(interest)));
    }

    /// Adds a request for one extra report, as by [`Port::enable_also`].
    pub fn enable_also(&mut self, id: Id, interest: Interest) {
        self.list.push(PortChange::EnableAlso(id, interest));
    }

    /// Adds a disabling, as by [`Port::disable`].
    pub fn disable(&mut self, id: Id) {
        self.list.push(PortChange::Disable(id));
    }

    /// Adds a removal, as by [`Port::remove`].
    pub fn remove(&mut self, id: Id) {
        self.list.push(PortChange::Remove(id));
    }

    /// Returns the number of changes that are not applied yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if no change is waiting to be applied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the results of the changes that the last [`Port::process`] applied, in order.
    ///
    /// Each is the name of the registration, or the reason why the change was refused.
    pub fn results(&self) -> &[Result<Id>] {
        &self.results
    }

    /// Takes the refused changes out, each with its key if it had one. The next [`Port::process`]
    /// drops those that remain.
    pub fn refused(&mut self) -> Drain<'_, RefusedChange<K>> {
        self.refused.drain(..)
    }

    /// Returns whether any of the changes just applied was refused.
    pub(crate) fn any_was_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Returns whether all of the changes just applied were refused.
    pub(crate) fn all_were_refused(&self) -> bool {
        self.refused.len() == self.results.len()
    }

    pub(crate) fn apply<M>(&mut self, port: &Port<K, M, B>) {
        self.results.clear();
        self.refused.clear();
        for change in self.list.drain(..) {
            let outcome = match change {
                PortChange::Register(registration) => port.register(registration).map_err(parts),
                PortChange::Rearm(ready, terms) => {
                    let id = ready.id();
                    let armed = match terms {
                        None => ready.rearm(),
                        Some(terms) => ready.rearm_with(terms),
                    };
                    armed.map(|()| id).map_err(parts)
                }
                PortChange::Enable(id, terms) => {
                    let enabled = port.enable_with(id, terms, || Drained::NONE);
                    enabled.map(|()| id).map_err(|error| (error, None))
                }
                PortChange::EnableAlso(id, interest) => {
                    port.enable_also(id, interest).map(|()| id).map_err(|error| (error, None))
                }
                PortChange::Disable(id) => {
                    port.disable(id).map(|()| id).map_err(|error| (error, None))
                }
                PortChange::Remove(id) => {
                    port.remove(id).map(|()| id).map_err(|error| (error, None))
                }
            };
            match outcome {
                Ok(id) => self.results.push(Ok(id)),
                Err((error, key)) => {
                    self.refused.push(RefusedChange { index: self.results.len(), error, key });
                    self.results.push(Err(error));
                }
            }
        }
    }
}

fn parts<K>(refused: Refused<K>) -> (Error, Option<K>) {
    let (error, key) = refused.into_parts();
    (error, Some(key))
}

impl<K, B> Default for Changes<'_, K, B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, B> fmt::Debug for Changes<'_, K, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("waiting", &self.list.len())
            .field("results", &self.results)
            .finish_non_exhaustive()
    }
}

/// A change that was refused.
pub struct RefusedChange<K> {
    index: usize,
    error: Error,
    key: Option<K>,
}

impl<K> RefusedChange<K> {
    /// Returns the index of the change in [`Changes::results`].
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns why the change was refused.
    #[must_use]
    pub fn error(&self) -> Error {
        self.error
    }

    /// Returns the error, and the key if the change had one.
    #[must_use]
    pub fn into_parts(self) -> (Error, Option<K>) {
        (self.error, self.key)
    }
}

impl<K> fmt::Debug for RefusedChange<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedChange")
            .field("index", &self.index)
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}
