//! A small server with the protocol of Redis: values with deadlines, counters, lists to wait for, and
//! messages to subscribers. `protocol/commands.rs` has the commands.
//!
//! `cargo run --example redis 127.0.0.1:6379`, and `redis-cli` in another terminal. SIGTERM or
//! Ctrl-C ends it.
//!
//! A client may send many requests without waiting for replies. While it doesn't read the replies, or waits in BLPOP,
//! the server neither executes its further requests nor reads more of them.

#[path = "../common/mod.rs"]
mod common;
mod protocol;
#[path = "../common/serve.rs"]
mod serve;
mod server;

use std::error::Error;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    let end = common::asked_to_end()?;
    let (port, store) = server::start()?;
    server::listen(&port, common::listen()?)?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve::serve(&port, |packet| server::handle(&port, &store, packet)));
        }
        let _ = end.recv();
        // A packet returns each key, then the waits end.
        port.shutdown()
    })?;
    Ok(())
}
