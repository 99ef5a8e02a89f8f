//! What a user copies from the pages survives rude clients, and the pages can be built where users are.

use std::thread;

use users::build::Project;
use users::clients::{be_polite, be_rude_to_an_echo};
use users::page::{first_program, with_main};
use users::server::Server;

/// The end of the front page's program, for other clients: it listens until its input ends.
const FRONT_PAGE: &str = r#"
fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    let port = Port::new()?;
    port.register(Registration::owned(Peer::Listener(listener), Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| serve(&port))).collect();
        io::stdin().read_to_end(&mut Vec::new())?;
        assert!(threads.iter().all(|thread| !thread.is_finished()));
        port.shutdown()?;
        Ok(())
    })
}
"#;

/// The same for that of the README, which accepts nothing itself.
const README: &str = r#"
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    let port = &*Box::leak(Box::new(Port::new()?));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            stream.set_nonblocking(true).unwrap();
            drop(port.register(Registration::owned(stream, Interest::IN, OneShot::Level)));
        }
    });
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| serve(port))).collect();
        io::stdin().read_to_end(&mut Vec::new())?;
        assert!(threads.iter().all(|thread| !thread.is_finished()));
        port.shutdown()?;
        Ok(())
    })
}
"#;

#[test]
fn the_first_programs_that_a_user_sees_survive_rude_clients() {
    let front_page = first_program("crates/completion-port/src/lib.rs");
    let readme = first_program("README.md");
    let served_front_page = with_main(&front_page, FRONT_PAGE);
    let served_readme = with_main(&readme, README);
    let project = Project::new(
        "pages",
        &[
            ("front_page", &front_page),
            ("readme", &readme),
            ("served_front_page", &served_front_page),
            ("served_readme", &served_readme),
        ],
    );
    let programs = project.build();
    for name in ["front_page", "readme"] {
        let status = std::process::Command::new(programs.join(name)).status().expect("a program");
        assert!(status.success(), "{name}: {status}");
        let mut server = Server::start(&programs.join(format!("served_{name}")), &[]);
        be_rude_to_an_echo(server.address);
        // From several sides.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| be_polite(server.address));
            }
        });
        server.assert_runs();
        server.hang_up();
    }
}

#[test]
fn the_documentation_can_be_built_outside_the_workspace() {
    let project = Project::new("documented", &[]);
    project.document();
}
