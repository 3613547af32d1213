//! Children and servers are started, stopped and ended as asked, shown on this test binary itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use lockfast_conformance::fault::child::Child;
use lockfast_conformance::fault::server::{Server, ServerProgram, accepts};

const PATIENCE: Duration = Duration::from_secs(10);
const PORT_VARIABLE: &str = "LOCKFAST_TEST_PORT";

/// Not a test by itself: the server that the tests start.
#[test]
fn serve_when_asked() {
    let Ok(port) = std::env::var(PORT_VARIABLE) else {
        return;
    };
    let port: u16 = port.parse().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    for mut stream in listener.incoming().map_while(Result::ok) {
        let _ = stream.write_all(b"hello\n");
    }
}

fn this_binary(program: Option<&str>) -> ServerProgram {
    ServerProgram {
        program: program.map_or_else(|| std::env::current_exe().unwrap(), PathBuf::from),
        package: "some-server",
        arguments: |_, _| ["--exact", "serve_when_asked"].map(OsString::from).to_vec(),
        environment: |port, _| vec![(PORT_VARIABLE.into(), port.to_string().into())],
        probe: accepts,
        start_time_max: PATIENCE,
    }
}

fn greets(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut greeting = [0; 6];
    stream.read_exact(&mut greeting).is_ok() && &greeting == b"hello\n"
}

#[test]
fn a_server_is_started_paused_restarted_and_ended() {
    let mut server = Server::start(this_binary(None)).unwrap();
    let address = server.address();
    assert!(greets(address));
    server.stop().unwrap();
    assert!(!greets(address), "it answers although it is stopped");
    server.resume().unwrap();
    assert!(greets(address));
    std::fs::write(server.directory().join("data"), "kept").unwrap();
    server.kill().unwrap();
    assert!(!greets(address));
    server.restart().unwrap();
    assert!(greets(address));
    assert_eq!(server.address(), address);
    assert!(server.directory().join("data").exists());
    let directory = server.directory().to_owned();
    drop(server);
    assert!(!greets(address) && !directory.exists());
}

#[test]
fn a_missing_server_says_how_to_install_it() {
    let error = Server::start(this_binary(Some("no-such-server"))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let expected = "no-such-server is not installed; run: cargo xtask setup (it comes with package \
                    some-server)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_server_that_ends_at_once_tells_what_it_said() {
    let program =
        ServerProgram { arguments: |_, _| vec!["--no-such-option".into()], ..this_binary(None) };
    let error = Server::start(program).unwrap_err().to_string();
    assert!(error.contains("instead of answering; it said: "), "{error}");
    assert!(error.contains("no-such-option"), "{error}");
}

#[test]
fn a_child_is_stopped_continued_and_killed() {
    let mut child = Child::spawn(&mut Command::new("cat")).unwrap();
    child.send("one 1").unwrap();
    assert_eq!(child.wait_for("one", PATIENCE).unwrap(), "1");
    child.stop().unwrap();
    child.send("two").unwrap();
    let error = child.wait_for("two", Duration::from_millis(80)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    child.resume().unwrap();
    child.wait_for("two", PATIENCE).unwrap();
    let status = child.kill().unwrap();
    assert!(!status.success());
    let error = child.wait_for("three", PATIENCE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    let mut polite = Child::spawn(&mut Command::new("cat")).unwrap();
    assert!(polite.finish(PATIENCE).unwrap().success());
}
