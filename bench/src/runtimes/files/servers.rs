//! The servers: hyper on runtimes, each reading a whole file by its own means, and nginx.

use std::convert::Infallible;
use std::env;
use std::fs;
use std::io;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};

use super::slow_disk::{self, SlowDisk};
use crate::contenders::{Contender, Server};
use crate::http::ANSWER;
use crate::http::file::contents;
use crate::runtimes::api::{Ours, Runtime, Tokio};
use crate::runtimes::foreign::{SKIPPED, nginx};
use crate::runtimes::server::{OnRuntime, Serving};
use crate::sink::Service;
use crate::traffic::{FILES, Get, SLOW_FILES};

/// The folder for the servers that this process starts. A file's name is its length. It is removed
/// when this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    slow: Option<SlowDisk>,
}

impl Folder {
    /// Makes files of these lengths, and mounts the slow disk with the same ones. Also returns the
    /// reason if there is no such disk.
    pub(super) fn new(lengths: &'static [usize]) -> io::Result<(Folder, Option<String>)> {
        Self::at(folder_of(std::process::id()), lengths)
    }

    pub(super) fn at(
        path: PathBuf,
        lengths: &'static [usize],
    ) -> io::Result<(Folder, Option<String>)> {
        fs::create_dir_all(path.join(FILES))?;
        let mut folder = Folder { path, slow: None };
        let slow = folder.path.join(SLOW_FILES);
        fs::create_dir_all(&slow)?;
        for length in lengths {
            fs::write(folder.path.join(FILES).join(length.to_string()), contents(*length))?;
        }
        let lacking = match SlowDisk::mount(&slow, lengths, slow_disk::DELAY) {
            Ok(disk) => {
                folder.slow = Some(disk);
                None
            }
            Err(error) => Some(format!("{SKIPPED}no slow disk by /dev/fuse: {error}")),
        };
        Ok((folder, lacking))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.slow = None;
        let _: io::Result<()> = fs::remove_dir_all(&self.path);
    }
}

/// The folder of the servers that a process starts.
pub(super) fn folder_of(process: u32) -> PathBuf {
    env::temp_dir().join(format!("cport-bench-files-{process}"))
}

/// All of them.
pub(in crate::runtimes) fn servers() -> Vec<Contender> {
    let on = |name, start| Contender { name, about: "", version: String::new, start };
    vec![
        on("ours/files", start::<Ours>),
        on("tokio/files", start::<Tokio>),
        Contender {
            name: "nginx/files",
            about: "as many workers as processors",
            version: nginx::version,
            start: |threads, service| {
                nginx::start_with_files(&folder_of(parent_id()), threads, service)
            },
        },
    ]
}

fn start<R: ReadFiles>(_: usize, service: Service) -> io::Result<Box<dyn Server>> {
    OnRuntime::<R, Files>::start(None, service, |_| Files(folder_of(parent_id()).into()))
}

/// A runtime that reads files.
trait ReadFiles: Runtime {
    /// Reads a whole file.
    fn read_file(path: &Path) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

impl ReadFiles for Ours {
    fn read_file(path: &Path) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        completion_port_runtime::fs::read(path)
    }
}

impl ReadFiles for Tokio {
    fn read_file(path: &Path) -> impl Future<Output = io::Result<Vec<u8>>> + Send {
        tokio::fs::read(path)
    }
}

/// Serves the files of a folder.
#[derive(Clone)]
struct Files(Arc<Path>);

impl<R: ReadFiles> Serving<R> for Files {
    async fn serve(self, stream: R::Stream) {
        let service = service_fn(|request| answer::<R>(&self.0, request));
        drop(http1::Builder::new().serve_connection(R::io(stream), service).await);
    }
}

async fn answer<R: ReadFiles>(
    folder: &Path,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from(ANSWER));
    let path = request.uri().path();
    if let Some(name) = file(path) {
        match R::read_file(&folder.join(name)).await {
            Ok(contents) => *response.body_mut() = Full::from(contents),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                *response.status_mut() = StatusCode::NOT_FOUND;
            }
            Err(_) => *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR,
        }
    } else if path != Get::PAGE.path() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    Ok(response)
}

/// The name of a file within the folder, if the path is one.
fn file(path: &str) -> Option<&str> {
    let name = path.strip_prefix('/')?;
    let (folder, length) = name.split_once('/')?;
    let is_one = [FILES, SLOW_FILES].contains(&folder) && length.parse::<u32>().is_ok();
    is_one.then_some(name)
}
