//! Children and servers are started, stopped and ended as asked, shown on this test binary itself.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockfast_faults::child::Child;
use lockfast_faults::port::Port;
use lockfast_faults::program;
use lockfast_faults::server::Process;

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

fn start(port: &Port, directory: &Path) -> Process {
    let mut command = this_binary(&["--exact", "serve_when_asked"]);
    command.env(PORT_VARIABLE, port.number().to_string());
    let mut server = Process::spawn(&mut command, &directory.join("log"));
    server.wait_until_it(|| greets(address(port)));
    server
}

fn this_binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(arguments);
    command
}

fn address(port: &Port) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()))
}

fn greets(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else {
        return false;
    };
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut greeting = [0; 6];
    stream.read_exact(&mut greeting).is_ok() && &greeting == b"hello\n"
}

/// What a panic says.
fn panic_of(body: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_server_is_started_paused_and_ended() {
    let (port, directory) = (Port::take(), tempfile::tempdir().unwrap());
    let server = start(&port, directory.path());
    server.pause();
    assert!(!greets(address(&port)), "it answers although it is stopped");
    server.resume();
    assert!(greets(address(&port)));
    server.kill();
    assert!(!greets(address(&port)));
    drop(start(&port, directory.path()));
    assert!(!greets(address(&port)));
}

#[test]
fn a_server_ends_when_its_test_panics_even_if_it_is_paused() {
    let (port, directory) = (Port::take(), tempfile::tempdir().unwrap());
    let message = panic_of(|| {
        let server = start(&port, directory.path());
        server.pause();
        panic!("{}", "a test that fails");
    });
    assert_eq!(message, "a test that fails");
    assert!(TcpStream::connect(address(&port)).is_err());
}

#[test]
fn a_missing_program_says_how_to_install_it() {
    let expected = "no-such-server is not installed; run: cargo xtask setup";
    assert_eq!(panic_of(|| drop(program::find("no-such-server"))), expected);
    assert_eq!(panic_of(|| drop(program::find_postgres("no-such-server"))), expected);
}

#[test]
fn a_server_that_ends_at_once_tells_what_it_said() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = this_binary(&["--no-such-option"]);
    let mut server = Process::spawn(&mut command, &directory.path().join("log"));
    let message = panic_of(|| server.wait_until_it(|| false));
    assert!(message.contains("instead of answering: "), "{message}");
    assert!(message.contains("no-such-option"), "{message}");
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
