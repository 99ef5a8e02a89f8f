//! What `cport echo` does at signals of Linux.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::linux::send;
use crate::common::{DEADLINE, WAYS, connect, content, cport, echo, rest, uninterrupted};
use rustix::io::ioctl_fionread;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

/// The process is stopped while they arrive, so that the signal is pending before it can handle
/// them.
#[test]
fn what_is_in_the_systems_queues_at_the_signal_is_answered() {
    for way in WAYS {
        let (server, address) = echo(way);
        send(server.pid(), Signal::STOP);
        let mut streams: Vec<TcpStream> = (0..5).map(|_| connect(address)).collect();
        for stream in &mut streams {
            stream.write_all(&content(5, 10_000)).unwrap();
        }
        server.terminate();
        send(server.pid(), Signal::CONT);
        for stream in &mut streams {
            assert_eq!(rest(stream), 10_000);
        }
        let ended = server.ended();
        assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), ""), "{ended:?}");
        assert!(ended.stdout.contains(": 5 connections"), "{ended:?}");
    }

    let (server, address) = echo(&["--udp"]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    send(server.pid(), Signal::STOP);
    for number in 0..100_u8 {
        socket.send(&[number]).unwrap();
    }
    server.terminate();
    send(server.pid(), Signal::CONT);
    for number in 0..100_u8 {
        let mut back = [0; 2];
        assert_eq!(uninterrupted(|| socket.recv(&mut back)).unwrap(), 1);
        assert_eq!(back[0], number);
    }
    let ended = server.ended();
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), ""), "{ended:?}");
    assert!(ended.stdout.contains("100 datagrams (0 lost)"), "{ended:?}");
}

/// Writing to a pipe that nobody reads blocks the main thread, which handles signals.
#[test]
fn a_server_whose_output_nothing_reads_can_be_ended() {
    /// The least that a pipe holds.
    const PAGE: usize = 4096;
    let mut command = cport(&["echo", "--listen", "0", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    fcntl_setpipe_size(output.get_ref(), PAGE).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    let begun = Instant::now();
    let signal = |signal| {
        assert!(begun.elapsed() < DEADLINE, "it goes on");
        kill_process(pid, signal).unwrap();
        thread::park_timeout(Duration::from_millis(5));
    };
    signal(Signal::USR1);
    line.clear();
    output.read_line(&mut line).unwrap();
    // Until a further line does not fit.
    while usize::try_from(ioctl_fionread(output.get_ref()).unwrap()).unwrap() + line.len() <= PAGE {
        signal(Signal::USR1);
    }
    signal(Signal::USR1);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        signal(Signal::TERM);
    };
    assert_eq!(status.code(), Some(128 + Signal::TERM.as_raw()));
}
