//! Scheduled jobs in the table of ShedLock, which a Java program may use too.

use lockfast_faults::mysql::{Flavor, Mysql};
use lockfast_faults::postgres::Postgres;

use crate::sandbox::Sandbox;

const JOB: [&str; 5] = ["once", "job", "--at-most", "1m", "--at-least"];

fn run_job(sandbox: &Sandbox, at_least: &str, code: i32) -> String {
    let rest = [at_least, "--", "sh", "-c", "echo run >> runs"];
    sandbox.run(JOB.into_iter().chain(rest)).expect(code).stderr
}

fn runs(sandbox: &Sandbox) -> usize {
    sandbox.read("runs").lines().count()
}

/// One of all runs the job; a Java program's row, and what is left of `--at-least`, make the others skip it.
#[test]
fn a_job_is_shared_with_a_java_program() {
    let postgres = Postgres::start();
    let sandbox = Sandbox::on(&format!("{}?mode=shedlock", postgres.url()));
    let missing = run_job(&sandbox, "1ms", 125);
    assert!(missing.contains("there is no table shedlock"), "{missing}");
    assert!(missing.contains("CREATE TABLE shedlock(name VARCHAR(64) NOT NULL"), "{missing}");
    // The statement is as good as it says.
    let statement = missing.split("run ").nth(1).unwrap().split(';').next().unwrap();
    postgres.sql(statement);
    run_job(&sandbox, "1ms", 0);
    run_job(&sandbox, "50s", 0);
    let skipped = run_job(&sandbox, "1ms", 75);
    assert!(skipped.contains("left"), "{skipped}");
    let java = "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) + \
        make_interval(secs => 60), locked_at = timezone('utc', CURRENT_TIMESTAMP), \
        locked_by = 'java-1' WHERE name = 'job'";
    postgres.sql("UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP)");
    postgres.sql(java);
    let skipped = run_job(&sandbox, "1ms", 75);
    assert!(skipped.contains("another program"), "{skipped}");
    assert_eq!(runs(&sandbox), 2);
    assert!(sandbox.run(["show", "job"]).expect(0).stdout.contains("another program"));
    assert!(sandbox.run(["list"]).expect(0).stdout.contains("job"));
    sandbox.run(["force-release", "job", "--reason", "it hangs", "--yes"]).expect(0);
    run_job(&sandbox, "1ms", 0);
    assert_eq!(runs(&sandbox), 3);
}

/// What a row of ShedLock cannot do is refused with the reason, before anything is locked or started.
#[test]
fn what_the_table_cannot_do_is_refused() {
    let server = Mysql::start(Flavor::MariaDb);
    server.sql(
        "CREATE TABLE lockfast.shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT \
         NULL, locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by \
         VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
    );
    let sandbox = Sandbox::on(&format!("{}?mode=shedlock", server.url()));
    run_job(&sandbox, "50s", 0);
    run_job(&sandbox, "1ms", 75);
    let table: &[(&[&str], i32, &str)] = &[
        (&["run", "a", "--shared", "--", "touch", "started"], 125, "one owner"),
        (&["run", "a", "--permits", "2", "--", "touch", "started"], 125, "one owner"),
        (&["elect", "a", "--", "touch", "started"], 125, "no line of waiters"),
        (&["refresh", "a", "--for", "1m", "--", "touch", "started"], 125, "no column"),
        (&["watch"], 78, "use mode=lease to watch"),
        (&["migrate"], 78, "CREATE TABLE shedlock("),
        (&["doctor"], 78, "leave out mode=shedlock"),
    ];
    for (arguments, code, words) in table {
        let refused = sandbox.run(*arguments).expect(*code);
        assert!(refused.stderr.contains(words), "{arguments:?}: {}", refused.stderr);
        assert!(!sandbox.path("started").exists(), "{arguments:?}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM lockfast.shedlock").trim(), "1");
    let long = "x".repeat(65);
    let refused = sandbox.run(["run", &long, "--", "touch", "started"]).expect(64);
    assert!(refused.stderr.contains("65 characters"), "{}", refused.stderr);
    assert!(!sandbox.path("started").exists());
}
