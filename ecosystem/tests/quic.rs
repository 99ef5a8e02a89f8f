//! QUIC: endpoints of quinn on our runtime, with each other and with quinn's on tokio.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use completion_port_runtime::quinn::CompletionPortRuntime;
use completion_port_runtime::{Runtime, Shutdown, spawn};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, RecvStream, SendStream,
    ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustls::RootCertStore;
use rustls::pki_types::PrivatePkcs8KeyDer;
use users::clients::content;

/// A failure, not a measurement: nothing takes this long on any machine.
const LIMIT: Duration = Duration::from_secs(300);

/// More than any stream of these tests has.
const MOST: usize = 4 << 20;

/// The settings of a server, with a new certificate, and those of its clients.
struct Site {
    server: ServerConfig,
    client: ClientConfig,
}

impl Site {
    /// A connection that is silent for the time `idle` is lost.
    fn new(idle: Duration) -> Self {
        let names = vec!["localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut server = ServerConfig::with_single_cert(vec![certificate], key.into()).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
        let client = QuicClientConfig::try_from(client).unwrap();
        let mut client = ClientConfig::new(Arc::new(client));
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(Some(idle.try_into().unwrap()));
        let transport = Arc::new(transport);
        server.transport_config(Arc::clone(&transport));
        client.transport_config(transport);
        Self { server, client }
    }

    /// A site whose connections are lost only by a fault.
    fn patient() -> Self {
        Self::new(LIMIT)
    }

    fn server(&self, runtime: Arc<dyn quinn::Runtime>) -> (Endpoint, SocketAddr) {
        let endpoint = endpoint(Some(self.server.clone()), runtime);
        let address = endpoint.local_addr().unwrap();
        (endpoint, address)
    }

    fn client(&self, runtime: Arc<dyn quinn::Runtime>) -> Endpoint {
        let mut endpoint = endpoint(None, runtime);
        endpoint.set_default_client_config(self.client.clone());
        endpoint
    }
}

fn endpoint(server: Option<ServerConfig>, runtime: Arc<dyn quinn::Runtime>) -> Endpoint {
    Endpoint::new(EndpointConfig::default(), server, any_port(), runtime).unwrap()
}

fn any_port() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

fn ours() -> Arc<dyn quinn::Runtime> {
    Arc::new(CompletionPortRuntime)
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn echo(mut send: SendStream, mut recv: RecvStream) {
    while let Ok(Some(chunk)) = recv.read_chunk(64 * 1024, true).await {
        if send.write_all(&chunk.bytes).await.is_err() {
            return;
        }
    }
    let _ = send.finish();
}

/// Echoes the streams of all connections until the endpoint is closed. Each task is started by
/// `start`. Sends the end of each connection with the first byte that the client has sent.
async fn serve<S>(endpoint: Endpoint, start: S, ends: mpsc::Sender<(u8, ConnectionError)>)
where
    S: Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) + Clone + Send + 'static,
{
    while let Some(incoming) = endpoint.accept().await {
        let (nested, ends) = (start.clone(), ends.clone());
        start(Box::pin(async move {
            // A client may give up before.
            let Ok(connection) = incoming.await else { return };
            let mut number = [0];
            let Ok(mut first) = connection.accept_uni().await else { return };
            let Ok(()) = first.read_exact(&mut number).await else { return };
            let error = loop {
                match connection.accept_bi().await {
                    Ok((send, recv)) => nested(Box::pin(echo(send, recv))),
                    Err(error) => break error,
                }
            };
            // Nobody receives it if the test does not ask for it.
            let _ = ends.send((number[0], error));
        }));
    }
}

fn in_our_task(future: impl Future<Output = ()> + Send + 'static) {
    drop(spawn(future));
}

/// Connects and sends the number by which the server calls the connection.
async fn connect(
    client: &Endpoint,
    address: SocketAddr,
    number: u8,
) -> Result<Connection, ConnectionError> {
    let connection = client.connect(address, "localhost").unwrap().await?;
    let mut send = connection.open_uni().await?;
    // If the connection is lost, the next exchange fails.
    if send.write_all(&[number]).await.is_ok() {
        let _ = send.finish();
    }
    Ok(connection)
}

/// Sends bytes on a new stream while it reads the echo, and checks that.
async fn exchange(connection: &Connection, bytes: &[u8]) -> Result<(), ConnectionError> {
    let lost = || connection.close_reason().expect("a stream fails only if its connection is lost");
    let (mut send, mut recv) = connection.open_bi().await?;
    let writes = async {
        send.write_all(bytes).await.map_err(|_| lost())?;
        send.finish().map_err(|_| lost())
    };
    let reads = async { recv.read_to_end(MOST).await.map_err(|_| lost()) };
    let ((), echo) = tokio::try_join!(writes, reads)?;
    assert!(echo == bytes, "{} bytes are another echo of {}", echo.len(), bytes.len());
    Ok(())
}

/// Exchanges several streams at a time, from an empty one to one of a megabyte.
async fn exchange_streams(connection: &Connection, seed: u8) {
    let lengths = [0, 1, 1200, 65_537, 300_000, 1 << 20, 10, 100_000];
    let streams = lengths.map(|length| {
        let bytes = content(seed, length);
        async move { exchange(connection, &bytes).await.unwrap() }
    });
    let [a, b, c, d, e, f, g, h] = streams;
    tokio::join!(a, b, c, d, e, f, g, h);
}

fn closed_with(error: &ConnectionError, code: u32, reason: &[u8]) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(close)
        if close.error_code == VarInt::from_u32(code) && close.reason == reason)
}

#[test]
fn streams_carry_their_contents_and_a_new_socket_carries_on() {
    let site = Site::patient();
    Runtime::new().unwrap().block_on(async {
        let (server, address) = site.server(ours());
        let (ends, ended) = mpsc::channel();
        let serving = spawn(serve(server.clone(), in_our_task, ends));
        let client = site.client(ours());
        let connection = connect(&client, address, 1).await.unwrap();
        exchange_streams(&connection, 3).await;
        // The client's address changes, and the connection stays.
        client.rebind(any_port()).unwrap();
        exchange_streams(&connection, 4).await;
        assert_eq!(connection.close_reason(), None);
        connection.close(7_u32.into(), b"done");
        client.wait_idle().await;
        // Blocks, as a task may.
        let (number, error) = ended.recv_timeout(LIMIT).unwrap();
        assert!(number == 1 && closed_with(&error, 7, b"done"), "{number}: {error}");
        server.close(0_u32.into(), b"");
        serving.await.unwrap();
        server.wait_idle().await;
    });
}

#[test]
fn many_connections_at_a_time_carry_their_contents() {
    const ENDPOINTS: u8 = 4;
    const CONNECTIONS: u8 = 16;
    let site = Site::patient();
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    runtime.block_on(async {
        let (server, address) = site.server(ours());
        let serving = spawn(serve(server.clone(), in_our_task, mpsc::channel().0));
        let clients: Vec<_> = (0..ENDPOINTS).map(|_| site.client(ours())).collect();
        let exchanges: Vec<_> = (0..CONNECTIONS * ENDPOINTS)
            .map(|seed| {
                let client = clients[usize::from(seed % ENDPOINTS)].clone();
                spawn(async move {
                    let connection = connect(&client, address, seed).await.unwrap();
                    for round in 0..5 {
                        let bytes = content(seed, 1 + 2_000 * round);
                        exchange(&connection, &bytes).await.unwrap();
                    }
                    connection.close(0_u32.into(), b"");
                })
            })
            .collect();
        for exchange in exchanges {
            exchange.await.unwrap();
        }
        for client in clients {
            client.wait_idle().await;
        }
        server.close(0_u32.into(), b"");
        serving.await.unwrap();
    });
}

/// The client's runtime ends, so the server hears nothing more of it.
#[test]
fn a_client_that_vanishes_is_lost_after_the_idle_timeout() {
    let site = Site::new(Duration::from_secs(2));
    let runtime = Runtime::new().unwrap();
    let (ends, ended) = mpsc::channel();
    let (server, address) = {
        let _entered = runtime.handle().enter();
        let (server, address) = site.server(ours());
        drop(spawn(serve(server.clone(), in_our_task, ends)));
        (server, address)
    };
    // Each client that has exchanged something vanishes. On a busy machine the timeout may pass
    // before: then it is the next one's turn.
    let vanished = (0..100_u8).find(|number| {
        let clients = Runtime::new().unwrap();
        let kept = clients.block_on(async {
            let client = site.client(ours());
            let connection = connect(&client, address, *number).await.ok()?;
            exchange(&connection, &content(*number, 1000)).await.ok()?;
            Some((client, connection))
        });
        // Before the connection's handle, which would close it.
        drop(clients);
        kept.is_some()
    });
    let vanished = vanished.expect("an exchange within the timeout");
    let error = loop {
        let (number, error) = ended.recv_timeout(LIMIT).unwrap();
        if number == vanished {
            break error;
        }
    };
    assert_eq!(error, ConnectionError::TimedOut);
    // It has harmed nobody else.
    runtime.block_on(async {
        let client = site.client(ours());
        let mut numbers = 0..100_u8;
        loop {
            let number = numbers.next().expect("an exchange within the timeout");
            let Ok(connection) = connect(&client, address, number).await else { continue };
            if exchange(&connection, &content(9, 1000)).await.is_ok() {
                break;
            }
        }
        server.close(0_u32.into(), b"");
        server.wait_idle().await;
    });
}

#[test]
fn closing_an_endpoint_ends_its_connections_and_its_tasks() {
    let site = Site::patient();
    let runtime = Runtime::new().unwrap();
    let clients = Runtime::new().unwrap();
    let (server, address, serving) = {
        let _entered = runtime.handle().enter();
        let (server, address) = site.server(ours());
        let serving = spawn(serve(server.clone(), in_our_task, mpsc::channel().0));
        (server, address, serving)
    };
    clients.block_on(async {
        let client = site.client(ours());
        let mut connections = Vec::new();
        for number in 0..8 {
            let connection = connect(&client, address, number).await.unwrap();
            exchange(&connection, &content(number, 10_000)).await.unwrap();
            connections.push(connection);
        }
        let (_send, mut recv) = connections[0].open_bi().await.unwrap();
        let reads = spawn(async move { recv.read_to_end(MOST).await });
        server.close(42_u32.into(), b"maintenance");
        for connection in &connections {
            let error = connection.closed().await;
            assert!(closed_with(&error, 42, b"maintenance"), "{error}");
        }
        assert!(reads.await.unwrap().is_err());
        client.wait_idle().await;
    });
    runtime.block_on(async {
        serving.await.unwrap();
        server.wait_idle().await;
        assert!(server.accept().await.is_none());
    });
    // Its tasks end without an abort: the drain waits for them.
    drop(server);
    assert!(runtime.shutdown(Shutdown::Drain, Some(LIMIT)));
}

#[test]
fn quinn_on_tokio_is_a_client_of_our_server() {
    let site = Site::patient();
    let runtime = Runtime::new().unwrap();
    let (server, address) = {
        let _entered = runtime.handle().enter();
        let (server, address) = site.server(ours());
        drop(spawn(serve(server.clone(), in_our_task, mpsc::channel().0)));
        (server, address)
    };
    exchange_in(&tokio_runtime(), &site, address);
    server.close(0_u32.into(), b"");
    runtime.block_on(server.wait_idle());
}

/// Exchanges with the server on several connections of an endpoint on tokio.
fn exchange_in(tokio: &tokio::runtime::Runtime, site: &Site, address: SocketAddr) {
    tokio.block_on(async {
        let client = site.client(Arc::new(TokioRuntime));
        for number in 0..4 {
            let connection = connect(&client, address, number).await.unwrap();
            exchange_streams(&connection, number).await;
            connection.close(0_u32.into(), b"");
        }
        client.wait_idle().await;
    });
}

#[test]
fn our_client_is_understood_by_quinn_on_tokio() {
    let site = Site::patient();
    let tokio = tokio_runtime();
    let (server, address) = tokio.block_on(async {
        let (server, address) = site.server(Arc::new(TokioRuntime));
        let start = |future| drop(tokio::spawn(future));
        drop(tokio::spawn(serve(server.clone(), start, mpsc::channel().0)));
        (server, address)
    });
    Runtime::new().unwrap().block_on(async {
        let client = site.client(ours());
        for number in 0..4 {
            let connection = connect(&client, address, number).await.unwrap();
            exchange_streams(&connection, number).await;
            connection.close(0_u32.into(), b"");
        }
        client.wait_idle().await;
    });
    server.close(0_u32.into(), b"");
    tokio.block_on(server.wait_idle());
}
