//! Counters, deadlines and commands with several keys, with the replies of Redis 7.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Instant;

use super::*;

fn error(text: &str) -> Reply {
    Reply::Error(text.to_owned())
}

/// What both the example and Redis answer.
const SAME: [(&str, &str); 28] = [
    ("INCR n", ":1"),
    ("INCR n", ":2"),
    ("DECR n", ":1"),
    ("INCRBY n -5", ":-4"),
    ("GET n", "$-4"),
    ("INCRBY n x", "-ERR value is not an integer or out of range"),
    ("SET n +1", "+OK"),
    ("INCR n", "-ERR value is not an integer or out of range"),
    ("SET n 01", "+OK"),
    ("INCR n", "-ERR value is not an integer or out of range"),
    ("SET n -0", "+OK"),
    ("INCR n", "-ERR value is not an integer or out of range"),
    ("SET n 9223372036854775807", "+OK"),
    ("INCR n", "-ERR increment or decrement would overflow"),
    ("GET n", "$9223372036854775807"),
    ("SET n -9223372036854775808", "+OK"),
    ("DECR n", "-ERR increment or decrement would overflow"),
    ("INCR n", ":-9223372036854775807"),
    ("SET n 9223372036854775808", "+OK"),
    ("INCR n", "-ERR value is not an integer or out of range"),
    ("RPUSH l a", ":1"),
    ("INCR l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("EXPIRE n x", "-ERR value is not an integer or out of range"),
    ("EXPIRE n 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
    ("PEXPIRE n 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
    ("SET n x EX 0", "-ERR invalid expire time in 'set' command"),
    ("SET n x NX XX", "-ERR syntax error"),
    ("INCR", "-ERR wrong number of arguments for 'incr' command"),
];

/// The machine may have paused in between.
fn has_left(client: &mut Client, words: &str, most: i64) {
    client.send(&line(words));
    let reply = client.reply();
    let Integer(left) = reply else { panic!("{reply:?}") };
    assert!((most - 60..=most).contains(&left), "{left}");
}

fn checks_what_both_answer(client: &mut Client) {
    client.send(&line("DEL n l"));
    let _ = client.reply();
    for (words, expected) in SAME {
        let (kind, rest) = expected.split_at(1);
        client.asks(
            words,
            match kind {
                "+" => Simple(rest.to_owned()),
                "-" => error(rest),
                ":" => Integer(rest.parse().unwrap()),
                _ => bulk(rest),
            },
        );
    }
    client.asks(
        "NONSENSE a b",
        error("ERR unknown command 'NONSENSE', with args beginning with: 'a' 'b' "),
    );
    client.asks("MGET l n none", array([Bulk(None), bulk("9223372036854775808"), Bulk(None)]));
    client.asks(
        "EXPIRE n 10 NX GT",
        error("ERR NX and XX, GT or LT options at the same time are not compatible"),
    );
    client.asks(
        "EXPIRE n 10 GT LT",
        error("ERR GT and LT options at the same time are not compatible"),
    );
    client.asks("EXPIRE n 10 YY", error("ERR Unsupported option YY"));
    client.asks("EXPIRE n 100 XX", Integer(0));
    client.asks("EXPIRE n 100 GT", Integer(0));
    client.asks("EXPIRE n 100 NX", Integer(1));
    client.asks("EXPIRE n 200 NX", Integer(0));
    client.asks("EXPIRE n 50 GT", Integer(0));
    client.asks("EXPIRE n 300 GT", Integer(1));
    client.asks("EXPIRE n 400 LT", Integer(0));
    has_left(client, "TTL n", 300);
    client.asks("SET n 1 KEEPTTL", ok());
    client.asks("INCR n", Integer(2));
    has_left(client, "TTL n", 300);
    client.asks("PERSIST n", Integer(1));
    client.asks("PERSIST n", Integer(0));
    client.asks("TTL n", Integer(-1));
    client.asks("SET n 1 EX 100", ok());
    has_left(client, "TTL n", 100);
    client.asks("SET n 1", ok());
    client.asks("TTL n", Integer(-1));
    client.asks("SET n 2 NX", Bulk(None));
    client.asks("SET none 2 XX", Bulk(None));
    client.asks("EXPIRE n -1", Integer(1));
    client.asks("EXISTS n none l l", Integer(2));
    client.asks("TTL n", Integer(-2));
    client.asks("EXPIRE none 10", Integer(0));
    client.asks("DEL l l none", Integer(1));
}

#[test]
fn counters_and_deadlines_are_those_of_redis() {
    let server = start();
    let mut client = Client::connect(&server);
    checks_what_both_answer(&mut client);
    end(server);
}

/// Redis itself, which ends with the test, also if that fails.
struct Redis {
    child: Child,
    /// It would load the data of another server from the current folder.
    folder: PathBuf,
}

impl Redis {
    fn start(port: u16) -> Redis {
        let name = format!("redis-{}", std::process::id());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.args(["--appendonly", "no"]).arg("--dir").arg(&folder).stdout(Stdio::null());
        Redis { child: command.spawn().unwrap(), folder }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Why the test of Redis itself is skipped on this machine, if it is.
fn lacks_redis() -> Option<String> {
    let Ok(output) = Command::new("redis-server").arg("--version").output() else {
        return Some("redis-server is not installed".to_owned());
    };
    // Redis server v=7.0.15 sha=...
    let said = String::from_utf8_lossy(&output.stdout);
    let number = said.split_whitespace().find_map(|word| word.strip_prefix("v="));
    let number = number.unwrap_or_else(|| panic!("no version: {said}"));
    let major: u32 = number.split('.').next().unwrap_or_default().parse().unwrap();
    (major < 7).then(|| format!("redis-server {number} has no options of EXPIRE, as 7.0 has"))
}

/// The program that it imitates, where it is installed: it gives the same answers.
#[test]
fn redis_itself_gives_the_same_answers() {
    if let Some(reason) = lacks_redis() {
        println!("skipped: {reason}");
        return;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _redis = Redis::start(port);
    let deadline = Instant::now() + Duration::from_secs(30);
    let stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::yield_now();
    };
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    checks_what_both_answer(&mut Client(BufReader::new(stream)));
}

/// Repeats a request until its reply is as wanted. Returns that reply.
fn wait_for(client: &mut Client, words: &str, is_wanted: impl Fn(&Reply) -> bool) -> Reply {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        client.send(&line(words));
        let reply = client.reply();
        if is_wanted(&reply) {
            return reply;
        }
        assert!(Instant::now() < deadline, "{words}: still {reply:?}");
        thread::yield_now();
    }
}

fn wait_until_no_longer(client: &mut Client, words: &str, before: &Reply) -> Reply {
    wait_for(client, words, |reply| reply != before)
}

#[test]
fn keys_expire_in_every_command() {
    let server = start();
    let mut client = Client::connect(&server);
    client.asks("SET a x PX 30", ok());
    assert_eq!(wait_until_no_longer(&mut client, "GET a", &bulk("x")), Bulk(None));
    client.asks("SET b x", ok());
    client.asks("PEXPIRE b 30", Integer(1));
    let both = array([bulk("x"), Bulk(None)]);
    let neither = array([Bulk(None), Bulk(None)]);
    assert_eq!(wait_until_no_longer(&mut client, "MGET b a", &both), neither);
    client.asks("SET c 5 PX 30", ok());
    assert_eq!(wait_until_no_longer(&mut client, "EXISTS c", &Integer(1)), Integer(0));
    client.asks("INCR c", Integer(1));
    client.asks("TTL c", Integer(-1));
    client.asks("RPUSH l 1 2", Integer(2));
    client.asks("PEXPIRE l 1", Integer(1));
    assert_eq!(wait_until_no_longer(&mut client, "TTL l", &Integer(0)), Integer(-2));
    client.asks("RPUSH l 3", Integer(1));
    client.asks("BLPOP l 0", array([bulk("l"), bulk("3")]));
    // A later deadline replaces one that is near, unless the key has just expired.
    loop {
        client.asks("SET d x PX 50", ok());
        client.send(&line("EXPIRE d 1000"));
        if client.reply() == Integer(1) {
            break;
        }
    }
    client.asks("SET e x PX 60", ok());
    assert_eq!(wait_until_no_longer(&mut client, "GET e", &bulk("x")), Bulk(None));
    client.asks("GET d", bulk("x"));
    end(server);
}

/// DBSIZE counts keys that have expired, so it is zero only once the server's timer has removed them.
#[test]
fn keys_that_nobody_reads_expire() {
    const KEYS: usize = 2000;
    let server = start();
    let mut client = Client::connect(&server);
    let mut requests = Vec::new();
    for number in 0..KEYS {
        // The deadlines come in no order.
        let time = 1 + number * 7919 % 100;
        requests.extend(line(&format!("SET key:{number} x PX {time}")));
    }
    client.send(&requests);
    for _ in 0..KEYS {
        assert_eq!(client.reply(), ok());
    }
    wait_for(&mut client, "DBSIZE", |reply| *reply == Integer(0));
    // The timer is set again.
    client.asks("SET stays x", ok());
    client.asks("SET last x PX 20", ok());
    wait_for(&mut client, "DBSIZE", |reply| *reply == Integer(1));
    client.asks("GET stays", bulk("x"));
    assert_rests(&server);
    end(server);
}

/// Each client's increments count once, and a reader of several keys sees them in one moment.
#[test]
fn counters_lose_no_increment() {
    const EACH: usize = 2000;
    const CLIENTS: usize = 4;
    let server = start();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut client = Client::connect(&server);
            scope.spawn(move || {
                client.send(&line("INCR shared").repeat(EACH));
                let mut last = 0;
                for _ in 0..EACH {
                    let Integer(number) = client.reply() else { panic!("no number") };
                    assert!(number > last, "{number} after {last}");
                    last = number;
                }
            });
        }
    });
    let mut client = Client::connect(&server);
    client.asks("GET shared", bulk((CLIENTS * EACH).to_string()));
    // DEL of several keys and MGET of them exclude each other.
    thread::scope(|scope| {
        let mut writer = Client::connect(&server);
        scope.spawn(move || {
            for _ in 0..500 {
                writer.asks("DEL x y z", Integer(0));
                writer.asks("SET x 1", ok());
                writer.asks("SET y 1", ok());
                writer.asks("SET z 1", ok());
                writer.asks("DEL z y x", Integer(3));
            }
        });
        let mut reader = Client::connect(&server);
        scope.spawn(move || {
            for _ in 0..1000 {
                reader.send(&line("MGET x y z"));
                let Array(Some(values)) = reader.reply() else { panic!("no array") };
                // They are set one after another, and removed together.
                let set = values.iter().take_while(|value| **value == bulk("1")).count();
                assert!(values[set..].iter().all(|value| *value == Bulk(None)), "{values:?}");
            }
        });
    });
    end(server);
}
