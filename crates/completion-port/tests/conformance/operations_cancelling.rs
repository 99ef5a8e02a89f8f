//! Rule 59: cancelling operations.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::kit::packets::each_packet;
use completion_port::{Batch, Buffer, ErrorKind, Operation, Outcome, Packet, Port, Started};
use testkit::{SOON, on_every_system};

use crate::kit::operations::{
    HOUR, MILLISECOND, Shared, accepted, all, assert_connected, bytes, connected, done, finished,
    much, received, room, sent, shared_on, silent, sockets_on, why,
};
use crate::kit::sockets::{STREAMS, await_unread};
use crate::kit::threads::{End, hear, settle};

/// A buffer that reports when it is about to be filled, and waits for an answer, if `asks` is set.
struct Asking {
    bytes: Vec<u8>,
    asks: Arc<AtomicBool>,
    say: mpsc::Sender<()>,
    answers: mpsc::Receiver<()>,
}

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is the vector's, whose own implementation promises the same.
unsafe impl Buffer for Asking {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        if self.asks.swap(false, SeqCst) {
            // A test that has ended does not listen.
            let _ = self.say.send(());
            let _ = self.answers.recv_timeout(SOON);
        }
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vector's, so the caller's promise to `room` holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: `set_filled` requires that the first `len` bytes are initialized.
        // - the memory is the vector's, so the caller's promise to `set_filled` holds for it.
        unsafe { self.bytes.set_filled(len) };
    }
}

/// Closes the port at the end of the test, even if it fails.
struct EndWith<'a>(&'a Port<Shared, u32, Asking>);

impl Drop for EndWith<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

on_every_system! {
    /// Rule 59: the one packet brings key and buffer.
    fn an_operation_that_waits_is_cancelled_at_once(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let receive = port.associate(near).unwrap().recv(room(4)).unwrap();
        silent(&port, system);
        assert!(port.cancel(receive).unwrap());
        // A submitted operation ends when the system no longer uses its buffer.
        assert!(system.carries_operations() || !port.cancel(receive).unwrap(), "it has ended already");
        let (token, outcome) = done(&port, system);
        let error = outcome.error().unwrap();
        assert_eq!((error.kind(), error.os_code()), (ErrorKind::Cancelled, None));
        assert_eq!(outcome.into_buffer().unwrap().capacity(), 4);
        assert!(!port.cancel(receive).unwrap());
        silent(&port, system);
        // The association continues.
        far.write(b"x").unwrap();
        token.recv(room(4)).unwrap();
        assert!(!port.cancel(receive).unwrap(), "the name is a former one's");
        assert_eq!(bytes(done(&port, system).1), b"x");
    }

    /// Rule 59: an operation that has ended keeps its outcome.
    fn an_operation_that_has_finished_is_not_cancelled(system: &System) {
        let port = sockets_on(system);
        let (near, _far) = system.unix_pair();
        let send = port.associate(near).unwrap().send(b"x".to_vec()).unwrap();
        assert!(!port.cancel(send).unwrap());
        assert_eq!(sent(&done(&port, system).1), Ok(1));
        silent(&port, system);
    }

    /// Rule 59: an operation that is due takes nothing after it was cancelled.
    fn a_cancelled_operation_takes_nothing(system: &System) {
        system.not_where_operations_are_carried_out("operation that takes nothing before a thread comes to it");
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let same = near.dup().unwrap();
        let receive = port.associate(near).unwrap().recv(room(4)).unwrap();
        far.write(b"x").unwrap();
        // A thread has found data and has not processed the operation.
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(port.stats().queued, 1);
        assert!(port.cancel(receive).unwrap());
        let (token, outcome) = done(&port, system);
        assert_eq!((why(outcome.error()), same.unread().unwrap()), (ErrorKind::Cancelled, 1));
        token.recv(room(4)).unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
        silent(&port, system);
    }

    /// Rule 59: the others of its direction continue, in order.
    fn one_of_several_operations_is_cancelled(system: &System) {
        for cancelled in 0..3 {
            let port = shared_on(system);
            let (near, far) = system.unix_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let mut receives: Vec<_> =
                (0..3).map(|_| port.start(id, Operation::recv(room(1))).unwrap()).collect();
            let name = receives.remove(cancelled);
            assert!(port.cancel(name).unwrap());
            let packet = finished(&port, system);
            assert_eq!((packet.operation(), why(packet.error())), (name, ErrorKind::Cancelled));
            far.write(b"ab").unwrap();
            for ((packet, receive), byte) in
                all(&port, system, 2).into_iter().zip(receives).zip([b"a", b"b"])
            {
                let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                assert_eq!(finished.operation(), receive);
                assert_eq!(bytes(finished.into_parts().1), byte);
            }
            silent(&port, system);
        }
    }

    /// Rule 59: the first operation is cancelled while it is queued. The data goes to the next one.
    fn the_next_operation_goes_on_where_the_first_is_cancelled(system: &System) {
        system.not_where_operations_are_carried_out("operation that takes nothing before a thread comes to it");
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            let first = port.start(id, Operation::recv(room(4))).unwrap();
            let second = port.start(id, Operation::recv(room(4))).unwrap();
            far.write(b"x").unwrap();
            await_unread(&near, system, 1);
            drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
            assert!(port.cancel(first).unwrap());
            for (packet, name) in all(&port, system, 2).into_iter().zip([first, second]) {
                let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                assert_eq!(finished.operation(), name);
                let outcome = finished.into_parts().1;
                if name == first {
                    assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
                } else {
                    assert_eq!(bytes(outcome), b"x");
                }
            }
        }
    }

    /// Rule 59: the outcome reports how much was sent, and the next send follows that.
    fn a_cancelled_send_tells_how_much_was_sent(system: &System) {
        for pair in STREAMS {
            let much = much(system);
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            let send = port.start(id, Operation::send_all(vec![b'a'; much])).unwrap();
            silent(&port, system);
            assert!(port.cancel(send).unwrap());
            let packet = finished(&port, system);
            let error = packet.error().unwrap();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            let part = error.transferred();
            assert!(0 < part && part < much);
            port.start(id, Operation::send_all(b"b".to_vec())).unwrap();
            let mut read = Vec::new();
            let mut bytes = vec![0; 100_000];
            let begun = std::time::Instant::now();
            let mut is_sent = false;
            while read.len() < part + 1 || !is_sent {
                assert!(begun.elapsed() < system.soon(), "{} of {part}", read.len());
                if let Ok(more) = far.read(&mut bytes) {
                    read.extend_from_slice(&bytes[..more]);
                }
                let mut batch = Batch::new();
                is_sent |= port.wait(&mut batch, Duration::ZERO).unwrap().count() > 0;
            }
            assert_eq!(read.last(), Some(&b'b'));
            assert!(read[..part].iter().all(|byte| *byte == b'a'));
            assert_eq!(read.len(), part + 1);
        }
    }

    /// Rule 59: connects and accepts can be cancelled.
    fn connects_and_accepts_are_cancelled(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(0);
        let _client = system.tcp_connect(&listener);
        let address = listener.address().for_port();
        let connect = port.associate(system.tcp_fresh()).unwrap().connect(address).unwrap();
        silent(&port, system);
        assert!(port.cancel(connect).unwrap());
        let (token, outcome) = done(&port, system);
        assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::Cancelled);
        drop(token);
        let listener = system.tcp_listener(4);
        let accept = port.associate(listener).unwrap().accept().unwrap();
        assert!(port.cancel(accept).unwrap());
        let (token, outcome) = done(&port, system);
        assert_eq!(accepted(outcome, system).unwrap_err(), ErrorKind::Cancelled);
        // Another accept gets the next connection.
        let client = system.tcp_connect(token.key());
        token.accept().unwrap();
        let (_token, outcome) = done(&port, system);
        let server = accepted(outcome, system).unwrap();
        assert_connected(&client, &server, system);
    }

    /// Rule 59: its deadline no longer has an effect, not even on the next operation.
    fn a_cancelled_operation_does_not_time_out(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let receive = Operation::recv(room(4)).deadline(5 * MILLISECOND);
        let receive = port.associate(near).unwrap().start(receive).unwrap();
        assert!(port.cancel(receive).unwrap());
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        token.start(Operation::recv(room(4)).deadline(HOUR)).unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
    }

    /// Rule 59: an operation that is being tried is cancelled if the attempt finds nothing.
    /// Otherwise it ends with its result.
    fn an_operation_that_is_being_tried_is_cancelled(system: &System) {
        system.not_where_operations_are_carried_out("thread that tries what waits");
        system.several_threads_wait();
        for is_done in [false, true] {
            let port: Port<Shared, u32, Asking> = system.port_with_buffers(1);
            let (near, far) = system.unix_pair();
            let same = near.dup().unwrap();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let (say, heard) = mpsc::channel();
            let (answer, answers) = mpsc::channel();
            let asks = Arc::new(AtomicBool::new(false));
            let buffer = Asking { bytes: room(4), asks: Arc::clone(&asks), say, answers };
            let receive = port.start(id, Operation::recv(buffer)).unwrap();
            // The operation may have been tried at its start: only the next attempt matters.
            asks.store(true, SeqCst);
            thread::scope(|scope| {
                let _end = EndWith(&port);
                let taker = scope.spawn(|| finished(&port, system).into_parts().1);
                far.write(b"x").unwrap();
                heard.recv_timeout(system.soon()).expect("it is tried");
                if !is_done {
                    assert_eq!(same.read(&mut [0; 4]).unwrap(), 1);
                }
                assert!(port.cancel(receive).unwrap());
                answer.send(()).unwrap();
                let (result, buffer) = received(taker.join().unwrap());
                assert_eq!(result, if is_done { Ok(1) } else { Err(ErrorKind::Cancelled) });
                assert_eq!(buffer.bytes.len(), usize::from(is_done));
            });
        }
    }

    /// Rule 59: a thread that sleeps in a wait gets the packet.
    fn cancelling_wakes_a_thread_that_waits(system: &System) {
        system.several_threads_wait();
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let receive = port.start(id, Operation::recv(room(4))).unwrap();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::new(), |packet| {
                        let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                        say.send(why(finished.error())).unwrap();
                });
            });
            settle(system, &port, 1);
            assert!(port.cancel(receive).unwrap());
            let kind = heard.recv_timeout(system.soon()).expect("the thread is told");
            assert_eq!(kind, ErrorKind::Cancelled);
        });
    }

    /// Rule 59: whether the data or the cancellation comes first, there is one packet and nothing
    /// is lost.
    fn cancelling_and_finishing_at_once_makes_one_packet(system: &System) {
        const TIMES: usize = 300;
        system.several_threads_wait();
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let (say, heard) = mpsc::channel();
        let mut cancelled = 0;
        let mut sum = 0;
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::with_capacity(1), |packet| {
                        let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                        let name = finished.operation();
                        say.send((name, received(finished.into_parts().1).0)).unwrap();
                });
            });
            for number in 0..TIMES {
                let receive = port.start(id, Operation::recv(room(1))).unwrap();
                far.write(b"x").unwrap();
                if number % 3 == 0 {
                    thread::yield_now();
                }
                let is_cancelled = port.cancel(receive).unwrap();
                let (name, result) = hear(system, &heard, "there is a packet");
                assert_eq!(name, receive);
                match result {
                    Ok(count) => sum += count,
                    Err(ErrorKind::Cancelled) if is_cancelled => cancelled += 1,
                    Err(error) => panic!("{error:?}, {is_cancelled}"),
                }
            }
            assert!(heard.try_recv().is_err(), "a packet more");
        });
        drop(port);
        drop(far);
        assert_eq!(sum + cancelled, TIMES);
    }

    /// Rule 59: the next operation gets the data that a cancelled one has not taken.
    fn what_a_cancelled_operation_has_left_is_received_by_the_next(system: &System) {
        system.not_where_operations_are_carried_out("operation that takes nothing before a thread comes to it");
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let receive = port.start(id, Operation::recv(room(9))).unwrap();
        far.write(b"x").unwrap();
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert!(port.cancel(receive).unwrap());
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
        let Started::Completed(outcome) = port.start_now(id, Operation::recv(room(9))).unwrap()
        else {
            panic!("it is known that there is something")
        };
        assert!(matches!(outcome, Outcome::Received(Ok(1), _)));
    }
}
