//! Files as streams.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, SeekFrom};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use completion_port_runtime::Runtime;
use completion_port_runtime::fs::{self, File};
use futures_io::{AsyncBufRead, AsyncSeek, AsyncWrite};

const LIMIT: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Runtime::builder().concurrency(2).build().unwrap()
}

/// A file that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("runtime-file-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn content(len: u32) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn a_stream_writes_what_it_reads_back() {
    let scratch = Scratch::new("whole", b"");
    runtime().block_on(async {
        let bytes = content(1_000_003);
        let mut stream = File::create(&scratch.0).unwrap().into_stream();
        for piece in bytes.chunks(300_001) {
            stream.write_all(piece).await.unwrap();
        }
        stream.flush().await.unwrap();
        assert_eq!(stream.position(), 1_000_003);
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "the end");
        assert_eq!(stream.seek(SeekFrom::Start(0)).await.unwrap(), 0);
        let mut all = Vec::new();
        let mut buffer = vec![0; 777];
        loop {
            match stream.read(&mut buffer).await.unwrap() {
                0 => break,
                read => all.extend_from_slice(&buffer[..read]),
            }
        }
        assert!(all == bytes);
        assert_eq!(stream.read(&mut []).await.unwrap(), 0);
    });
}

#[test]
fn reads_and_writes_take_turns_at_the_position() {
    let scratch = Scratch::new("turns", b"0123456789");
    runtime().block_on(async {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&scratch.0).unwrap();
        let mut stream = File::from_std(file).into_stream();
        let mut two = [0; 2];
        assert_eq!(stream.read(&mut two).await.unwrap(), 2);
        assert_eq!(&two, b"01");
        // What was read ahead is forgotten.
        stream.write_all(b"AB").await.unwrap();
        assert_eq!(stream.read(&mut two).await.unwrap(), 2);
        assert_eq!(&two, b"45");
        assert_eq!(stream.seek(SeekFrom::Current(-4)).await.unwrap(), 2);
        assert_eq!(stream.read(&mut two).await.unwrap(), 2);
        assert_eq!(&two, b"AB");
        assert_eq!(stream.seek(SeekFrom::End(-1)).await.unwrap(), 9);
        assert_eq!(stream.read(&mut two).await.unwrap(), 1);
        assert_eq!(two[0], b'9');
        let error = stream.seek(SeekFrom::Current(-11)).await.unwrap_err();
        assert_eq!((error.kind(), stream.position()), (ErrorKind::InvalidInput, 10));
        assert_eq!(stream.seek(SeekFrom::End(2)).await.unwrap(), 12);
        stream.write_all(b"!").await.unwrap();
        stream.flush().await.unwrap();
        assert_eq!(std::fs::read(&scratch.0).unwrap(), b"01AB456789\0\0!");
    });
}

#[test]
fn the_error_of_a_write_comes_with_the_next_call_and_once() {
    let scratch = Scratch::new("read-only", b"unchanged");
    runtime().block_on(async {
        let mut stream = File::open(&scratch.0).unwrap().into_stream();
        // The write may be refused immediately, or by the next call.
        let error = match stream.write_all(b"x").await {
            Ok(()) => stream.flush().await.unwrap_err(),
            Err(error) => error,
        };
        assert_ne!(error.kind(), ErrorKind::WouldBlock);
        stream.flush().await.unwrap();
        stream.seek(SeekFrom::Start(0)).await.unwrap();
        let mut bytes = [0; 16];
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 9);
        assert_eq!(&bytes[..9], b"unchanged");
    });
}

/// Polled once and dropped, again and again, a read loses nothing, and a write is not repeated.
#[test]
fn cancelled_calls_lose_nothing() {
    let scratch = Scratch::new("cancelled", &content(400_000));
    let copy = Scratch::new("copy", b"");
    runtime().block_on(async {
        let mut from = File::open(&scratch.0).unwrap().into_stream();
        let mut to = File::create(&copy.0).unwrap().into_stream();
        let mut context = Context::from_waker(Waker::noop());
        let mut buffer = vec![0; 10_000];
        loop {
            let begun = pin!(from.read(&mut buffer)).poll(&mut context);
            let read = match begun {
                std::task::Poll::Ready(read) => read.unwrap(),
                // It was dropped while it waited.
                std::task::Poll::Pending => from.read(&mut buffer).await.unwrap(),
            };
            if read == 0 {
                break;
            }
            let _ = pin!(to.flush()).poll(&mut context);
            to.write_all(&buffer[..read]).await.unwrap();
        }
        to.flush().await.unwrap();
    });
    assert!(std::fs::read(&copy.0).unwrap() == content(400_000));
}

/// A write in flight ends although the stream is dropped.
#[test]
fn a_dropped_stream_still_writes() {
    for round in 0..20_u32 {
        let scratch = Scratch::new("dropped", b"");
        let bytes = content(100_000 + round);
        let runtime = runtime();
        runtime.block_on(async {
            let mut stream = File::create(&scratch.0).unwrap().into_stream();
            stream.write_all(&bytes).await.unwrap();
        });
        let begun = Instant::now();
        while std::fs::read(&scratch.0).unwrap() != bytes {
            assert!(begun.elapsed() < LIMIT);
            std::thread::yield_now();
        }
    }
}

#[test]
fn the_traits_of_futures_io_read_lines_seek_and_write() {
    let scratch = Scratch::new("lines", b"one\ntwo\n");
    runtime().block_on(async {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&scratch.0).unwrap();
        let mut stream = File::from_std(file).into_stream();
        let line =
            poll_fn(|context| Pin::new(&mut stream).poll_fill_buf(context).map_ok(<[u8]>::to_vec));
        assert_eq!(line.await.unwrap(), b"one\ntwo\n");
        Pin::new(&mut stream).consume(4);
        let rest =
            poll_fn(|context| Pin::new(&mut stream).poll_fill_buf(context).map_ok(<[u8]>::to_vec));
        assert_eq!(rest.await.unwrap(), b"two\n");
        let sought = poll_fn(|context| Pin::new(&mut stream).poll_seek(context, SeekFrom::End(0)));
        assert_eq!(sought.await.unwrap(), 8);
        let written = poll_fn(|context| Pin::new(&mut stream).poll_write(context, b"three\n"));
        assert_eq!(written.await.unwrap(), 6);
        poll_fn(|context| Pin::new(&mut stream).poll_close(context)).await.unwrap();
        assert_eq!(std::fs::read(&scratch.0).unwrap(), b"one\ntwo\nthree\n");
    });
}

#[cfg(feature = "tokio-io")]
#[test]
fn the_traits_of_tokio_copy_a_file() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
    let scratch = Scratch::new("tokio", &content(300_000));
    let copy = Scratch::new("tokio-copy", b"");
    runtime().block_on(async {
        let mut from = File::open(&scratch.0).unwrap().into_stream();
        let mut to = File::create(&copy.0).unwrap().into_stream();
        assert_eq!(tokio::io::copy(&mut from, &mut to).await.unwrap(), 300_000);
        AsyncWriteExt::flush(&mut to).await.unwrap();
        assert_eq!(AsyncSeekExt::seek(&mut to, SeekFrom::Start(299_990)).await.unwrap(), 299_990);
        let mut end = Vec::new();
        assert_eq!(to.read_to_end(&mut end).await.unwrap(), 10);
        assert_eq!(end, content(300_000)[299_990..]);
        AsyncSeekExt::rewind(&mut to).await.unwrap();
        let first = to.read_u8().await.unwrap();
        assert_eq!(first, content(1)[0]);
        let mut until = Vec::new();
        to.read_until(content(300_000)[20], &mut until).await.unwrap();
        assert_eq!(until, content(300_000)[1..=until.len()]);
    });
    assert!(std::fs::read(&copy.0).unwrap() == content(300_000));
}

/// The metadata of these files says nothing about their length.
#[cfg(target_os = "linux")]
#[test]
fn files_without_a_length_are_read_whole() {
    let scratch = Scratch::new("pipe", b"");
    std::fs::remove_file(&scratch.0).unwrap();
    runtime().block_on(async {
        let status = fs::read_to_string("/proc/self/status").await.unwrap();
        assert!(status.starts_with("Name:") && status.contains("\nThreads:"), "{status}");
        assert_eq!(fs::read("/dev/null").await.unwrap(), b"");
        let made = std::process::Command::new("mkfifo").arg(&scratch.0).status().unwrap();
        assert!(made.success());
        let path = scratch.0.clone();
        let writer = std::thread::spawn(move || std::fs::write(path, content(200_000)).unwrap());
        assert!(fs::read(&scratch.0).await.unwrap() == content(200_000));
        writer.join().unwrap();
    });
}
