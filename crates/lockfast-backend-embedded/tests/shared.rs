//! A store that the members of a group share. Root plays them as processes of different users;
//! anybody else is alone with its own group, which shares as well.
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

use kit::child::{Other, User};
use kit::{Asker, acquire, bounded, name, poll_once, request};
use lockfast_core::{Error, ErrorKind, Mode, Moment, Query, Wait};
use tempfile::TempDir;

/// Users and a group that this machine does not know.
const SECOND: u32 = 64_124;
const OUTSIDER: u32 = 64_125;
const STRANGER: u32 = 64_123;
const OTHER_GROUP: u32 = 64_200;

/// Runs only in a process that a test has started.
#[test]
fn other_process() {
    kit::child::serve();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Who shares a store. The first is known to be in the group by the machine's own files; the
/// second only has it.
struct Cast {
    group: u32,
    first: Option<User>,
    second: Option<User>,
}

impl Cast {
    fn new() -> Self {
        if !is_root() {
            let group = rustix::process::getegid().as_raw();
            return Self { group, first: None, second: None };
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap();
        let ids = |line: &str| -> Option<(u32, u32)> {
            let mut fields = line.split(':').skip(2);
            Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
        };
        let mut known = accounts.lines().filter_map(ids);
        let (id, group) = known.find(|(id, group)| *id > 0 && *group > 0).unwrap();
        let member = |id, own| Some(User { id, group: own, also: group });
        Self { group, first: member(id, group), second: member(SECOND, SECOND) }
    }
}

/// A directory as an administrator makes it, in one that everybody can enter.
struct Shared {
    _dir: TempDir,
    above: PathBuf,
    store: PathBuf,
    cast: Cast,
}

impl Shared {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        set_mode(dir.path(), 0o755);
        let above = dir.path().canonicalize().unwrap().join("above");
        let store = above.join("store");
        fs::create_dir_all(&store).unwrap();
        set_mode(&above, 0o755);
        let cast = Cast::new();
        chown(&store, None, Some(cast.group)).unwrap();
        set_mode(&store, 0o2770);
        Self { _dir: dir, above, store, cast }
    }

    fn url(&self) -> String {
        self.url_of(&self.store)
    }

    fn url_of(&self, path: &Path) -> String {
        format!("embedded:{}?group={}", path.display(), self.cast.group)
    }

    /// Checks that the store is refused so, and that nothing is touched.
    async fn assert_refused(&self, url: &str, words: &[&str]) {
        let before = picture(&self.store);
        let error = refusal(url).await;
        for word in words {
            assert!(error.to_string().contains(word), "{word:?} is not in: {error}");
        }
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(picture(&self.store) == before, "it was touched");
    }
}

async fn refusal(url: &str) -> Error {
    Asker::try_connect(url).await.err().expect("it was accepted")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Everything that is in a directory: which file, how long, whose it is, its mode, how old.
fn picture(dir: &Path) -> BTreeMap<PathBuf, [i64; 6]> {
    let mut seen = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            seen.extend(picture(&path));
        }
        let facts = [found.ino(), found.len(), found.gid().into(), found.mode().into()];
        let [file, length, group, mode] = facts.map(|fact| fact as i64);
        seen.insert(path, [file, length, group, mode, found.mtime(), found.mtime_nsec()]);
    }
    seen
}

/// Waits until somebody waits for the lock x.
async fn one_waits(asker: &Asker) {
    kit::eventually("one waits", async || {
        let views = asker.backend.inspect(Query::Name(name("x"))).await.unwrap();
        views[0].waiting == 1
    })
    .await;
}

/// The fence and the moment of a grant.
fn grant(said: &str) -> (u64, u64) {
    let (fence, moment_ns) = said.split_once(' ').unwrap();
    (fence.parse().unwrap(), moment_ns.parse().unwrap())
}

/// What the slow poll would need is 500 ms. On a busy machine one try in three must be faster.
fn is_pushed(took_ns: &[u64]) -> bool {
    took_ns.iter().any(|took_ns| *took_ns < 200_000_000)
}

#[tokio::test]
async fn users_of_a_group_contend_hand_over_and_see_each_other_die() {
    let (mut released, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let shared = Shared::new();
        let (url, cast) = (shared.url(), &shared.cast);
        let mut first = Other::start_as(&url, cast.first, 0o077);
        let mut second = Other::start_as(&url, cast.second, 0o077);
        let me = Asker::connect(&url).await;
        let (fence, _) = grant(&first.ask("acquire x 60000 0"));
        second.ask("acquire y 60000 0");
        assert_eq!(second.ask("try x"), "taken");
        // By release, through the pipe of a process of another user.
        second.tell("acquire x 60000 0");
        one_waits(&me).await;
        let start_ns: u64 = first.ask("release").parse().unwrap();
        let (later, moment_ns) = grant(&second.read());
        assert!(later > fence, "{later} {fence}");
        released.push(moment_ns.saturating_sub(start_ns));
        // And back, by death.
        assert_eq!(first.ask("acquire z 60000 0").split(' ').count(), 2);
        first.tell("acquire x 60000 0");
        one_waits(&me).await;
        let start_ns = Moment::now().host_ns();
        second.kill();
        let (last, moment_ns) = grant(&first.read());
        assert!(last > later, "{last} {later}");
        killed.push(moment_ns.saturating_sub(start_ns));
        // What the dead one left is removed by who did not make it.
        kit::eventually("its pipes are removed", async || {
            fs::read_dir(shared.store.join("clients")).unwrap().count() == 4
        })
        .await;
        first.finish();
        if is_pushed(&released) && is_pushed(&killed) {
            return;
        }
    }
    panic!("by poll and not by push: {released:?} {killed:?}");
}

#[tokio::test]
async fn everything_is_the_groups_whatever_the_umask_is() {
    for umask in [0o077, 0o000, 0o277] {
        let shared = Shared::new();
        let mut first = Other::start_as(&shared.url(), shared.cast.first, umask);
        first.ask("acquire x 60000 0");
        let mut names = Vec::new();
        for (path, [_, _, group, mode, ..]) in picture(&shared.store) {
            let is_dir = fs::metadata(&path).unwrap().is_dir();
            let expected = if is_dir { 0o2770 } else { 0o660 };
            assert_eq!((mode & 0o7777, group), (expected, shared.cast.group.into()), "{path:?}");
            names.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
        for name in ["lockfast.db", "lockfast.db-wal", "lockfast.db-shm", "write.lock", "machine"] {
            assert!(names.contains(&name.to_owned()), "{name} is not in {names:?}");
        }
        assert_eq!(names.iter().filter(|name| name.ends_with(".wake")).count(), 1, "{names:?}");
        first.finish();
    }
}

/// A file that is just being made has the mode that the umask leaves it.
#[tokio::test]
async fn nobody_is_refused_because_of_a_file_that_is_being_made() {
    for _ in 0..3 {
        let shared = Shared::new();
        let url = shared.url();
        let starts: Vec<_> = (0..4)
            .map(|_| {
                let (url, user) = (url.clone(), shared.cast.first);
                std::thread::spawn(move || Other::start_as(&url, user, 0o077))
            })
            .collect();
        for start in starts {
            start.join().expect("it was refused").finish();
        }
    }
}

/// Root plays an outsider; anybody else is one itself, to a group that it is not in.
#[tokio::test]
async fn who_is_not_in_the_group_is_kept_out() {
    let shared = Shared::new();
    let mut first = Other::start_as(&shared.url(), shared.cast.first, 0o022);
    let database = shared.store.join("lockfast.db");
    let said = if is_root() {
        let outsider = User { id: OUTSIDER, group: OUTSIDER, also: OUTSIDER };
        // A store of its own, from which it looks around.
        let home = shared.above.join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(OUTSIDER), None).unwrap();
        let own = format!("embedded:{}", home.display());
        let mut other = Other::start_as(&own, Some(outsider), 0o022);
        for path in [&shared.store, &database, &shared.store.join("clients")] {
            let said = other.ask(&format!("open {}", path.display()));
            assert_eq!(said, "Err(PermissionDenied)", "{path:?}");
        }
        other.finish();
        Other::refusal_of(&shared.url(), Some(outsider))
    } else {
        let url = format!("embedded:{}?group={OTHER_GROUP}", shared.store.display());
        Other::refusal_of(&url, None)
    };
    for words in ["refused, Permission: ", "who is not in group", "run usermod -aG", "log in again"]
    {
        assert!(said.contains(words), "{said}");
    }
    first.ask("acquire x 60000 0");
    first.finish();
}

#[tokio::test]
async fn a_store_is_opened_as_what_it_is() {
    let shared = Shared::new();
    let (url, store) = (shared.url(), &shared.store);
    let me = Asker::connect(&url).await;
    let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    // Without the group, or with another.
    let without = format!("embedded:{}", store.display());
    let (shared_by, add) = (format!("({})", shared.cast.group), "add the option group=");
    shared.assert_refused(&without, &["is shared by group", &shared_by, add]).await;
    if is_root() {
        let other = format!("{without}?group={OTHER_GROUP}");
        let words = ["belongs to group", "the URL says group \"64200\"", "run chgrp 64200 /"];
        shared.assert_refused(&other, &words).await;
    }
    kit::released(&me, &held).await;
    drop(me);
    // One user's own, as if a group shared it.
    let private = shared.above.join("private");
    let own = Asker::connect(&format!("embedded:{}", private.display())).await;
    let held = acquire(&own, "x", Mode::Exclusive, Wait::No).await;
    chown(&private, None, Some(shared.cast.group)).unwrap();
    let before = picture(&private);
    let error = refusal(&shared.url_of(&private)).await.to_string();
    assert!(error.contains("has mode 0700") && error.contains("has mode 2770"), "{error}");
    assert!(error.contains("run chmod 2770 /"), "{error}");
    assert!(picture(&private) == before, "it was touched");
    kit::released(&own, &held).await;
    // None at all: nothing is made.
    let absent = shared.above.join("absent");
    let error = refusal(&shared.url_of(&absent)).await;
    assert_eq!(error.kind(), ErrorKind::InvalidUrl);
    assert!(error.to_string().contains("install -d -o root -g"), "{error}");
    assert!(!absent.exists(), "it was made");
}

#[tokio::test]
async fn a_directory_that_is_not_the_groups_alone_is_refused() {
    let shared = Shared::new();
    let (url, store) = (shared.url(), &shared.store);
    for mode in [0o2777, 0o2775, 0o2772, 0o2771, 0o0770, 0o3770, 0o2750] {
        set_mode(store, mode);
        let found = format!("has mode {mode:04o}");
        shared.assert_refused(&url, &[&found, "has mode 2770", "run chmod 2770 /"]).await;
    }
    set_mode(store, 0o2770);
    for list in ["system.posix_acl_access", "system.posix_acl_default"] {
        admit_by_list(store, list);
        shared.assert_refused(&url, &["access control list", "run setfacl -b /"]).await;
        rustix::fs::removexattr(store, list).unwrap();
        set_mode(store, 0o2770);
    }
    if is_root() {
        chown(store, Some(STRANGER), None).unwrap();
        set_mode(store, 0o2770);
        let words = ["belongs to user 64123, and this is user 0", "run chown root /"];
        shared.assert_refused(&url, &words).await;
        chown(store, Some(0), None).unwrap();
        set_mode(store, 0o2770);
    }
    Asker::connect(&url).await;
}

/// Admits a user by an access control list as the kernel keeps it.
fn admit_by_list(path: &Path, list: &str) {
    const ALL: u16 = 7;
    let entries: [(u16, u16, u32); 5] = [
        (0x01, ALL, u32::MAX),
        (0x02, ALL, OUTSIDER),
        (0x04, ALL, u32::MAX),
        (0x10, ALL, u32::MAX),
        (0x20, 0, u32::MAX),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    rustix::fs::setxattr(path, list, &bytes, rustix::fs::XattrFlags::empty()).unwrap();
}

#[tokio::test]
async fn a_way_that_somebody_else_can_turn_is_refused() {
    let shared = Shared::new();
    let (url, above, store) = (shared.url(), &shared.above, &shared.store);
    set_mode(above, 0o777);
    let words = ["above\" can be written by others (its mode is 0777)", "run chmod go-w /"];
    shared.assert_refused(&url, &words).await;
    set_mode(above, 0o755);
    symlink(above, above.join("link")).unwrap();
    symlink(store, above.join("direct")).unwrap();
    let links = [("link", "link/store"), ("direct", "direct")];
    if is_root() {
        for (link, way) in links {
            let url = shared.url_of(&above.join(way));
            lchown(above.join(link), Some(STRANGER), None).unwrap();
            shared.assert_refused(&url, &["is a symbolic link of user 64123"]).await;
            lchown(above.join(link), Some(0), None).unwrap();
        }
        chown(above, Some(STRANGER), None).unwrap();
        let words = ["belongs to user 64123, who could replace the store"];
        shared.assert_refused(&url, &words).await;
        chown(above, Some(0), None).unwrap();
    }
    // One's own lead where they lead.
    let me = Asker::connect(&url).await;
    acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    for (_, way) in links {
        kit::taken(&Asker::connect(&shared.url_of(&above.join(way))).await, "x", Wait::No).await;
    }
}

/// Also what a member made is not believed when somebody else could change it, or has made it.
#[tokio::test]
async fn a_file_that_is_not_the_groups_alone_is_refused() {
    let shared = Shared::new();
    let url = shared.url();
    let me = Asker::connect(&url).await;
    let held = acquire(&me, "x", Mode::Exclusive, Wait::No).await;
    let files = ["lockfast.db", "lockfast.db-wal", "lockfast.db-shm", "write.lock", "machine"];
    for name in files.into_iter().chain(["clients"]) {
        let path = shared.store.join(name);
        let mode = fs::metadata(&path).unwrap().mode() & 0o7777;
        for other in [mode | 0o004, mode & !0o020] {
            set_mode(&path, other);
            let found = format!("{name}\" has mode {other:04o}");
            shared.assert_refused(&url, &[&found, &format!("run chmod {mode:04o} /")]).await;
        }
        set_mode(&path, mode);
        if is_root() {
            let owner = fs::metadata(&path).unwrap().uid();
            chown(&path, Some(STRANGER), None).unwrap();
            set_mode(&path, mode);
            let words = ["belongs to user 64123, who is not known to be in group", "chown root /"];
            shared.assert_refused(&url, &words).await;
            chown(&path, Some(owner), Some(OTHER_GROUP)).unwrap();
            set_mode(&path, mode);
            shared.assert_refused(&url, &["belongs to group \"64200\"", "run chgrp "]).await;
            chown(&path, None, Some(shared.cast.group)).unwrap();
            set_mode(&path, mode);
        }
        if name != "clients" {
            fs::hard_link(&path, shared.above.join("second")).unwrap();
            shared.assert_refused(&url, &["has 2 names", "find / -samefile /"]).await;
            fs::remove_file(shared.above.join("second")).unwrap();
        }
        admit_by_list(&path, "system.posix_acl_access");
        set_mode(&path, mode);
        shared.assert_refused(&url, &["access control list", "run setfacl -b /"]).await;
        rustix::fs::removexattr(&path, "system.posix_acl_access").unwrap();
        set_mode(&path, mode);
    }
    // All is as it was, and so is who was there before.
    let next = Asker::connect(&url).await;
    let mut wait = next.backend.acquire(request(&next, "x", Wait::Forever));
    assert!(poll_once(&mut wait).await.is_none());
    one_waits(&me).await;
    kit::released(&me, &held).await;
    kit::granted(bounded(wait).await);
}

/// Who has left the group, or was never known in it, may still have open what it made.
#[tokio::test]
async fn what_a_former_member_made_is_refused_until_root_takes_it() {
    let shared = Shared::new();
    let url = shared.url();
    // Its claim stays, and so do the files.
    Other::start_as(&url, shared.cast.second, 0o022).kill();
    if is_root() {
        let said = Other::refusal_of(&url, shared.cast.first);
        assert!(said.contains("belongs to user 64124, who is not known to be in group"), "{said}");
        for entry in fs::read_dir(&shared.store).unwrap() {
            chown(entry.unwrap().path(), Some(0), None).unwrap();
        }
    }
    Other::start_as(&url, shared.cast.first, 0o022).finish();
}

#[tokio::test]
async fn a_diagnosis_tells_who_shares_a_store() {
    let shared = Shared::new();
    let url = shared.url();
    let mut first = Other::start_as(&url, shared.cast.first, 0o022);
    let group = format!("({})", shared.cast.group);
    let reach = first.ask("doctor reach");
    assert!(reach.contains("root and the members of group") && reach.contains(&group), "{reach}");
    assert_eq!(first.ask("doctor machine"), "Ok: this one; ");
    let owned = first.ask("doctor owner");
    if is_root() {
        assert!(owned.starts_with("Ok: root and group ") && owned.contains(&group), "{owned}");
        // A directory of the one who looks serves nobody else.
        chown(&shared.store, shared.cast.first.map(|user| user.id), None).unwrap();
        set_mode(&shared.store, 0o2770);
    }
    let owned = first.ask("doctor owner");
    assert!(owned.starts_with("Warn: user ") && owned.contains("run chown root /"), "{owned}");
    set_mode(&shared.store, 0o2777);
    let owned = first.ask("doctor owner");
    assert!(owned.starts_with("Unsafe: ") && owned.contains("has mode 2777"), "{owned}");
    assert!(owned.contains("run chmod 2770 /"), "{owned}");
    fs::remove_dir_all(&shared.store).unwrap();
    let absent = first.ask("doctor directory");
    assert!(absent.starts_with("Unsafe: ") && absent.contains("install -d"), "{absent}");
    assert_eq!(first.ask("doctor owner").split(':').next(), Some("Unknown"));
    first.finish();
}
