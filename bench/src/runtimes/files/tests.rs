//! Each contender with a client that checks every byte of its answers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::time::Instant;

use super::servers::folder_of;
use super::*;
use crate::http::file::contents;
use crate::runtimes::shared::each_installed;

fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("cport-bench-{name}-{}", std::process::id()))
}

/// The status and the body of the answer.
fn get(client: &mut TcpStream, path: &str) -> (String, Vec<u8>) {
    write!(client, "GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    client.read_exact(&mut body).unwrap();
    (head.lines().next().unwrap().to_owned(), body)
}

/// The servers look for the folder of the process that has started them.
#[test]
fn every_contender_serves_the_files() {
    let (_folder, lacking) = Folder::at(folder_of(parent_id()), &LENGTHS).unwrap();
    each_installed(&ALL, server, |name, connect| {
        let mut client = connect();
        for length in LENGTHS {
            let mut wanted = vec![Get::File(length), Get::PAGE];
            match &lacking {
                None => wanted.push(Get::SlowFile(length)),
                Some(reason) => eprintln!("{name}: {reason}"),
            }
            for get_it in wanted {
                let (status, body) = get(&mut client, &get_it.path());
                assert_eq!(status, "http/1.1 200 ok", "{name}");
                let expected = get_it.length().map_or(b"done\n".to_vec(), contents);
                assert!(body == expected, "{name}: {get_it:?}: {} bytes", body.len());
            }
        }
        for path in ["/file/1", "/file/../Cargo.toml", "/file", "/1/0", "/"] {
            let (status, _) = get(&mut client, path);
            assert!(!status.contains("200"), "{name}: {path}: {status}");
        }
    });
}

#[test]
fn a_file_on_the_slow_disk_takes_its_time_whenever_it_is_opened() {
    let (made, lacking) = Folder::at(folder("slow"), &[20, 5000]).unwrap();
    if let Some(reason) = lacking {
        eprintln!("{reason}");
        return;
    }
    let path = folder("slow").join("slow");
    for _ in 0..2 {
        let begun = Instant::now();
        let file = fs::File::open(path.join("5000")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 5000);
        let mut bytes = [0; 100];
        file.read_exact_at(&mut bytes, 1000).unwrap();
        assert!(begun.elapsed() >= slow_disk::DELAY, "{:?}", begun.elapsed());
        assert_eq!(bytes, contents(1100)[1000..]);
        assert_eq!(file.read_at(&mut bytes, 4990).unwrap(), 10);
        assert_eq!(file.read_at(&mut bytes, 5000).unwrap(), 0);
    }
    assert_eq!(fs::read(path.join("20")).unwrap(), contents(20));
    assert_eq!(fs::File::open(path.join("21")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    drop(made);
    assert!(!folder("slow").exists());
}
