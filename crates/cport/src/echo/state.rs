//! The common parts of both servers, based on readiness and on operations: the interface for the
//! main thread, and the state shared by the threads.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};

use completion_port::{ErrorKind as PortErrorKind, Port, Result, Stats};

use super::clients::Clients;
use crate::connection::Traffic;
use crate::gauge::Gauge;
use crate::system::{Waker, descriptor_limit, has_waiting, is_descriptor_limit};

/// A client without a turn for this many consecutive checks has sent everything it wanted to send.
pub(crate) const QUIET_LOOKS: u32 = 4;

/// The phases of a server, which only move forward.
pub(crate) const SERVING: u8 = 0;
/// No new clients; the others get their data back.
pub(crate) const ENDING: u8 = 1;
/// All clients are cut off.
pub(crate) const CUTTING: u8 = 2;

/// A server, as the main thread sees it.
pub(crate) trait Service: Sync {
    /// What its threads share.
    fn state(&self) -> &State;

    fn stats(&self) -> Stats;

    /// Its results.
    fn served(&self) -> Served {
        self.state().served()
    }

    /// Handles packets until the port is closed; returns their number.
    fn serve(&self) -> Result<u64>;

    /// Ends all waits.
    fn close(&self);

    /// Starts ending: clients get their data back, but new ones are refused.
    fn begin_to_end(&self) {
        self.state().begin_to_end();
    }

    /// Closes whatever is finished, and finally the port. Call it repeatedly once the end has
    /// begun.
    fn look(&self) -> Result<()>;

    /// Ends immediately. All keys are returned.
    fn cut_off(&self) -> Result<()>;
}

/// The results of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) accepted: u64,
    pub(crate) open: u64,
    pub(crate) requests: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) datagrams: u64,
    pub(crate) lost: u64,
    /// Clients that were cut off before they had all data back, and how much they did not get.
    pub(crate) cut_clients: u64,
    pub(crate) cut_bytes: u64,
}

/// What the threads of a server share.
pub(crate) struct State {
    waker: Waker,
    pub(crate) gauge: Gauge,
    pub(crate) traffic: Traffic,
    pub(crate) clients: Arc<Clients>,
    accepted: AtomicU64,
    /// Clients that were connected when the end began.
    open_at_end: AtomicU64,
    cut_clients: AtomicU64,
    cut_bytes: AtomicU64,
    complained: AtomicBool,
    phase: AtomicU8,
    over: AtomicBool,
}

/// When a thread ends, the server ends. Usually the port is closed by then, but an error or a panic
/// must not leave the others serving without it.
pub(crate) struct Ending<'s, K>(pub(crate) &'s Port<K>, pub(crate) &'s State);

impl<K> Drop for Ending<'_, K> {
    fn drop(&mut self) {
        self.0.close();
        self.1.over.store(true, Release);
        self.1.waker.wake();
    }
}

impl State {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            waker,
            gauge: Gauge::default(),
            traffic: Traffic::default(),
            clients: Arc::default(),
            accepted: AtomicU64::new(0),
            open_at_end: AtomicU64::new(0),
            cut_clients: AtomicU64::new(0),
            cut_bytes: AtomicU64::new(0),
            complained: AtomicBool::new(false),
            phase: AtomicU8::new(SERVING),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn served(&self) -> Served {
        Served {
            accepted: self.accepted.load(Relaxed),
            open: self.clients.count() as u64,
            requests: self.traffic.requests(),
            received: self.traffic.received(),
            sent: self.traffic.sent(),
            datagrams: 0,
            lost: 0,
            cut_clients: self.cut_clients.load(Relaxed),
            cut_bytes: self.cut_bytes.load(Relaxed),
        }
    }

    /// Number of clients that were connected when the end began.
    pub(crate) fn open_at_end(&self) -> u64 {
        self.open_at_end.load(Relaxed)
    }

    /// Whether a thread has ended, which ends all of them.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    fn begin_to_end(&self) {
        self.open_at_end.store(self.clients.count() as u64, Relaxed);
        self.phase.fetch_max(ENDING, Release);
    }

    pub(crate) fn begin_to_cut(&self) {
        self.phase.fetch_max(CUTTING, Release);
    }

    pub(crate) fn phase(&self) -> u8 {
        self.phase.load(Acquire)
    }

    pub(crate) fn has_accepted(&self) {
        self.accepted.fetch_add(1, Relaxed);
    }

    /// Counts a client that ended without getting this many bytes back.
    pub(crate) fn count_cut(&self, bytes: u64) {
        if bytes > 0 {
            self.cut_clients.fetch_add(1, Relaxed);
            self.cut_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Reports once that connections could not be served.
    pub(crate) fn complain(&self, error: &io::Error) {
        if !self.complained.swap(true, Relaxed) {
            let remedy = if is_descriptor_limit(error) && descriptor_limit().is_some() {
                "; `ulimit -n` shows the limit, and raises it before the next start"
            } else {
                ""
            };
            eprintln!(
                "cport: cannot accept connections: {error}: new ones wait until this has \
                 passed{remedy} (reported only once)"
            );
        }
    }

    /// Does the same for a failed accept, if a connection waits. The system refuses it even if none does.
    pub(crate) fn complain_if_one_waits(&self, listener: &TcpListener, error: &io::Error) {
        if has_waiting(listener) {
            self.complain(error);
        }
    }
}

/// Whether a call fails because the server or its subject is ending.
pub(crate) fn is_end(kind: PortErrorKind) -> bool {
    matches!(kind, PortErrorKind::Closed | PortErrorKind::Removing | PortErrorKind::NotRegistered)
}
