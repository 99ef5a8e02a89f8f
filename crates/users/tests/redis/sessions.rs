//! Sessions and tasks without a server: each step of a client is given.

use std::future::{Future, pending};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use self::protocol::{Caller, Session, Store};
use super::{line, request};

#[allow(dead_code, unreachable_pub, reason = "a server uses all of it")]
#[path = "../../../completion-port/examples/redis/protocol/mod.rs"]
mod protocol;
#[allow(dead_code, reason = "a server uses all of it")]
#[path = "../../../completion-port/examples/redis/task.rs"]
mod task;

fn store() -> Arc<Store> {
    Arc::new(Store::new(|_| {}))
}

/// For a session that executes without being called.
fn not_called() -> Caller {
    Box::new(|_| true)
}

/// Executes a request on a session whose replies nobody reads.
fn execute(session: &mut Session, request: &[u8]) {
    session.input().extend_from_slice(request);
    session.execute(&not_called);
    session.output.clear();
}

#[test]
fn a_subscriber_that_reads_too_slowly_is_cut_off() {
    let store = store();
    let (mut slow, mut publisher) = (Session::new(&store), Session::new(&store));
    execute(&mut slow, &line("SUBSCRIBE news"));
    let publish = request(&[b"PUBLISH", b"news", &[b'x'; 10_000]]);
    for _ in 0..1000 {
        execute(&mut publisher, &publish);
        if slow.is_cut_off() {
            return;
        }
        slow.execute(&not_called);
        assert!(slow.output.len() < 3 << 20, "{} bytes are kept", slow.output.len());
        // It reads half of the messages.
        slow.output.drain(..slow.output.len().min(5000));
    }
    panic!("it is not cut off");
}

/// Each later deadline asks a timer that has failed again.
#[test]
fn a_timer_that_fails_is_asked_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let store = Arc::new(Store::with_fallible_timer({
        let calls = Arc::clone(&calls);
        move |_| calls.fetch_add(1, Ordering::Relaxed) > 0
    }));
    let mut session = Session::new(&store);
    for (request, expected) in [("SET a x EX 10", 1), ("SET b x EX 20", 2), ("SET c x EX 30", 2)] {
        execute(&mut session, &line(request));
        assert_eq!(calls.load(Ordering::Relaxed), expected, "{request}");
    }
}

/// A connection whose client sends each of these inputs as soon as the last one was read.
struct Scripted<F> {
    inputs: std::vec::IntoIter<Vec<u8>>,
    written: Arc<Mutex<Vec<u8>>>,
    during_write: F,
}

impl<F: FnMut() + Send> task::Link for Scripted<F> {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inputs.next() {
            Some(input) => {
                buffer[..input.len()].copy_from_slice(&input);
                Ok(input.len())
            }
            None => pending().await,
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        (self.during_write)();
        self.written.lock().unwrap().extend_from_slice(bytes);
        Ok(())
    }

    async fn sleep(_: Duration) {
        pending().await
    }
}

fn poll(serving: &mut (impl Future<Output = io::Result<()>> + Unpin)) -> Poll<io::Result<()>> {
    pin!(serving).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_task_that_has_missed_a_message_ends() {
    let (store, written) = (store(), Arc::default());
    let link = Scripted {
        inputs: vec![line("SUBSCRIBE news")].into_iter(),
        written: Arc::clone(&written),
        during_write: || {},
    };
    let mut serving = pin!(task::serve(link, Arc::clone(&store)));
    assert!(poll(&mut serving).is_pending());
    // While it does not run, its mailbox becomes too full for the third one.
    let mut publisher = Session::new(&store);
    for _ in 0..3 {
        let message = vec![b'x'; 600_000];
        execute(&mut publisher, &request(&[b"PUBLISH", b"news", &message]));
    }
    assert!(matches!(poll(&mut serving), Poll::Ready(Ok(()))));
    let written = written.lock().unwrap();
    assert_eq!(*written, b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
}

/// A message comes during every write. The client's requests are read nevertheless, and its end too.
#[test]
fn a_steady_stream_of_messages_keeps_no_request_waiting() {
    for last in [line("QUIT"), b"nonsense\r\n*x\r\n".to_vec(), Vec::new()] {
        let (store, written) = (store(), Arc::default());
        let mut publisher = Session::new(&store);
        let mut writes = 0;
        let link = Scripted {
            inputs: vec![line("SUBSCRIBE news"), line("PING"), last].into_iter(),
            written: Arc::clone(&written),
            during_write: || {
                execute(&mut publisher, &line("PUBLISH news x"));
                writes += 1;
                assert!(writes < 100, "its requests are not read");
            },
        };
        let mut serving = pin!(task::serve(link, store));
        assert!(matches!(poll(&mut serving), Poll::Ready(Ok(()))));
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert!(written.contains("*2\r\n$4\r\npong\r\n$0\r\n\r\n"), "{written}");
        assert!(written.contains("$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n"), "{written}");
    }
}
