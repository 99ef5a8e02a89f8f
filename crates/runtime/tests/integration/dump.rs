//! What a runtime reports: a dump of a program that has deadlocked, its metrics, its warning.

use std::future::pending;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use completion_port_runtime::net::{TcpListener, TcpStream, UdpSocket};
use completion_port_runtime::time::{sleep, timeout};
use completion_port_runtime::{Runtime, spawn, spawn_blocking};

const LIMIT: Duration = Duration::from_secs(60);

/// Waits until a dump satisfies `done`, and returns the dump.
fn dump_when(runtime: &Runtime, done: impl Fn(&str) -> bool) -> String {
    let begun = Instant::now();
    loop {
        let dump = runtime.handle().dump().to_string();
        if done(&dump) {
            return dump;
        }
        assert!(begun.elapsed() < LIMIT, "{dump}");
        std::thread::yield_now();
    }
}

/// Returns the lines of the runtime, without those of the port.
fn lines(dump: &str, count: usize) -> Vec<&str> {
    let lines: Vec<_> = dump.lines().take(count).collect();
    assert!(dump.lines().nth(count).unwrap().starts_with("Port"), "{dump}");
    lines
}

/// Replaces numbers that differ from run to run: `for 1.234 s` and the system's numbers, and what
/// the kernel calls the place.
fn without_figures(line: &str) -> String {
    let mut words = Vec::new();
    let mut skipped = line.split(' ').peekable();
    while let Some(word) = skipped.next() {
        words.push(match word {
            "for" if skipped.peek().is_some_and(|next| next.contains('.')) => {
                skipped.next();
                "for a while"
            }
            "number" => {
                skipped.next();
                "number):"
            }
            "in" if skipped.peek().is_some_and(|next| next.contains("futex")) => {
                skipped.next();
                "in futex;"
            }
            word => word,
        });
    }
    words.join(" ").replace("while s in futex;", "while s;")
}

/// Four threads may exist, and four tasks sleep: nothing else runs. The dump has every one of them.
#[cfg(target_os = "linux")]
#[test]
fn the_dump_of_a_deadlocked_program_explains_it() {
    let runtime = Runtime::builder().concurrency(2).thread_limit(4).build().unwrap();
    let (address, far) = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let far = listener.accept().await.unwrap().0;
        let addresses = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        drop(spawn(async move { near.read(&mut [0]).await }));
        (addresses, far)
    });
    let read_line = line!() - 3;
    dump_when(&runtime, |dump| dump.contains("waits for: receive"));
    let timed = runtime.spawn(timeout(Duration::from_secs(90), pending::<()>()));
    let time_line = line!() - 1;
    dump_when(&runtime, |dump| dump.contains("waits for: a time"));
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let sleepers: Vec<_> = (0..4)
        .map(|_| {
            let blocked = Arc::clone(&blocked);
            runtime.spawn(async move { blocked.lock().unwrap().recv().is_err() })
        })
        .collect();
    let sleep_line = line!() - 3;
    let begun = Instant::now();
    while runtime.handle().metrics().stalls == 0 {
        assert!(begun.elapsed() < LIMIT, "{}", runtime.handle().dump());
        std::thread::yield_now();
    }
    let queued = runtime.spawn(async {});
    let queued_line = line!() - 1;
    // A stall has been counted: for 100 ms nobody came for a packet. The last thread may have been
    // found asleep by nobody, as none is left to look.
    let dump = dump_when(&runtime, |dump| dump.matches("; polls task").count() == 4);
    let all = lines(&dump, 1 + 4 + 7);
    let head = all[0];
    assert!(head.starts_with("4 threads (at most 4): 0 idle, "), "{dump}");
    assert!(head.contains("; 7 tasks, 1 in the queue; "), "{dump}");
    let file = file!();
    let mut polled = Vec::new();
    for (number, line) in (1..).zip(&all[1..5]) {
        let line = without_figures(line);
        let asleep =
            format!("thread {number} (system's number): asleep for a while s; polls task ");
        let running = format!("thread {number} (system's number): runs for a while s; polls task ");
        // On a busy machine, a thread may seem to compute before it sleeps.
        let computing = running.replace(": runs", ": computes");
        let forms = [&asleep, &running, &computing];
        let rest = forms.into_iter().find_map(|form| line.strip_prefix(form));
        let (task, rest) = rest.unwrap_or_else(|| panic!("{line}\n{dump}")).split_at(1);
        assert!(rest.starts_with(&format!(", spawned at {file}:{sleep_line}:")), "{line}\n{dump}");
        polled.push((task.parse::<usize>().unwrap(), number));
    }
    polled.sort_unstable();
    assert!(polled.iter().map(|(task, _)| *task).eq(3..=6), "{dump}");
    // Two may run: the others were found out before.
    assert!(all[1..5].iter().filter(|line| line.contains(": runs")).count() <= 2, "{dump}");
    let (local, peer) = address;
    let task = |number: usize| all[4 + number];
    let spawned = |number, line| format!("task {number}, spawned at {file}:{line}:");
    assert!(task(1).starts_with(&spawned(1, read_line)), "{dump}");
    assert!(task(1).ends_with(&format!(": waits for: receive from {peer} on {local}")), "{dump}");
    assert!(task(2).starts_with(&spawned(2, time_line)), "{dump}");
    let (_, left) = task(2).split_once("waits for: a time ").unwrap();
    let left: f64 = left.strip_suffix(" s away").unwrap().parse().unwrap();
    assert!(left > 0.0 && left <= 90.0, "{dump}");
    for (number, thread) in polled {
        assert!(task(number).starts_with(&spawned(number, sleep_line)), "{dump}");
        assert!(task(number).ends_with(&format!(": runs on thread {thread}")), "{dump}");
    }
    assert!(task(7).starts_with(&spawned(7, queued_line)), "{dump}");
    assert!(task(7).ends_with(": queued"), "{dump}");
    drop(release);
    runtime.block_on(async {
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
        queued.await.unwrap();
    });
    drop((far, timed));
}

/// Every kind of wait of this crate is named, two of them if a task waits for two.
#[test]
fn the_dump_names_what_tasks_wait_for() {
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    let other = Runtime::builder().concurrency(1).build().unwrap();
    let waits = |text: String| {
        let dump = dump_when(&runtime, |dump| dump.contains(&text));
        // A thread that has nothing to do is shown as idle.
        assert!(dump.contains("idle"), "{dump}");
    };
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let listener = Arc::new(listener);
    let accept = {
        let listener = Arc::clone(&listener);
        runtime.spawn(async move { drop(listener.accept().await) })
    };
    waits(format!(": waits for: accept on {address}\n"));

    let join = runtime.spawn(async move { drop(accept.await) });
    waits(": waits for: the end of task 1, spawned at ".to_owned());
    drop(TcpStream::from_std(std::net::TcpStream::connect(address).unwrap()).map(drop));
    runtime.block_on(join).unwrap();

    let udp = runtime.block_on(UdpSocket::bind("127.0.0.1:0")).unwrap();
    let address = udp.local_addr().unwrap();
    let both = runtime.spawn(async move {
        drop(timeout(Duration::from_secs(5_000), udp.recv_from(&mut [0])).await);
    });
    waits(format!(": waits for: receive on {address}, a time 4999."));
    both.abort();
    assert!(runtime.block_on(both).unwrap_err().is_aborted());

    let endless = other.spawn(pending::<()>());
    let abort = endless.abort_handle();
    let foreign = runtime.spawn(async move { drop(endless.await) });
    waits(": waits for: the end of a task of another runtime\n".to_owned());
    abort.abort();
    runtime.block_on(foreign).unwrap();

    let unknown = runtime.spawn(pending::<()>());
    waits(": waits for something outside of the runtime\n".to_owned());
    unknown.abort();
    drop(runtime.block_on(unknown));

    #[cfg(unix)]
    {
        let mut signal =
            runtime.block_on(async { completion_port_runtime::signal::Signal::hangup() }).unwrap();
        let waiting = runtime.spawn(async move { drop(signal.recv().await) });
        waits(": waits for: signal 1\n".to_owned());
        waiting.abort();
    }
    // A call that announces that it blocks.
    let (release, blocked) = mpsc::channel::<()>();
    let work = runtime.handle().spawn_blocking(move || blocked.recv().is_err());
    dump_when(&runtime, |dump| dump.contains("asleep in a call that was announced for "));
    drop(release);
    runtime.block_on(work).unwrap();
}

#[test]
fn the_metrics_count() {
    let runtime = Runtime::builder().concurrency(2).thread_limit(9).build().unwrap();
    runtime.handle().measure_queue_delays(true);
    runtime.block_on(async {
        for _ in 0..10 {
            spawn(async {}).await.unwrap();
        }
        let held = spawn(pending::<()>());
        sleep(Duration::from_millis(2)).await;
        spawn_blocking(|| ()).await.unwrap();
        held.abort();
        assert!(held.await.unwrap_err().is_aborted());
    });
    let metrics = runtime.handle().metrics();
    assert_eq!((metrics.spawned, metrics.tasks, metrics.thread_limit), (12, 0, 9));
    assert_eq!((metrics.stalls, metrics.refused_threads), (0, 0));
    assert!(metrics.threads >= 3 && metrics.threads <= 9, "{metrics:?}");
    // Each spawned task was queued once at least.
    assert!(runtime.handle().queue_delays().count() >= 12);
    runtime.handle().measure_queue_delays(false);
    let before = runtime.handle().queue_delays().count();
    runtime.block_on(runtime.spawn(async {})).unwrap();
    assert_eq!(runtime.handle().queue_delays().count(), before);
}

/// The warning is one line, with the threads and where the oldest one is blocked.
#[cfg(feature = "tracing")]
#[test]
fn a_stall_is_warned_of_once() {
    use std::fmt::Write;
    use tracing::field::{Field, Visit};
    use tracing::span;

    #[derive(Default)]
    struct Collect(Arc<Mutex<Vec<String>>>);
    struct Fields(String);
    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            write!(self.0, "{}={value:?};", field.name()).unwrap();
        }
    }
    impl tracing::Subscriber for Collect {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            let is_ours = event.metadata().target().starts_with("completion_port_runtime");
            if is_ours && *event.metadata().level() == tracing::Level::WARN {
                let mut fields = Fields(String::new());
                event.record(&mut fields);
                self.0.lock().unwrap().push(fields.0);
            }
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    let said = Arc::new(Mutex::new(Vec::new()));
    // The manager warns, on its own thread.
    tracing::subscriber::set_global_default(Collect(Arc::clone(&said))).unwrap();
    // As many may run, since not every system finds blocked threads.
    let runtime = Runtime::builder().concurrency(3).thread_limit(3).build().unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    for _ in 0..3 {
        let blocked = Arc::clone(&blocked);
        drop(runtime.spawn(async move { blocked.lock().unwrap().recv().is_err() }));
    }
    let spawn_line = line!() - 2;
    let begun = Instant::now();
    // Several stalls, one warning.
    while runtime.handle().metrics().stalls < 3 {
        assert!(begun.elapsed() < LIMIT, "{}", runtime.handle().dump());
        std::thread::yield_now();
    }
    drop(release);
    let said: Vec<_> = std::mem::take(&mut *said.lock().unwrap());
    let place = format!("spawned at {}:{spawn_line}:", file!());
    let ours: Vec<_> = said.iter().filter(|line| line.contains("limit=3;")).collect();
    assert_eq!(ours.len(), 1, "{said:?}");
    assert!(ours[0].contains("threads=3;") && ours[0].contains("tasks=3;"), "{said:?}");
    assert!(ours[0].contains("oldest=\"thread ") && ours[0].contains(&place), "{said:?}");
}
