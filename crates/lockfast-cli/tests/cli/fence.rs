//! `fence`: gates for scripts, in a file and in a database.

use std::fs::File;

use lockfast_faults::mysql::{Flavor, Mysql};
use lockfast_faults::postgres::Setup;
use lockfast_faults::server::Server as _;
use rusqlite::Connection;
use serde_json::json;

use crate::sandbox::{Finished, Running, Sandbox, eventually};

const TABLE: &str = "(resource TEXT NOT NULL PRIMARY KEY, fence INTEGER NOT NULL) WITHOUT ROWID";

/// Runs the command. A URL that may hold a password is given where no list of processes shows it.
fn fence(sandbox: &Sandbox, step: &str, place: [&str; 2], number: &str, more: &[&str]) -> Finished {
    let is_secret = place[1].contains('@');
    let shown = if is_secret { "-" } else { place[1] };
    let line = ["fence", step, place[0], shown, "--lock", "a", "--fence", number];
    let mut command = sandbox.command(line.iter().chain(more));
    if is_secret {
        std::fs::write(sandbox.path("url"), format!("{}\n", place[1])).unwrap();
        command.stdin(File::open(sandbox.path("url")).unwrap());
    }
    Running::new(command).finish()
}

/// The rule, wherever the gate is.
fn check_rule(sandbox: &Sandbox, place: [&str; 2]) {
    for (step, number) in [("open", "41"), ("check", "41"), ("check", "42"), ("open", "42")] {
        let passed = fence(sandbox, step, place, number, &[]).expect(0);
        assert_eq!((passed.stdout.as_str(), passed.stderr.as_str()), ("", ""));
    }
    for step in ["check", "open"] {
        let refused = fence(sandbox, step, place, "41", &[]).expect(75);
        assert_eq!(refused.stdout, "");
        for words in ["lock \"a\"", "fence 41 is stale", "42 was seen"] {
            assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
        }
    }
    let refused = fence(sandbox, "check", place, "7", &["--json"]).expect(75);
    let expected = json!({ "lock": "a", "fence": 7, "passed": false, "seen": 42 });
    assert_eq!(refused.json(), expected);
    assert!(refused.stderr.contains("42 was seen"), "{}", refused.stderr);
    let passed = fence(sandbox, "check", place, "43", &["--json"]).expect(0);
    let expected = json!({ "lock": "a", "fence": 43, "passed": true, "seen": 43 });
    assert_eq!(passed.json(), expected);
}

#[test]
fn a_file_refuses_what_is_stale() {
    let sandbox = Sandbox::new();
    check_rule(&sandbox, ["--file", "gate"]);
    assert_eq!(sandbox.read("gate"), "0000000000000043\n");
    assert!(!sandbox.path("store").exists(), "no store was to be touched");
}

#[test]
fn a_table_refuses_what_is_stale() {
    let sandbox = Sandbox::new();
    let database = Connection::open(sandbox.path("app.db")).unwrap();
    let place = ["--sql", "sqlite:app.db"];
    let missing = fence(&sandbox, "check", place, "41", &[]).expect(78);
    let setup = format!("CREATE TABLE IF NOT EXISTS `lockfast_fences` {TABLE}");
    assert!(missing.stderr.contains(&setup), "{}", missing.stderr);
    database.execute(&setup, []).unwrap();
    check_rule(&sandbox, place);
    database.execute(&format!("CREATE TABLE other {TABLE}"), []).unwrap();
    fence(&sandbox, "check", place, "5", &["--table", "other"]).expect(0);
    database.execute("CREATE TABLE words (resource TEXT PRIMARY KEY, fence TEXT)", []).unwrap();
    let words = fence(&sandbox, "open", place, "5", &["--table", "words"]).expect(78);
    assert!(words.stderr.contains("no number"), "{}", words.stderr);
    let seen = |table: &str| -> (String, i64) {
        let sql = format!("SELECT resource, fence FROM {table}");
        database.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!((seen("lockfast_fences"), seen("other")), (("a".into(), 43), ("a".into(), 5)));
}

/// What is told about a database, whichever it is. The table "words" has no numbers.
fn check_refusals(sandbox: &Sandbox, url: &str, url_wrong: &str, password_wrong: &str) {
    let words = fence(sandbox, "open", ["--sql", url], "5", &["--table", "words"]).expect(78);
    assert!(words.stderr.contains("no number"), "{}", words.stderr);
    // The fence of a job says nothing about another lock.
    let mut other = sandbox.command(["fence", "open", "--sql", url, "--lock", "b"]);
    other.env("LOCKFAST_NAME", "a").env("LOCKFAST_FENCE", "9000");
    let other = Running::new(other).finish().expect(64);
    assert!(other.stderr.contains("gate of lock \"b\""), "{}", other.stderr);
    // Nobody is shown a password, right or wrong.
    for more in [&[][..], &["--json"], &["-vv"]] {
        let refused = fence(sandbox, "open", ["--sql", url_wrong], "50", more).expect(77);
        assert!(refused.stderr.contains("app"), "{}", refused.stderr);
        assert!(!refused.stderr.contains(password_wrong), "{}", refused.stderr);
        assert_eq!(refused.stdout, "");
    }
}

/// A transaction that has the row is waited for, for longer than a lock's own statements wait. The
/// last two say how to pause, and how many do.
fn check_wait(
    sandbox: &Sandbox,
    place: [&str; 2],
    sql: impl Fn(&str) -> String + Sync,
    [pause, pausing]: [&str; 2],
) {
    let update = "UPDATE lockfast_fences SET fence = 60 WHERE resource = 'a'";
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| sql(&format!("BEGIN; {update}; SELECT {pause}; COMMIT")));
        let has_row = || writer.is_finished() || sql(pausing).trim() == "1";
        eventually("the writer to have the row", has_row);
        let late = fence(sandbox, "open", place, "59", &[]).expect(75);
        assert!(late.stderr.contains("60 was seen"), "{}", late.stderr);
    });
}

#[test]
fn a_table_of_postgres_refuses_what_is_stale() {
    let (sandbox, mut server) = (Sandbox::new(), Setup::new().passwords().start());
    server.sql("CREATE ROLE app LOGIN PASSWORD 'geheim'");
    let url = server.url_as("app", Some("geheim"));
    let place = ["--sql", url.as_str()];
    let missing = fence(&sandbox, "check", place, "41", &[]).expect(78);
    let columns = "(resource text PRIMARY KEY, fence bigint NOT NULL)";
    let setup = format!("CREATE TABLE IF NOT EXISTS \"lockfast_fences\" {columns}");
    assert!(missing.stderr.contains(&setup), "{}", missing.stderr);
    server.sql(&setup);
    let denied = fence(&sandbox, "check", place, "41", &[]).expect(77);
    assert!(denied.stderr.contains("grant it INSERT"), "{}", denied.stderr);
    server.sql("GRANT SELECT, INSERT, UPDATE ON lockfast_fences TO app");
    check_rule(&sandbox, place);
    assert_eq!(server.sql("SELECT * FROM lockfast_fences").trim(), "a|43");
    let pausing = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    check_wait(&sandbox, place, |sql| server.sql(sql), ["pg_sleep(3)", pausing]);

    server.sql(&format!("CREATE SCHEMA app AUTHORIZATION app; CREATE TABLE app.fences {columns}"));
    server.sql("GRANT ALL ON app.fences TO app");
    fence(&sandbox, "open", place, "5", &["--table", "app.fences"]).expect(0);
    server.sql(
        "CREATE TABLE words (resource text PRIMARY KEY, fence text); GRANT ALL ON words TO app",
    );
    check_refusals(&sandbox, &url, &server.url_as("app", Some("falsch")), "falsch");

    let standby = server.start_standby();
    let standby_url = standby.url_as("app", Some("geheim"));
    let reads = fence(&sandbox, "open", ["--sql", &standby_url], "50", &[]).expect(69);
    assert!(reads.stderr.contains("standby"), "{}", reads.stderr);
    drop(standby);
    server.kill();
    fence(&sandbox, "open", place, "50", &[]).expect(69);
}

fn check_mysql(flavor: Flavor) {
    let (sandbox, mut server) = (Sandbox::new(), Mysql::start(flavor));
    server.sql("CREATE USER app IDENTIFIED BY 'geheim'; GRANT SELECT ON lockfast.* TO app");
    let url = server.url_as("app", Some("geheim"));
    let place = ["--sql", url.as_str()];
    let missing = fence(&sandbox, "check", ["--sql", &server.url()], "41", &[]).expect(78);
    let columns = "(resource VARBINARY(255) NOT NULL PRIMARY KEY, fence BIGINT NOT NULL)";
    let setup = format!("CREATE TABLE IF NOT EXISTS `lockfast_fences` {columns} ENGINE = InnoDB");
    assert!(missing.stderr.contains(&setup), "{}", missing.stderr);
    server.sql(&setup);
    let denied = fence(&sandbox, "check", place, "41", &[]).expect(77);
    assert!(denied.stderr.contains("grant it INSERT"), "{}", denied.stderr);
    server.sql("GRANT INSERT, UPDATE ON lockfast.* TO app");
    check_rule(&sandbox, place);
    assert_eq!(server.sql("SELECT resource, fence FROM lockfast_fences").trim(), "a\t43");
    let pausing = "SELECT count(*) FROM information_schema.processlist WHERE state = 'User sleep'";
    check_wait(&sandbox, place, |sql| server.sql(sql), ["SLEEP(3)", pausing]);

    server.sql(&format!("CREATE TABLE other {columns}"));
    fence(&sandbox, "open", place, "5", &["--table", "other"]).expect(0);
    server.sql("CREATE TABLE words (resource VARBINARY(255) PRIMARY KEY, fence VARCHAR(20))");
    server.sql("INSERT INTO words VALUES ('a', 'many')");
    check_refusals(&sandbox, &url, &server.url_as("app", Some("falsch")), "falsch");

    server.sql("SET GLOBAL read_only = 1");
    let reads = fence(&sandbox, "open", place, "50", &[]).expect(69);
    assert!(reads.stderr.contains("only reads"), "{}", reads.stderr);
    server.kill();
    fence(&sandbox, "open", place, "50", &[]).expect(69);
}

#[test]
fn a_table_of_mariadb_refuses_what_is_stale() {
    check_mysql(Flavor::MariaDb);
}

#[test]
fn a_table_of_mysql_refuses_what_is_stale() {
    check_mysql(Flavor::MySql);
}

/// In a job nothing has to be said twice.
#[test]
fn a_job_gives_its_lock_and_fence() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_lockfast");
    let run = |inner: &str| {
        let script = format!("echo $LOCKFAST_FENCE > fence; exec {binary} fence {inner}");
        sandbox.run(["run", "a", "--", "sh", "-c", &script])
    };
    let said = run("check --file gate --json").expect(0).json();
    assert_eq!(said["lock"], "a");
    assert_eq!(said["fence"].to_string(), sandbox.read("fence").trim());
    run("open --file gate").expect(0);
    run("check --file gate --fence 1").expect(75);
    run("check --file gate --lock a -- true").expect(0);
    // The fence of the job says nothing about another lock.
    let other = run("check --file other --lock b").expect(64);
    for words in ["gate of lock \"b\"", "lock \"a\""] {
        assert!(other.stderr.contains(words), "{words}: {}", other.stderr);
    }
    run("check --file other --lock b --fence 1").expect(0);
}

#[test]
fn a_command_runs_only_when_its_fence_passes() {
    let sandbox = Sandbox::new();
    let place = ["--file", "gate"];
    let run = |number: &str, script: &str| {
        fence(&sandbox, "check", place, number, &["--json", "--", "sh", "-c", script])
    };
    let ran = run("42", "echo out; echo err >&2; exit 7").expect(7);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out\n", "err\n"));
    let refused = run("41", "touch ran").expect(75);
    let expected = json!({ "lock": "a", "fence": 41, "passed": false, "seen": 42 });
    assert_eq!(refused.json(), expected);
    assert!(!sandbox.path("ran").exists());
    // Nothing was checked for a command that is not there.
    let missing = fence(&sandbox, "check", place, "50", &["--", "no-such-command"]).expect(127);
    assert!(missing.stderr.contains("nothing was checked"), "{}", missing.stderr);
    fence(&sandbox, "check", place, "50", &["--", "/"]).expect(126);
    fence(&sandbox, "check", place, "42", &[]).expect(0);
    std::fs::write(sandbox.path("gate"), "42\n").unwrap();
    fence(&sandbox, "check", place, "50", &["--", "touch", "ran"]).expect(125);
    assert!(!sandbox.path("ran").exists());
}

/// Also by what the command left behind, and whatever becomes of the command.
#[test]
fn the_gate_is_held_until_nothing_of_the_command_is_left() {
    let sandbox = Sandbox::new();
    let arguments = |number, script| {
        let line = ["fence", "check", "--file", "gate", "--lock", "a", "--fence", number];
        line.into_iter().chain(["--", "sh", "-c", script])
    };
    let script = "touch started; while ! [ -e go ]; do sleep 0.01; done; echo first >> log";
    let left = format!("({script}) >/dev/null 2>&1 & kill -KILL $$");
    let first = sandbox.start(arguments("1", &left));
    let first = first.finish().status;
    assert_eq!(first.code(), None, "it was killed");
    eventually("the rest to start", || sandbox.path("started").exists());
    let second = sandbox.start(arguments("2", "echo second >> log"));
    let is_waiting = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let pid = format!(" {} ", second.pid().as_raw_pid());
        locks.lines().any(|line| line.contains("->") && line.contains(&pid))
    };
    eventually("the second to wait", is_waiting);
    std::fs::write(sandbox.path("go"), "").unwrap();
    second.finish().expect(0);
    assert_eq!(sandbox.read("log"), "first\nsecond\n");
}

#[test]
fn concurrent_writers_pass_one_by_one_in_order() {
    let sandbox = Sandbox::new();
    let script = "mkdir inside || touch met; echo $1 >> log; rmdir inside";
    let writers: Vec<Running> = (1..=24)
        .map(|number: u32| {
            let number = number.to_string();
            let line = ["fence", "check", "--file", "gate", "--lock", "a", "--fence", &number];
            let command = ["--", "sh", "-c", script, "sh", &number];
            sandbox.start(line.iter().chain(&command))
        })
        .collect();
    let codes: Vec<i32> = writers.into_iter().map(|writer| writer.finish().code()).collect();
    assert!(codes.iter().all(|code| [0, 75].contains(code)), "{codes:?}");
    assert!(!sandbox.path("met").exists(), "two wrote at once");
    let log = sandbox.read("log");
    let log: Vec<u32> = log.lines().map(|line| line.parse().unwrap()).collect();
    assert!(log.is_sorted(), "a lower fence wrote after a higher one: {log:?}");
    assert_eq!(log.len(), codes.iter().filter(|code| **code == 0).count());
    assert_eq!(log.last(), Some(&24));
}

#[test]
fn what_is_no_gate_is_told() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("text"), "something else, and long enough").unwrap();
    let table = [
        ("--file", "no/gate", 78, "a directory that is there"),
        ("--file", "/dev/null", 78, "regular file"),
        ("--file", "text", 78, "16 digits"),
        ("--sql", "sqlite:no.db", 78, "no.db"),
        ("--sql", "sqlite:text", 78, "not a database"),
        ("--sql", "sqlite:", 78, "sqlite:PATH"),
        ("--sql", "app.db", 78, "sqlite:PATH"),
        ("--sql", "sqlite:app.db?mode=ro", 78, "it has none"),
        ("--sql", "oracle://me:geheim@h/db", 78, "mysql://HOST/DATABASE"),
        ("--sql", "postgres://me:geheim@h/db?schema=x", 78, "sslmode"),
        ("--sql", "postgres://me:ge:heim@h/db", 78, "%3A"),
        ("--sql", "postgres://me:geheim@127.0.0.1:1/db", 69, "connection refused"),
        ("--sql", "mysql://me:geheim@127.0.0.1:1/db", 69, "cannot be reached"),
        ("--sql", "mysql://me:geheim@h", 78, "no database"),
    ];
    for (option, place, code, words) in table {
        let refused = fence(&sandbox, "check", [option, place], "5", &[]).expect(code);
        assert!(refused.stderr.contains(words), "{place}: {}", refused.stderr);
        assert!(!refused.stderr.contains("geheim"), "{}", refused.stderr);
    }
    assert!(!sandbox.path("no.db").exists());
    let typed = "mysql://me:geheim@127.0.0.1:1/db";
    let line = ["fence", "open", "--sql", typed, "--lock", "a", "--fence", "5"];
    let warned = sandbox.run(line).expect(69);
    assert!(warned.stderr.contains("visible to everybody"), "{}", warned.stderr);
    assert!(!warned.stderr.contains("geheim"), "{}", warned.stderr);
    let place = ["--sql", "sqlite:text"];
    fence(&sandbox, "check", place, "5", &["--table", "a b"]).expect(64);
    let refused = fence(&sandbox, "check", place, "5", &["--", "true"]).expect(64);
    assert!(refused.stderr.contains("transaction that writes"), "{}", refused.stderr);
}
