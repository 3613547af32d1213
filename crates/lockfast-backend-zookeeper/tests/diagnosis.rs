//! What `doctor` finds on real servers: each condition is set, and seen. Servers that are well set up
//! are all right.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use lockfast_core::{Address, Diagnosis, ErrorKind, Finding, Guarantee, Severity};
use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::server::Server as _;
use lockfast_faults::wait::wait_until;
use lockfast_faults::zookeeper::{Access, Ensemble, Kind, Session, Setup, ZooKeeper};
use tempfile::TempDir;

/// With this and no longer one, locks of the dead are free in time.
const TICK: Duration = Duration::from_millis(400);
/// A folder that outlives a restart of the machine.
const LASTING: &str = "/var/tmp";
const USER: &str = "app:word";

async fn diagnose(url: &str) -> Diagnosis {
    lockfast_backend_zookeeper::diagnose(Address::parse(url).unwrap()).await.unwrap()
}

/// What was found by a check, of all servers.
fn found<'a>(diagnosis: &'a Diagnosis, check: &str) -> Vec<&'a Finding> {
    let findings = diagnosis.findings.iter().filter(|finding| finding.check == check);
    let findings: Vec<&Finding> = findings.collect();
    assert!(!findings.is_empty(), "{check} is not told: {diagnosis:?}");
    findings
}

fn severity(diagnosis: &Diagnosis, check: &str) -> Severity {
    found(diagnosis, check)[0].severity
}

fn check(diagnosis: &Diagnosis, expected: &[(&str, Severity)]) {
    for (check, expected) in expected {
        assert_eq!(severity(diagnosis, check), *expected, "{:?}", found(diagnosis, check));
    }
}

/// A node that only its user may use.
fn make_place(session: &mut Session, rights: &'static str) {
    session.introduce(USER);
    let access = Access { rights, scheme: "auth", id: "" };
    session.try_create("/locks", b"", Kind::Persistent, &[access]).unwrap();
}

/// Three servers with their data in folders of their own.
fn start_ensemble(folder: &Path, setup: impl Fn() -> Setup) -> Ensemble {
    let number = Cell::new(0);
    Ensemble::start_of(|| {
        number.set(number.get() + 1);
        let data = folder.join(number.get().to_string());
        std::fs::create_dir(&data).unwrap();
        std::fs::write(data.join("myid"), number.get().to_string()).unwrap();
        setup().line(format!("dataDir={}", data.display()))
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ensemble_that_is_well_set_up() {
    let folder = TempDir::new_in(LASTING).unwrap();
    let mut ensemble = start_ensemble(folder.path(), || Setup::new().durable().tick(TICK));
    make_place(&mut ensemble.session(0), "cdrw");
    let url = ensemble.url().replace("://", &format!("://{USER}@")) + "/locks";
    let diagnosis = diagnose(&url).await;
    // A busy machine may answer late.
    for finding in diagnosis.findings.iter().filter(|finding| finding.check != "latency") {
        assert_eq!(finding.severity, Severity::Ok, "{finding:?}");
    }
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    let mut seen: Vec<&str> = diagnosis.findings.iter().map(|finding| finding.check).collect();
    seen.dedup();
    assert_eq!(seen, lockfast_backend_zookeeper::CHECKS);
    assert!(!format!("{diagnosis:?}").contains("word"));

    // The URL names one of them.
    let leader = ensemble.wait_for_leader(&[]);
    let follower = (leader + 1) % 3;
    let one = format!("zookeeper://{USER}@{}/locks", ensemble.members[follower].address());
    let one = diagnose(&one).await;
    check(&one, &[("addresses", Severity::Warn), ("followers", Severity::Unknown)]);

    // One of them is gone.
    ensemble.members[follower].kill();
    wait_until("the leader misses it", Duration::from_secs(30), || {
        ensemble.members[leader].count("zk_synced_followers") == 1
    });
    let diagnosis = diagnose(&url).await;
    check(&diagnosis, &[("followers", Severity::Warn), ("members", Severity::Ok)]);
    let address = ensemble.members[follower].address().to_string();
    for finding in found(&diagnosis, "reachable") {
        let is_gone = finding.server.as_ref() == Some(&address);
        assert_eq!(finding.severity == Severity::Warn, is_gone, "{finding:?}");
    }
}

/// A server that is cut off from the others, and is set up to let itself be read all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_only_reads() {
    let setup = || Setup::new().tick(TICK).property("readonlymode.enabled=true");
    let ensemble = Ensemble::start_of(setup);
    let place = ensemble.followers()[0];
    ensemble.cut_off(place);
    wait_until("it only reads", Duration::from_secs(60), || {
        ensemble.members[place].mode().as_deref() == Some("read-only")
    });
    let diagnosis = diagnose(&ensemble.url()).await;
    let address = ensemble.members[place].address().to_string();
    for finding in found(&diagnosis, "role") {
        let reads_only = finding.server.as_ref() == Some(&address);
        assert_eq!(finding.severity == Severity::Warn, reads_only, "{finding:?}");
    }
}

/// What is wrong with a server that was unpacked and started.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_with_everything_wrong() {
    // It does not wait for its disk, and has its data in the system's folder for temporary files.
    let server = Setup::new().tick(TICK * 5).line("maxClientCnxns=5").start();
    let diagnosis = diagnose(&server.url()).await;
    check(
        &diagnosis,
        &[
            ("reachable", Severity::Ok),
            ("version", Severity::Ok),
            ("role", Severity::Ok),
            ("members", Severity::Warn),
            ("session-timeouts", Severity::Warn),
            ("durability", Severity::Unsafe),
            ("directories", Severity::Warn),
            ("connections", Severity::Warn),
            ("encryption", Severity::Ok),
            ("access", Severity::Warn),
        ],
    );
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    assert!(diagnosis.because.contains("durability"), "{}", diagnosis.because);
    // What it found is that, and nothing is left of having looked.
    assert_eq!(server.session().children("/"), ["zookeeper"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_timeouts() {
    for (tick, severity) in [(500, Severity::Ok), (700, Severity::Warn)] {
        let server = Setup::new().tick(Duration::from_millis(tick)).start();
        check(&diagnose(&server.url()).await, &[("session-timeouts", severity)]);
    }
}

/// A tick that is longer than the sessions that are allowed let one think.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tick_that_is_not_known() {
    let setup = || {
        let setup = Setup::new().tick(Duration::from_millis(500));
        setup.line("minSessionTimeout=200").line("maxSessionTimeout=4000")
    };
    let ensemble = Ensemble::start_of(setup);
    let guessed = diagnose(&ensemble.url()).await;
    check(&guessed, &[("tick", Severity::Unsafe), ("session-timeouts", Severity::Warn)]);
    assert!(found(&guessed, "tick")[0].fix.contains("tick=500ms"), "{guessed:?}");
    let told = diagnose(&format!("{}?tick=500ms", ensemble.url())).await;
    check(&told, &[("tick", Severity::Ok), ("session-timeouts", Severity::Warn)]);
}

/// What a server does not let be known is not taken for ok.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_are_not_allowed() {
    let server = Setup::new().line("4lw.commands.whitelist=srvr").start();
    let diagnosis = diagnose(&server.url()).await;
    for check in ["durability", "directories", "connections"] {
        let finding = found(&diagnosis, check)[0];
        assert_eq!(finding.severity, Severity::Unknown, "{finding:?}");
        assert!(finding.fix.contains("4lw.commands.whitelist"), "{finding:?}");
    }
    check(&diagnosis, &[("version", Severity::Ok), ("role", Severity::Ok)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_on_the_place() {
    for (rights, severity) in [("cdrw", Severity::Ok), ("cdw", Severity::Unknown)] {
        let server = ZooKeeper::start();
        make_place(&mut server.session(), rights);
        let url = format!("zookeeper://{USER}@{}/locks", server.address());
        check(&diagnose(&url).await, &[("access", severity)]);
        // It is shown to those who may read it only.
        let nobody = diagnose(&server.url_of("/locks")).await;
        check(&nobody, &[("access", Severity::Unknown)]);
    }
    let server = ZooKeeper::start();
    let address = Address::parse(&server.url_of("/none")).unwrap();
    let error = lockfast_backend_zookeeper::diagnose(address).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    assert!(error.to_string().contains("/none"), "{error}");
}

/// Everything is asked for through the encrypted port.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_server() {
    let authority = Authority::new();
    let server = Setup::new().tls(&authority, authority.sign_server(Flaw::None), false);
    let server = server.durable().start();
    let ca = authority.certificate().display();
    let url = format!("zookeepers://{}?ca={ca}", server.secure_address());
    let diagnosis = diagnose(&url).await;
    check(&diagnosis, &[("version", Severity::Ok), ("durability", Severity::Ok)]);
    let finding = found(&diagnosis, "encryption")[0];
    assert!(finding.fact.contains("certificate is checked"), "{finding:?}");
}
