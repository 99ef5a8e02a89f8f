//! What the scenarios with servers have in common.

use crate::contenders::Contender;
use crate::report::{Cell, Described};
use crate::table::with_interval;

/// The name of a server's row, which is that of its process without what it serves.
pub(super) fn row_name(server: &Contender) -> &'static str {
    server.name.split('/').next().unwrap_or_default()
}

impl Described {
    /// A server, by the name of its row.
    pub(super) fn of(server: &Contender) -> Described {
        Described {
            name: row_name(server).to_owned(),
            about: server.about.to_owned(),
            version: (server.version)(),
        }
    }
}

impl Cell {
    /// Adds the ratio of two rows with its interval, if both have the quantity.
    pub(super) fn note_ratio(&mut self, (quantity, above, below): (&str, &str, &str)) {
        let rows = self.row(above).zip(self.row(below));
        let ratio = rows.and_then(|(above, below)| above.ratio(below, quantity));
        self.notes.extend(
            ratio.map(|ratio| format!("{quantity}, {above} / {below}: {}", with_interval(&ratio))),
        );
    }
}

/// Runs a test with a way to connect to each of these servers. Those that need a program of another
/// project are skipped if it is not there.
#[cfg(test)]
pub(super) fn each_installed(
    names: &[&'static str],
    server: impl Fn(&str) -> Result<Contender, String>,
    test: impl Fn(&str, &dyn Fn() -> std::net::TcpStream),
) {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::foreign::SKIPPED;
    use crate::contenders::Listening;
    use crate::sink::Service;

    for name in names.iter().copied() {
        let contender = match server(name) {
            Ok(contender) => contender,
            Err(reason) => {
                eprintln!("{name}: {reason}");
                assert!(reason.starts_with(SKIPPED), "{name}: {reason}");
                continue;
            }
        };
        eprintln!("{name}");
        let server = (contender.start)(2, Service::Echo).unwrap();
        let listening = Listening::new().unwrap();
        server.listen(&listening).unwrap();
        let address = server.address().unwrap_or_else(|| listening.address());
        test(name, &|| {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.set_nodelay(true).unwrap();
            stream
        });
    }
}
