//! The commands, with the errors that Redis gives.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::store::{Entry, Store, Value, WrongType};
use super::{Caller, Session, Wait, resp};

/// The fewest words of a command and the most; `None` if there is no such command.
fn sizes(name: &str) -> Option<(usize, usize)> {
    Some(match name {
        "GET" | "INCR" | "DECR" | "ECHO" | "TTL" | "PTTL" | "PERSIST" => (2, 2),
        "INCRBY" | "PUBLISH" => (3, 3),
        "MGET" | "DEL" | "EXISTS" | "SUBSCRIBE" => (2, usize::MAX),
        "SET" | "EXPIRE" | "PEXPIRE" | "LPUSH" | "RPUSH" | "BLPOP" => (3, usize::MAX),
        "PING" | "QUIT" | "UNSUBSCRIBE" => (1, usize::MAX),
        "DBSIZE" => (1, 1),
        _ => return None,
    })
}

/// What a subscriber may call.
const OF_SUBSCRIBERS: [&str; 4] = ["PING", "SUBSCRIBE", "UNSUBSCRIBE", "QUIT"];
/// No name of a command is longer.
const LONGEST_NAME: usize = 16;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const OVERFLOW: &str = "ERR increment or decrement would overflow";
const SYNTAX: &str = "ERR syntax error";

/// The text of an error.
type Refused = String;

impl From<WrongType> for Refused {
    fn from(_: WrongType) -> Self {
        WRONG_TYPE.to_owned()
    }
}

impl Session {
    /// Executes a request of at least one word, and replies.
    pub(super) fn run(&mut self, caller: &dyn Fn() -> Caller, words: &[&[u8]]) {
        let mut name = [0; LONGEST_NAME];
        let name = match name.get_mut(..words[0].len()) {
            Some(name) => {
                name.copy_from_slice(words[0]);
                name.make_ascii_uppercase();
                std::str::from_utf8(name).unwrap_or_default()
            }
            None => "",
        };
        let before = self.output.len();
        if let Err(text) = self.dispatch(caller, name, words) {
            self.output.truncate(before);
            resp::error(&mut self.output, &text);
        }
    }

    fn dispatch(
        &mut self,
        caller: &dyn Fn() -> Caller,
        name: &str,
        words: &[&[u8]],
    ) -> Result<(), Refused> {
        let Some((fewest, most)) = sizes(name) else { return Err(unknown(words)) };
        let lower = || name.to_ascii_lowercase();
        if words.len() < fewest || words.len() > most {
            return Err(format!("ERR wrong number of arguments for '{}' command", lower()));
        }
        if !self.subscriptions.is_empty() && !OF_SUBSCRIBERS.contains(&name) {
            return Err(format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                lower()
            ));
        }
        let arguments = &words[1..];
        match name {
            "SUBSCRIBE" => self.subscribe(caller, arguments),
            "UNSUBSCRIBE" => self.unsubscribe(arguments),
            "BLPOP" => return self.pop_or_wait(caller, arguments),
            "PING" => self.ping(arguments)?,
            "QUIT" => {
                self.has_quit = true;
                resp::simple(&mut self.output, "OK");
            }
            _ => return run_for_any(&self.store, name, arguments, &mut self.output),
        }
        Ok(())
    }

    fn ping(&mut self, arguments: &[&[u8]]) -> Result<(), Refused> {
        let out = &mut self.output;
        match arguments {
            [] | [_] if !self.subscriptions.is_empty() => {
                resp::array(out, 2);
                resp::bulk(out, b"pong");
                resp::bulk(out, arguments.first().copied().unwrap_or_default());
            }
            [] => resp::simple(out, "PONG"),
            [text] => resp::bulk(out, text),
            _ => return Err("ERR wrong number of arguments for 'ping' command".to_owned()),
        }
        Ok(())
    }

    fn subscribe(&mut self, caller: &dyn Fn() -> Caller, channels: &[&[u8]]) {
        let mailbox = self.mailbox(caller);
        for channel in channels {
            // Its messages follow the reply: they are taken from the mailbox later.
            self.store.subscribe(self.number, channel, &mailbox);
            self.subscriptions.insert(channel.to_vec());
            self.reply_about(b"subscribe", Some(channel));
        }
    }

    /// Without channels, ends all subscriptions.
    fn unsubscribe(&mut self, channels: &[&[u8]]) {
        let all: Vec<Vec<u8>> = if channels.is_empty() {
            self.subscriptions.iter().cloned().collect()
        } else {
            channels.iter().map(|channel| channel.to_vec()).collect()
        };
        self.store.unsubscribe(self.number, all.iter().map(Vec::as_slice));
        // No message of these channels comes after the reply.
        if let Some(mailbox) = &self.mailbox {
            mailbox.take(&mut self.output);
        }
        for channel in &all {
            self.subscriptions.remove(channel);
            self.reply_about(b"unsubscribe", Some(channel));
        }
        if all.is_empty() {
            self.reply_about(b"unsubscribe", None);
        }
    }

    fn reply_about(&mut self, what: &[u8], channel: Option<&[u8]>) {
        let out = &mut self.output;
        resp::array(out, 3);
        resp::bulk(out, what);
        match channel {
            Some(channel) => resp::bulk(out, channel),
            None => resp::nil(out),
        }
        resp::length(out, self.subscriptions.len());
    }

    fn pop_or_wait(
        &mut self,
        caller: &dyn Fn() -> Caller,
        arguments: &[&[u8]],
    ) -> Result<(), Refused> {
        let Some((timeout, lists)) = arguments.split_last() else { return Ok(()) };
        let seconds = std::str::from_utf8(timeout).ok().and_then(|text| text.parse::<f64>().ok());
        let seconds = seconds.filter(|seconds| seconds.is_finite());
        let seconds = seconds.ok_or("ERR timeout is not a float or out of range")?;
        if seconds < 0.0 {
            return Err("ERR timeout is negative".to_owned());
        }
        let store = Arc::clone(&self.store);
        let popped = store.pop_or_wait(self.number, lists, || self.mailbox(caller))?;
        if let Some((list, element)) = popped {
            resp::array(&mut self.output, 2);
            resp::bulk(&mut self.output, list);
            resp::bulk(&mut self.output, &element);
            return Ok(());
        }
        // A timeout of zero, or one beyond all times, never passes. The shortest is a millisecond.
        let timeout = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds > 0.0);
        let timeout = timeout.map(|time| time.max(Duration::from_millis(1)));
        let until = timeout.and_then(|time| Instant::now().checked_add(time));
        self.blocked = Some(Wait { until });
        Ok(())
    }
}

/// As Redis words it, with the beginning of the arguments.
fn unknown(words: &[&[u8]]) -> Refused {
    let most = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let mut arguments = String::new();
    for word in &words[1..] {
        if arguments.len() >= 128 {
            break;
        }
        arguments.push_str(&format!("'{}' ", most(word)));
    }
    format!("ERR unknown command '{}', with args beginning with: {arguments}", most(words[0]))
}

/// A command that does not depend on the client.
fn run_for_any(
    store: &Store,
    name: &str,
    arguments: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    match (name, arguments) {
        ("GET", [key]) => match store.shard(key).get(key).map(|entry| &entry.value) {
            None => resp::nil(out),
            Some(Value::Text(text)) => resp::bulk(out, text),
            Some(Value::List(_)) => return Err(WrongType.into()),
        },
        ("SET", [key, text, options @ ..]) => set(store, key, text, options, out)?,
        ("MGET", keys) => {
            let mut shards = store.shards(keys);
            resp::array(out, keys.len());
            for key in keys {
                match shards.of(key).get(key).map(|entry| &entry.value) {
                    Some(Value::Text(text)) => resp::bulk(out, text),
                    Some(Value::List(_)) | None => resp::nil(out),
                }
            }
        }
        ("DEL", keys) => {
            let mut shards = store.shards(keys);
            let is_removed = |key: &&&[u8]| {
                let shard = shards.of(key);
                shard.get(key).is_some() && shard.remove(key)
            };
            resp::length(out, keys.iter().filter(is_removed).count());
        }
        ("EXISTS", keys) => {
            let mut shards = store.shards(keys);
            let exists = |key: &&&[u8]| shards.of(key).get(key).is_some();
            resp::length(out, keys.iter().filter(exists).count());
        }
        ("DBSIZE", []) => resp::length(out, store.size()),
        ("INCR", [key]) => add(store, key, 1, out)?,
        ("DECR", [key]) => add(store, key, -1, out)?,
        ("INCRBY", [key, by]) => {
            add(store, key, resp::integer_of(by).ok_or(NO_INTEGER)?, out)?;
        }
        ("EXPIRE", [key, time, options @ ..]) => {
            expire(store, key, (time, 1000, "expire"), options, out)?;
        }
        ("PEXPIRE", [key, time, options @ ..]) => {
            expire(store, key, (time, 1, "pexpire"), options, out)?;
        }
        ("TTL", [key]) => remaining(store, key, |left| (left + 500) / 1000, out),
        ("PTTL", [key]) => remaining(store, key, |left| left, out),
        ("PERSIST", [key]) => {
            let mut shard = store.shard(key);
            let has_deadline = shard.get(key).is_some_and(|entry| entry.deadline().is_some());
            if has_deadline {
                shard.set_deadline(key, None);
            }
            resp::integer(out, has_deadline.into());
        }
        ("LPUSH" | "RPUSH", [list, elements @ ..]) => {
            resp::length(out, store.push(list, elements, name == "LPUSH")?);
        }
        ("PUBLISH", [channel, message]) => resp::length(out, store.publish(channel, message)),
        ("ECHO", [text]) => resp::bulk(out, text),
        // Each command has the right number of words.
        _ => return Err(SYNTAX.to_owned()),
    }
    Ok(())
}

/// `SET key value [NX | XX] [EX seconds | PX milliseconds | KEEPTTL]`.
fn set(
    store: &Store,
    key: &[u8],
    text: &[u8],
    options: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    if options.is_empty() {
        let mut shard = store.shard(key);
        // The usual case: a text without a deadline, whose memory is used again.
        match shard.get(key) {
            Some(entry) if entry.deadline().is_none() => match &mut entry.value {
                Value::Text(old) => text.clone_into(old),
                Value::List(_) => entry.value = Value::Text(text.to_vec()),
            },
            _ => shard.set(key, Value::Text(text.to_vec()), None),
        }
        resp::simple(out, "OK");
        return Ok(());
    }
    let (mut must_exist, mut deadline, mut keeps) = (None, None, false);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match &*option.to_ascii_uppercase() {
            b"NX" if must_exist != Some(true) => must_exist = Some(false),
            b"XX" if must_exist != Some(false) => must_exist = Some(true),
            b"KEEPTTL" if deadline.is_none() => keeps = true,
            unit @ (b"EX" | b"PX") if deadline.is_none() && !keeps => {
                let time = options.next().ok_or(SYNTAX)?;
                let factor = if unit == b"EX" { 1000 } else { 1 };
                let time = milliseconds(time, factor, "set")?;
                if time <= 0 {
                    return Err(invalid_time("set"));
                }
                deadline = Some(later(time, "set")?);
            }
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    {
        let mut shard = store.shard(key);
        let before = shard.get(key).map(|entry| entry.deadline());
        if must_exist.is_some_and(|must| must != before.is_some()) {
            resp::nil(out);
            return Ok(());
        }
        if keeps {
            deadline = before.flatten();
        }
        shard.set(key, Value::Text(text.to_vec()), deadline);
    }
    if let Some(at) = deadline {
        store.arm(at);
    }
    resp::simple(out, "OK");
    Ok(())
}

fn add(store: &Store, key: &[u8], by: i64, out: &mut Vec<u8>) -> Result<(), Refused> {
    let mut shard = store.shard(key);
    let number = match shard.get(key) {
        None => {
            let mut text = Vec::new();
            resp::decimal(&mut text, by);
            shard.set(key, Value::Text(text), None);
            by
        }
        Some(Entry { value: Value::List(_), .. }) => return Err(WrongType.into()),
        Some(Entry { value: Value::Text(text), .. }) => {
            let number = resp::integer_of(text).ok_or(NO_INTEGER)?;
            let number = number.checked_add(by).ok_or(OVERFLOW)?;
            text.clear();
            resp::decimal(text, number);
            number
        }
    };
    resp::integer(out, number);
    Ok(())
}

fn invalid_time(command: &str) -> Refused {
    format!("ERR invalid expire time in '{command}' command")
}

/// A time in milliseconds.
fn milliseconds(time: &[u8], factor: i64, command: &str) -> Result<i64, Refused> {
    let time = resp::integer_of(time).ok_or(NO_INTEGER)?;
    time.checked_mul(factor).ok_or_else(|| invalid_time(command))
}

/// The moment in that many milliseconds. As with Redis, it must be a number of milliseconds since
/// 1970 that has 63 bits.
fn later(milliseconds: i64, command: &str) -> Result<Instant, Refused> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = i64::try_from(since.as_secs()).unwrap_or(i64::MAX).saturating_mul(1000);
    let time = u64::try_from(milliseconds).map(Duration::from_millis).unwrap_or_default();
    let at = since.checked_add(milliseconds).and_then(|_| Instant::now().checked_add(time));
    at.ok_or_else(|| invalid_time(command))
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`; the time has its unit in milliseconds.
fn expire(
    store: &Store,
    key: &[u8],
    (time, unit, command): (&[u8], i64, &str),
    options: &[&[u8]],
    out: &mut Vec<u8>,
) -> Result<(), Refused> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options {
        match &*option.to_ascii_uppercase() {
            b"NX" => nx = true,
            b"XX" => xx = true,
            b"GT" => gt = true,
            b"LT" => lt = true,
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Unsupported option {option}"));
            }
        }
    }
    if nx && (xx || gt || lt) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.to_owned());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".to_owned());
    }
    let time = milliseconds(time, unit, command)?;
    let at = later(time, command)?;
    let mut shard = store.shard(key);
    let Some(before) = shard.get(key).map(|entry| entry.deadline()) else {
        resp::integer(out, 0);
        return Ok(());
    };
    // Without a deadline, a key lives longer than with any.
    let is_wanted = match before {
        None => !xx && !gt,
        Some(before) => !nx && (!gt || at > before) && (!lt || at < before),
    };
    if is_wanted && time <= 0 {
        shard.remove(key);
    } else if is_wanted {
        shard.set_deadline(key, Some(at));
        drop(shard);
        store.arm(at);
    }
    resp::integer(out, is_wanted.into());
    Ok(())
}

/// How long a key has left, or -1 if it has no deadline, or -2 if it does not exist.
fn remaining(store: &Store, key: &[u8], round: fn(i64) -> i64, out: &mut Vec<u8>) {
    let left = match store.shard(key).get(key).map(|entry| entry.deadline()) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => {
            let left = at.saturating_duration_since(Instant::now());
            // Rounded up, so that a new deadline is reported whole.
            round(i64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i64::MAX))
        }
    };
    resp::integer(out, left);
}
