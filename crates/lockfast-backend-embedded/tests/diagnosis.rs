//! What a diagnosis says of a store's directory, and that it leaves no trace.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic"
)]

mod kit;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use kit::{Asker, acquire};
use lockfast_core::{Address, Diagnosis, Guarantee, Mode, Severity, Wait};
use tempfile::TempDir;

/// A user who is not the one that runs the tests.
const STRANGER: u32 = 64_123;

fn fresh() -> (TempDir, PathBuf, String) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let url = format!("embedded:{}", store.display());
    (dir, store, url)
}

async fn diagnose(url: &str) -> Diagnosis {
    let diagnosis =
        lockfast_backend_embedded::diagnose(Address::parse(url).unwrap()).await.unwrap();
    for finding in &diagnosis.findings {
        assert!(lockfast_backend_embedded::CHECKS.contains(&finding.check), "{finding:?}");
        let is_well = finding.severity == Severity::Ok;
        assert_eq!((finding.meaning.is_empty(), finding.fix.is_empty()), (is_well, is_well));
    }
    diagnosis
}

/// What is found of one thing.
#[track_caller]
fn check(diagnosis: &Diagnosis, check: &str, severity: Severity, words: &str) {
    let found = diagnosis.findings.iter().find(|finding| finding.check == check).unwrap();
    assert_eq!(found.severity, severity, "{found:?}");
    assert!(found.fact.contains(words), "{found:?}");
}

#[track_caller]
fn check_lowered(diagnosis: &Diagnosis, check: &str) {
    assert_eq!(diagnosis.guarantee, Guarantee::Efficiency);
    assert!(diagnosis.because.starts_with(&format!("{check} is unsafe: ")), "{diagnosis:?}");
}

#[tokio::test]
async fn a_good_directory_is_all_ok_before_and_after_its_first_use() {
    let (dir, store, url) = fresh();
    let before = diagnose(&url).await;
    check(&before, "directory", Severity::Ok, "made on first use");
    assert!(!store.exists(), "it was made");
    let me = Asker::connect(&url).await;
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    let marks = |path: &Path| fs::metadata(path).map(|it| (it.mtime_nsec(), it.ino())).unwrap();
    let seen = (marks(&store), marks(&store.join("lockfast.db")));
    let after = diagnose(&format!("{url}?sync=full")).await;
    assert_eq!((marks(&store), marks(&store.join("lockfast.db"))), seen, "it was touched");
    let temporary = is_in_memory(dir.path());
    for diagnosis in [before, after] {
        let names: Vec<_> = diagnosis.findings.iter().map(|finding| finding.check).collect();
        assert_eq!(names.len(), lockfast_backend_embedded::CHECKS.len(), "{names:?}");
        let bad = diagnosis.findings.iter().filter(|it| it.severity != Severity::Ok);
        let bad: Vec<_> = bad.map(|finding| finding.check).collect();
        assert_eq!(bad, if temporary { vec!["durability"] } else { vec![] });
        assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    }
}

/// Whether the tests themselves run on a disk that a restart empties.
fn is_in_memory(path: &Path) -> bool {
    rustix::fs::statfs(path).unwrap().f_type as u64 & 0xFFFF_FFFF == 0x0102_1994
}

#[tokio::test]
async fn a_directory_in_memory_forgets_its_fence() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is a tmpfs on every Linux");
    let diagnosis = diagnose(&format!("embedded:{}", dir.path().display())).await;
    check(&diagnosis, "durability", Severity::Warn, "gone when the machine is started anew");
    assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
}

#[tokio::test]
async fn what_others_may_write_or_own_is_unsafe() {
    let (_dir, store, url) = fresh();
    drop(Asker::connect(&url).await);
    fs::set_permissions(&store, fs::Permissions::from_mode(0o777)).unwrap();
    let diagnosis = diagnose(&url).await;
    check(&diagnosis, "owner", Severity::Unsafe, "can be written by others (its mode is 0777)");
    check(&diagnosis, "machine", Severity::Unknown, "can be written by others");
    check_lowered(&diagnosis, "owner");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o700)).unwrap();
    let database = store.join("lockfast.db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    check(&diagnose(&url).await, "owner", Severity::Unsafe, "can be read by others");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o600)).unwrap();
    check(&diagnose(&url).await, "owner", Severity::Ok, "this user alone");
    if rustix::process::geteuid().is_root() {
        chown(&store, Some(STRANGER), None).unwrap();
        check(&diagnose(&url).await, "owner", Severity::Unsafe, "belongs to user 64123");
    } else {
        check(&diagnose("embedded:/usr").await, "owner", Severity::Unsafe, "belongs to user 0");
    }
}

#[tokio::test]
async fn a_store_of_another_machine_is_unsafe() {
    let (_dir, store, url) = fresh();
    drop(Asker::connect(&url).await);
    let other =
        format!("boot 0f3c1a52-0000-4000-8000-000000000000\nhost elsewhere\nmachine {:f<32}\n", "");
    fs::write(store.join("machine"), other).unwrap();
    let diagnosis = diagnose(&url).await;
    check(&diagnosis, "machine", Severity::Unsafe, "another machine, \"elsewhere\"");
    check_lowered(&diagnosis, "machine");
}

#[tokio::test]
async fn what_is_no_directory_is_unsafe() {
    let (dir, store, url) = fresh();
    fs::write(&store, "").unwrap();
    check(&diagnose(&url).await, "directory", Severity::Unsafe, "is not a directory");
    fs::remove_file(&store).unwrap();
    std::os::unix::fs::symlink(dir.path().join("nowhere"), &store).unwrap();
    let diagnosis = diagnose(&url).await;
    check(&diagnosis, "directory", Severity::Unsafe, "No such file");
    check(&diagnosis, "file-system", Severity::Unknown, "cannot be opened");
}

#[tokio::test]
async fn memory_reaches_nobody_else() {
    for url in ["memory:", "memory:x"] {
        let diagnosis = diagnose(url).await;
        check(&diagnosis, "reach", Severity::Warn, "");
        assert_eq!(diagnosis.guarantee, Guarantee::Correctness);
    }
    let wrong = Address::parse("embedded:/x?snyc=full").unwrap();
    assert!(lockfast_backend_embedded::diagnose(wrong).await.is_err());
}
