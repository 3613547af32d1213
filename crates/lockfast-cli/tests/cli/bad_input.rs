//! What people type wrong, as a table (issue 2 lists the cases as C1 to C60): each gets its code, a
//! sentence that helps, and nothing on standard output.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::sandbox::{Running, Sandbox};

struct Case {
    number: &'static str,
    arguments: Vec<OsString>,
    code: i32,
    words: &'static [&'static str],
}

fn case(number: &'static str, line: &str, code: i32, words: &'static [&'static str]) -> Case {
    let arguments = line.split('|').map(OsString::from).collect();
    Case { number, arguments, code, words }
}

fn with_name(number: &'static str, name: &[u8], words: &'static [&'static str]) -> Case {
    let arguments = vec!["run".into(), OsStr::from_bytes(name).into(), "--".into(), "true".into()];
    Case { number, arguments, code: 64, words }
}

fn cases() -> Vec<Case> {
    vec![
        Case { number: "C1", arguments: vec![], code: 64, words: &["Usage:", "run", "acquire"] },
        case("C2", "aquire", 64, &["acquire"]),
        case("C3", "run|x|--tll|5s|--|true", 64, &["--ttl"]),
        case("C4", "run|name", 64, &["the command is missing", "after the name", "-- COMMAND"]),
        case("C5", "run|--|true", 64, &["<NAME>"]),
        case("C6", "run||--|true", 64, &["empty"]),
        with_name("C7 newline", b"a\nb", &["\"a\\nb\"", "control character U+000A"]),
        with_name("C7 escape", b"a\x1b[31mb", &["\\u{1b}", "control character U+001B"]),
        with_name("C7 long", &[b'x'; 256], &["256 bytes, at most 255"]),
        with_name("C8", b"abc\xff", &["not valid UTF-8 at byte 3"]),
        case("C9", "run|-name|--|true", 64, &["starts with -", "./"]),
        case("C9 show", "show|-name", 64, &["-- -"]),
        case("C10 zero", "run|x|--ttl|0|--|true", 64, &["at least 100ms"]),
        case("C10 negative", "run|x|--ttl|-1|--|true", 64, &["at least 100ms"]),
        case("C10 empty", "run|x|--ttl||--|true", 64, &["at least 100ms"]),
        case("C11", "run|x|--ttl|10|--|true", 64, &["10s or 10ms"]),
        case("C12 space", "run|x|--ttl|10 s|--|true", 64, &["not a duration", "for example"]),
        case("C12 sec", "run|x|--ttl|10sec|--|true", 64, &["not a duration", "for example"]),
        case("C12 exponent", "run|x|--ttl|1e3s|--|true", 64, &["not a duration", "for example"]),
        case("C12 digits", "run|x|--ttl|٣s|--|true", 64, &["not a duration", "for example"]),
        case("C13", "run|x|--ttl|99999999999999999999s|--|true", 64, &["too large"]),
        case("C13 day", "run|x|--ttl|25h|--|true", 64, &["24h"]),
        case("C14", "run|x|--ttl|1s|--renew|2s|--|true", 64, &["two renewals must fit"]),
        case("C14 half", "run|x|--ttl|2s|--renew|1s|--|true", 64, &["two renewals must fit"]),
        case("C15", "run|x|--wait|-5s|--|true", 64, &["use --try"]),
        case("C16", "run|x|--try|--wait|5s|--|true", 64, &["cannot be used with"]),
        case("C28", "run|x|--|no-such-command", 127, &["not found", "was not taken"]),
        case("C28 path", "run|x|--|./no-such-command", 127, &["not found", "was not taken"]),
        case("C29", "run|x|--|/etc/passwd", 126, &["cannot be executed", "was not taken"]),
        case("C30 directory", "run|x|--|/", 126, &["directory"]),
        case("C30 empty", "run|x|--|", 64, &["command is empty"]),
        case("C40", "force-release|x|--reason|r", 64, &["--yes"]),
        case("C40 reason", "force-release|x|--yes", 64, &["--reason"]),
        case("C40 empty", "force-release|x|--yes|--reason|", 64, &["is empty"]),
        case("C41 fence", "force-release|x|--yes|--reason|r|--expect-fence|-5", 64, &["digits"]),
        case("C44", "list|--format|yaml5", 64, &["human", "json"]),
        case("C46", "run|x|--quorum|6|--|true", 64, &["--quorum"]),
        case("C48", "run|x|--token-file|/nowhere/f|--|true", 125, &["/nowhere/f", "was not taken"]),
        case("C49", "run|x|--fd|99|--|true", 64, &["is not open"]),
        case("C49 number", "run|x|--fd|-1|--|true", 64, &["not a file descriptor"]),
        case("C50 digit", "run|x|--env|1BAD=x|--|true", 64, &["invalid variable name"]),
        case("C50 empty", "run|x|--env|=x|--|true", 64, &["invalid variable name"]),
        case("C50 none", "run|x|--env|A|--|true", 64, &["NAME=VALUE"]),
        case("C59", "completions|tcsh", 64, &["bash", "zsh", "fish"]),
        case("once at-most", "once|x|--|true", 64, &["--at-most"]),
        case("once zero", "once|x|--at-most|0|--|true", 64, &["--at-most", "at least 100ms"]),
        case("once unit", "once|x|--at-most|10|--|true", 64, &["--at-most", "10s or 10ms"]),
        case("once negative", "once|x|--at-most|-5s|--|true", 64, &["--at-most", "at least 100ms"]),
        case("once day", "once|x|--at-most|25h|--|true", 64, &["24h"]),
        case("once least zero", "once|x|--at-most|5s|--at-least|0s|--|true", 64, &["--at-least"]),
        case("once least unit", "once|x|--at-most|5s|--at-least|1|--|true", 64, &["1s or 1ms"]),
        case(
            "once least most",
            "once|x|--at-most|1m|--at-least|2m|--|true",
            64,
            &["at_least 2m is longer than at_most 1m"],
        ),
        case("once wait", "once|x|--at-most|5s|--wait|5s|--|true", 64, &["--wait"]),
        case("once command", "once|x|--at-most|5s", 64, &["lockfast once \"x\" -- COMMAND"]),
        case("once not found", "once|x|--at-most|5s|--|no-such-command", 127, &["was not taken"]),
        case("elect command", "elect|x", 64, &["lockfast elect \"x\" -- COMMAND"]),
        case("elect name", "elect|--|true", 64, &["<NAME>"]),
        case("elect try", "elect|x|--try|--|true", 64, &["--try"]),
        case("elect renew", "elect|x|--ttl|1s|--renew|2s|--|true", 64, &["two renewals must fit"]),
        case("elect not found", "elect|x|--|no-such-command", 127, &["was not taken"]),
        case("refresh for", "refresh|x|--|true", 64, &["--for"]),
        case("refresh zero", "refresh|x|--for|0s|--|true", 64, &["--for", "at least 1ms"]),
        case("refresh unit", "refresh|x|--for|5|--|true", 64, &["--for", "5s or 5ms"]),
        case("refresh stale", "refresh|x|--for|5m|--stale-for|-1s|--|true", 64, &["--stale-for"]),
        case("refresh ttl", "refresh|x|--for|5m|--ttl|5s|--|true", 64, &["--ttl"]),
        case("refresh command", "refresh|x|--for|5m", 64, &["lockfast refresh \"x\" -- COMMAND"]),
        case("refresh name", "refresh|--for|5m|--|true", 64, &["<NAME>"]),
        case("refresh grace", "refresh|x|--for|5m|--grace|5|--|true", 64, &["--grace"]),
        case("refresh env", "refresh|x|--for|5m|--env|A|--|true", 64, &["NAME=VALUE"]),
        case("fence step", "fence", 64, &["check", "open"]),
        case("fence place", "fence|check|--lock|x|--fence|1", 64, &["--file", "--sql"]),
        case("fence places", "fence|check|--file|g|--sql|s", 64, &["cannot be used with"]),
        case("fence table", "fence|check|--file|g|--table|t", 64, &["cannot be used with"]),
        case("fence lock", "fence|check|--file|g|--fence|1", 64, &["--lock", "$LOCKFAST_NAME"]),
        case("fence none", "fence|check|--file|g|--lock|x", 64, &["--fence", "$LOCKFAST_FENCE"]),
        case("fence text", "fence|check|--file|g|--lock|x|--fence|a", 64, &["digits only"]),
        case("fence minus", "fence|open|--file|g|--lock|x|--fence|-5", 64, &["digits only"]),
        case("fence zero", "fence|open|--file|g|--lock|x|--fence|0", 64, &["from 1"]),
        case("fence name", "fence|open|--file|g|--lock||--fence|1", 64, &["empty"]),
        case("fence open command", "fence|open|--file|g|--|true", 64, &["unexpected argument"]),
        case("permits 0", "run|x|--permits|0|--|true", 64, &["at least 1"]),
        case("shared permits", "run|x|--shared|--permits|2|--|true", 64, &["cannot be used with"]),
        case("label", "run|x|--label|a\u{7}|--|true", 64, &["control characters"]),
        case("label bidi", "run|x|--label|a\u{202e}|--|true", 64, &["invisible", "\\u{202e}"]),
        case("reason bidi", "force-release|x|--yes|--reason|\u{2066}", 64, &["invisible"]),
        case("holder", "release|x|--holder|abc", 64, &["32 hexadecimal digits"]),
        case("C17", "show|x|--on|foo://x", 78, &["foo", "embedded:"]),
        case("C46 six", "show|x|--on|redlock://a,b,c,d,e?quorum=6", 64, &["from 3", "to 5"]),
        case("C46 zero", "show|x|--on|redlock://a,b,c,d,e?quorum=0", 64, &["from 3", "to 5"]),
        case("C47", "show|x|--on|redlock://a:1,a:1,b:1", 78, &["nodes 1 and 2 are one server"]),
        case("C18", "show|x|--on|", 78, &["empty"]),
        case("run bad URL", "run|x|--on|foo://x|--|true", 125, &["foo"]),
        case("store is a file", "show|x|--on|embedded:/etc/passwd", 78, &["/etc/passwd"]),
        case("config missing", "show|x|--config|/nowhere.toml", 78, &["/nowhere.toml"]),
        case("config directory", "show|x|--config|/", 78, &["cannot be read"]),
        case("config huge", "show|x|--config|/dev/zero", 78, &["larger than"]),
    ]
}

#[test]
fn every_mistake_is_explained() {
    let sandbox = Sandbox::new();
    let mut wrong = Vec::new();
    for case in cases() {
        let finished = sandbox.run(&case.arguments);
        let code = finished.status.code();
        let missing: Vec<_> =
            case.words.iter().filter(|words| !finished.stderr.contains(**words)).collect();
        let raw = finished.stderr.contains(|c: char| c.is_control() && c != '\n');
        if code != Some(case.code) || !missing.is_empty() || raw || !finished.stdout.is_empty() {
            wrong.push(format!(
                "{}: code {code:?} instead of {}, missing {missing:?}, stdout {:?}, stderr {:?}",
                case.number, case.code, finished.stdout, finished.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    sandbox.run(["list"]).expect(0);
    assert!(!sandbox.is_held("x"), "a mistake took the lock");
}

#[test]
fn an_empty_variable_is_no_store() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(["show", "x"]);
    command.env("LOCKFAST_URL", "");
    let finished = Running::new(command).finish().expect(78);
    assert!(finished.stderr.contains("set but empty"), "{}", finished.stderr);
}

#[test]
fn the_config_file_is_read_and_checked() {
    let sandbox = Sandbox::new();
    std::fs::create_dir_all(sandbox.path(".config/lockfast")).unwrap();
    let file = sandbox.path(".config/lockfast/config.toml");
    let show = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = sandbox.command(["show", "x"]);
        command.env_remove("LOCKFAST_URL");
        Running::new(command).finish()
    };
    let url = sandbox.url();
    let shown = show(&format!("url = \"{url}\"\n")).expect(0);
    assert_eq!(shown.stdout, "x: free\n");
    assert!(shown.stderr.contains(&url), "another store was looked at: {}", shown.stderr);
    assert!(show("ulr = 'x'\n").expect(78).stderr.contains("did you mean `url`?"));
    assert!(show("url = \n").expect(78).stderr.contains("line 1"));
    assert!(show("url = 'foo:'\n").expect(78).stderr.contains("foo"));
}

#[test]
fn a_password_in_the_arguments_is_pointed_out_and_never_shown() {
    let sandbox = Sandbox::new();
    // Nobody listens at port 1, and nothing else is asked.
    let url = "redis://me:geheim@127.0.0.1:1";
    let finished = sandbox.run(["show", "x", "--on", url]).expect(69);
    assert!(finished.stderr.contains("visible to everybody"), "{}", finished.stderr);
    assert!(!finished.stderr.contains("geheim"), "{}", finished.stderr);
}

/// C60.
#[test]
fn ten_thousand_arguments_arrive() {
    let sandbox = Sandbox::new();
    let mut arguments: Vec<OsString> =
        ["run", "x", "--", "sh", "-c", "echo $#", "sh"].iter().map(OsString::from).collect();
    arguments.extend((0..10_000).map(|number| OsString::from(format!("argument-{number}"))));
    assert_eq!(sandbox.run(&arguments).expect(0).stdout, "10000\n");
}

/// S9: no shell sees the name or the arguments.
#[test]
fn arguments_arrive_as_they_are() {
    let sandbox = Sandbox::new();
    let name = "$(touch pwned) `touch pwned`; touch pwned";
    let odd = OsStr::from_bytes(b"a\xff $(touch pwned)\n'\"*");
    let arguments = [
        OsStr::new("run"),
        name.as_ref(),
        "--".as_ref(),
        "sh".as_ref(),
        "-c".as_ref(),
        "printf '%s|' \"$LOCKFAST_NAME\" \"$@\" > seen".as_ref(),
        "sh".as_ref(),
        odd,
        "".as_ref(),
    ];
    sandbox.run(arguments).expect(0);
    let seen = std::fs::read(sandbox.path("seen")).unwrap();
    let expected = [name.as_bytes(), b"|", odd.as_bytes(), b"||"].concat();
    assert_eq!(seen, expected);
    assert!(!sandbox.path("pwned").exists());
}

/// B276: that the interpreter of a script is missing was found out after the lock was taken, so that a
/// mistake waited for its turn and kept others waiting, and nothing said what was missing.
#[test]
fn a_script_without_its_interpreter_keeps_nobody_waiting() {
    let sandbox = Sandbox::new();
    let place = |name: &str, text: &str, mode: u32| {
        std::fs::write(sandbox.path(name), text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(sandbox.path(name), mode).unwrap();
    };
    place("gone", "#!/no/such/sh -e\necho\n", 0o755);
    place("windows", "#!/bin/sh\r\necho\r\n", 0o755);
    place("text", "", 0o644);
    place("by-text", "#!./text\n", 0o755);
    place("by-gone", "#!./gone\n", 0o755);
    place("round", "#!./round\n", 0o755);
    let _holder = sandbox.hold(&["x"], "touch started; sleep 1000");
    for (script, code, said) in [
        ("gone", 127, "its interpreter \"/no/such/sh\" was not found"),
        ("windows", 127, "its interpreter \"/bin/sh\\r\" was not found"),
        ("by-gone", 127, "its interpreter \"/no/such/sh\" was not found"),
        ("by-text", 126, "its interpreter \"./text\" cannot be executed: Permission denied"),
        ("round", 126, "more than 5 scripts are interpreters of each other"),
    ] {
        for line in ["run x", "elect x", "once x --at-most 5m", "fence check --file f --fence 7"] {
            let (script, line) = (format!("./{script}"), line.split(' '));
            let lock =
                if line.clone().next() == Some("fence") { &["--lock", "x"][..] } else { &[] };
            let arguments = line.chain(lock.iter().copied()).chain([&*script]);
            let refused = sandbox.run(arguments).expect(code);
            let undone = if lock.is_empty() { "the lock was not taken" } else { "was checked" };
            for words in [&*script, said, undone] {
                assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
            }
        }
    }
    // One that cannot run hides no other of its name, as with execvp.
    std::fs::create_dir(sandbox.path("first")).unwrap();
    place("first/echo", "#!/no/such/sh\n", 0o755);
    let path = format!("{}:/usr/bin:/bin", sandbox.path("first").display());
    let mut command = sandbox.command(["run", "y", "echo", "found"]);
    command.env("PATH", path);
    assert_eq!(Running::new(command).finish().expect(0).stdout, "found\n");
}

/// What the kernel runs is not refused, and what it leaves to a shell runs in one.
#[test]
fn scripts_of_every_kind_run() {
    let sandbox = Sandbox::new();
    for (text, printed) in [
        ("#!/bin/sh\necho a\n", "a\n"),
        ("#! /usr/bin/env -S sh -e\necho b\n", "b\n"),
        ("#!\t/bin/echo c\n", "c ./script\n"),
        ("#!./first\n", "d ./script\n"),
        ("echo e\n", "e\n"),
        ("#!\necho f\n", "f\n"),
        ("", ""),
    ] {
        for (name, text) in [("first", "#!/bin/sh\necho d $1\n"), ("script", text)] {
            std::fs::write(sandbox.path(name), text).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(sandbox.path(name), mode).unwrap();
        }
        let finished = sandbox.run(["run", "x", "./script"]).expect(0);
        assert_eq!(finished.stdout, printed, "{text:?}");
    }
}
