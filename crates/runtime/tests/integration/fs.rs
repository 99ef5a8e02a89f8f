//! Files.

use std::path::PathBuf;
use std::time::Duration;

use completion_port_runtime::fs::{self, File};
use completion_port_runtime::{Runtime, spawn, timeout};

const LIMIT: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Runtime::builder().concurrency(2).build().unwrap()
}

/// A separate path for each test.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("runtime-fs-{}-{name}", std::process::id()))
}

#[test]
fn files_are_written_and_read() {
    let path = path("whole");
    runtime().block_on(async {
        for size in [0, 1, 4096, (8 << 20) - 1, 8 << 20, 20_000_000] {
            let contents: Vec<u8> = (0..size).map(|at: u32| at.to_le_bytes()[0]).collect();
            fs::write(&path, contents.clone()).await.unwrap();
            assert!(fs::read(&path).await.unwrap() == contents, "{size}");
        }
        fs::write(&path, "text").await.unwrap();
        assert_eq!(fs::read_to_string(&path).await.unwrap(), "text");
        fs::write(&path, vec![0xff]).await.unwrap();
        let error = fs::read_to_string(&path).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    });
    std::fs::remove_file(&path).unwrap();
    let missing = runtime().block_on(fs::read(&path)).unwrap_err();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn many_reads_of_one_file_run_at_the_same_time() {
    let path = path("many");
    std::fs::write(&path, (0..=255_u8).cycle().take(256 * 64).collect::<Vec<_>>()).unwrap();
    runtime().block_on(async {
        let file = File::open(&path).unwrap();
        let reads: Vec<_> = (0..64_u64)
            .map(|block| {
                let file = file.clone();
                spawn(async move { file.read_at(Vec::with_capacity(256), block * 256).await })
            })
            .collect();
        for read in reads {
            let (read, bytes) = timeout(LIMIT, read).await.unwrap().unwrap();
            assert_eq!(read.unwrap(), 256);
            assert!(bytes.iter().copied().eq(0..=255));
        }
        let (read, bytes) = file.read_at(Vec::with_capacity(10), 1 << 20).await;
        assert_eq!((read.unwrap(), bytes.len()), (0, 0), "beyond the end");
        let (written, bytes) = file.write_at(vec![1], 0).await;
        assert!(written.is_err(), "it is open for reading only");
        assert_eq!(bytes, [1], "the buffer is returned");
    });
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn syncs_follow_writes() {
    let path = path("sync");
    runtime().block_on(async {
        let file = File::create(&path).unwrap();
        for block in 0..10_u64 {
            let (written, _) = file.write_at(vec![7; 1000], block * 1000).await;
            assert_eq!(written.unwrap(), 1000);
        }
        file.sync_data().await.unwrap();
        file.sync_all().await.unwrap();
        assert_eq!(file.std().metadata().unwrap().len(), 10_000);
    });
    std::fs::remove_file(&path).unwrap();
}

/// No descriptor is left open when files and runtimes are dropped, even with reads in flight.
#[cfg(target_os = "linux")]
#[test]
fn no_descriptor_is_left_open() {
    let path = path("leak");
    std::fs::write(&path, vec![3; 1000]).unwrap();
    let is_open = || {
        std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .any(|target| target == path)
    };
    let runtime = runtime();
    for _ in 0..20 {
        let reader = path.clone();
        let read = runtime.spawn(async move {
            let file = File::open(reader)?;
            file.read_at(Vec::with_capacity(1000), 0).await.0
        });
        read.abort();
        drop(runtime.block_on(read));
    }
    drop(runtime);
    // Helper threads may still be closing what they had.
    let begun = std::time::Instant::now();
    while is_open() {
        assert!(begun.elapsed() < LIMIT, "a descriptor of the file is open");
        std::thread::yield_now();
    }
    std::fs::remove_file(&path).unwrap();
}

/// A slot of the port may belong first to an operation on a file and then to a socket, and the other
/// way round.
#[test]
fn a_socket_may_follow_a_file_and_a_file_may_follow_a_socket() {
    use completion_port_runtime::net::UdpSocket;

    /// Waits once, so that the port watches the socket.
    async fn use_socket() {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let waiting = spawn(async move { socket.recv_from(&mut [0; 8]).await.unwrap().0 });
        completion_port_runtime::sleep(Duration::from_millis(1)).await;
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", address).unwrap();
        assert_eq!(timeout(LIMIT, waiting).await.unwrap().unwrap(), 1);
    }

    async fn use_file(path: PathBuf) {
        let file = File::create(path).unwrap();
        let (written, _) = file.write_at(b"text".to_vec(), 0).await;
        assert_eq!(written.unwrap(), 4);
        file.sync_all().await.unwrap();
    }

    let path = path("slots");
    for file_first in [true, false] {
        let path = path.clone();
        runtime().block_on(async {
            if file_first {
                spawn(use_file(path)).await.unwrap();
                spawn(use_socket()).await.unwrap();
            } else {
                spawn(use_socket()).await.unwrap();
                spawn(use_file(path)).await.unwrap();
            }
        });
    }
    std::fs::remove_file(&path).unwrap();
}
