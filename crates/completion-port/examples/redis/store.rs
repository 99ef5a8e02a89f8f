//! What all clients share: values, subscriptions, and the clients that wait for an element.
//!
//! Another client's reply goes to its outbox, and `Port::enable_also` has its handler called. All
//! this happens under the store's lock, so that each client has its replies and messages in one
//! order. An outbox's lock is taken under it, never the other way round.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use completion_port::{Id, Interest, Port};

use crate::common::lock;
use crate::{Peer, resp};

/// A subscriber that leaves more unread is disconnected.
const MOST_UNREAD: usize = 1 << 20;

pub(crate) type Outbox = Arc<Mutex<Vec<u8>>>;

pub(crate) enum Value {
    Text(Vec<u8>),
    /// Never empty.
    List(VecDeque<Vec<u8>>),
}

pub(crate) struct WrongType;

#[derive(Default)]
pub(crate) struct Store {
    pub(crate) values: HashMap<Vec<u8>, Value>,
    channels: HashMap<Vec<u8>, HashMap<Id, Outbox>>,
    /// The clients that wait for an element of a list, in order.
    waiting: HashMap<Vec<u8>, VecDeque<Id>>,
    /// All lists that a client waits for, and its outbox.
    blocked: HashMap<Id, (Vec<Vec<u8>>, Outbox)>,
}

impl Store {
    /// Appends to a list, or puts before it. Returns its length.
    pub(crate) fn push(
        &mut self,
        name: &[u8],
        elements: &[Vec<u8>],
        at_front: bool,
    ) -> Result<usize, WrongType> {
        let empty = || Value::List(VecDeque::new());
        match self.values.entry(name.to_vec()).or_insert_with(empty) {
            Value::Text(_) => Err(WrongType),
            Value::List(list) => {
                for element in elements {
                    if at_front {
                        list.push_front(element.clone());
                    } else {
                        list.push_back(element.clone());
                    }
                }
                Ok(list.len())
            }
        }
    }

    /// Takes the first element of a list. `None` if there is none.
    pub(crate) fn pop(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, WrongType> {
        let element = match self.values.get_mut(name) {
            None => return Ok(None),
            Some(Value::Text(_)) => return Err(WrongType),
            Some(Value::List(list)) => {
                let element = list.pop_front();
                if !list.is_empty() {
                    return Ok(element);
                }
                element
            }
        };
        self.values.remove(name);
        Ok(element)
    }

    /// Remembers that a client waits for an element of any of these lists.
    pub(crate) fn block(&mut self, client: Id, lists: &[Vec<u8>], outbox: &Outbox) {
        for list in lists {
            self.waiting.entry(list.clone()).or_default().push_back(client);
        }
        self.blocked.insert(client, (lists.to_vec(), Arc::clone(outbox)));
    }

    pub(crate) fn is_blocked(&self, client: Id) -> bool {
        self.blocked.contains_key(&client)
    }

    /// Forgets that a client waits. Returns its outbox if it did.
    pub(crate) fn unblock(&mut self, client: Id) -> Option<Outbox> {
        let (lists, outbox) = self.blocked.remove(&client)?;
        for list in &lists {
            if let Some(clients) = self.waiting.get_mut(list) {
                clients.retain(|other| *other != client);
                if clients.is_empty() {
                    self.waiting.remove(list);
                }
            }
        }
        Some(outbox)
    }

    /// Gives the elements of a list to the clients that wait for them.
    pub(crate) fn serve(&mut self, name: &[u8], port: &Port<Peer>) {
        while let Some(Value::List(_)) = self.values.get(name) {
            let first = self.waiting.get(name).and_then(|clients| clients.front().copied());
            let Some(client) = first else { return };
            let Some(outbox) = self.unblock(client) else { return };
            let mut outbox = lock(&outbox);
            // Refused if the client is just leaving: then the next one gets the element. Otherwise
            // the client's handler is called, and finds the reply once the lock is free.
            if port.enable_also(client, Interest::OUT).is_ok()
                && let Ok(Some(element)) = self.pop(name)
            {
                resp::array(&mut outbox, 2);
                resp::bulk(&mut outbox, name);
                resp::bulk(&mut outbox, &element);
            }
        }
    }

    pub(crate) fn subscribe(&mut self, channel: &[u8], client: Id, outbox: &Outbox) {
        let subscribers = self.channels.entry(channel.to_vec()).or_default();
        subscribers.insert(client, Arc::clone(outbox));
    }

    pub(crate) fn unsubscribe(&mut self, channel: &[u8], client: Id) {
        if let Some(subscribers) = self.channels.get_mut(channel) {
            subscribers.remove(&client);
            if subscribers.is_empty() {
                self.channels.remove(channel);
            }
        }
    }

    /// Sends a message to all subscribers of a channel, and returns their number.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8], port: &Port<Peer>) -> usize {
        let Some(subscribers) = self.channels.get(channel) else { return 0 };
        for (client, outbox) in subscribers {
            let mut outbox = lock(outbox);
            if outbox.len() > MOST_UNREAD {
                let _ = port.remove(*client);
                continue;
            }
            resp::array(&mut outbox, 3);
            resp::bulk(&mut outbox, b"message");
            resp::bulk(&mut outbox, channel);
            resp::bulk(&mut outbox, message);
            // Refused if the client is just leaving.
            let _ = port.enable_also(*client, Interest::OUT);
        }
        subscribers.len()
    }
}
