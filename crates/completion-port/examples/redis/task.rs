//! A client's task, for servers on a runtime.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::protocol::{Call, Caller, Progress, Session, Store};

/// Read at a time.
const PORTION: usize = 16 * 1024;
/// Between two searches for keys that have expired and are not read: as often as Redis does it.
pub(crate) const SWEEP: Duration = Duration::from_millis(100);

/// What a runtime has for a connection. A read that is dropped loses no data.
pub(crate) trait Link: Send {
    fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    fn write_all(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
}

/// Called by other clients. Only a task that has a mailbox looks at it.
#[derive(Default)]
struct Notification(Mutex<(bool, Option<Waker>)>);

impl Notification {
    fn notify(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next notification wakes the task.
    fn listen(&self, context: &Context<'_>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 = Some(context.waker().clone());
    }

    /// Whether `notify` was called since the last call. If not, the next one wakes the task.
    fn was_notified(&self, context: &Context<'_>) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut state.0) {
            return true;
        }
        state.1 = Some(context.waker().clone());
        false
    }
}

fn caller(notification: &Arc<Notification>) -> Caller {
    let notification = Arc::downgrade(notification);
    Box::new(move |_: Call| {
        notification.upgrade().is_some_and(|notification| {
            notification.notify();
            true
        })
    })
}

/// Serves a client until its connection ends.
pub(crate) async fn serve<L: Link>(mut link: L, store: Arc<Store>) -> io::Result<()> {
    let mut session = Session::new(&store);
    let notification = Arc::new(Notification::default());
    let mut buffer = vec![0; PORTION];
    loop {
        // It has missed a message.
        if session.is_cut_off() {
            return Ok(());
        }
        let progress = session.execute(&|| caller(&notification));
        if !session.output.is_empty() {
            let mut output = std::mem::take(&mut session.output);
            write(&mut link, &output, &session, &notification).await?;
            // Its memory is used again.
            output.clear();
            session.output = output;
        }
        let until = match progress {
            Progress::Ends => return Ok(()),
            Progress::Full => continue,
            Progress::Waits(until) => until,
            Progress::Reads => None,
        };
        match wait::<L>(&mut link, &mut buffer, until, &session, &notification).await? {
            Woken::Input(0) if session.is_blocked() => return Ok(()),
            Woken::Input(0) => session.end_input(),
            Woken::Input(read) => session.input().extend_from_slice(&buffer[..read]),
            Woken::Otherwise => {}
        }
    }
}

/// Writes everything, unless the client is to be disconnected meanwhile.
async fn write<L: Link>(
    link: &mut L,
    output: &[u8],
    session: &Session,
    notification: &Notification,
) -> io::Result<()> {
    let mut written = pin!(link.write_all(output));
    poll_fn(|context| {
        if let Poll::Ready(written) = written.as_mut().poll(context) {
            return Poll::Ready(written);
        }
        // A notification is kept for `wait`, since its message stays in the mailbox until this is written.
        notification.listen(context);
        if session.is_cut_off() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Pending
    })
    .await
}

enum Woken {
    /// That many bytes.
    Input(usize),
    /// The mailbox has something, or the time has passed.
    Otherwise,
}

/// Waits for input, a message or the time. Input comes first, so that a steady stream of messages
/// does not keep the client's requests waiting. A client that waits with [`has_enough_input`] is not
/// read from, so its end is noticed only when it no longer waits.
///
/// [`has_enough_input`]: Session::has_enough_input
async fn wait<L: Link>(
    link: &mut L,
    buffer: &mut [u8],
    until: Option<Instant>,
    session: &Session,
    notification: &Notification,
) -> io::Result<Woken> {
    if !session.has_mailbox() {
        return link.read(buffer).await.map(Woken::Input);
    }
    let reads = !session.has_enough_input();
    let mut read = pin!(link.read(buffer));
    let mut passed = pin!(async {
        match until {
            Some(until) => L::sleep(until.saturating_duration_since(Instant::now())).await,
            None => std::future::pending().await,
        }
    });
    poll_fn(|context| {
        if reads && let Poll::Ready(read) = read.as_mut().poll(context) {
            return Poll::Ready(read.map(Woken::Input));
        }
        if notification.was_notified(context) || passed.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(Woken::Otherwise));
        }
        Poll::Pending
    })
    .await
}
