//! The way to a store that a group shares. Its members come from different users, so nobody but
//! root and who asks may be able to lead it elsewhere: then two of them would use two stores.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use lockfast_core::{Error, ErrorKind, Result};

use crate::access::{Access, word};
use crate::account::Group;
use crate::place::{io_failure, shown};

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Refuses a way to `dir` that somebody else could turn. What was looked at stays as it is, because
/// nobody else may change what is above it.
pub(crate) fn check(dir: &Path, access: &Access, group: &Group) -> Result<()> {
    let failed = |path: &Path, error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Access::absent(dir, group),
        _ => io_failure(path, "cannot be looked at", error),
    };
    let start = std::path::absolute(dir).map_err(|error| failed(dir, error))?;
    let (mut here, mut links) = (PathBuf::new(), 0);
    let mut ahead = steps(&start);
    while let Some(step) = ahead.pop() {
        match step {
            Step::Root => here = PathBuf::from("/"),
            Step::Up => {
                here.pop();
            }
            Step::Down(name) => {
                here.push(name);
                let found = here.symlink_metadata().map_err(|error| failed(&here, error))?;
                if found.is_symlink() {
                    access.check_link(&here, found.uid())?;
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(failed(dir, io::ErrorKind::NotADirectory.into()));
                    }
                    let target = here.read_link().map_err(|error| failed(&here, error))?;
                    here.pop();
                    ahead.extend(steps(&target));
                } else if !ahead.is_empty() {
                    check_above(&here, &found, access.me)?;
                }
            }
        }
    }
    Ok(())
}

/// A part of a path.
enum Step {
    Root,
    Up,
    Down(OsString),
}

/// The parts of a path, the first one last.
fn steps(path: &Path) -> Vec<Step> {
    let steps = path.components().rev().filter_map(|component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Up),
        Component::Normal(name) => Some(Step::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    });
    steps.collect()
}

/// Refuses a directory above the store in which somebody else could replace what leads to it. In a
/// sticky one, such as /tmp, everybody can replace but their own.
fn check_above(path: &Path, found: &Metadata, me: u32) -> Result<()> {
    let (owner, access) = (found.uid(), found.mode() & 0o7777);
    let flaw = if ![0, me].contains(&owner) {
        format!(
            "belongs to user {owner}, who could replace the store in it, and this is user {me}; \
             use a directory below one of root's, such as /var/lib"
        )
    } else if access & 0o022 != 0 && access & 0o1000 == 0 {
        format!(
            "can be written by others (its mode is {access:04o}), who could replace the store in \
             it; run chmod go-w {}, or use a directory below one of root's, such as /var/lib",
            word(&path.to_string_lossy())
        )
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::Permission, format!("{} {flaw}", shown(path))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn group() -> Group {
        Group { id: 5, name: "five".into() }
    }

    fn me() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn said(dir: &Path, me: u32) -> Option<String> {
        let access = Access { me, group: Some(group()) };
        check(dir, &access, &group()).err().map(|error| error.to_string())
    }

    #[test]
    fn nobody_else_may_be_able_to_turn_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (above, store) = (top.join("above"), top.join("above/store"));
        fs::create_dir_all(&store).unwrap();
        let set_mode = |mode| fs::set_permissions(&above, Permissions::from_mode(mode)).unwrap();
        for (mode, is_fine) in [
            (0o755, true),
            (0o711, true),
            (0o1777, true),
            (0o775, false),
            (0o757, false),
            (0o2770, false),
        ] {
            set_mode(mode);
            let text = format!("can be written by others (its mode is {mode:04o})");
            let said = said(&store, me());
            assert_eq!(said.is_none(), is_fine, "{said:?}");
            assert!(is_fine || said.unwrap().contains(&text));
        }
        set_mode(0o755);
        // To another user, whose own it is not: one of the directories above is of who runs this.
        if me() != 0 {
            assert!(said(&store, me() + 1).unwrap().contains("who could replace the store"));
        }
        // The store itself is for others to judge.
        fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
        assert_eq!(said(&store, me()), None);
    }

    #[test]
    fn links_are_followed_to_their_end() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let at = |name: &str| top.join(name);
        fs::create_dir_all(at("open/store")).unwrap();
        fs::create_dir_all(at("closed/store")).unwrap();
        fs::set_permissions(at("open"), Permissions::from_mode(0o777)).unwrap();
        symlink("closed", at("fine")).unwrap();
        symlink("../open", at("closed/out")).unwrap();
        symlink(at("closed/out"), at("far")).unwrap();
        symlink("round", at("round")).unwrap();
        assert_eq!(said(&at("fine/store"), me()), None);
        assert_eq!(said(&at("fine/../closed/./store/"), me()), None);
        for path in ["open/store", "far/store", "fine/out/store", "closed/../open/store"] {
            let said = said(&at(path), me()).expect(path);
            assert!(said.contains("/open\" can be written by others"), "{path}: {said}");
        }
        assert!(said(&at("round"), me()).unwrap().contains("name one"));
        let absent = said(&at("fine/none"), me()).unwrap();
        assert!(absent.contains("is not there; root makes"), "{absent}");
        assert!(absent.contains("install -d -o root -g five -m 2770 /"), "{absent}");
    }
}
