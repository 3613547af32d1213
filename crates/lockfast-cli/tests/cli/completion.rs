//! What shells complete, each of which is run.

use std::path::Path;
use std::process::Command;

use lockfast_core::Moment;

use crate::sandbox::{Running, Sandbox, undisturbed};

fn with_locks() -> Sandbox {
    let sandbox = Sandbox::new();
    for name in ["nightly:report", "nightly:mail", "a b", "build", "-x"] {
        sandbox.run(["acquire", "--ttl", "600s", "--", name]).expect(0);
    }
    sandbox
}

/// The same with stores that have names.
fn with_stores() -> Sandbox {
    let sandbox = with_locks();
    std::fs::create_dir_all(sandbox.path(".config/lockfast")).unwrap();
    let config = "[store.prod]\nurl = 'redis://a:geheim@h'\n[store.play]\nurl = 'x:'\n";
    std::fs::write(sandbox.path(".config/lockfast/config.toml"), config).unwrap();
    sandbox
}

fn complete(sandbox: &Sandbox, words: &[&str]) -> Vec<String> {
    let finished = sandbox.run(["__complete"].iter().chain(words)).expect(0);
    assert_eq!(finished.stderr, "");
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn names_are_offered_where_a_name_belongs() {
    let sandbox = with_locks();
    let all = ["a b", "build", "nightly:mail", "nightly:report"];
    let other = format!("embedded:{}", sandbox.path("other").display());
    for (words, expected) in [
        (&["show", ""] as &[&str], &all as &[&str]),
        (&["show", "nightly:"], &all[2..]),
        (&["run", "--ttl", "5s", "-n", "b"], &["build"]),
        (&["-v", "force-release", "--reason", "x", "n"], &all[2..]),
        (&["watch", "x"], &[]),
        (&["show", "--on", &other, ""], &[]),
        (&["show", "--on", "foo:", ""], &[]),
        (&["run", "--ttl", ""], &[]),
        (&["run", "build", ""], &[]),
        (&["run", "build", "--", ""], &[]),
        (&["show", "-"], &[]),
        (&["show", "--", "-"], &["-x"]),
        (&["show", "--no-such-option", ""], &[]),
        (&["list", ""], &[]),
        (&["refresh", "--for", "5m", ""], &[]),
        (&[""], &[]),
        (&[], &[]),
    ] {
        assert_eq!(complete(&sandbox, words), expected, "{words:?}");
    }
    assert!(!sandbox.path("other").exists(), "a store was made");
}

#[test]
fn stores_of_the_config_file_are_offered() {
    let sandbox = Sandbox::new();
    let config = "[store.prod]\nurl = 'redis://a:geheim@h'\n[store.stage]\nurl = 'x:'\n";
    std::fs::write(sandbox.path("named.toml"), config).unwrap();
    let names = complete(&sandbox, &["--config", "named.toml", "show", "--on", ""]);
    assert_eq!(names, ["prod", "stage"]);
    assert_eq!(complete(&sandbox, &["--config=named.toml", "show", "--on", "p"]), ["prod"]);
    assert_eq!(complete(&sandbox, &["show", "--on", ""]), [""; 0]);
    let joined = complete(&sandbox, &["--config=named.toml", "show", "--on=p"]);
    assert_eq!(joined, ["--on=prod"]);
    for other in ["--one=p", "--json=p", "--=p", "--ttl="] {
        assert_eq!(complete(&sandbox, &["--config=named.toml", "show", other]), [""; 0], "{other}");
    }
}

/// Here of a server that never answers.
#[test]
fn nobody_who_types_waits_for_a_store() {
    let sandbox = Sandbox::new();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?request_timeout=60s", silent.local_addr().unwrap());
    let start = Moment::now();
    assert_eq!(complete(&sandbox, &["show", "--on", &url, ""]), [""; 0]);
    let took = Moment::now().since(start);
    assert!(took.as_secs() < 20, "{took:?}");
}

/// A script that presses the key after `line`, whose words are broken as bash does it.
fn in_bash(sandbox: &Sandbox, line: &str, words: &[&str], current: &str) -> Vec<String> {
    let script = "eval \"$(\"$1\" completions bash)\"
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=(\"${@:4}\") COMP_CWORD=$(($# - 4))
_lockfast_ask \"$1\" \"$3\" \"\"
printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command: Command = undisturbed("bash");
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let typed = line.replacen("lockfast", binary, 1);
    command.args(["--norc", "-c", script, "bash", binary, &typed, current]);
    command.arg(binary).args(&words[1..]);
    sandbox.settle(&mut command);
    let finished = Running::new(command).finish().expect(0);
    assert_eq!(finished.stderr, "", "{line}");
    finished.stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_names() {
    let sandbox = with_stores();
    let found = in_bash(&sandbox, "lockfast show n", &["lockfast", "show", "n"], "n");
    assert_eq!(found, ["nightly:mail", "nightly:report"]);
    // bash has cut the word at the colon, and wants the rest of it alone.
    let words = ["lockfast", "show", "nightly", ":"];
    assert_eq!(in_bash(&sandbox, "lockfast show nightly:", &words, ""), ["mail", "report"]);
    let words = ["lockfast", "show", "nightly", ":", "r"];
    assert_eq!(in_bash(&sandbox, "lockfast show nightly:r", &words, "r"), ["report"]);
    let url = sandbox.url();
    let path = url.split_once(':').unwrap().1;
    let line = format!("lockfast --on {url}  run -n b");
    let words = ["lockfast", "--on", "embedded", ":", path, "run", "-n", "b"];
    assert_eq!(in_bash(&sandbox, &line, &words, "b"), ["build"]);
    // A space is written so that the shell takes it for a part of the name.
    let found = in_bash(&sandbox, "lockfast show a", &["lockfast", "show", "a"], "a");
    assert_eq!(found, ["a\\ b"]);
    let words = ["lockfast", "--on", "=", "p"];
    assert_eq!(in_bash(&sandbox, "lockfast --on=p", &words, "p"), ["play", "prod"]);
    // Everything else is as it was generated.
    let found = in_bash(&sandbox, "lockfast show --js", &["lockfast", "show", "--js"], "--js");
    assert_eq!(found, ["--json"]);
}

/// What zsh and fish are to offer for a line, of what does not start with a - there.
const OFFERS: [(&str, &[&str]); 8] = [
    ("lockfast ru", &["run"]),
    ("lockfast fence ch", &["check"]),
    ("lockfast run n", &["nightly:mail", "nightly:report"]),
    ("lockfast run -n --ttl 5s nightly:r", &["nightly:report"]),
    ("lockfast show a", &["a b"]),
    ("lockfast --on p", &["play", "prod"]),
    ("lockfast show --on=pr", &["prod"]),
    ("lockfast run --on-lost te", &["term"]),
];

/// Runs a shell that prints a line for each of [`OFFERS`], with the offers behind tabs.
#[track_caller]
fn compare_offers(sandbox: &Sandbox, mut command: Command) {
    sandbox.settle(&mut command);
    let folder = Path::new(env!("CARGO_BIN_EXE_lockfast")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
    let finished = Running::new(command).finish().expect(0);
    let mut lines = finished.stdout.lines();
    for (line, expected) in OFFERS {
        let mut words = lines.next().unwrap_or_default().split('\t');
        assert_eq!(words.next(), Some(line), "{finished:?}");
        let mut offered: Vec<String> =
            words.map(|word| word.replace('\\', "").replace("--on=", "")).collect();
        offered.sort();
        offered.dedup();
        assert_eq!(offered, expected, "{line}: {finished:?}");
    }
}

#[test]
fn fish_completes_names() {
    let sandbox = with_stores();
    let script = sandbox.run(["completions", "fish"]).expect(0).stdout;
    std::fs::write(sandbox.path("lockfast.fish"), script).unwrap();
    let offer = "source lockfast.fish
for line in $argv
    echo $line\\t(complete -C $line | string replace -r '\\t.*' '' | string join \\t)
end";
    let mut command = undisturbed("fish");
    command.args(["--no-config", "-c", offer]).args(OFFERS.map(|(line, _)| line));
    compare_offers(&sandbox, command);
}

#[test]
fn zsh_completes_names() {
    let sandbox = with_stores();
    let script = sandbox.run(["completions", "zsh"]).expect(0).stdout;
    std::fs::write(sandbox.path("_lockfast"), script).unwrap();
    std::fs::write(sandbox.path("offer"), include_str!("completion.zsh")).unwrap();
    let mut command = undisturbed("zsh");
    command.args(["-f", "offer"]).args(OFFERS.map(|(line, _)| line));
    compare_offers(&sandbox, command);
}

#[test]
fn the_scripts_ask_for_names() {
    let sandbox = Sandbox::new();
    for (shell, count) in [("bash", 1), ("zsh", 1), ("fish", 1), ("elvish", 0), ("powershell", 0)] {
        let script = sandbox.run(["completions", shell]).expect(0).stdout;
        assert_eq!(script.matches("__complete").count(), count, "{shell}");
    }
}
