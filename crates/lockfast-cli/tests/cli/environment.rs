//! What the command gets from us, and what it does not.

use std::collections::BTreeMap;
use std::process::Stdio;

use crate::sandbox::{Running, Sandbox};

fn variables(text: &str) -> BTreeMap<String, String> {
    text.split('\0')
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_command_sees_the_lock_and_no_secret() {
    let sandbox = Sandbox::new();
    let url = format!("{}?sync=normal", sandbox.url());
    let mut command =
        sandbox.command(["run", "job", "--on", &url, "--env", "A=b=c", "--env", "E="]);
    command.args(["--", "cat", "/proc/self/environ"]);
    command.env("LOCKFAST_URL", "redis://me:geheim@h");
    let finished = Running::new(command).finish().expect(0);
    let seen = variables(&finished.stdout);
    assert_eq!(seen["LOCKFAST_NAME"], "job");
    assert!(seen["LOCKFAST_FENCE"].parse::<u64>().unwrap() > 0);
    assert_eq!((seen["A"].as_str(), seen["E"].as_str()), ("b=c", ""));
    assert!(!finished.stdout.contains("geheim") && !seen.contains_key("LOCKFAST_URL"));
    let held: Vec<_> = seen["LOCKFAST_HELD"].splitn(6, ' ').collect();
    assert_eq!((held[1], held[2]), ("x", seen["LOCKFAST_FENCE"].as_str()));
    assert_eq!((held[4], held[5]), ("kill", "job"));
    let ours: Vec<_> = seen.keys().filter(|name| name.starts_with("LOCKFAST_")).collect();
    let expected = ["LOCKFAST_FENCE", "LOCKFAST_HELD", "LOCKFAST_NAME", "LOCKFAST_URL_WITHHELD"];
    assert_eq!(ours, expected);
    let fingerprint = &seen["LOCKFAST_URL_WITHHELD"];
    assert!(fingerprint.len() == 16 && fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit()));
}

#[test]
fn a_url_without_secrets_stays() {
    let sandbox = Sandbox::new();
    let finished = sandbox.run(["run", "job", "--", "cat", "/proc/self/environ"]).expect(0);
    let seen = variables(&finished.stdout);
    assert_eq!(seen["LOCKFAST_URL"], sandbox.url());
    assert!(!seen.contains_key("LOCKFAST_URL_WITHHELD"));
}

/// B28: every command of ours in a job whose store is kept from it says so, instead of using the one
/// that the config file names, or the embedded one.
#[test]
fn a_command_does_not_take_another_store_for_the_one_that_is_kept_from_it() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    std::fs::create_dir_all(sandbox.path(".config/lockfast")).unwrap();
    let config = format!("url = \"{}\"\n", sandbox.url());
    std::fs::write(sandbox.path(".config/lockfast/config.toml"), &config).unwrap();
    std::fs::write(sandbox.path("named.toml"), config).unwrap();
    let url = sandbox.url();
    let run_inside = |inner: &str| {
        let script = format!("{binary} {inner}");
        let mut command = sandbox.command(["run", "job", "--on", &url, "--", "sh", "-c", &script]);
        command.env("LOCKFAST_URL", "redis://me:geheim@h");
        Running::new(command).finish()
    };
    for (inner, code) in [("run other -- true", 125), ("show other", 78), ("list", 78)] {
        let refused = run_inside(inner).expect(code);
        assert!(refused.stderr.contains("not known here"), "{inner}: {}", refused.stderr);
    }
    // The lock of the job is in another store than the one whose URL was kept.
    run_inside("run job --try -- true").expect(125);
    for inner in [
        format!("run other --on {url} -- true"),
        "run other --config named.toml -- true".to_owned(),
        format!("run job --try --on {url} -- true"),
    ] {
        run_inside(&inner).expect(0);
    }
}

/// B28, where the store is not secret: the job's lock is in the store of --on, and a script that it
/// calls would take the one of the same name elsewhere.
#[test]
fn a_lock_of_the_job_in_another_store_is_refused() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let other = format!("embedded:{}", sandbox.path("other").display());
    let script = format!("{binary} run job --try -- true");
    let arguments = ["run", "job", "--on", &other, "--", "sh", "-c", &script];
    let refused = sandbox.run(arguments).expect(125);
    assert!(refused.stderr.contains("in another store than this one"), "{}", refused.stderr);
    let script = format!("{binary} run job --try --on {} -- sh -c 'exit 6'", sandbox.url());
    sandbox.run(["run", "job", "--on", &other, "--", "sh", "-c", &script]).expect(6);
}

#[test]
fn secrets_are_in_no_argument_and_no_environment_below_the_wrapper() {
    let sandbox = Sandbox::new();
    let script = "for pid in $$ $PPID; do
        cat /proc/$pid/cmdline /proc/$pid/environ >> seen
    done";
    let url = sandbox.url();
    let mut command = sandbox.command(["run", "job", "--on", &url, "--", "sh", "-c", script]);
    command.env("LOCKFAST_URL", "redis://me:geheim@h");
    Running::new(command).finish().expect(0);
    let seen = std::fs::read(sandbox.path("seen")).unwrap();
    let seen = String::from_utf8_lossy(&seen);
    assert!(seen.contains("__guard") && !seen.contains("geheim"), "{seen}");
    // A holder id is 32 hexadecimal digits.
    let runs = seen.split(|c: char| !c.is_ascii_hexdigit()).filter(|run| run.len() == 32).count();
    assert_eq!(runs, 0, "{seen}");
}

/// But for the one by which the embedded store sees that the command is still there.
#[test]
fn no_other_descriptor_of_ours_reaches_the_command() {
    let sandbox = Sandbox::new();
    let list = |command: std::process::Command| {
        let finished = Running::new(command).finish().expect(0);
        finished.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut plain = std::process::Command::new("ls");
    plain.arg("/proc/self/fd").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut expected = list(plain);
    let below =
        |url: &str| sandbox.command(["run", "job", "--on", url, "--", "ls", "/proc/self/fd"]);
    assert_eq!(list(below("memory:")), expected);
    expected.push("64".to_owned());
    assert_eq!(list(below(&sandbox.url())), expected);
}

#[test]
fn standard_input_and_output_are_the_commands() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(["run", "job", "--", "sh", "-c", "cat; echo err >&2"]);
    command.stdin(Stdio::piped());
    let mut running = Running::new(command);
    let mut stdin = running.child().stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"through\n").unwrap();
    drop(stdin);
    let finished = running.finish().expect(0);
    assert_eq!((finished.stdout.as_str(), finished.stderr.as_str()), ("through\n", "err\n"));
}

/// C34.
#[test]
fn closed_streams_are_survived() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let sh = |script: &str| {
        let mut command = crate::sandbox::undisturbed("sh");
        command.args(["-c", script]).current_dir(sandbox.path(""));
        command.env("LOCKFAST_URL", sandbox.url()).stderr(Stdio::piped());
        Running::new(command).finish()
    };
    sh(&format!("{binary} run job -- true <&- >&- 2>&-")).expect(0);
    sh(&format!("{binary} run job -- sh -c 'exit 6' <&- >&-")).expect(6);
    for command in
        ["acquire job --ttl 60s", "list", "show job", "completions bash", "man", "--help"]
    {
        let finished = sh(&format!("{binary} {command} > /dev/full"));
        let (code, stderr) = (finished.code(), &finished.stderr);
        if command != "list" {
            assert!(code == 74 && stderr.contains("No space left"), "{command}: {code} {stderr}");
        }
        assert!(!stderr.contains("panic"), "{stderr}");
    }
    assert!(!sandbox.is_held("job"), "an acquire that could not tell its holder id");
    // A reader that goes away is nothing to talk about.
    let piped = sh(&format!("{binary} completions bash | true"));
    assert_eq!(piped.expect(0).stderr, "");
}

#[test]
fn the_fence_is_written_before_the_command_starts() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    std::fs::write(sandbox.path("token"), "a longer text from before\n").unwrap();
    let script = format!(
        "{binary} run job --token-file token --fd 7 7>seventh -- \
         sh -c 'cat token seventh; echo $LOCKFAST_FENCE'"
    );
    let mut command = crate::sandbox::undisturbed("sh");
    command.args(["-c", &script]).current_dir(sandbox.path(""));
    command.env("LOCKFAST_URL", sandbox.url()).stdout(Stdio::piped());
    let finished = Running::new(command).finish().expect(0);
    let lines: Vec<_> = finished.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(|line| *line == lines[2]), "{lines:?}");
}

#[test]
fn a_token_file_is_not_left_when_the_lock_is_taken() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.hold(&["job"], "touch started; sleep 1000");
    sandbox.run(["run", "job", "--try", "--token-file", "token", "--", "true"]).expect(75);
    assert!(!sandbox.path("token").exists());
}

/// B277: under a umask that takes rights from the user itself, pipes and directories of the store were
/// made so that they could not be opened, and so was the file of a gate. Root may open everything, so
/// that it lets another user try.
#[test]
fn no_umask_locks_its_own_user_out() {
    for umask in ["277", "777", "077", "000"] {
        let sandbox = Sandbox::new();
        let binary = std::fs::canonicalize(env!("CARGO_BIN_EXE_lockfast")).unwrap();
        std::fs::copy(binary, sandbox.path("lockfast")).unwrap();
        let mut script = format!(
            "umask {umask}; unset LOCKFAST_URL
            for time in first second; do
                ./lockfast run job -- sh -c 'echo ran $(umask)' || exit
            done
            ./lockfast run job -- ./lockfast fence check --file gate true || exit
            ./lockfast run job -- ./lockfast fence check --file gate echo passed || exit
            ./lockfast once other --at-most 1h --at-least 1h -- ./lockfast list"
        );
        if rustix::process::geteuid().is_root() {
            let user = "--reuid=65534 --regid=65534 --clear-groups";
            std::os::unix::fs::chown(sandbox.path(""), Some(65534), Some(65534)).unwrap();
            script = format!("exec setpriv {user} sh -c '{}'", script.replace('\'', "'\\''"));
        }
        let finished = Running::new(sandbox.shell(&script)).finish().expect(0);
        let lines: Vec<_> = finished.stdout.lines().collect();
        let ran = format!("ran 0{umask}");
        assert_eq!(lines[..3], [&*ran, &*ran, "passed"], "{umask}: {}", finished.stderr);
        assert!(lines.last().unwrap().starts_with("other"), "{umask}: {lines:?}");
        // For nobody but the user, whatever the umask would have left to others.
        let modes = |path: &str| std::fs::metadata(sandbox.path(path)).unwrap().permissions();
        for made in [".local", ".local/state", ".local/state/lockfast", "gate"] {
            let mode = std::os::unix::fs::PermissionsExt::mode(&modes(made)) & 0o777;
            let least = if made == "gate" { 0o600 } else { 0o700 };
            assert_eq!(mode & 0o700, least, "{umask} {made}");
            assert!(made == "gate" || mode == least, "{umask} {made}: {mode:o}");
        }
    }
}
