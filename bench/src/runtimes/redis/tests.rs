//! Each contender of R6 with a client that checks every byte of its replies.

use std::io::{Read as _, Write as _};

use super::*;
use crate::runtimes::shared::each_installed;

#[test]
fn all_give_the_same_replies() {
    each_installed(&ALL, server, |name, connect| {
        let mut client = connect();
        let mut check = |request: &[u8], expected: &str, piece: usize| {
            for part in request.chunks(piece) {
                client.write_all(part).unwrap();
            }
            let mut reply = vec![0; expected.len()];
            client.read_exact(&mut reply).unwrap();
            assert_eq!(String::from_utf8_lossy(&reply), expected, "{name}");
        };
        let mut requests = Vec::new();
        let mut replies = String::new();
        for (words, reply) in [
            ("SET key:1 xxx", "+OK\r\n"),
            ("GET key:1", "$3\r\nxxx\r\n"),
            ("GET none", "$-1\r\n"),
            ("DEL counter", ":0\r\n"),
            ("INCR counter", ":1\r\n"),
            ("INCR counter", ":2\r\n"),
            ("INCR key:1", "-ERR value is not an integer or out of range\r\n"),
            ("MGET key:1 none counter", "*3\r\n$3\r\nxxx\r\n$-1\r\n$1\r\n2\r\n"),
            ("EXPIRE counter 100", ":1\r\n"),
            ("PERSIST counter", ":1\r\n"),
            ("TTL counter", ":-1\r\n"),
            ("DEL counter key:1", ":2\r\n"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            requests.extend(format!("*{}\r\n", words.len()).bytes());
            for word in words {
                requests.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
            replies.push_str(reply);
        }
        for piece in [1, 7, requests.len()] {
            check(&requests, &replies, piece);
        }
        check(&requests.repeat(200), &replies.repeat(200), 1000);
    });
}
