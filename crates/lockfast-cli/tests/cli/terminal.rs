//! On a terminal, by a pseudo-terminal of `script(1)`.

use std::process::{Command, Stdio};

use crate::sandbox::{Running, Sandbox, eventually, undisturbed};

/// Runs a shell line on a terminal, with `input` typed, and answers what the terminal showed.
fn on_terminal(sandbox: &Sandbox, line: &str) -> Command {
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let line = line.replace("LOCKFAST", binary);
    let mut command = undisturbed("script");
    command
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(sandbox.path(""))
        .env("LOCKFAST_URL", sandbox.url())
        .env("TERM", "xterm")
        .env("LANG", "C.UTF-8")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn an_interactive_command_reads_from_the_terminal() {
    let sandbox = Sandbox::new();
    let line = "sh -c \"LOCKFAST run job -- sh -c 'touch started; read answer; echo got \\$answer' \
                && read more && echo and \\$more\"";
    let mut running = Running::new(on_terminal(&sandbox, line));
    eventually("the command to start", || sandbox.path("started").exists());
    let mut stdin = running.child().stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"one\ntwo\n").unwrap();
    let finished = running.finish().expect(0);
    drop(stdin);
    // The second line went to the shell: it has the terminal back.
    assert!(finished.stdout.contains("got one"), "{}", finished.stdout);
    assert!(finished.stdout.contains("and two"), "{}", finished.stdout);
}

#[test]
fn control_c_ends_the_command_and_releases_the_lock() {
    let sandbox = Sandbox::new();
    let line = "LOCKFAST run job -- sh -c ': > started; exec sleep 1000'";
    let mut running = Running::new(on_terminal(&sandbox, line));
    eventually("the command to start", || sandbox.path("started").exists());
    let mut stdin = running.child().stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"\x03").unwrap();
    running.finish().expect(130);
    drop(stdin);
    assert!(!sandbox.is_held("job"));
}

#[test]
fn a_spinner_shows_the_place_in_the_queue() {
    let sandbox = Sandbox::new();
    let holder = sandbox.hold(&["job"], "touch started; while ! [ -e go ]; do sleep 0.01; done");
    for columns in [80, 20] {
        let line = format!("stty cols {columns}; LOCKFAST run job --wait 2s -- true");
        let finished = Running::new(on_terminal(&sandbox, &line)).finish().expect(75);
        assert!(finished.stdout.contains("waiting"), "{}", finished.stdout);
        if columns == 80 {
            assert!(finished.stdout.contains("next in the queue"), "{}", finished.stdout);
        }
    }
    for plain in ["NO_COLOR=1", "TERM=dumb"] {
        let line = format!("{plain} LOCKFAST run job --try -- true");
        let finished = Running::new(on_terminal(&sandbox, &line)).finish().expect(75);
        assert!(!finished.stdout.contains("\u{1b}["), "{plain}: {}", finished.stdout);
    }
    let line = "LOCKFAST run job --try -- true";
    let coloured = Running::new(on_terminal(&sandbox, line)).finish().expect(75);
    assert!(coloured.stdout.contains("\u{1b}[1;31m"), "{}", coloured.stdout);
    std::fs::write(sandbox.path("go"), "").unwrap();
    holder.finish().expect(0);
}

#[test]
fn a_list_fits_the_terminal() {
    let sandbox = Sandbox::new();
    for name in ["short", &"long-".repeat(20), &"x".repeat(255)] {
        sandbox.run(["acquire", name, "--ttl", "60s", "--label", &"words ".repeat(20)]).expect(0);
    }
    for columns in [80, 132] {
        let line = format!("stty cols {columns}; LOCKFAST list");
        let shown = Running::new(on_terminal(&sandbox, &line)).finish().expect(0).stdout;
        assert!(shown.contains("QUEUE") && shown.contains("short"), "{shown}");
        for line in shown.lines() {
            assert!(line.trim_end().chars().count() <= columns, "{columns}: {line}");
        }
    }
    // Where nobody looks, a name is on one line, for whoever searches it.
    let listed = sandbox.run(["list"]).expect(0).stdout;
    assert!(listed.contains(&"x".repeat(255)), "{listed}");
}

#[test]
fn a_quiet_wait_shows_no_spinner() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    let line = "LOCKFAST run job --wait 1s -q true";
    let finished = Running::new(on_terminal(&sandbox, line)).finish().expect(75);
    assert_eq!(finished.stdout, "");
}

#[test]
fn force_release_asks_on_a_terminal() {
    let sandbox = Sandbox::new();
    sandbox.run(["acquire", "job", "--ttl", "60s"]).expect(0);
    for (answer, code) in [("n\n", 75), ("y\n", 0)] {
        let line = "LOCKFAST force-release job --reason test";
        let mut running = Running::new(on_terminal(&sandbox, line));
        let mut stdin = running.child().stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, answer.as_bytes()).unwrap();
        let finished = running.finish().expect(code);
        drop(stdin);
        assert!(finished.stdout.contains("[y/N]"), "{}", finished.stdout);
    }
    assert!(!sandbox.is_held("job"));
}
