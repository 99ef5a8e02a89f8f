//! Futures that are dropped while their work is in progress: no descriptor leaks, nothing is lost,
//! and no outcome reaches another future.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::Future;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use completion_port_runtime::fs::{self, File, FileStream};
use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::{Runtime, sleep, spawn, timeout, yield_now};
use testkit::Dice;

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test alone, on a new runtime, and checks that no descriptor stays open.
fn alone(act: impl AsyncFnOnce(Dice)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A test that failed left nothing inconsistent.
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    #[cfg(target_os = "linux")]
    let before = testkit::descriptors::open();
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    runtime.block_on(act(Dice::new()));
    drop(runtime);
    #[cfg(target_os = "linux")]
    testkit::descriptors::await_same(&before);
}

/// Polls a future as often as given, then drops it. Returns its output if it ended before.
async fn cut_off<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    struct CutOff<'f, F>(Pin<&'f mut F>, usize);

    impl<F: Future> Future for CutOff<'_, F> {
        type Output = Option<F::Output>;

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            if let Poll::Ready(output) = self.0.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
            self.1 -= 1;
            if self.1 == 0 { Poll::Ready(None) } else { Poll::Pending }
        }
    }

    CutOff(pin!(future), polls).await
}

/// Returns a test's own path.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("runtime-cancel-{}-{name}", std::process::id()))
}

/// Waits until no descriptor of a file is open: an operation may hold it until its end.
#[cfg(target_os = "linux")]
async fn await_closed(path: &Path) {
    let is_open = || testkit::descriptors::open().values().any(|name| Path::new(name) == path);
    let closed = async {
        while is_open() {
            yield_now().await;
        }
    };
    timeout(LIMIT, closed).await.expect("a descriptor of the file is open");
}

#[cfg(not(target_os = "linux"))]
async fn await_closed(_: &Path) {
    yield_now().await;
}

/// Opens a file in each way, with waits while it is open.
async fn open_in_each_way(path: &Path, contents: &[u8]) {
    let file = File::create(path).unwrap();
    yield_now().await;
    assert_eq!(file.write_at(contents.to_vec(), 0).await.0.unwrap(), contents.len());
    file.sync_all().await.unwrap();
    let second = File::open(path).unwrap();
    drop(file);
    yield_now().await;
    let (read, bytes) = second.read_at(Vec::with_capacity(contents.len()), 0).await;
    assert_eq!((read.unwrap(), &bytes[..]), (contents.len(), contents));
    let mut stream = FileStream::new(second.clone());
    yield_now().await;
    let mut buffer = vec![0; contents.len()];
    let read = stream.read(&mut buffer).await.unwrap();
    assert_eq!(buffer[..read], contents[..read]);
    drop((stream, second));
    fs::write(path, contents).await.unwrap();
    let whole = fs::read(path).await.unwrap();
    assert!(whole == contents);
}

/// A future that opens files, dropped at each of its waits, closes them.
#[test]
fn an_open_that_is_cancelled_at_any_wait_leaves_no_descriptor() {
    let path = path("open");
    let contents: Vec<u8> = (0..300_000_u32).map(|at| (at * 7).to_le_bytes()[1]).collect();
    alone(async |_| {
        for round in 0..5 {
            let mut polls = 1;
            while cut_off(open_in_each_way(&path, &contents), polls).await.is_none() {
                await_closed(&path).await;
                polls += 1;
            }
            // Three waits are yields, and no file system ends a sync immediately.
            assert!(polls > 4, "round {round}: it ended at poll {polls}");
            await_closed(&path).await;
        }
    });
    std::fs::remove_file(&path).unwrap();
}

/// Cancelled reads of one file and complete reads of another reuse the same places in the port.
#[test]
fn a_cancelled_read_of_a_file_reaches_no_other_read() {
    const LEN: usize = 4_096;
    let path = path("read");
    let block = |number: u64| number.to_le_bytes().repeat(LEN / 8);
    std::fs::write(&path, (0..64).flat_map(block).collect::<Vec<_>>()).unwrap();
    alone(async |mut dice| {
        let file = File::open(&path).unwrap();
        for round in 0..300 {
            let mut kept = Vec::new();
            for _ in 0..8 {
                let number = dice.roll(64);
                let at = number * LEN as u64;
                let mut read = Box::pin(file.read_at(Vec::with_capacity(LEN), at));
                match dice.roll(3) {
                    // It is dropped before it begins.
                    0 => drop(read),
                    // It is dropped when it has begun, and so is a sync, which always takes a while.
                    1 => {
                        let _ = cut_off(read.as_mut(), 1).await;
                        let _ = cut_off(file.sync_data(), 1).await;
                    }
                    _ => {
                        let polled = cut_off(read.as_mut(), 1).await;
                        kept.push((number, polled, read));
                    }
                }
            }
            for (number, polled, read) in kept {
                let (read, bytes) = match polled {
                    Some(ended) => ended,
                    None => timeout(LIMIT, read).await.unwrap(),
                };
                assert_eq!(read.unwrap(), LEN, "round {round}");
                assert!(bytes == block(number), "round {round}: another block than {number}");
            }
        }
    });
    std::fs::remove_file(&path).unwrap();
}

/// A read of a pipe is in flight until the pipe has data, so that its outcome comes after its
/// future was dropped and after another read has begun.
#[cfg(target_os = "linux")]
#[test]
fn a_late_outcome_of_a_cancelled_read_wakes_no_other_future() {
    use std::os::fd::OwnedFd;
    let pipe = || {
        let (reader, writer) = std::io::pipe().unwrap();
        (File::from_std(OwnedFd::from(reader).into()), writer)
    };
    alone(async |mut dice| {
        for round in 0..100_u8 {
            let ((first, mut to_first), (second, mut to_second)) = (pipe(), pipe());
            let cancelled = cut_off(first.read_at(Vec::with_capacity(8), 0), 1).await;
            assert!(cancelled.is_none(), "an empty pipe was read");
            if dice.roll(2) == 0 {
                yield_now().await;
            }
            let mut read = Box::pin(second.read_at(Vec::with_capacity(16), 0));
            assert!(cut_off(read.as_mut(), 1).await.is_none(), "an empty pipe was read");
            // The first outcome: this data, or that of the cancellation.
            to_first.write_all(&[0xff; 8]).unwrap();
            drop(to_first);
            let early = timeout(Duration::from_micros(dice.roll(500)), read.as_mut()).await;
            assert!(early.is_err(), "round {round}: another outcome arrived: {early:?}");
            to_second.write_all(&[round; 3]).unwrap();
            let (result, bytes) = timeout(LIMIT, read).await.unwrap();
            assert_eq!((result.unwrap(), bytes), (3, vec![round; 3]));
        }
    });
}

/// A ring gives up a read that waits, so that the file is closed although no data ever comes.
#[cfg(target_os = "linux")]
#[test]
fn a_cancelled_read_without_data_ends_and_closes_its_file() {
    use std::os::fd::{AsRawFd, OwnedFd};
    alone(async |_| {
        let ends =
            |name: &str| testkit::descriptors::open().values().filter(|it| *it == name).count();
        for _ in 0..20 {
            let (reader, writer) = std::io::pipe().unwrap();
            let name = testkit::descriptors::open()[&writer.as_raw_fd()].clone();
            let file = File::from_std(OwnedFd::from(reader).into());
            assert!(cut_off(file.read_at(Vec::with_capacity(8), 0), 1).await.is_none());
            drop(file);
            // A helper thread would read until there is data.
            let engine = completion_port_runtime::Handle::current().metrics().file_engine;
            if engine != "io_uring" {
                println!("SKIPPED a cancelled read without data: the file engine is {engine}");
                return;
            }
            let closed = async {
                while ends(&name) > 1 {
                    yield_now().await;
                }
            };
            timeout(LIMIT, closed).await.expect("the read is still in flight");
        }
    });
}

/// Waits for connections, and is cancelled all the time, by a timeout, by an abort or by a drop
/// after one poll. Returns the accepted ones when there are as many as given.
async fn accept_with_cancels(
    listener: Arc<TcpListener>,
    accepted: Arc<Mutex<Vec<TcpStream>>>,
    count: usize,
    mut dice: Dice,
) -> usize {
    let has_all = || accepted.lock().unwrap().len() >= count;
    let mut cancels = 0;
    while !has_all() {
        // Nothing may happen between the accept and the push: the cancellation could drop it.
        let accept = {
            let (listener, accepted) = (Arc::clone(&listener), Arc::clone(&accepted));
            async move {
                let (stream, _) = listener.accept().await.unwrap();
                accepted.lock().unwrap().push(stream);
            }
        };
        let time = Duration::from_micros(dice.roll(300));
        cancels += usize::from(match dice.roll(3) {
            0 => timeout(time, accept).await.is_err(),
            1 => cut_off(accept, 1).await.is_none(),
            _ => {
                let task = spawn(accept);
                sleep(time).await;
                task.abort();
                task.await.is_err()
            }
        });
        yield_now().await;
    }
    cancels
}

/// Each connection is accepted exactly once, and is open, although most accepts are cancelled.
#[test]
fn a_cancelled_accept_neither_loses_nor_leaks_a_connection() {
    const CLIENTS: usize = 200;
    alone(async |mut dice| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(Mutex::new(Vec::new()));
        let acceptors: Vec<_> = (0..4)
            .map(|number| {
                let (listener, accepted) = (Arc::clone(&listener), Arc::clone(&accepted));
                spawn(accept_with_cancels(listener, accepted, CLIENTS, dice.another(number)))
            })
            .collect();
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(std::net::TcpStream::connect(address).unwrap());
            sleep(Duration::from_micros(dice.roll(200))).await;
        }
        let mut cancels = 0;
        for acceptor in acceptors {
            cancels += timeout(LIMIT, acceptor).await.unwrap().unwrap();
        }
        assert!(cancels > 0, "nothing was cancelled");
        let accepted = std::mem::take(&mut *accepted.lock().unwrap());
        let mut peers: Vec<_> = accepted.iter().map(|near| near.peer_addr().unwrap()).collect();
        let mut own: Vec<_> = clients.iter().map(|client| client.local_addr().unwrap()).collect();
        peers.sort_unstable();
        own.sort_unstable();
        assert_eq!(peers, own);
        for near in &accepted {
            let port = near.peer_addr().unwrap().port();
            near.write_all(&port.to_le_bytes()).await.unwrap();
        }
        for client in &mut clients {
            let mut port = [0; 2];
            client.set_read_timeout(Some(LIMIT)).unwrap();
            client.read_exact(&mut port).unwrap();
            assert_eq!(u16::from_le_bytes(port), client.local_addr().unwrap().port());
        }
    });
}

/// The byte at a position of the streams.
fn byte(at: usize) -> u8 {
    (at * 31 + at / 256).to_le_bytes()[0]
}

/// Makes a stream, and a thread that sends bytes over it in small pieces and then ends it. A message
/// starts the thread's work.
fn sender(len: usize, mut dice: Dice) -> (TcpStream, mpsc::Sender<()>, thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let near = TcpStream::from_std(listener.accept().unwrap().0).unwrap();
    let (begin, begun) = mpsc::channel();
    let sends = thread::spawn(move || {
        begun.recv().unwrap();
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let piece = rest.len().min(1 + usize::try_from(dice.roll(50)).unwrap());
            far.write_all(&rest[..piece]).unwrap();
            rest = &rest[piece..];
            (0..dice.roll(5)).for_each(|_| thread::yield_now());
        }
    });
    (near, begin, sends)
}

#[track_caller]
fn assert_whole(received: &[u8], len: usize) {
    let first = received.iter().enumerate().find(|&(at, &got)| got != byte(at));
    assert_eq!(first, None, "a byte is lost, or there twice");
    assert_eq!(received.len(), len);
}

/// Reads of a stream and of both kinds of halves, dropped before they begin, while they wait, and
/// after data has arrived.
#[test]
fn a_cancelled_read_of_a_stream_loses_no_byte() {
    /// Reads until the end, and cancels most reads.
    macro_rules! read_with_cancels {
        ($reader:expr, $begin:expr, $waits:expr, $dice:expr) => {{
            let (mut received, mut buffer) = (Vec::new(), [0; 64]);
            // Nothing has been sent.
            assert!(cut_off($reader.read(&mut buffer), 1).await.is_none());
            $begin.send(()).unwrap();
            loop {
                let size = 1 + usize::try_from($dice.roll(64)).unwrap();
                let time = Duration::from_micros($dice.roll(100));
                let read = match $dice.roll(4) {
                    0 => cut_off($reader.read(&mut buffer[..size]), 1).await,
                    1 => timeout(time, $reader.read(&mut buffer[..size])).await.ok(),
                    2 => {
                        let mut read = Box::pin($reader.read(&mut buffer[..size]));
                        let polled = cut_off(read.as_mut(), 1).await;
                        if polled.is_none() {
                            // The data of this read arrives, and wakes the task.
                            timeout(LIMIT, cut_off($waits, 2)).await.unwrap();
                        }
                        polled
                    }
                    _ => {
                        drop($reader.read(&mut buffer[..size]));
                        timeout(LIMIT, $reader.read(&mut buffer[..size])).await.ok()
                    }
                };
                match read.transpose().unwrap() {
                    Some(0) => break,
                    Some(read) => received.extend_from_slice(&buffer[..read]),
                    None => yield_now().await,
                }
            }
            received
        }};
    }

    const LEN: usize = 50_000;
    alone(async |mut dice| {
        let (near, begin, sends) = sender(LEN, dice.another(0));
        assert_whole(&read_with_cancels!(near, begin, yield_now(), dice), LEN);
        sends.join().unwrap();

        let (mut near, begin, sends) = sender(LEN, dice.another(1));
        let (mut reader, _writer) = near.split();
        assert_whole(&read_with_cancels!(reader, begin, yield_now(), dice), LEN);
        sends.join().unwrap();

        let (near, begin, sends) = sender(LEN, dice.another(2));
        let (mut reader, writer) = near.into_split();
        let waits = || writer.stream().readable();
        assert_whole(&read_with_cancels!(reader, begin, waits(), dice), LEN);
        sends.join().unwrap();
    });
}

/// Tasks that read one stream by turns are aborted at any time.
#[test]
fn an_aborted_reader_loses_no_byte() {
    const LEN: usize = 20_000;
    alone(async |mut dice| {
        let (near, begin, sends) = sender(LEN, dice.another(0));
        let near = Arc::new(near);
        let received = Arc::new(Mutex::new(Vec::new()));
        let (mut begin, mut has_ended) = (Some(begin), false);
        while !has_ended {
            let (near, all) = (Arc::clone(&near), Arc::clone(&received));
            let reader = spawn(async move {
                let mut buffer = [0; 64];
                loop {
                    // Nothing may happen between the read and the push: the abort could drop it.
                    let read = near.read(&mut buffer).await.unwrap();
                    all.lock().unwrap().extend_from_slice(&buffer[..read]);
                    if read == 0 {
                        break;
                    }
                }
            });
            sleep(Duration::from_micros(dice.roll(200))).await;
            reader.abort();
            let ended = timeout(LIMIT, reader).await.unwrap();
            // Nothing had been sent to the first one.
            if let Some(begin) = begin.take() {
                assert!(ended.is_err());
                begin.send(()).unwrap();
            }
            has_ended = received.lock().unwrap().len() == LEN || ended.is_ok();
        }
        sends.join().unwrap();
        assert_whole(&received.lock().unwrap(), LEN);
    });
}

/// A future that was dropped holds no waker: the task's memory is released immediately.
#[test]
fn a_dropped_read_releases_its_waker() {
    struct Silent;
    impl std::task::Wake for Silent {
        fn wake(self: Arc<Self>) {}
    }
    alone(async |_| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let silent = Arc::new(Silent);
        let waker = Waker::from(Arc::clone(&silent));
        let mut accept = Box::pin(listener.accept());
        assert!(accept.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(Arc::strong_count(&silent), 3);
        drop(accept);
        assert_eq!(Arc::strong_count(&silent), 2);
    });
}
