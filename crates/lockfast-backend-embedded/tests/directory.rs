//! Whose a store's directory must be, and on which machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by a panic and its children talk through stdout"
)]

mod kit;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use kit::{Asker, acquire, released, taken};
use lockfast_core::{Error, ErrorKind, Mode, Wait};
use tempfile::TempDir;

/// A user who is not the one that runs the tests.
const STRANGER: u32 = 64_123;

fn fresh() -> (TempDir, PathBuf, String) {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let url = format!("embedded:{}", store.display());
    (dir, store, url)
}

async fn refusal(url: &str) -> Error {
    Asker::try_connect(url).await.err().expect("it was accepted")
}

#[track_caller]
fn assert_refused(error: &Error, path: &Path, text: &str) {
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    let said = error.to_string();
    assert!(said.contains(text), "{said}");
    let shown = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    assert!(said.contains(&*path.to_string_lossy()) || said.contains(&*shown.to_string_lossy()));
}

/// Everything that is in a directory: whose it is, its mode, which file, how long and how old. What
/// is in a database must not be read here: to close it would drop the locks of this process.
fn picture(dir: &Path) -> BTreeMap<PathBuf, [i64; 6]> {
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            seen.extend(picture(&path));
        }
        let facts = [found.ino(), found.len(), found.uid().into(), found.mode().into()];
        let [file, length, owner, mode] = facts.map(|fact| fact as i64);
        seen.insert(path, [file, length, owner, mode, found.mtime(), found.mtime_nsec()]);
    }
    seen
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// B27: what another user has prepared, with a database that everybody may write, could hand out
/// any fence.
#[tokio::test]
async fn a_directory_that_others_may_write_to_is_refused() {
    let (_dir, store, url) = fresh();
    fs::create_dir(&store).unwrap();
    for mode in [0o777, 0o775, 0o1777] {
        set_mode(&store, mode);
        let error = refusal(&url).await;
        assert_refused(
            &error,
            &store,
            &format!("can be written by others (its mode is {mode:04o})"),
        );
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        assert!(picture(&store).is_empty(), "it was touched");
    }
    set_mode(&store, 0o755);
    Asker::connect(&url).await;
}

/// B27. Root gives its own away for this test; anybody else finds a directory of root's.
#[tokio::test]
async fn a_directory_of_another_user_is_refused() {
    let (_dir, store, url) = fresh();
    fs::create_dir(&store).unwrap();
    let (path, url, owner) = match rustix::process::geteuid().is_root() {
        true => {
            chown(&store, Some(STRANGER), None).unwrap();
            (store, url, STRANGER)
        }
        false => (PathBuf::from("/usr"), "embedded:/usr".to_owned(), 0),
    };
    let error = refusal(&url).await;
    assert_refused(&error, &path, &format!("belongs to user {owner}, and this is user"));
    assert!(error.to_string().contains("use a directory of this user's own"), "{error}");
    if owner == STRANGER {
        assert!(picture(&path).is_empty(), "it was touched");
    }
}

/// B27: nothing in the directory is used that others may write to or read, that is a link, or that
/// somebody else owns. The last takes root to try on files; the check is the same, and a unit test
/// has it for every user.
#[tokio::test]
async fn every_file_of_the_store_must_be_this_users_alone() {
    let (_dir, store, url) = fresh();
    let me = Asker::connect(&url).await;
    let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    let is_root = rustix::process::geteuid().is_root();
    let files = ["lockfast.db", "lockfast.db-wal", "lockfast.db-shm", "write.lock", "machine"];
    for name in files.into_iter().chain(["clients"]) {
        let path = store.join(name);
        let mode = fs::metadata(&path).unwrap().mode();
        let (looser, text) = match name {
            "clients" => (0o720, "can be written by others"),
            _ => (0o604, "can be read by others"),
        };
        for (mode, text) in [(looser, text), (0o606, "can be written by others")] {
            set_mode(&path, mode);
            assert_refused(&refusal(&url).await, &path, text);
        }
        set_mode(&path, mode & 0o777);
        if is_root {
            let owner = fs::metadata(&path).unwrap().uid();
            chown(&path, Some(STRANGER), None).unwrap();
            assert_refused(&refusal(&url).await, &path, &format!("belongs to user {STRANGER}"));
            chown(&path, Some(owner), None).unwrap();
        }
        let aside = store.join("aside");
        fs::rename(&path, &aside).unwrap();
        symlink(&aside, &path).unwrap();
        let before = picture(&store);
        assert_refused(&refusal(&url).await, &path, "is a symbolic link");
        assert!(picture(&store) == before, "it was touched");
        fs::remove_file(&path).unwrap();
        fs::rename(&aside, &path).unwrap();
    }
    // All is as it was, and so are those who were there before.
    Asker::connect(&url).await;
    released(&me, &held).await;
}

/// B27: a link that somebody else put where the directory is expected. Only root can make one for
/// this test; a unit test has the rule for every user.
#[tokio::test]
async fn a_link_of_somebody_else_is_refused() {
    let (dir, store, url) = fresh();
    let real = dir.path().join("real");
    fs::create_dir(&real).unwrap();
    set_mode(&real, 0o700);
    symlink(&real, &store).unwrap();
    if rustix::process::geteuid().is_root() {
        lchown(&store, Some(STRANGER), None).unwrap();
        for url in [url.clone(), format!("{url}/")] {
            let text = format!("is a symbolic link of user {STRANGER}");
            assert_refused(&refusal(&url).await, &store, &text);
        }
        assert!(picture(&real).is_empty(), "it was touched");
        lchown(&store, Some(0), None).unwrap();
    }
    // One's own leads where it leads, and so does a link above the directory.
    let direct = Asker::connect(&format!("embedded:{}", real.display())).await;
    acquire(&direct, "x", Mode::Exclusive, Wait::No).await;
    symlink(dir.path(), dir.path().join("above")).unwrap();
    for url in [url, format!("embedded:{}/above/real", dir.path().display())] {
        taken(&Asker::connect(&url).await, "x", Wait::No).await;
    }
    Asker::connect(&format!("embedded:{}/above/new/store/", dir.path().display())).await;
    // To nowhere, or to what others may write to.
    symlink(dir.path().join("nowhere"), dir.path().join("dangling")).unwrap();
    let error = refusal(&format!("embedded:{}/dangling", dir.path().display())).await;
    assert!(error.to_string().contains("cannot be found"), "{error}");
    symlink("/tmp", dir.path().join("shared")).unwrap();
    let error = refusal(&format!("embedded:{}/shared", dir.path().display())).await;
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
}

/// B38: another machine that sees the directory takes living holders for dead.
#[tokio::test]
async fn a_store_of_another_machine_is_left_alone() {
    let (_dir, store, url) = fresh();
    let machine = store.join("machine");
    let me = Asker::connect(&url).await;
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    let own = fs::read_to_string(&machine).unwrap();
    let (boot, id) = (field(&own, "boot "), field(&own, "machine "));
    let other_boot = "0f3c1a52-0000-4000-8000-000000000000";
    let write = |boot: &str, id: &str| {
        let other = format!("boot {boot}\nhost elsewhere\nmachine {id}\n");
        fs::write(&machine, other).unwrap();
    };
    write(other_boot, &"f".repeat(32));
    let before = picture(&store);
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for text in ["another machine", "\"elsewhere\"", "a store with a server", "move the directory"]
    {
        assert!(error.to_string().contains(text), "{error}");
    }
    assert!(picture(&store) == before, "it was touched");
    // A container of this machine that has an id of its own.
    write(boot, &"f".repeat(32));
    drop(Asker::connect(&url).await);
    let both = fs::read_to_string(&machine).unwrap();
    assert!(both.contains(id) && both.contains(&"f".repeat(32)), "{both}");
    // An earlier start of this machine.
    write(other_boot, id);
    drop(Asker::connect(&url).await);
    assert_eq!(field(&fs::read_to_string(&machine).unwrap(), "boot "), boot);
    // What nobody can read says so.
    fs::write(&machine, "rubbish").unwrap();
    let error = refusal(&url).await;
    assert_eq!(error.kind(), ErrorKind::CorruptRecord);
    assert!(error.to_string().contains("remove the file"), "{error}");
}

fn field<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix(start)).unwrap()
}
