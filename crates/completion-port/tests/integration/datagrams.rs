//! Batches of datagrams, compared with a plain model: a list of slots, each a list of datagrams.

use std::io::{self, ErrorKind::WouldBlock};
use std::net::UdpSocket;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Instant;

use completion_port::{Datagram, Datagrams, sim};
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::SOON;

/// A message: its length, and the size of its segments.
type Message = (usize, Option<usize>);

fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at).to_le_bytes()[0]).collect()
}

/// Returns the datagrams of a message.
fn segments(bytes: &[u8], size: Option<usize>) -> Vec<Vec<u8>> {
    match size {
        Some(size) if !bytes.is_empty() => bytes.chunks(size).map(<[u8]>::to_vec).collect(),
        _ => vec![bytes.to_vec()],
    }
}

fn segments_of(datagram: Datagram<'_>) -> Vec<Vec<u8>> {
    datagram.segments().map(<[u8]>::to_vec).collect()
}

fn push(datagrams: &mut Datagrams, bytes: &[u8], size: Option<usize>) -> bool {
    match size {
        Some(size) => datagrams.push_segments(bytes, size, None),
        None => datagrams.push(bytes, None),
    }
}

/// Two sockets that are connected to each other.
enum Pair {
    Native(UdpSocket, UdpSocket),
    Simulated(sim::Socket, sim::Socket),
}

impl Pair {
    fn native() -> Self {
        let [near, far] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        // Elsewhere a call never waits on a blocking socket either.
        if cfg!(windows) {
            near.set_nonblocking(true).unwrap();
            far.set_nonblocking(true).unwrap();
        }
        Self::Native(near, far)
    }

    fn send(&self, datagrams: &mut Datagrams) -> io::Result<usize> {
        match self {
            Self::Native(near, _) => datagrams.send(near),
            Self::Simulated(near, _) => near.send_many(datagrams),
        }
    }

    /// Receives, when something has arrived.
    fn receive(&self, datagrams: &mut Datagrams) -> usize {
        match self {
            Self::Native(_, far) => {
                let begun = Instant::now();
                loop {
                    match datagrams.recv(far) {
                        Err(error) if error.kind() == WouldBlock && begun.elapsed() < SOON => {
                            thread::yield_now();
                        }
                        received => return received.unwrap(),
                    }
                }
            }
            Self::Simulated(_, far) => far.recv_many(datagrams).unwrap(),
        }
    }
}

/// Sends and receives these messages in batches, and compares what arrives, cut to the room.
fn send_and_receive(
    pair: &Pair,
    messages: &[Message],
    slots: (usize, usize),
    room: usize,
) -> Result<(), TestCaseError> {
    let mut to_send = Datagrams::new(slots.0, 300);
    let mut received = Datagrams::new(slots.1, room);
    let mut waiting = messages.iter().enumerate().peekable();
    while waiting.peek().is_some() {
        let mut expected = Vec::new();
        while let Some((number, (len, size))) = waiting.peek() {
            let bytes = bytes(*number, *len);
            if !push(&mut to_send, &bytes, *size) {
                prop_assert_eq!(to_send.len(), slots.0);
                break;
            }
            expected.extend(segments(&bytes, *size));
            waiting.next();
        }
        let count = to_send.len();
        prop_assert_eq!(pair.send(&mut to_send).unwrap(), count);
        prop_assert!(to_send.is_empty());
        let mut came = Vec::new();
        while came.len() < expected.len() {
            let count = pair.receive(&mut received);
            prop_assert!(count > 0 && count <= slots.1 && count == received.len());
            if count < slots.1 {
                prop_assert!(received.is_drained());
            }
            for datagram in received.iter() {
                if datagram.segment_size().is_some() {
                    prop_assert!(!datagram.is_truncated());
                }
                let cut = datagram.is_truncated();
                came.extend(segments_of(datagram).into_iter().map(|bytes| (bytes, cut)));
            }
        }
        let cut = |bytes: Vec<u8>| (bytes[..bytes.len().min(room)].to_vec(), bytes.len() > room);
        prop_assert_eq!(came, expected.into_iter().map(cut).collect::<Vec<_>>());
    }
    Ok(())
}

/// Something to do with a batch.
#[derive(Clone, Debug)]
enum Step {
    Push(Message),
    /// Keeps the slots whose bit is set.
    Retain(u64),
    /// Changes the length of one.
    SetLen(usize, usize),
    Send,
    /// Receives what was sent, in another batch.
    Drain,
    Clear,
}

fn a_message() -> impl Strategy<Value = Message> {
    (0..=300_usize, proptest::option::of(20..=100_usize))
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => a_message().prop_map(Step::Push),
        1 => any::<u64>().prop_map(Step::Retain),
        1 => (0..8_usize, 0..=300_usize).prop_map(|(index, len)| Step::SetLen(index, len)),
        3 => Just(Step::Send),
        1 => Just(Step::Drain),
        1 => Just(Step::Clear),
    ]
}

/// A length for which there is no room is refused, and changes nothing, also if a part was sent.
#[test]
fn a_length_that_is_refused_changes_nothing() {
    let (near, _far) = sim::Kernel::new().unix_datagram_pair().unwrap();
    let mut datagrams = Datagrams::new(1, 200);
    // There is room in the socket for fewer segments.
    assert!(datagrams.push_segments(&bytes(1, 200), 1, None));
    let blocked = near.send_many(&mut datagrams).unwrap_err();
    assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
    let left = datagrams.get(0).unwrap().bytes().to_vec();
    assert!(bytes(1, 200).ends_with(&left) && (1..200).contains(&left.len()));
    let refused = catch_unwind(AssertUnwindSafe(|| {
        datagrams.get_mut(0).unwrap().set_len(201);
    }));
    assert!(refused.is_err());
    assert_eq!(datagrams.get(0).unwrap().bytes(), left);
}

proptest! {
    /// What is sent arrives in order, once, cut to the room of a slot, in whatever batches it is
    /// sent and received.
    #[test]
    fn many_datagrams_arrive_as_they_were_sent(
        messages in vec(a_message(), 1..30),
        slots in (1..=5_usize, 1..=40_usize),
        room in 1..=350_usize,
    ) {
        send_and_receive(&Pair::native(), &messages, slots, room)?;
        let (near, far) = sim::Kernel::new().udp_pair().unwrap();
        send_and_receive(&Pair::Simulated(near, far), &messages, slots, room)?;
    }

    /// The same on a socket that lets the kernel join datagrams.
    #[test]
    fn datagrams_that_were_joined_arrive_as_they_were_sent(
        messages in vec(a_message(), 1..30),
        slots in (1..=5_usize, 1..=40_usize),
    ) {
        let pair = Pair::native();
        let Pair::Native(_, far) = &pair else { unreachable!() };
        // Where there is no such option, they arrive alone.
        let _ = Datagrams::enable_gro(far);
        send_and_receive(&pair, &messages, slots, 65_535)?;
    }

    /// Changes of a batch, and sends that find too little room, keep every datagram in its place.
    #[test]
    fn a_batch_is_a_list_of_slots(steps in vec(a_step(), 1..300)) {
        let (near, far) = sim::Kernel::new().unix_datagram_pair().unwrap();
        let mut datagrams = Datagrams::new(8, 300);
        let mut model: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut under_way: Vec<Vec<u8>> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Push((len, size)) => {
                    let bytes = bytes(number, len);
                    let is_pushed = push(&mut datagrams, &bytes, size);
                    prop_assert_eq!(is_pushed, model.len() < 8);
                    if is_pushed {
                        model.push(segments(&bytes, size));
                    }
                }
                Step::Retain(mask) => {
                    let keeps = |index: &mut u32| {
                        *index += 1;
                        mask >> *index & 1 == 1
                    };
                    let (mut first, mut second) = (0, 0);
                    datagrams.retain(|_| keeps(&mut first));
                    model.retain(|_| keeps(&mut second));
                }
                Step::SetLen(index, len) => {
                    if let Some(mut datagram) = datagrams.get_mut(index) {
                        datagram.set_len(len);
                        datagram.set_segment_size(None);
                        datagram.bytes_mut().copy_from_slice(&bytes(number, len));
                        model[index] = vec![bytes(number, len)];
                    }
                }
                Step::Send => {
                    let before = model.concat();
                    let slots = model.len();
                    let sent = near.send_many(&mut datagrams);
                    let left: Vec<_> = datagrams.iter().map(segments_of).collect();
                    prop_assert_eq!(sent.unwrap_or(0), slots - left.len());
                    let (gone, rest) = before.split_at(before.len() - left.concat().len());
                    prop_assert_eq!(rest, left.concat());
                    under_way.extend_from_slice(gone);
                    model = left;
                }
                Step::Drain => {
                    let mut received = Datagrams::new(3, 300);
                    let mut came = Vec::new();
                    while far.recv_many(&mut received).is_ok() {
                        came.extend(received.iter().flat_map(segments_of));
                    }
                    prop_assert_eq!(&came, &under_way);
                    under_way.clear();
                }
                Step::Clear => {
                    datagrams.clear();
                    model.clear();
                }
            }
            prop_assert_eq!(datagrams.len(), model.len());
            let contents: Vec<_> = datagrams.iter().map(segments_of).collect();
            prop_assert_eq!(&contents, &model);
        }
    }
}
