//! The Linux objects that Windows lacks or cannot poll: AF_UNIX sockets, pipes and counters.

use std::net::Shutdown;

use testkit::System;

use super::{Recorder, TEN, stream};

pub(super) fn play(r: &mut Recorder<'_>) {
    stream(r, "unix", System::unix_pair);
    unix(r);
    unix_datagrams(r);
    pipe(r);
    event(r);
}

fn unix(r: &mut Recorder<'_>) {
    let system = r.system;
    let listener = system.unix_listener(4);
    let a = system.unix_fresh();
    r.watch("unix: fresh, connected", &a);
    r.code("read", a.read(&mut [0]));
    r.code("write", a.write(TEN));
    r.step("read and write fail", &a);
    r.connect(&a, &listener.address());
    r.step("connect", &a);
    let b = listener.accept().expect("a connection");
    r.step("accepted", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);

    let a = system.unix_fresh();
    let gone = system.unix_listener(4).address();
    r.watch("unix: refused", &a);
    r.code("connect", a.connect(&gone));
    r.step("refused", &a);

    r.watch("unix listener: connections", &listener);
    let client = system.unix_fresh();
    r.connect(&client, &listener.address());
    r.step("one connects", &listener);
    drop(r.accept(&listener));
    r.step("it is accepted", &listener);

    let shut = system.unix_listener(4);
    r.watch("unix listener: shut", &shut);
    r.done("shutdown", shut.shutdown(Shutdown::Both));
    r.step("shut", &shut);
    r.code("accept", shut.accept());
    r.code("connect", system.unix_fresh().connect(&shut.address()));
    r.step("accept and connect fail", &shut);

    let client = system.unix_fresh();
    r.connect(&client, &listener.address());
    r.watch("unix: connected, not accepted", &client);
    drop(listener);
    r.step("listener closes", &client);
    r.code("read", client.read(&mut [0]));
    r.step("error is taken by a read", &client);

    let (a, b) = system.unix_pair();
    r.watch("unix: written to a peer that is closed", &a);
    drop(b);
    r.step("peer closes", &a);
    r.code("write", a.write(TEN));
    r.step("write fails", &a);

    let (a, b) = system.unix_pair();
    r.watch("unix: the peer shuts its reading half", &a);
    r.done("shutdown", b.shutdown(Shutdown::Read));
    r.step("shut", &a);
    r.code("write", a.write(TEN));
    r.step("write fails", &a);
}

fn unix_datagrams(r: &mut Recorder<'_>) {
    let system = r.system;
    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: data", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.send(&b, b"abc");
    r.step("three bytes arrive", &a);
    r.take(&a, 10);
    r.step("one is read, one is left", &a);
    r.take(&a, 3);
    r.step("both are read", &a);
    r.send(&a, TEN);
    r.step("own send", &a);
    r.take(&b, 10);
    r.step("peer reads it", &a);

    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: full", &a);
    r.fill(&a);
    r.step("full", &a);
    assert!(b.drain() > 0);
    r.step("peer drains", &a);

    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: the peer is gone", &a);
    drop(b);
    r.step("peer closes", &a);
    r.code("write", a.write(TEN));
    r.step("send fails", &a);
    // Whether this one makes an edge depends on the kernel version.
    r.code("write", a.write(TEN));

    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: shut", &a);
    r.done("shutdown", b.shutdown(Shutdown::Both));
    r.step("peer is shut", &a);
    r.code("write", a.write(TEN));
    r.done("shutdown", a.shutdown(Shutdown::Write));
    r.step("own writing half", &a);
    r.done("shutdown", a.shutdown(Shutdown::Read));
    r.step("own reading half", &a);
}

fn pipe(r: &mut Recorder<'_>) {
    let system = r.system;
    let (reader, writer) = system.pipe();
    r.watch("pipe reader: data", &reader);
    r.send(&writer, TEN);
    r.step("ten bytes arrive", &reader);
    r.send(&writer, TEN);
    r.step("ten more, undrained", &reader);
    r.take(&reader, 5);
    r.step("five are read", &reader);
    r.take(&reader, 15);
    r.step("drained", &reader);
    r.send(&writer, TEN);
    r.step("ten bytes arrive", &reader);
    drop(writer);
    r.step("writer closes", &reader);
    r.take(&reader, 10);
    r.step("drained", &reader);
    r.take_end(&reader);
    r.step("end is read", &reader);

    let (reader, writer) = system.pipe();
    r.watch("pipe reader: the writer is gone", &reader);
    drop(writer);
    r.step("writer closes", &reader);

    let (reader, writer) = system.pipe();
    r.watch("pipe writer: full", &writer);
    let sum = r.fill(&writer);
    r.step("full", &writer);
    r.take(&reader, 100);
    r.step("a hundred bytes are read", &writer);
    r.take(&reader, 4096);
    r.step("a page is read", &writer);
    r.take(&reader, sum - 4196);
    r.step("drained", &writer);
    r.send(&writer, TEN);
    r.step("own write", &writer);
    r.take(&reader, 10);
    r.step("drained", &writer);
    drop(reader);
    r.step("reader closes", &writer);
    r.code("write", writer.write(TEN));
    r.step("write fails", &writer);

    let (reader, writer) = system.pipe();
    r.watch("pipe writer: full, and the reader is gone", &writer);
    r.fill(&writer);
    r.step("full", &writer);
    drop(reader);
    r.step("reader closes", &writer);
}

fn event(r: &mut Recorder<'_>) {
    let event = r.system.event();
    let mut sum = [0; 8];
    r.watch("event: counted", &event);
    event.signal(1).expect("room");
    r.step("one is added", &event);
    event.signal(2).expect("room");
    r.step("two are added, undrained", &event);
    event.read(&mut sum).expect("a count");
    r.step("drained", &event);
    r.code("read", event.read(&mut sum));
    r.step("read until it would block", &event);
    event.signal(u64::MAX - 1).expect("room");
    r.step("full", &event);
    r.code("signal", event.signal(1));
    r.step("no room for more", &event);
    event.read(&mut sum).expect("a count");
    r.step("drained", &event);
}
