//! The protocol of Redis and its commands, for servers of any kind: on a port, or a task for each
//! client.
//!
//! Commands on values lock shards only; pushes, BLPOP and deadlines also take one lock for all. A
//! client's replies go into `Session::output`, which belongs to its session, and so to the thread or
//! task that has it. What other clients send to it (a published message, an element that it waits
//! for) goes into its mailbox. A session has one only while it has subscribed or waits, and looks
//! into it only then. Values are spread over shards with a lock each, which is held for one command.

mod commands;
mod mailbox;
pub(crate) mod resp;
mod store;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mailbox::Mailbox;
pub(crate) use mailbox::{Call, Caller};
pub(crate) use store::Store;

/// No further request of a client with this many unsent bytes is executed.
const HIGH_WATER: usize = 64 * 1024;

/// What a session does next, once its output has been sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Progress {
    /// It needs more input.
    Reads,
    /// It has requests left, which are executed once there is room for their replies.
    Full,
    /// It waits for an element, until this time if there is one.
    Waits(Option<Instant>),
    /// It has ended.
    Ends,
}

/// A client, without its connection.
pub(crate) struct Session {
    store: Arc<Store>,
    number: u64,
    /// Requests that were not executed yet.
    input: Vec<u8>,
    /// Replies that were not sent yet.
    pub(crate) output: Vec<u8>,
    /// What others send to it, while it has subscribed or waits.
    mailbox: Option<Arc<Mailbox>>,
    subscriptions: HashSet<Vec<u8>>,
    blocked: Option<Wait>,
    /// The client sends nothing more.
    has_ended: bool,
    /// No request is executed any more: the client has sent QUIT, or what is no request.
    has_quit: bool,
    /// The words of a request, in `input`.
    words: Vec<Range<usize>>,
    /// Memory for references to these words.
    no_words: Vec<&'static [u8]>,
}

/// A client waits for an element of a list, and may have a deadline.
#[derive(Clone, Copy)]
struct Wait {
    until: Option<Instant>,
}

impl Drop for Session {
    /// However it ends, nothing is sent to it any more.
    fn drop(&mut self) {
        if self.blocked.is_some() {
            self.store.unblock(self.number);
        }
        if !self.subscriptions.is_empty() {
            self.store.unsubscribe(self.number, self.subscriptions.iter().map(Vec::as_slice));
        }
    }
}

impl Session {
    pub(crate) fn new(store: &Arc<Store>) -> Self {
        Self {
            number: store.next_number(),
            store: Arc::clone(store),
            input: Vec::new(),
            output: Vec::new(),
            mailbox: None,
            subscriptions: HashSet::new(),
            blocked: None,
            has_ended: false,
            has_quit: false,
            words: Vec::new(),
            no_words: Vec::new(),
        }
    }

    /// Where further input is appended.
    pub(crate) fn input(&mut self) -> &mut Vec<u8> {
        &mut self.input
    }

    /// No more input follows.
    pub(crate) fn end_input(&mut self) {
        self.has_ended = true;
    }

    /// Whether the client waits for an element.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// Whether other clients may send something to it.
    #[allow(dead_code, reason = "a handler is called whenever there is something")]
    pub(crate) fn has_mailbox(&self) -> bool {
        self.mailbox.is_some()
    }

    /// Whether enough input waits to be executed.
    #[allow(dead_code, reason = "the server on a port does not read while a client waits")]
    pub(crate) fn has_enough_input(&self) -> bool {
        self.input.len() >= HIGH_WATER
    }

    /// Whether the client has left too many messages unread.
    #[allow(dead_code, reason = "the server on a port removes such a client")]
    pub(crate) fn is_cut_off(&self) -> bool {
        self.mailbox.as_ref().is_some_and(|mailbox| mailbox.is_cut_off())
    }

    /// Executes the requests that have arrived, and collects what others have sent. `caller` makes
    /// the function by which they call this session's handler or task.
    pub(crate) fn execute(&mut self, caller: &dyn Fn() -> Caller) -> Progress {
        self.end_wait();
        self.collect();
        let input = std::mem::take(&mut self.input);
        let mut words = renewed(std::mem::take(&mut self.no_words));
        let mut used = 0;
        let progress = loop {
            if let Some(wait) = self.blocked {
                break Progress::Waits(wait.until);
            }
            if self.has_quit {
                break Progress::Ends;
            }
            if self.output.len() >= HIGH_WATER {
                break Progress::Full;
            }
            match resp::parse(&input[used..], &mut self.words) {
                Ok(Some(length)) => {
                    let request = &input[used..used + length];
                    words.clear();
                    words.extend(self.words.iter().map(|range| &request[range.clone()]));
                    used += length;
                    if !words.is_empty() {
                        self.run(caller, &words);
                    }
                }
                Ok(None) if self.has_ended => break Progress::Ends,
                Ok(None) => break Progress::Reads,
                Err(text) => {
                    resp::error(&mut self.output, &format!("ERR Protocol error: {text}"));
                    self.has_quit = true;
                }
            }
        };
        self.no_words = renewed(words);
        self.input = input;
        if self.has_quit {
            self.input.clear();
        } else {
            self.input.drain(..used);
        }
        progress
    }

    /// Ends the waiting of a client that has got its element, or has waited for long enough.
    fn end_wait(&mut self) {
        let Some(wait) = self.blocked else { return };
        let has_passed = wait.until.is_some_and(|until| until <= Instant::now());
        if !self.store.is_blocked(self.number) {
            // The element is in the mailbox.
            self.blocked = None;
        } else if has_passed && self.store.unblock(self.number) {
            self.blocked = None;
            resp::nil_array(&mut self.output);
        } else if has_passed {
            self.blocked = None;
        }
    }

    /// Takes what others have sent, unless that would not be sent soon: the mailbox has a limit, and
    /// the output has none. Nothing follows the reply to QUIT.
    fn collect(&mut self) {
        if self.has_quit || self.output.len() >= HIGH_WATER {
            return;
        }
        if let Some(mailbox) = &self.mailbox {
            mailbox.take(&mut self.output);
            if self.blocked.is_none() && self.subscriptions.is_empty() {
                self.mailbox = None;
            }
        }
    }

    fn mailbox(&mut self, caller: &dyn Fn() -> Caller) -> Arc<Mailbox> {
        Arc::clone(self.mailbox.get_or_insert_with(|| Arc::new(Mailbox::new(caller()))))
    }
}

/// Empties a vector. It keeps its memory, for words that live longer or shorter.
fn renewed<'w>(mut words: Vec<&[u8]>) -> Vec<&'w [u8]> {
    words.clear();
    // The standard library collects into the vector that it comes from.
    words.into_iter().map(|_| -> &[u8] { &[] }).collect()
}

/// Locks a mutex that a handler may have held when it panicked. Such a handler has corrupted at most
/// its own client.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
