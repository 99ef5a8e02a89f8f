//! axum, reqwest, sqlx and tonic, unmodified, in tasks of our runtime, with the tokio runtime that
//! `tokio_compat` starts.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::{get, post};
use completion_port_runtime::{JoinHandle, Runtime, sleep, spawn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use sqlx::Row;
use sqlx::sqlite::SqlitePoolOptions;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use users::clients::content;

/// A failure, not a measurement: nothing takes this long on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Starts a runtime and tokio with as many workers as given, or as many as are usual.
fn runtime(concurrency: usize, workers: Option<usize>) -> Runtime {
    let builder = Runtime::builder().concurrency(concurrency).tokio_compat();
    match workers {
        None => builder.build().unwrap(),
        Some(workers) => builder.tokio_workers(workers).build().unwrap(),
    }
}

/// Makes two tests of each function.
macro_rules! tests {
    ($($name:ident,)*) => {
        mod with_workers {
            $(#[test] fn $name() { super::$name(None); })*
        }
        mod without_workers {
            $(#[test] fn $name() { super::$name(Some(0)); })*
        }
    };
}

tests! {
    reqwest_gets_from_axum_what_it_has_sent,
    a_handler_that_blocks_in_our_task_stops_no_other_one,
    a_handler_of_tokio_may_block_in_a_task_of_ours,
    a_handler_that_blocks_in_a_task_of_tokio_stops_its_worker,
    sqlx_reads_what_it_has_written,
    tonic_answers_calls_and_streams,
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Serves each connection in a task of ours, so that handlers may block.
fn serve_in_our_tasks(listener: TcpListener, app: Router) -> JoinHandle<()> {
    spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(app.clone());
            drop(spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new()).http1_only();
                // A client that leaves ends its connection.
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            }));
        }
    })
}

/// Serves by the function of axum: tokio runs the connections.
fn serve_by_axum(listener: TcpListener, app: Router) -> JoinHandle<()> {
    spawn(async move { axum::serve(listener, app).await.unwrap() })
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(LIMIT).build().unwrap()
}

async fn text(client: &reqwest::Client, address: SocketAddr, path: &str) -> String {
    let response = client.get(format!("http://{address}{path}")).send().await.unwrap();
    response.error_for_status().unwrap().text().await.unwrap()
}

fn reqwest_gets_from_axum_what_it_has_sent(workers: Option<usize>) {
    for serve in [serve_in_our_tasks, serve_by_axum] {
        let app = Router::new().route("/echo", post(|body: Bytes| async { body })).route(
            "/twice/{number}",
            get(|Path(it): Path<u64>| async move { format!("{}", it * 2) }),
        );
        let runtime = runtime(2, workers);
        runtime.block_on(async {
            let (listener, address) = listen().await;
            let server = serve(listener, app);
            let exchanges: Vec<_> = (0..8_u8)
                .map(|seed| {
                    spawn(async move {
                        let client = client();
                        for round in 0..5_usize {
                            let body = content(seed, 1 + 20_000 * round);
                            let request = client.post(format!("http://{address}/echo"));
                            let response = request.body(body.clone()).send().await.unwrap();
                            assert_eq!(response.status(), 200);
                            assert!(response.bytes().await.unwrap() == body, "another body");
                            let twice = text(&client, address, &format!("/twice/{seed}")).await;
                            assert_eq!(twice, format!("{}", u64::from(seed) * 2));
                        }
                        let missing = client.get(format!("http://{address}/missing"));
                        assert_eq!(missing.send().await.unwrap().status(), 404);
                    })
                })
                .collect();
            for exchange in exchanges {
                exchange.await.unwrap();
            }
            server.abort();
        });
    }
}

/// What the handlers of a test wait for and release.
#[derive(Clone)]
struct Gate {
    begun: mpsc::Sender<()>,
    release: mpsc::Sender<()>,
    released: Arc<Mutex<mpsc::Receiver<()>>>,
    quick_has_run: Arc<AtomicBool>,
}

impl Gate {
    fn new() -> (Self, mpsc::Receiver<()>) {
        let (begun, is_begun) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let released = Arc::new(Mutex::new(released));
        (Self { begun, release, released, quick_has_run: Arc::default() }, is_begun)
    }

    /// Blocks the thread until the gate is opened once.
    fn block(&self) {
        self.begun.send(()).unwrap();
        self.released.lock().unwrap().recv_timeout(LIMIT).unwrap();
    }

    fn app(self) -> Router {
        Router::new()
            .route(
                "/block",
                get(|State(gate): State<Self>| async move {
                    gate.block();
                    "unblocked"
                }),
            )
            .route(
                "/moved",
                get(|State(gate): State<Self>| async move {
                    spawn(async move { gate.block() }).await.unwrap();
                    "unblocked"
                }),
            )
            .route(
                "/quick",
                get(|State(gate): State<Self>| async move {
                    gate.quick_has_run.store(true, SeqCst);
                    gate.release.send(()).unwrap();
                    "released"
                }),
            )
            .with_state(self)
    }
}

/// Sends `count` requests that block until as many quick ones are answered.
fn quick_requests_release(
    concurrency: usize,
    workers: Option<usize>,
    path: &'static str,
    serve: fn(TcpListener, Router) -> JoinHandle<()>,
) {
    let runtime = runtime(concurrency, workers);
    let (gate, is_begun) = Gate::new();
    let handle = runtime.handle().clone();
    let address = runtime.block_on(async {
        let (listener, address) = listen().await;
        drop(serve(listener, gate.app()));
        address
    });
    let get = move |path| handle.spawn(async move { text(&client(), address, path).await });
    let blocked: Vec<_> = (0..concurrency).map(|_| get(path)).collect();
    blocked.iter().for_each(|_| is_begun.recv_timeout(LIMIT).unwrap());
    // As many handlers block as may run. Each quick request releases one of them.
    for _ in 0..concurrency {
        assert_eq!(runtime.block_on(get("/quick")).unwrap(), "released");
    }
    for blocked in blocked {
        assert_eq!(runtime.block_on(blocked).unwrap(), "unblocked");
    }
}

fn a_handler_that_blocks_in_our_task_stops_no_other_one(workers: Option<usize>) {
    quick_requests_release(2, workers, "/block", serve_in_our_tasks);
}

fn a_handler_of_tokio_may_block_in_a_task_of_ours(workers: Option<usize>) {
    quick_requests_release(2, workers, "/moved", serve_by_axum);
}

fn a_handler_that_blocks_in_a_task_of_tokio_stops_its_worker(workers: Option<usize>) {
    // tokio has one worker, or none.
    let runtime = runtime(1, workers);
    let (gate, is_begun) = Gate::new();
    let (release, quick_has_run) = (gate.release.clone(), Arc::clone(&gate.quick_has_run));
    let address = runtime.block_on(async {
        let (listener, address) = listen().await;
        drop(serve_by_axum(listener, gate.app()));
        address
    });
    // Clients of the standard library don't need tokio.
    let get = |path| {
        let request = move || users::clients::connect(address);
        runtime.spawn(async move {
            use std::io::{Read, Write};
            let mut stream = request();
            let head = format!("GET {path} HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    };
    let blocked = get("/block");
    is_begun.recv_timeout(LIMIT).unwrap();
    let quick = get("/quick");
    // Timers of ours continue; handlers don't begin.
    runtime.block_on(sleep(Duration::from_millis(50)));
    assert!(!quick_has_run.load(SeqCst), "tokio's only thread was blocked");
    release.send(()).unwrap();
    assert!(runtime.block_on(blocked).unwrap().ends_with("unblocked"));
    assert!(runtime.block_on(quick).unwrap().ends_with("released"));
}

fn sqlx_reads_what_it_has_written(workers: Option<usize>) {
    let runtime = runtime(2, workers);
    runtime.block_on(async {
        // Each connection to memory would have its own database.
        let options = SqlitePoolOptions::new().max_connections(1);
        let pool = options.connect("sqlite::memory:").await.unwrap();
        let table = "CREATE TABLE it (name TEXT NOT NULL, number INTEGER NOT NULL)";
        sqlx::query(table).execute(&pool).await.unwrap();
        let writers: Vec<_> = (0..4_i64)
            .map(|writer| {
                let pool = pool.clone();
                spawn(async move {
                    for number in 0..10 {
                        let mut transaction = pool.begin().await.unwrap();
                        let insert = sqlx::query("INSERT INTO it VALUES (?, ?)");
                        let insert = insert.bind(format!("writer {writer}")).bind(number);
                        insert.execute(&mut *transaction).await.unwrap();
                        // Odd ones are rolled back, by the drop.
                        if number % 2 == 0 {
                            transaction.commit().await.unwrap();
                        }
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
        let sums = "SELECT name, SUM(number) AS sum FROM it GROUP BY name";
        let sums = sqlx::query(sums).fetch_all(&pool).await.unwrap();
        let sums: HashMap<String, i64> =
            sums.iter().map(|row| (row.get("name"), row.get("sum"))).collect();
        let expected = (0..4).map(|writer| (format!("writer {writer}"), 20)).collect();
        assert_eq!(sums, expected);
        pool.close().await;
    });
}

fn tonic_answers_calls_and_streams(workers: Option<usize>) {
    let runtime = runtime(2, workers);
    runtime.block_on(async {
        let (listener, address) = listen().await;
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status("it", ServingStatus::Serving).await;
        let server = spawn(
            Server::builder().add_service(health).serve_with_incoming(TcpIncoming::from(listener)),
        );
        let channel = Endpoint::try_from(format!("http://{address}")).unwrap();
        let channel = channel.connect().await.unwrap();
        let mut client = HealthClient::new(channel);
        let request = |service: &str| HealthCheckRequest { service: service.to_owned() };
        let unknown = client.check(request("unknown")).await.unwrap_err();
        assert_eq!(unknown.code(), tonic::Code::NotFound);
        let mut changes = client.watch(request("it")).await.unwrap().into_inner();
        assert_eq!(changes.message().await.unwrap().unwrap().status, 1);
        for (status, number) in [(ServingStatus::NotServing, 2), (ServingStatus::Serving, 1)] {
            reporter.set_service_status("it", status).await;
            assert_eq!(changes.message().await.unwrap().unwrap().status, number);
            let checked = client.check(request("it")).await.unwrap().into_inner();
            assert_eq!(checked.status, number);
        }
        server.abort();
    });
}
