//! A server that exports its statistics in the Prometheus text format, without a library.
//! `statistics` is all it takes. A client requests them over HTTP, as Prometheus does.

use std::fmt::Write as _;
use std::hint::spin_loop;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Interest, OneShot, Packet, Port, QueueDelays, Registration, ThreadStatus,
};

/// Returns a port's statistics in the Prometheus text format.
fn statistics<K, M>(port: &Port<K, M>) -> String {
    let stats = port.stats();
    let mut text = String::new();
    // Words are the labels of a figure that is always 1.
    let words = format!(
        "{{backend=\"{}\",file_engine=\"{}\",block_detection=\"{:?}\"}}",
        stats.backend, stats.file_engine, stats.block_detection
    );
    let mut figure = |name: &str, kind: &str, values: &[(&str, u64)]| {
        let _ = writeln!(text, "# TYPE port_{name} {kind}");
        for (label, value) in values {
            let _ = writeln!(text, "port_{name}{label} {value}");
        }
    };
    figure("info", "gauge", &[(words.as_str(), 1)]);
    figure("concurrency", "gauge", &[("", stats.concurrency as u64)]);
    figure("registered", "gauge", &[("", stats.registered as u64)]);
    figure("queued", "gauge", &[("", stats.queued as u64)]);
    let threads = [
        ("{state=\"running\"}", stats.running as u64),
        ("{state=\"blocked\"}", stats.blocked as u64),
        ("{state=\"excess\"}", stats.excess as u64),
        ("{state=\"parked\"}", stats.parked as u64),
    ];
    figure("threads", "gauge", &threads);
    let packets = [
        ("{kind=\"ready\"}", stats.packets.ready),
        ("{kind=\"notified\"}", stats.packets.notified),
        ("{kind=\"posted\"}", stats.packets.posted),
        ("{kind=\"removed\"}", stats.packets.removed),
        ("{kind=\"completed\"}", stats.packets.completed),
    ];
    figure("packets_total", "counter", &packets);
    figure("wakes_total", "counter", &[("", stats.wakes)]);
    figure("spurious_wakes_total", "counter", &[("", stats.spurious_wakes)]);
    figure("blocks_found_total", "counter", &[("", stats.blocks_found)]);
    figure("polls_total", "counter", &[("", stats.polls)]);
    figure("empty_polls_total", "counter", &[("", stats.empty_polls)]);
    figure("rebuilds_total", "counter", &[("", stats.rebuilds)]);
    for thread in port.thread_stats() {
        let running = u8::from(thread.status == ThreadStatus::Running);
        let worker = thread.worker;
        let _ = writeln!(text, "port_thread_running{{worker=\"{worker}\"}} {running}");
        // The client of a thread that sleeps for long can be found by this id.
        let client = thread.handling.map(|id| format!("{id:?}")).unwrap_or_default();
        let seconds = thread.handling_for.as_secs_f64();
        let _ = writeln!(
            text,
            "port_thread_handling_seconds{{worker=\"{worker}\",registration=\"{client}\"}} {seconds}"
        );
        let total = thread.packets.total();
        let _ = writeln!(text, "port_thread_packets_total{{worker=\"{worker}\"}} {total}");
    }
    histogram(&mut text, &port.queue_delays());
    text
}

/// Prometheus expects seconds and cumulative buckets.
fn histogram(text: &mut String, delays: &QueueDelays) {
    let _ = writeln!(text, "# TYPE port_queue_delay_seconds histogram");
    let mut below = 0;
    for (limit, count) in delays.buckets() {
        below += count;
        // Export the buckets from 1 µs to 1 s. Longer delays are in the last one.
        if (1 << 10..1 << 31).contains(&limit.as_nanos()) {
            let seconds = limit.as_secs_f64();
            let _ = writeln!(text, "port_queue_delay_seconds_bucket{{le=\"{seconds}\"}} {below}");
        }
    }
    let _ = writeln!(text, "port_queue_delay_seconds_bucket{{le=\"+Inf\"}} {below}");
    let _ = writeln!(text, "port_queue_delay_seconds_sum {}", delays.total().as_secs_f64());
    let _ = writeln!(text, "port_queue_delay_seconds_count {below}");
}

/// Serves one connection after the other. A message keeps a thread busy for a while.
fn serve(port: &Port<TcpStream, Duration>) {
    let mut batch = Batch::new();
    let mut buffer = [0; 1024];
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::Ready(mut ready) => {
                    // A scraper sends a request that fits into one segment. The answer ends the
                    // connection: the token is dropped.
                    let asked = ready.key_mut().read(&mut buffer).unwrap_or(0);
                    if buffer[..asked].starts_with(b"GET /metrics ") {
                        let body = statistics(port);
                        let length = body.len();
                        let _ = write!(
                            ready.key_mut(),
                            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\
                             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                        );
                    }
                }
                Packet::Posted(work) => {
                    let until = Instant::now() + work;
                    while Instant::now() < until {
                        spin_loop();
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the value of a line of the text.
fn value(text: &str, name: &str) -> Option<f64> {
    let line =
        text.lines().find(|line| line.strip_prefix(name).is_some_and(|l| l.starts_with(' ')));
    line?.rsplit(' ').next()?.parse().ok()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port: Port<TcpStream, Duration> = Port::builder().queue_delays(true).build()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut scraper = TcpStream::connect(listener.local_addr()?)?;
    for _ in 0..100 {
        port.post(Duration::from_micros(10))?;
    }
    let text = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| serve(&port));
        }
        let mut scrape = || {
            while port.stats().packets.posted < 100 {
                thread::yield_now();
            }
            let stream = listener.accept()?.0;
            // The socket's buffer has room for the answer, so it is written immediately or not at
            // all.
            stream.set_nonblocking(true)?;
            port.register(Registration::owned(stream, Interest::IN, OneShot::Level))?;
            scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
            let mut text = String::new();
            scraper.read_to_string(&mut text)?;
            Ok::<_, Box<dyn std::error::Error>>(text)
        };
        let text = scrape();
        port.close();
        text
    })?;
    println!("{text}");
    // The packet of the request itself is the one of kind `ready`.
    assert_eq!(value(&text, "port_packets_total{kind=\"posted\"}"), Some(100.0));
    assert_eq!(value(&text, "port_packets_total{kind=\"ready\"}"), Some(1.0));
    assert_eq!(value(&text, "port_packets_total{kind=\"completed\"}"), Some(0.0));
    assert_eq!(value(&text, "port_queue_delay_seconds_count"), Some(101.0));
    assert_eq!(value(&text, "port_queue_delay_seconds_bucket{le=\"+Inf\"}"), Some(101.0));
    assert!(value(&text, "port_queue_delay_seconds_sum").is_some_and(|sum| sum > 0.0));
    let by_thread = |line: &&str| line.starts_with("port_thread_packets_total");
    let sum: f64 = text
        .lines()
        .filter(by_thread)
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!((sum - 101.0).abs() < 0.5, "{sum}");
    Ok(())
}
