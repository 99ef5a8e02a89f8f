//! The commands.

use std::sync::Arc;
use std::time::{Duration, Instant};

use completion_port::{Id, Port};

use crate::common::lock;
use crate::store::{Store, Value, WrongType};
use crate::{Client, Peer, Wait, resp};

const COMMANDS: [&str; 12] = [
    "PING",
    "ECHO",
    "GET",
    "SET",
    "DEL",
    "LPUSH",
    "RPUSH",
    "BLPOP",
    "PUBLISH",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "QUIT",
];
/// What a subscriber may call.
const OF_SUBSCRIBERS: [&str; 4] = ["PING", "SUBSCRIBE", "UNSUBSCRIBE", "QUIT"];

impl Client {
    /// Executes a request of at least one word, and replies.
    pub(crate) fn run(&mut self, port: &Port<Peer>, id: Id, request: &[Vec<u8>]) {
        let name = String::from_utf8_lossy(&request[0]).to_ascii_uppercase();
        let (store, outbox) = (Arc::clone(&self.store), Arc::clone(&self.outbox));
        let (mut store, mut out) = (lock(&store), lock(&outbox));
        let out = &mut *out;
        if !self.subscriptions.is_empty() && !OF_SUBSCRIBERS.contains(&&*name) {
            resp::error(out, &format!("ERR Can't execute '{name}': the client has subscribed"));
            return;
        }
        let mut done = Ok(());
        match (&*name, &request[1..]) {
            ("SUBSCRIBE", channels @ [_, ..]) => self.subscribe(&mut store, id, channels, out),
            ("UNSUBSCRIBE", channels) => self.unsubscribe(&mut store, id, channels, out),
            ("PING", []) if !self.subscriptions.is_empty() => {
                resp::array(out, 2);
                resp::bulk(out, b"pong");
                resp::bulk(out, b"");
            }
            ("QUIT", _) => {
                self.has_quit = true;
                resp::simple(out, "OK");
            }
            ("BLPOP", [lists @ .., timeout]) if !lists.is_empty() => {
                done = self.pop_or_block(&mut store, id, lists, timeout, out);
            }
            (name, arguments) => done = run_for_any(&mut store, port, name, arguments, out),
        }
        if let Err(WrongType) = done {
            let text = "WRONGTYPE Operation against a key holding the wrong kind of value";
            resp::error(out, text);
        }
    }

    fn subscribe(&mut self, store: &mut Store, id: Id, channels: &[Vec<u8>], out: &mut Vec<u8>) {
        for channel in channels {
            self.subscriptions.insert(channel.clone());
            store.subscribe(channel, id, &self.outbox);
            resp::array(out, 3);
            resp::bulk(out, b"subscribe");
            resp::bulk(out, channel);
            resp::integer(out, self.subscriptions.len());
        }
    }

    /// Without channels, ends all subscriptions.
    fn unsubscribe(&mut self, store: &mut Store, id: Id, channels: &[Vec<u8>], out: &mut Vec<u8>) {
        let all: Vec<_> = self.subscriptions.iter().cloned().collect();
        let channels = if channels.is_empty() { &*all } else { channels };
        for channel in channels {
            self.subscriptions.remove(channel);
            store.unsubscribe(channel, id);
            resp::array(out, 3);
            resp::bulk(out, b"unsubscribe");
            resp::bulk(out, channel);
            resp::integer(out, self.subscriptions.len());
        }
        if channels.is_empty() {
            resp::array(out, 3);
            resp::bulk(out, b"unsubscribe");
            resp::nil(out);
            resp::integer(out, 0);
        }
    }

    fn pop_or_block(
        &mut self,
        store: &mut Store,
        id: Id,
        lists: &[Vec<u8>],
        timeout: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), WrongType> {
        let seconds = std::str::from_utf8(timeout).ok().and_then(|text| text.parse().ok());
        let Some(timeout) = seconds.and_then(|text| Duration::try_from_secs_f64(text).ok()) else {
            resp::error(out, "ERR timeout is not a float or out of range");
            return Ok(());
        };
        for list in lists {
            if let Some(element) = store.pop(list)? {
                resp::array(out, 2);
                resp::bulk(out, list);
                resp::bulk(out, &element);
                return Ok(());
            }
        }
        store.block(id, lists, &self.outbox);
        // A timeout of zero, or one beyond all times, never passes.
        let until = (!timeout.is_zero()).then(|| Instant::now().checked_add(timeout)).flatten();
        self.blocked = Some(Wait { until });
        Ok(())
    }
}

/// A command that does not depend on the client.
fn run_for_any(
    store: &mut Store,
    port: &Port<Peer>,
    name: &str,
    arguments: &[Vec<u8>],
    out: &mut Vec<u8>,
) -> Result<(), WrongType> {
    match (name, arguments) {
        ("PING", []) => resp::simple(out, "PONG"),
        ("PING" | "ECHO", [text]) => resp::bulk(out, text),
        ("GET", [key]) => match store.values.get(key) {
            None => resp::nil(out),
            Some(Value::Text(text)) => resp::bulk(out, text),
            Some(Value::List(_)) => return Err(WrongType),
        },
        ("SET", [key, text]) => {
            store.values.insert(key.clone(), Value::Text(text.clone()));
            resp::simple(out, "OK");
        }
        ("SET", [_, _, ..]) => resp::error(out, "ERR syntax error"),
        ("DEL", [_, ..]) => {
            let removed = arguments.iter().filter(|key| store.values.remove(*key).is_some());
            resp::integer(out, removed.count());
        }
        ("LPUSH" | "RPUSH", [list, elements @ ..]) if !elements.is_empty() => {
            resp::integer(out, store.push(list, elements, name == "LPUSH")?);
            store.serve(list, port);
        }
        ("PUBLISH", [channel, message]) => {
            resp::integer(out, store.publish(channel, message, port));
        }
        _ if COMMANDS.contains(&name) => {
            let name = name.to_ascii_lowercase();
            resp::error(out, &format!("ERR wrong number of arguments for '{name}' command"));
        }
        _ => {
            // A reply is one line.
            let name: String = name.chars().filter(|c| !c.is_control()).take(128).collect();
            resp::error(out, &format!("ERR unknown command '{name}'"));
        }
    }
    Ok(())
}
