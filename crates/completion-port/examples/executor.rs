//! An executor of futures on a port. Tasks are messages, and `async` calls are operations.
//!
//! `cargo run --example executor`. It runs an echo server and its clients, then ends.
//!
//! - A task that is woken is posted, and the thread that takes the message polls it. So the port's
//!   concurrency value limits how many tasks run, and the newest idle thread is woken.
//! - A future of an operation starts it when it is first polled. The operation's packet stores the
//!   outcome and wakes the task. A dropped future cancels its operation.
//! - A sleep is a waker that is posted at a later time.

#[path = "common/serve.rs"]
mod serve;

use std::collections::HashMap;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    BorrowedSource, OpId, Operation, Outcome, OwnedSource, Packet, Port, Result, SharedId, Source,
};

/// Each packet brings a clone.
#[derive(Clone)]
enum Key {
    Listener(Arc<TcpListener>),
    Client(Arc<OwnedSource>),
}

impl Source for Key {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(socket) => socket.as_source(),
        }
    }
}

enum Message {
    Poll(Arc<Task>),
    Wake(Waker),
}

/// An operation that a future waits for.
enum State {
    InFlight(Waker),
    Done(Outcome),
    /// The future was dropped.
    Abandoned,
}

struct Executor {
    port: Port<Key, Message>,
    operations: Mutex<HashMap<OpId, State>>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Task {
    executor: Arc<Executor>,
    /// `None` once it is done, or has panicked. The lock is held while it is polled: if the task
    /// is woken meanwhile, the thread that takes it then waits for this one's poll to end.
    work: Mutex<Option<Work>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // Refused if the port has shut down.
        let _ = self.executor.port.post(Message::Poll(Arc::clone(&self)));
    }
}

impl Task {
    fn poll(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut place = lock(&self.work);
        // Taken out, so that a panic drops it.
        let Some(mut work) = place.take() else { return };
        if work.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            *place = Some(work);
        }
    }
}

impl Executor {
    fn new() -> Result<Arc<Self>> {
        let (port, operations) = (Port::builder().build()?, Mutex::default());
        Ok(Arc::new(Self { port, operations }))
    }

    fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let work = Mutex::new(Some(Box::pin(work) as Work));
        Arc::new(Task { executor: Arc::clone(self), work }).wake();
    }

    /// Every thread does this.
    fn run(&self) {
        serve::serve(&self.port, |packet| match packet {
            Packet::Posted(Message::Poll(task)) => task.poll(),
            Packet::Posted(Message::Wake(waker)) => waker.wake(),
            Packet::SharedCompleted(completed) => {
                let operation = completed.operation();
                let outcome = completed.into_parts().1;
                let before = lock(&self.operations).insert(operation, State::Done(outcome));
                match before {
                    Some(State::InFlight(waker)) => waker.wake(),
                    // Nobody takes the outcome.
                    Some(_) => drop(lock(&self.operations).remove(&operation)),
                    // The future is about to look.
                    None => {}
                }
            }
            _ => {}
        });
    }

    async fn sleep(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut is_set = false;
        poll_fn(|context| {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut is_set, true) {
                let _ = self.port.post_at(deadline, Message::Wake(context.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }
}

/// A socket whose operations are awaited. Dropping it closes it.
struct Socket {
    executor: Arc<Executor>,
    name: SharedId,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The last packet returns the key, and so closes the socket.
        let _ = self.executor.port.remove(self.name.id());
    }
}

impl Socket {
    fn new(executor: &Arc<Executor>, key: Key) -> Result<Self> {
        let name = executor.port.associate_shared(key)?;
        Ok(Self { executor: Arc::clone(executor), name })
    }

    /// Starts an operation, and waits for its outcome.
    async fn perform(&self, operation: Operation) -> Result<Outcome> {
        let operation = Some(self.executor.port.start(self.name, operation)?);
        Ok(InFlight { executor: &self.executor, operation }.await)
    }

    async fn accept(&self) -> Result<Self> {
        match self.perform(Operation::accept()).await? {
            Outcome::Accepted(accepted) => {
                Self::new(&self.executor, Key::Client(Arc::new(accepted?.0)))
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Returns the number of bytes, 0 at the end, and the buffer.
    async fn recv(&self, buffer: Vec<u8>) -> Result<(usize, Vec<u8>)> {
        match self.perform(Operation::recv(buffer)).await? {
            Outcome::Received(count, buffer) => Ok((count?, buffer)),
            other => unreachable!("{other:?}"),
        }
    }

    async fn send_all(&self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        match self.perform(Operation::send_all(bytes)).await? {
            Outcome::Sent(count, buffer) => count.map(|_| buffer),
            other => unreachable!("{other:?}"),
        }
    }
}

/// An operation in flight, for the future that waits for it.
struct InFlight<'e> {
    executor: &'e Executor,
    /// `None` once its outcome is taken.
    operation: Option<OpId>,
}

impl Future for InFlight<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let operation = self.operation.expect("it is polled once more only if it was pending");
        let mut operations = lock(&self.executor.operations);
        if let Some(State::Done(outcome)) = operations.remove(&operation) {
            drop(operations);
            self.operation = None;
            return Poll::Ready(outcome);
        }
        operations.insert(operation, State::InFlight(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(operation) = self.operation else { return };
        let mut operations = lock(&self.executor.operations);
        if let Some(State::Done(_)) = operations.remove(&operation) {
            return;
        }
        operations.insert(operation, State::Abandoned);
        // Its packet follows all the same, and returns the buffer.
        let _ = self.executor.port.cancel(operation);
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    const PAUSE: Duration = Duration::from_millis(20);
    let executor = Executor::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let listener = Socket::new(&executor, Key::Listener(Arc::new(listener)))?;
    executor.spawn(accept_all(Arc::clone(&executor), listener));

    let (begun, (tell, told)) = (Instant::now(), mpsc::channel());
    let sleeper = Arc::clone(&executor);
    executor.spawn(async move {
        sleeper.sleep(PAUSE).await;
        let _ = tell.send(begun.elapsed());
    });
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| executor.run());
        }
        let clients: Vec<_> = (0..8).map(|seed| scope.spawn(move || talk(address, seed))).collect();
        let talked: std::io::Result<()> =
            clients.into_iter().try_for_each(|client| client.join().expect("a client"));
        let slept = told.recv();
        // The accept in flight is cancelled, and the threads end.
        executor.port.shutdown()?;
        talked?;
        assert!(slept? >= PAUSE);
        println!("8 clients were answered");
        Ok(())
    })
}

/// A task for each connection.
async fn accept_all(executor: Arc<Executor>, listener: Socket) {
    while let Ok(client) = listener.accept().await {
        executor.spawn(async move {
            // An error ends only this client, whose socket is dropped.
            let _ = echo(client).await;
        });
    }
}

async fn echo(client: Socket) -> Result<()> {
    let mut buffer = Vec::with_capacity(4096);
    loop {
        let (count, bytes) = client.recv(buffer).await?;
        if count == 0 {
            return Ok(());
        }
        buffer = client.send_all(bytes).await?;
    }
}

/// A client, which checks the echo.
fn talk(server: SocketAddr, seed: u8) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    for length in [1, 100, 4096, 10_000] {
        let bytes = vec![seed; length];
        stream.write_all(&bytes)?;
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        assert_eq!(answer, bytes);
    }
    Ok(())
}
