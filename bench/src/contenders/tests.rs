//! Each contender behaves as a server of this benchmark must.

use std::array;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::{Contender, Listening, Server, all};
use crate::names::{
    AT_ONCE, BY_PACKETS, CHECKED, IN_C_AT_ONCE, IN_C_BY_PACKETS, OWN_BUFFERS, PLACED, SHARED,
};
use crate::scenario::{ACCEPTS, OPERATIONS};
use crate::sink::{self, Read as Drained, Reads, Service, Sink};
use crate::work::{MESSAGE, Work, message};

const THREADS: usize = 2;

/// One test at a time: the time of the processor is that of the whole process, and so is what all sinks
/// have read.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `test` with a server of each contender.
fn each(test: impl Fn(&dyn Server)) {
    each_by_name(|server, _| test(server));
}

/// The same, for a test that has to know which one it is.
fn each_by_name(test: impl Fn(&dyn Server, &str)) {
    let _alone = alone();
    for Contender { name, start, .. } in all() {
        eprintln!("{name}");
        test(&*start(THREADS, Service::Echo).unwrap(), name);
    }
}

/// The two ends of a connection: the client's, and the one that a server takes over.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    for stream in [&client, &accepted] {
        stream.set_nodelay(true).unwrap();
    }
    // What should not take long fails instead of hanging.
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    (client, accepted)
}

fn connect(server: &dyn Server) -> TcpStream {
    let (client, accepted) = pair();
    server.add(accepted).unwrap();
    client
}

fn receive(client: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    client.read_exact(&mut bytes).unwrap();
    bytes
}

/// Waits for the end of the stream.
///
/// A thread that takes events looks at each socket that may have some, and holds on to its file for
/// that long. Since Linux 6.9 a file that another thread closes meanwhile stays open until the
/// first one leaves `epoll_wait`, and it does not leave if it finds no event. A call of
/// `EPOLL_CTL_DEL` before the close waits until nobody looks. The contenders with one-shot sets do
/// without, as such servers do: there `another` connection comes, until the thread has left.
fn end_of_stream(client: &mut TcpStream, name: &str, another: impl Fn() -> TcpStream) {
    if name.starts_with("epoll_one_shot") {
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        for _ in 0..50 {
            match client.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let others: [TcpStream; 2 * THREADS] = array::from_fn(|_| another());
                    drop(others);
                }
                other => return assert_eq!(other.unwrap(), 0),
            }
        }
    }
    assert_eq!(client.read(&mut [0]).unwrap(), 0);
}

/// Messages that ask for nothing but to be sent back.
fn echoes(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(|number| message(Work::Echo, number)).collect()
}

#[test]
fn names_are_unique_and_versions_are_known() {
    let mut names: Vec<_> = all().iter().map(|contender| contender.name).collect();
    for contender in all() {
        let version = (contender.version)();
        assert!(version.contains(|c: char| c.is_ascii_digit()), "{}: {version}", contender.name);
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all().len());
}

#[test]
fn operations_are_compared_with_those_that_accept_and_with_those_that_complete() {
    let names = |scenario: &str| -> Vec<&str> {
        let belonging = all().into_iter().filter(|contender| contender.belongs_to(scenario));
        belonging.map(|contender| contender.name).collect()
    };
    let ours = ["ours", AT_ONCE, SHARED, PLACED, CHECKED, IN_C_AT_ONCE];
    let others = ["epoll_one_shot", "epoll_edge", "uring", "mio", "tokio", "compio", "monoio"];
    assert_eq!(names(ACCEPTS), [&ours[..], &others].concat());
    let ours = ["ours", OWN_BUFFERS, AT_ONCE, BY_PACKETS, IN_C_AT_ONCE, IN_C_BY_PACKETS];
    assert_eq!(names(OPERATIONS), [&ours[..], &["uring", "compio", "monoio"]].concat());
    assert!(names("S1").iter().all(|name| *name == "ours" || !ours.contains(name)));
}

#[test]
fn eight_connections_get_their_own_bytes_back() {
    each(|server| {
        let mut clients: Vec<_> = (0..8).map(|_| connect(server)).collect();
        for round in 0..50 {
            for (client, number) in clients.iter_mut().zip(0..) {
                client.write_all(&message(Work::Echo, round * 8 + number)).unwrap();
            }
            for (client, number) in clients.iter_mut().zip(0..) {
                let answer = receive(client, MESSAGE);
                assert_eq!(answer, message(Work::Echo, round * 8 + number));
            }
        }
    });
}

#[test]
fn a_burst_of_eight_comes_back() {
    each(|server| {
        let mut client = connect(server);
        for round in 0..50 {
            let burst = echoes(round * 8..round * 8 + 8);
            client.write_all(&burst).unwrap();
            assert_eq!(receive(&mut client, burst.len()), burst);
        }
    });
}

/// More connections than a wait returns or a ring has buffers, all ready when the only thread
/// returns from a handler.
#[test]
fn all_of_many_that_are_ready_at_once_are_served() {
    let _alone = alone();
    for Contender { name, start, .. } in all() {
        eprintln!("{name}");
        let server = start(1, Service::Echo).unwrap();
        let mut slow = connect(&*server);
        let mut clients: Vec<_> = (0..300).map(|_| connect(&*server)).collect();
        for round in 0..3 {
            slow.write_all(&message(Work::Sleep(20_000), round)).unwrap();
            for (client, number) in clients.iter_mut().zip(0..) {
                client.write_all(&echoes(number..number + 2)).unwrap();
            }
            for (client, number) in clients.iter_mut().zip(0..) {
                assert_eq!(receive(client, 2 * MESSAGE), echoes(number..number + 2));
            }
            receive(&mut slow, MESSAGE);
        }
    }
}

#[test]
fn every_message_is_performed_once() {
    each(|server| {
        let mut client = connect(server);
        let burst: Vec<u8> = (0..4).flat_map(|n| message(Work::Sleep(5_000), n)).collect();
        let times = (0..20).map(|_| {
            let began = Instant::now();
            client.write_all(&burst).unwrap();
            assert_eq!(receive(&mut client, burst.len()), burst);
            let took = began.elapsed();
            assert!(took >= Duration::from_millis(20), "{took:?}");
            took
        });
        // Twice would always take longer; once may, on a busy machine.
        let longest = times.take_while(|took| *took >= Duration::from_millis(40)).count();
        assert!(longest < 20, "a message is performed more than once");
    });
}

#[test]
fn a_split_message_is_performed_when_it_is_complete() {
    const PAUSE: u32 = 20_000;
    each(|server| {
        let mut client = connect(server);
        for cut in [1, 20, 63] {
            let asked = message(Work::Sleep(PAUSE), cut as u64);
            client.write_all(&asked[..cut]).unwrap();
            assert_eq!(receive(&mut client, cut), asked[..cut]);
            let began = Instant::now();
            client.write_all(&asked[cut..]).unwrap();
            assert_eq!(receive(&mut client, MESSAGE - cut), asked[cut..]);
            assert!(began.elapsed() >= Duration::from_micros(PAUSE.into()));
        }
    });
}

#[test]
fn what_finds_no_room_is_sent_later() {
    const ROOM: usize = 16 * 1024;
    const MESSAGES: u64 = 200 * 1024 / MESSAGE as u64;
    each(|server| {
        let (mut client, accepted) = pair();
        sockopt::set_socket_send_buffer_size(&accepted, ROOM).unwrap();
        sockopt::set_socket_recv_buffer_size(&client, ROOM).unwrap();
        sockopt::set_socket_send_buffer_size(&client, 1 << 20).unwrap();
        let room = sockopt::socket_send_buffer_size(&accepted).unwrap()
            + sockopt::socket_recv_buffer_size(&client).unwrap();
        let sent = echoes(0..MESSAGES);
        assert!(room < sent.len() / 2);
        server.add(accepted).unwrap();
        for _ in 0..3 {
            client.write_all(&sent).unwrap();
            assert!(receive(&mut client, sent.len()) == sent, "not the same bytes");
        }
        // The others are not kept from their answers by one who does not read.
        client.write_all(&sent).unwrap();
        let mut other = connect(server);
        for number in 0..100 {
            other.write_all(&message(Work::Echo, number)).unwrap();
            assert_eq!(receive(&mut other, MESSAGE), message(Work::Echo, number));
        }
        assert!(receive(&mut client, sent.len()) == sent, "not the same bytes");
    });
}

#[test]
fn the_end_of_the_stream_closes_the_connection() {
    each_by_name(|server, name| {
        let mut quiet = connect(server);
        quiet.shutdown(Shutdown::Write).unwrap();
        end_of_stream(&mut quiet, name, || connect(server));

        // The last message and the end may arrive as one.
        for number in 0..50 {
            let mut client = connect(server);
            client.write_all(&message(Work::Echo, number)).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(receive(&mut client, MESSAGE), message(Work::Echo, number));
            end_of_stream(&mut client, name, || connect(server));
        }
    });
}

/// A peer that goes away with something unread resets the connection.
#[test]
fn a_reset_connection_harms_no_other() {
    each(|server| {
        let mut other = connect(server);
        for number in 0..20 {
            let mut client = connect(server);
            client.write_all(&echoes(0..8)).unwrap();
            receive(&mut client, 1);
            drop(client);
            other.write_all(&message(Work::Echo, number)).unwrap();
            assert_eq!(receive(&mut other, MESSAGE), message(Work::Echo, number));
        }
    });
}

/// A socket for datagrams that a server has been given; its address.
fn answering(server: &dyn Server) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    server.answer(socket).unwrap();
    address
}

/// A client of such a socket. It receives from nowhere else.
fn datagrams_to(address: SocketAddr) -> UdpSocket {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client
}

fn receive_datagram(client: &UdpSocket) -> Vec<u8> {
    let mut bytes = [0; 4096];
    let length = client.recv(&mut bytes).unwrap();
    bytes[..length].to_vec()
}

/// Several clients of each of several sockets, with several datagrams under way, which may be answered in any order.
#[test]
fn datagrams_come_back_from_where_they_were_sent_to() {
    each(|server| {
        let sockets: Vec<_> = (0..5).map(|_| answering(server)).collect();
        let clients: Vec<_> =
            sockets.iter().flat_map(|socket| (0..3).map(|_| datagrams_to(*socket))).collect();
        for round in 0..20 {
            let sent = |client: usize| {
                let first = (round * clients.len() + client) as u64 * 8;
                (first..first + 8).map(|number| message(Work::Echo, number).to_vec())
            };
            for (index, client) in clients.iter().enumerate() {
                for bytes in sent(index) {
                    assert_eq!(client.send(&bytes).unwrap(), MESSAGE);
                }
            }
            for (index, client) in clients.iter().enumerate() {
                let mut answers: Vec<_> = (0..8).map(|_| receive_datagram(client)).collect();
                let mut expected: Vec<_> = sent(index).collect();
                answers.sort_unstable();
                expected.sort_unstable();
                assert_eq!(answers, expected);
            }
        }
        for client in &clients {
            client.set_nonblocking(true).unwrap();
            assert!(client.recv(&mut [0]).is_err(), "one more answer than was asked for");
        }
    });
}

#[test]
fn datagrams_of_any_length_come_back_whole() {
    each(|server| {
        let client = datagrams_to(answering(server));
        for length in [1, 63, 64, 65, 1000, 3000, 0, 64] {
            let sent: Vec<u8> = echoes(0..50)[..length].to_vec();
            client.send(&sent).unwrap();
            assert!(receive_datagram(&client) == sent, "{length} bytes");
        }
    });
}

#[test]
fn what_a_datagram_asks_for_is_performed_before_the_answer() {
    each(|server| {
        let client = datagrams_to(answering(server));
        for number in 0..3 {
            let asked = message(Work::Sleep(10_000), number);
            let began = Instant::now();
            client.send(&asked).unwrap();
            assert_eq!(receive_datagram(&client), asked);
            assert!(began.elapsed() >= Duration::from_millis(10));
        }
    });
}

/// More sockets than a wait returns, all ready when the only thread returns; then more datagrams
/// for one socket than are read in a turn, or than a ring has buffers. Another socket gets its
/// answer meanwhile.
#[test]
fn all_datagrams_of_many_that_wait_are_answered() {
    const BURST: u64 = 200;
    let _alone = alone();
    for Contender { name, start, .. } in all() {
        eprintln!("{name}");
        let server = start(1, Service::Echo).unwrap();
        let clients: Vec<_> = (0..300).map(|_| datagrams_to(answering(&*server))).collect();
        let slow = datagrams_to(answering(&*server));
        for round in 0..3 {
            slow.send(&message(Work::Sleep(20_000), round)).unwrap();
            for (client, number) in clients.iter().zip(0..) {
                client.send(&message(Work::Echo, number)).unwrap();
            }
            for (client, number) in clients.iter().zip(0..) {
                assert_eq!(receive_datagram(client), message(Work::Echo, number));
            }
            receive_datagram(&slow);
            slow.send(&message(Work::Sleep(20_000), round)).unwrap();
            (0..BURST).for_each(|number| {
                clients[0].send(&message(Work::Echo, number)).unwrap();
            });
            clients[1].send(&message(Work::Echo, 7)).unwrap();
            for number in 0..BURST {
                assert_eq!(receive_datagram(&clients[0]), message(Work::Echo, number));
            }
            assert_eq!(receive_datagram(&clients[1]), message(Work::Echo, 7));
            receive_datagram(&slow);
        }
    }
}

#[test]
fn an_idle_server_of_datagrams_uses_no_processor() {
    if !is_alone("an_idle_server_of_datagrams_uses_no_processor") {
        return;
    }
    let mut busy = Vec::new();
    for Contender { name, start, .. } in all() {
        let server = start(THREADS, Service::Echo).unwrap();
        for _ in 0..8 {
            let client = datagrams_to(answering(&*server));
            client.send(&message(Work::Echo, 1)).unwrap();
            receive_datagram(&client);
        }
        if is_busy() {
            busy.push(name);
        }
    }
    assert!(busy.is_empty(), "busy while idle: {busy:?}");
}

/// Runs `test` with a sink of each contender that reads once, and with one that reads until it would
/// block. Its buffer is smaller than that of an echo.
fn each_sink(threads: usize, test: fn(&dyn Server, Sink, &str)) {
    let _alone = alone();
    for Contender { name, start, .. } in all() {
        for reads in [Reads::One, Reads::All] {
            eprintln!("{name} {reads:?}");
            let sink = Sink { buffer: 1000, ..Sink::new(100, reads) };
            test(&*start(threads, Service::Sink(sink)).unwrap(), sink, name);
        }
    }
}

/// The amount that all sinks have read since `before`, once it is that many bytes.
#[allow(clippy::disallowed_methods, reason = "a sink answers nothing that could be waited for")]
fn drained(before: Drained, bytes: u64) -> Drained {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let now = sink::read();
        let more =
            Drained { packets: now.packets - before.packets, bytes: now.bytes - before.bytes };
        if more.bytes >= bytes {
            return more;
        }
        assert!(Instant::now() < deadline, "{more:?} of {bytes} bytes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// More than the sockets hold, on more connections than threads; then small amounts, together and
/// one by one.
#[test]
fn a_sink_reads_all_bytes_and_counts_its_reads() {
    const BLOCK: usize = 2 << 20;
    each_sink(THREADS, |server, sink, _| {
        let mut clients: Vec<_> = (0..5).map(|_| connect(server)).collect();
        let before = sink::read();
        for client in &mut clients {
            client.write_all(&vec![1; BLOCK]).unwrap();
        }
        let all = 5 * BLOCK as u64;
        let read = drained(before, all);
        assert_eq!(read.bytes, all);
        assert!(read.packets >= all / sink.buffer as u64 && read.packets < all / 100, "{read:?}");
        for client in &mut clients {
            for _ in 0..3 {
                let before = sink::read();
                client.write_all(&[1; 10]).unwrap();
                assert_eq!(drained(before, 10), Drained { packets: 1, bytes: 10 });
            }
        }
        let before = sink::read();
        clients.iter_mut().for_each(|client| client.write_all(&[1; 10]).unwrap());
        assert_eq!(drained(before, 50), Drained { packets: 5, bytes: 50 });
    });
}

#[test]
fn a_sink_answers_nothing_and_closes_at_the_end_of_the_stream() {
    each_sink(THREADS, |server, _, name| {
        // The last bytes and the end may arrive as one; more than one read may be left.
        for length in [0, 1, 1000, 50_000] {
            for _ in 0..10 {
                let before = sink::read();
                let mut client = connect(server);
                client.write_all(&vec![1; length]).unwrap();
                client.shutdown(Shutdown::Write).unwrap();
                end_of_stream(&mut client, name, || connect(server));
                assert_eq!(drained(before, length as u64).bytes, length as u64);
            }
        }
    });
}

/// One thread has two connections that are never empty; a third one gets its turns all the same.
#[test]
fn connections_that_are_always_full_keep_no_other_from_its_turn() {
    const BLOCK: usize = 256 * 1024;
    each_sink(1, |server, _, _| {
        let mut full: Vec<_> = (0..2).map(|_| connect(server)).collect();
        let mut other = connect(server);
        let (before, stop, written) = (sink::read(), AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for client in &mut full {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        client.write_all(&[1; BLOCK]).unwrap();
                        written.fetch_add(BLOCK as u64, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..10 {
                other.write_all(&[1; 2000]).unwrap();
            }
            other.shutdown(Shutdown::Write).unwrap();
            let end = other.read(&mut [0]);
            stop.store(true, Ordering::Relaxed);
            assert_eq!(end.unwrap(), 0);
        });
        // Nothing is left that would be counted in another test.
        drained(before, written.into_inner() + 20_000);
    });
}

/// Runs `test` with a server of each contender that accepts by its own means.
fn each_listening(test: fn(&Listening, &str)) {
    let _alone = alone();
    for Contender { name, start, .. } in all() {
        eprintln!("{name}");
        let server = start(THREADS, Service::Echo).unwrap();
        let listening = Listening::new().unwrap();
        server.listen(&listening).unwrap();
        test(&listening, name);
    }
}

/// A client of a server that accepts by its own means.
fn call(at: &Listening) -> TcpStream {
    let client = TcpStream::connect(at.address()).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    client
}

/// Closes a connection by a reset.
fn reset(client: TcpStream) {
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
}

/// Many at the same time, ended by a reset, by the end of the stream, and in the middle of an
/// answer.
#[test]
fn short_connections_are_accepted_and_answered() {
    each_listening(|at, name| {
        for round in 0..20 {
            let mut clients: Vec<_> = (0..30).map(|_| call(at)).collect();
            for (client, number) in clients.iter_mut().zip(round * 30..) {
                client.write_all(&message(Work::Echo, number)).unwrap();
            }
            for (mut client, number) in clients.into_iter().zip(round * 30..) {
                if number % 3 == 0 {
                    receive(&mut client, 10);
                    reset(client);
                    continue;
                }
                assert_eq!(receive(&mut client, MESSAGE), message(Work::Echo, number));
                if number % 3 == 1 {
                    reset(client);
                } else {
                    client.shutdown(Shutdown::Write).unwrap();
                    end_of_stream(&mut client, name, || call(at));
                }
            }
        }
    });
}

/// Before the server has accepted it, or before it has been sent anything, or all of a message.
#[test]
fn a_client_that_resets_early_harms_no_other() {
    each_listening(|at, _| {
        let mut other = call(at);
        for number in 0..60 {
            let mut client = call(at);
            if number % 2 == 1 {
                client.write_all(&[0; 10]).unwrap();
            }
            if number % 4 >= 2 {
                // The server has accepted the others before, as it takes them in turn; perhaps this one, too.
                other.write_all(&message(Work::Echo, number)).unwrap();
                assert_eq!(receive(&mut other, MESSAGE), message(Work::Echo, number));
            }
            reset(client);
            let mut next = call(at);
            next.write_all(&message(Work::Echo, number)).unwrap();
            assert_eq!(receive(&mut next, MESSAGE), message(Work::Echo, number));
        }
    });
}

/// More than a listener accepts in one turn, all ready when the only thread returns.
#[test]
fn all_of_many_that_connect_at_once_are_accepted() {
    let _alone = alone();
    for Contender { name, start, .. } in all() {
        eprintln!("{name}");
        let server = start(1, Service::Echo).unwrap();
        let listening = Listening::new().unwrap();
        server.listen(&listening).unwrap();
        let mut slow = call(&listening);
        slow.write_all(&message(Work::Sleep(20_000), 0)).unwrap();
        let mut clients: Vec<_> = (0..200).map(|_| call(&listening)).collect();
        for (client, number) in clients.iter_mut().zip(0..) {
            client.write_all(&message(Work::Echo, number)).unwrap();
        }
        for (client, number) in clients.iter_mut().zip(0..) {
            assert_eq!(receive(client, MESSAGE), message(Work::Echo, number));
        }
        receive(&mut slow, MESSAGE);
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "no event reports that a server has closed a \
                                              descriptor"
)]
fn a_connection_that_was_reset_is_closed() {
    each_listening(|at, _| {
        let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mut stays = call(at);
        stays.write_all(&message(Work::Echo, 0)).unwrap();
        receive(&mut stays, MESSAGE);
        let before = count();
        for number in 0..300 {
            let mut client = call(at);
            client.write_all(&message(Work::Echo, number)).unwrap();
            receive(&mut client, MESSAGE);
            reset(client);
        }
        // Tests of other modules have descriptors, too, but fewer.
        let deadline = Instant::now() + Duration::from_secs(10);
        while count() > before + 150 {
            assert!(Instant::now() < deadline, "{} descriptors, {before} before", count());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn an_idle_server_that_accepts_uses_no_processor() {
    if !is_alone("an_idle_server_that_accepts_uses_no_processor") {
        return;
    }
    let mut busy = Vec::new();
    for Contender { name, start, .. } in all() {
        let server = start(THREADS, Service::Echo).unwrap();
        let listening = Listening::new().unwrap();
        server.listen(&listening).unwrap();
        let mut stays = call(&listening);
        for number in 0..20 {
            let mut client = call(&listening);
            for client in [&mut client, &mut stays] {
                client.write_all(&message(Work::Echo, number)).unwrap();
                receive(client, MESSAGE);
            }
            reset(client);
        }
        if is_busy() {
            busy.push(name);
        }
    }
    assert!(busy.is_empty(), "busy while idle: {busy:?}");
}

#[test]
fn an_idle_sink_uses_no_processor() {
    if !is_alone("an_idle_sink_uses_no_processor") {
        return;
    }
    let sink = Service::Sink(Sink::new(0, Reads::One));
    each_is_idle(sink, |client| client.write_all(&[1; 100_000]).unwrap());
}

#[test]
fn an_idle_server_uses_no_processor() {
    if !is_alone("an_idle_server_uses_no_processor") {
        return;
    }
    each_is_idle(Service::Echo, |client| {
        client.write_all(&message(Work::Echo, 1)).unwrap();
        receive(client, MESSAGE);
    });
}

/// Has each contender do this with clients, and nothing more after it.
fn each_is_idle(service: Service, ask: fn(&mut TcpStream)) {
    let mut busy = Vec::new();
    for Contender { name, start, .. } in all() {
        let server = start(THREADS, service).unwrap();
        let mut clients: Vec<_> = (0..8).map(|_| connect(&*server)).collect();
        clients.iter_mut().for_each(ask);
        if is_busy() {
            busy.push(name);
        }
    }
    assert!(busy.is_empty(), "busy while idle: {busy:?}");
}

/// Runs `test` of this module once more in its own process, and returns whether this is that process. In a shared process the
/// tests of other modules use the processor, too. On a busy machine they run longer than all windows of [`is_busy`].
fn is_alone(test: &str) -> bool {
    testkit::in_a_process_of_its_own(&format!("contenders::tests::{test}"))
}

/// Whether the process has used processor time in each of several windows. In the first windows the server's threads may
/// still be finishing earlier work.
fn is_busy() -> bool {
    const WINDOW: Duration = Duration::from_millis(300);
    const QUIET: Duration = Duration::from_micros(200);
    (0..10).all(|_| used_in(WINDOW) > QUIET)
}

#[allow(clippy::disallowed_methods, reason = "nothing happens that could be waited for")]
fn used_in(window: Duration) -> Duration {
    let before = used();
    std::thread::sleep(window);
    used() - before
}

/// The processor's time of this process so far.
fn used() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}
