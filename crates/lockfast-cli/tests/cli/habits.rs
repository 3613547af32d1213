//! What people type who know flock, consul lock and etcdctl.

use std::io::{BufRead as _, BufReader};

use crate::sandbox::{Running, Sandbox};

const HOLD: &str = "touch started; while ! [ -e go ]; do sleep 0.01; done";

#[test]
fn the_command_needs_no_separator() {
    let sandbox = Sandbox::new();
    for (line, printed) in [
        ("run x echo --json -n", "--json -n\n"),
        ("run x echo -- a", "-- a\n"),
        ("run x -- echo -- a", "-- a\n"),
        ("run --ttl 5s x --try echo --ttl", "--ttl\n"),
        ("-v run -nq --label run x -E 9 echo run", "run\n"),
        ("once x --at-most 5m echo --at-most", "--at-most\n"),
        ("elect x -q echo x --help", "x --help\n"),
        ("refresh --for 5m x echo -q", "-q\n"),
        ("fence check --file gate --lock x --fence 7 echo -q", "-q\n"),
    ] {
        assert_eq!(sandbox.run(line.split(' ')).expect(0).stdout, printed, "{line}");
    }
    // An option that is wrong is not taken for the command, nor the command for the name.
    let refused = sandbox.run(["run", "x", "--tll", "5s", "true"]).expect(64);
    assert!(refused.stderr.contains("'--ttl'"), "{}", refused.stderr);
    sandbox.run(["run", "--", "x", "true"]).expect(64);
    sandbox.run(["run", "x", "no-such-command", "--try"]).expect(127);
}

/// B244: some lines that mean nothing ran something, or did nothing and succeeded.
#[test]
fn a_wrong_guess_is_told_before_anything_is_touched() {
    let sandbox = Sandbox::new();
    for (line, said) in [
        (&["run", "-n", "3", "touch", "ran"][..], "write --permits 3"),
        (&["run", "x", "--", "--", "touch", "ran"], "-- is given twice"),
        (&["run", "x", "-c", ""], "the shell command is empty"),
        (&["once", "--at-most", "5m", "x", "-c", " \n"], "the shell command is empty"),
        (&["run", "x", "-c", "-n"], "a value is required for '-c"),
        (&["run", "x", "-c", "--", "touch", "ran"], "a value is required for '-c"),
        (&["run", "-s", "x", "touch", "ran"], "unexpected argument '-s'"),
        (&["run", "-c", "touch ran", "x", "touch", "ran"], "cannot be used with"),
        (&["run", "--", "x", "touch", "ran"], "<NAME>"),
        (&["run", "x", ""], "the command is empty"),
    ] {
        let refused = sandbox.run(line).expect(64);
        assert!(refused.stderr.contains(said), "{line:?}: {}", refused.stderr);
        // After the -- stands the command, and no option of ours.
        assert!(!refused.stderr.contains("to pass"), "{line:?}: {}", refused.stderr);
    }
    assert!(!sandbox.path("ran").exists() && !sandbox.path("store").exists());
    sandbox.run(["run", "-n", "3", "--", "true"]).expect(0);
}

#[test]
fn a_line_for_a_shell() {
    let sandbox = Sandbox::new();
    for line in ["run", "elect", "once --at-most 5m", "refresh --for 5m"] {
        let arguments =
            line.split(' ').chain(["x", "-c", "echo \"$LOCKFAST_NAME\" | tr x y; exit"]);
        let printed = sandbox.run(arguments).expect(0).stdout;
        assert_eq!(printed, if line.starts_with("refresh") { "refresh:y\n" } else { "y\n" });
    }
    sandbox.run(["run", "-c", "exit 6", "x"]).expect(6);
    let both = sandbox.run(["run", "x", "-c", "true", "ls"]).expect(64);
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
}

#[test]
fn the_short_options_of_flock() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["x"], HOLD);
    // B243: who did not wait was told to have given up, after as long as the store took to answer.
    for line in ["run -n x true", "run -w 0s x true", "once x --at-most 5m true"] {
        let refused = sandbox.run(line.split(' ')).expect(75);
        assert!(refused.stderr.contains("is held by"), "{}", refused.stderr);
        assert!(!refused.stderr.contains("gave up"), "{line}: {}", refused.stderr);
    }
    sandbox.run(["run", "-n", "-E", "3", "x", "true"]).expect(3);
    sandbox.run(["acquire", "x", "--ttl", "5s", "-n"]).expect(75);
    let waited = sandbox.run(["run", "-w", "20ms", "x", "true"]).expect(75);
    assert!(waited.stderr.contains("gave up after"), "{}", waited.stderr);
    let unit = sandbox.run(["run", "-w", "10", "x", "true"]).expect(64);
    assert!(unit.stderr.contains("say 10s or 10ms"), "{}", unit.stderr);
    sandbox.run(["run", "-n", "-w", "5s", "x", "true"]).expect(64);
}

/// What cron would mail: nothing about a lock that is taken, everything about what went wrong.
#[test]
fn quiet_means_quiet_about_others() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["x"], HOLD);
    for (line, code) in [
        ("run x -n -E 0 -q true", 0),
        ("run x -n --quiet true", 75),
        ("run x -w 700ms -q true", 75),
        ("once x --at-most 5m -E 0 -q true", 0),
        ("acquire x --ttl 5s -n -q --json", 75),
        ("run x -n -q --json true", 75),
    ] {
        let finished = sandbox.run(line.split(' ')).expect(code);
        assert_eq!((&*finished.stdout, &*finished.stderr), ("", ""), "{line}");
    }
    sandbox.run(["acquire", "z", "--ttl", "60s", "--permits", "3"]).expect(0);
    for (line, code) in [
        ("run x -q -n --ttl 5 true", 64),
        ("run x -q -n --on foo: true", 125),
        ("run x -q -n no-such-command", 127),
        ("run z -q -n -E 0 --permits 2 true", 125),
    ] {
        assert_ne!(sandbox.run(line.split(' ')).expect(code).stderr, "", "{line}");
    }
    assert_eq!(sandbox.run(["elect", "y", "-q", "true"]).expect(0).stderr, "");
}

/// B228: a job that waited without a terminal said nothing, for as long as it took.
#[test]
fn who_waits_without_a_terminal_says_so_once() {
    let sandbox = Sandbox::new();
    let holder = sandbox.hold(&["x"], HOLD);
    let mut waiter = sandbox.start(["run", "x", "true"]);
    let mut said = BufReader::new(waiter.child().stderr.take().unwrap()).lines();
    let line = said.next().unwrap().unwrap();
    let start = "lockfast: waiting for x: next in the queue; held by lockfast (pid ";
    assert!(line.starts_with(start), "{line}");
    // Longer than until the next look of a spinner.
    sandbox.run(["run", "x", "-w", "1s", "-q", "true"]).expect(75);
    std::fs::write(sandbox.path("go"), "").unwrap();
    holder.finish().expect(0);
    waiter.finish().expect(0);
    assert!(said.next().is_none(), "it was said again");
}

/// A command that ends hides behind the one that called it, which goes on.
#[test]
fn acquire_names_the_script_that_called_it() {
    let sandbox = Sandbox::new();
    let script = "out=$(lockfast acquire x --ttl 60s) || exit; echo $$; lockfast show x --json";
    let finished = Running::new(sandbox.shell(script)).finish().expect(0);
    let (pid, shown) = finished.stdout.split_once('\n').unwrap();
    let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
    assert_eq!(shown["holders"][0]["pid"].to_string(), pid);
    assert_eq!(shown["holders"][0]["program"], "sh");
}

/// B229: who looked at a path with a slip in it was told that the lock is free, and got a new store.
#[test]
fn looking_makes_no_store() {
    let sandbox = Sandbox::new();
    let url = format!("embedded:{}", sandbox.path("sotre").display());
    let holder = "0".repeat(32);
    for (line, code, printed) in [
        ("show x".to_owned(), 0, "x: free\n"),
        ("list".to_owned(), 0, ""),
        (format!("release x --holder {holder}"), 75, ""),
        (format!("renew x --ttl 5s --holder {holder}"), 75, "(exit 75)\n"),
        ("force-release x --yes --reason r".to_owned(), 75, ""),
    ] {
        let finished = sandbox.run(["--on", &url].into_iter().chain(line.split(' '))).expect(code);
        assert_eq!(finished.stdout, printed, "{line}");
        let warning = format!("warning: there is no store at {url}");
        assert!(finished.stderr.contains(&warning), "{line}: {}", finished.stderr);
        assert!(!sandbox.path("sotre").exists(), "{line}");
    }
}

/// B246: who cannot see a store, or may not make it, was told that its locks are free.
#[test]
fn what_cannot_be_seen_is_not_free() {
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink("round", sandbox.path("round")).unwrap();
    std::os::unix::fs::symlink("nowhere", sandbox.path("dangling")).unwrap();
    std::fs::write(sandbox.path("file"), "").unwrap();
    let at = |name: &str| format!("embedded:{}", sandbox.path(name).display());
    for (url, code) in [
        (at("round/store"), 69),
        (at("dangling"), 69),
        (at("file/store"), 78),
        (format!("{}?group=root", at("none")), 78),
    ] {
        for line in ["show x", "list", "list --json"] {
            let refused = sandbox.run(["--on", &url].into_iter().chain(line.split(' ')));
            assert_eq!((&*refused.stdout, refused.code()), ("", code), "{url}: {}", refused.stderr);
            assert!(!refused.stderr.contains("there is no store"), "{}", refused.stderr);
        }
    }
}
