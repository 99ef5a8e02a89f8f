//! A file server in the manner of HTTP/1.0: `GET /path`, with an optional `Range: bytes=FIRST-LAST`.
//!
//! `cargo run -p completion-port-runtime --example async_files 127.0.0.1:7002 FOLDER`. It serves regular
//! files in the folder, and nothing outside of it. Opening a file and looking at it are ordinary
//! calls, which may block.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use completion_port_runtime::fs::File;
use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::time::timeout;
use completion_port_runtime::{signal, sleep, spawn};

const CHUNK: u64 = 128 * 1024;

/// The longest head of a request.
const HEAD: usize = 8192;

/// Finds the file in the folder, or the status to answer.
fn find(folder: &Path, path: &str) -> Result<(File, u64), &'static str> {
    let relative = Path::new(path.strip_prefix('/').ok_or("400 Bad Request")?);
    if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err("403 Forbidden");
    }
    // Links are resolved, and must not lead out of the folder either.
    let real = folder.join(relative).canonicalize().map_err(|_| "404 Not Found")?;
    if !real.starts_with(folder) {
        return Err("403 Forbidden");
    }
    let file = File::open(real).map_err(|_| "404 Not Found")?;
    let metadata = file.std().metadata().map_err(|_| "404 Not Found")?;
    if metadata.is_file() { Ok((file, metadata.len())) } else { Err("404 Not Found") }
}

/// Returns the first byte of a range, and the one after its last.
fn range(head: &str, length: u64) -> Result<Option<(u64, u64)>, &'static str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut ranges = lines.filter(|(name, _)| name.eq_ignore_ascii_case("range"));
    let Some((_, range)) = ranges.next() else { return Ok(None) };
    let parse = || {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        let first: u64 = first.parse().ok()?;
        let end =
            if last.is_empty() { length } else { last.parse::<u64>().ok()?.checked_add(1)? };
        (first < end && first < length).then_some((first, end.min(length)))
    };
    parse().map(Some).ok_or("416 Range Not Satisfiable")
}

async fn answer(stream: &TcpStream, folder: &Path) -> io::Result<()> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        let read = timeout(Duration::from_secs(30), stream.read(&mut buffer)).await??;
        head.extend_from_slice(&buffer[..read]);
        if read == 0 || head.len() > HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_whitespace();
    let found = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => find(folder, path),
        _ => Err("400 Bad Request"),
    };
    let wanted = found.and_then(|(file, length)| Ok((file, length, range(&head, length)?)));
    let (file, length, range) = match wanted {
        Ok(wanted) => wanted,
        Err(status) => {
            let text = format!("HTTP/1.0 {status}\r\nContent-Length: 0\r\n\r\n");
            return stream.write_all(text.as_bytes()).await;
        }
    };
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    let (mut at, end) = range.unwrap_or((0, length));
    let head = format!("HTTP/1.0 {status}\r\nContent-Length: {}\r\n\r\n", end - at);
    stream.write_all(head.as_bytes()).await?;
    let mut buffer = Vec::new();
    while at < end {
        let room = usize::try_from(CHUNK.min(end - at)).map_err(io::Error::other)?;
        // The read fills the buffer to its capacity.
        if buffer.capacity() != room {
            buffer = Vec::with_capacity(room);
        }
        buffer.clear();
        let (read, bytes) = file.read_at(buffer, at).await;
        if read? == 0 {
            // The file has become shorter: the client sees that bytes are missing.
            break;
        }
        // A vector may have got more room than was asked for.
        let bytes_left = usize::try_from(end - at).map_err(io::Error::other)?;
        let part = bytes.len().min(bytes_left);
        stream.write_all(&bytes[..part]).await?;
        at += part as u64;
        buffer = bytes;
    }
    Ok(())
}

/// Serves clients until the task is aborted.
pub(crate) async fn serve(listener: TcpListener, folder: PathBuf) -> io::Result<()> {
    let folder: Arc<Path> = folder.canonicalize()?.into();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Descriptors may be short for a while.
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let folder = Arc::clone(&folder);
        // An error ends this connection and no other.
        drop(spawn(async move { answer(&stream, &folder).await }));
    }
}

#[completion_port_runtime::main]
#[allow(dead_code, reason = "the test calls `serve`")]
async fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7002".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let serving = spawn(serve(listener, arguments.next().unwrap_or_else(|| ".".to_owned()).into()));
    signal::shutdown().await?;
    serving.abort();
    Ok(())
}
