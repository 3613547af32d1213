//! Who may use a store: its user alone, or the members of one group. Whoever else could write
//! there could forge grants and fences, so everything that is used must be of those who may, and
//! closed to everybody else.

use std::path::Path;

use lockfast_core::error::printable;
use lockfast_core::{Error, ErrorKind, Result};
use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;

use crate::account::{Group, user_name};
use crate::config::Embedded;
use crate::place::{io_failure, shown};

/// The mode of a directory that a group shares: what is made in it belongs to the group as well.
const SHARED_DIRECTORY: u32 = 0o2770;
const SHARED_FILE: u32 = 0o660;
/// Where Linux keeps access control lists.
const LIST: &str = "system.posix_acl_access";
const LIST_FOR_NEW: &str = "system.posix_acl_default";

/// Who may use a store, and who asks.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) me: u32,
    /// Without one the store is this user's alone.
    pub(crate) group: Option<Group>,
}

/// What a part of a store is, for what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The store's directory.
    Top,
    /// A directory in it.
    Directory,
    File,
}

impl Access {
    /// Who may use the store that is meant. One who is not in its group is refused; root need not
    /// be in it.
    pub(crate) fn of(config: &Embedded) -> Result<Self> {
        let me = rustix::process::geteuid().as_raw();
        let group = config.group.as_deref().map(Group::find).transpose()?;
        if let Some(group) = &group
            && me != 0
            && !is_mine(group)?
        {
            let (mine, theirs) = (user_name(me), word(&group.name));
            return Err(Error::new(
                ErrorKind::Permission,
                format!(
                    "this is user {me}, who is not in group {group} that shares {}; run usermod \
                     -aG {theirs} {} as root and log in again, or use a store of this user's own",
                    shown(&config.dir),
                    word(&mine)
                ),
            ));
        }
        Ok(Self { me, group })
    }

    /// With what mode a directory is made.
    pub(crate) fn directory_mode(&self) -> Mode {
        Mode::from_raw_mode(if self.group.is_some() { SHARED_DIRECTORY } else { 0o700 })
    }

    /// With what mode a file or a pipe is made.
    pub(crate) fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(if self.group.is_some() { SHARED_FILE } else { 0o600 })
    }

    /// Refuses a link in place of the directory that somebody else could turn elsewhere: then two
    /// processes would use two stores. Systemd links the directories of its services, as root.
    pub(crate) fn check_link(&self, path: &Path, owner: u32) -> Result<()> {
        let me = self.me;
        if [me, 0].contains(&owner) {
            return Ok(());
        }
        let flaw = format!("is a symbolic link of user {owner}, and this is user {me}");
        let shown = shown(path);
        Err(Error::new(ErrorKind::Permission, format!("{shown} {flaw}; use the directory itself")))
    }

    /// Refuses what others may have made or may change.
    pub(crate) fn check(&self, path: &Path, found: &Stat, part: Part) -> Result<()> {
        let flaw = match (kind_flaw(found, part), &self.group) {
            (Some(flaw), _) => Some(flaw),
            (None, None) => private_flaw(found, part, self.me),
            (None, Some(group)) => match self.shared_flaw(path, found, part, group) {
                None => list_flaw(path, part)?,
                flaw => flaw,
            },
        };
        match flaw {
            None => Ok(()),
            Some(flaw) => Err(Error::new(ErrorKind::Permission, format!("{} {flaw}", shown(path)))),
        }
    }

    /// What is wrong with a part of a store that a group shares, and what to do about it.
    fn shared_flaw(&self, path: &Path, found: &Stat, part: Part, group: &Group) -> Option<String> {
        let (owner, me, path) = (found.st_uid, self.me, word(&path.to_string_lossy()));
        let access = found.st_mode & 0o7777;
        let expected = if part == Part::File { SHARED_FILE } else { SHARED_DIRECTORY };
        let untouched = format!("use a new directory, or, if only group {group} has touched it,");
        let is_trusted = [0, me].contains(&owner) || (part != Part::Top && group.has(owner));
        if !is_trusted && part == Part::Top {
            Some(format!(
                "belongs to user {owner}, and this is user {me}; a directory that a group shares \
                 belongs to root: {untouched} run chown root {path}"
            ))
        } else if !is_trusted {
            Some(format!(
                "belongs to user {owner}, who is not known to be in group {group}; {untouched} \
                 run chown root {path}"
            ))
        } else if found.st_gid != group.id {
            let other = Group::of(found.st_gid);
            Some(format!(
                "belongs to group {other}, and the URL says group {group}; name the group that \
                 shares the store, {untouched} run chgrp {} {path}",
                word(&group.name)
            ))
        } else if access != expected {
            Some(format!(
                "has mode {access:04o}, and what group {group} shares has mode {expected:04o}, so \
                 that all its members and nobody else can use it; {untouched} run chmod \
                 {expected:04o} {path}"
            ))
        } else if part == Part::File && found.st_nlink > 1 {
            Some(format!(
                "has {} names, and who has left the group may use another of them; {untouched} \
                 remove the others, which find / -samefile {path} shows",
                found.st_nlink
            ))
        } else {
            None
        }
    }

    /// The error of a directory that is not there. Only root can make one that all members accept.
    pub(crate) fn absent(path: &Path, group: &Group) -> Error {
        Error::new(
            ErrorKind::InvalidUrl,
            format!(
                "{} is not there; root makes the directory that a group shares: {}",
                shown(path),
                made_by(path, group)
            ),
        )
    }
}

/// The command that makes a directory for a group.
pub(crate) fn made_by(path: &Path, group: &Group) -> String {
    let (group, path) = (word(&group.name), word(&path.to_string_lossy()));
    format!("install -d -o root -g {group} -m {SHARED_DIRECTORY:o} {path}")
}

/// Whether this process is in a group.
fn is_mine(group: &Group) -> Result<bool> {
    let groups = rustix::process::getgroups().map_err(|error| {
        Error::new(ErrorKind::Internal, "the groups of this process cannot be read")
            .with_source(error)
    })?;
    let own = rustix::process::getegid();
    Ok(groups.into_iter().chain([own]).any(|mine| mine.as_raw() == group.id))
}

fn kind_flaw(found: &Stat, part: Part) -> Option<String> {
    let (expected, what) = match part {
        Part::Top | Part::Directory => (FileType::Directory, "a directory"),
        Part::File => (FileType::RegularFile, "a file"),
    };
    match FileType::from_raw_mode(found.st_mode) {
        kind if kind == expected => None,
        FileType::Symlink => Some(format!(
            "is a symbolic link, which may lead to what others own; use {what} itself"
        )),
        _ => Some(format!("is not {what}; move it away, or use another directory")),
    }
}

/// What is wrong with a part of a store of one user, and what to do about it.
fn private_flaw(found: &Stat, part: Part, me: u32) -> Option<String> {
    let (owner, access) = (found.st_uid, found.st_mode & 0o7777);
    // Others who can read a file could lock it and keep everybody waiting. A directory that they
    // can only read shows them nothing but names.
    let (open_to_others, remedy) = match part {
        Part::Top | Part::Directory => (0o022, "chmod go-w"),
        Part::File => (0o077, "chmod go-rwx"),
    };
    if part == Part::Top && access == SHARED_DIRECTORY {
        let group = Group::of(found.st_gid);
        Some(format!(
            "is shared by group {group} (its mode is {access:04o}), and the URL names no group; \
             add the option group={} to it, or use a directory of this user's own",
            printable(&group.name)
        ))
    } else if owner != me {
        Some(format!(
            "belongs to user {owner}, and this is user {me}; use a directory of this user's own, \
             or run as user {owner}"
        ))
    } else if access & open_to_others != 0 {
        let can = if access & 0o022 != 0 { "written" } else { "read" };
        Some(format!(
            "can be {can} by others (its mode is {access:04o}); use a new directory, or, if \
             nobody has touched it, run {remedy}"
        ))
    } else {
        None
    }
}

/// A mode does not show whom an access control list admits beside the group.
fn list_flaw(path: &Path, part: Part) -> Result<Option<String>> {
    let lists = if part == Part::File { &[LIST][..] } else { &[LIST, LIST_FOR_NEW] };
    for list in lists {
        match rustix::fs::lgetxattr_query(path, *list) {
            Ok(_) => {
                return Ok(Some(format!(
                    "has an access control list, which may admit others than its group; use a new \
                     directory, or, if they have not touched it, run setfacl -b {}",
                    word(&path.to_string_lossy())
                )));
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            // Who leaves a store removes files.
            Err(Errno::NOENT) if part == Part::File => {}
            Err(error) => return Err(io_failure(path, "cannot be looked at", error.into())),
        }
    }
    Ok(None)
}

/// A text as a shell takes it, also when it is long.
pub(crate) fn word(text: &str) -> String {
    let text = printable(text);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%=".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIR: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;
    const LINK: u32 = 0o120_777;
    const FIFO: u32 = 0o010_600;

    fn stat(mode: u32, owner: u32, group: u32) -> Stat {
        let mut stat = rustix::fs::stat("/").unwrap();
        (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_nlink) = (mode, owner, group, 1);
        stat
    }

    /// Checks that nothing is wrong, or that this is said of it.
    #[track_caller]
    fn compare(access: &Access, found: &Stat, part: Part, expected: Option<&str>) {
        let path = tempfile::tempdir().unwrap();
        let said = access.check(path.path(), found, part).map_err(|error| {
            assert_eq!(error.kind(), ErrorKind::Permission);
            error.to_string()
        });
        match (expected, said) {
            (None, said) => assert_eq!(said, Ok(()), "{:o}", found.st_mode),
            (Some(text), Err(said)) => assert!(said.contains(text), "{said}"),
            (Some(text), Ok(())) => panic!("{:o} was accepted: {text}", found.st_mode),
        }
    }

    #[test]
    fn what_others_made_or_may_change_is_refused() {
        let access = Access { me: 7, group: None };
        let table: &[(u32, u32, Part, Option<&str>)] = &[
            (DIR | 0o700, 7, Part::Top, None),
            (DIR | 0o755, 7, Part::Top, None),
            (DIR | 0o2750, 7, Part::Top, None),
            (DIR | 0o700, 0, Part::Top, Some("belongs to user 0, and this is user 7")),
            (DIR | 0o775, 7, Part::Top, Some("written by others (its mode is 0775)")),
            (DIR | 0o1777, 7, Part::Top, Some("written by others (its mode is 1777)")),
            (DIR | 0o2770, 7, Part::Top, Some("is shared by group \"root\" (0)")),
            (DIR | 0o2770, 0, Part::Top, Some("add the option group=root")),
            (DIR | 0o2770, 7, Part::Directory, Some("written by others (its mode is 2770)")),
            (FILE | 0o700, 7, Part::Directory, Some("is not a directory")),
            (LINK, 7, Part::Top, Some("symbolic link")),
            (FILE | 0o600, 7, Part::File, None),
            (FILE | 0o600, 8, Part::File, Some("belongs to user 8")),
            (FILE | 0o660, 7, Part::File, Some("written by others")),
            (FILE | 0o644, 7, Part::File, Some("read by others (its mode is 0644)")),
            (LINK, 7, Part::File, Some("symbolic link")),
            (FIFO, 7, Part::File, Some("is not a file")),
        ];
        for (mode, owner, part, expected) in table {
            compare(&access, &stat(*mode, *owner, 0), *part, *expected);
        }
    }

    #[test]
    fn what_is_not_the_groups_alone_is_refused() {
        const NOBODY: u32 = 64_321;
        let group = Group { id: 5, name: "five".into() };
        let access = Access { me: 7, group: Some(group) };
        let table: &[(u32, u32, u32, Part, Option<&str>)] = &[
            (DIR | 0o2770, 0, 5, Part::Top, None),
            (DIR | 0o2770, 7, 5, Part::Top, None),
            (DIR | 0o2770, 7, 5, Part::Directory, None),
            (FILE | 0o660, 0, 5, Part::File, None),
            (FILE | 0o660, 7, 5, Part::File, None),
            (DIR | 0o2770, 8, 5, Part::Top, Some("belongs to root: use a new directory")),
            (DIR | 0o2770, 8, 5, Part::Top, Some("has touched it, run chown root /")),
            (DIR | 0o2770, 0, 6, Part::Top, Some("the URL says group \"five\" (5)")),
            (DIR | 0o2770, 0, 0, Part::Top, Some("belongs to group \"root\" (0)")),
            (DIR | 0o2770, 0, 0, Part::Top, Some("run chgrp five /")),
            (DIR | 0o2777, 0, 5, Part::Top, Some("has mode 2777, and what group \"five\" (5)")),
            (DIR | 0o2775, 0, 5, Part::Top, Some("run chmod 2770 /")),
            (DIR | 0o2772, 0, 5, Part::Top, Some("has mode 2772")),
            (DIR | 0o2771, 0, 5, Part::Top, Some("has mode 2771")),
            (DIR | 0o0770, 0, 5, Part::Top, Some("has mode 0770")),
            (DIR | 0o3770, 0, 5, Part::Top, Some("has mode 3770")),
            (DIR | 0o0700, 7, 5, Part::Top, Some("has mode 0700")),
            (DIR | 0o2770, NOBODY, 5, Part::Directory, Some("not known to be in group")),
            (DIR | 0o2775, 7, 5, Part::Directory, Some("has mode 2775")),
            (FILE | 0o660, NOBODY, 5, Part::File, Some("not known to be in group \"five\"")),
            (FILE | 0o660, 7, 6, Part::File, Some("run chgrp five /")),
            (FILE | 0o600, 7, 5, Part::File, Some("run chmod 0660 /")),
            (FILE | 0o664, 0, 5, Part::File, Some("has mode 0664")),
            (LINK, 7, 5, Part::Top, Some("symbolic link")),
            (LINK, 7, 5, Part::File, Some("symbolic link")),
            (FIFO, 7, 5, Part::File, Some("is not a file")),
        ];
        for (mode, owner, group, part, expected) in table {
            compare(&access, &stat(*mode, *owner, *group), *part, *expected);
        }
        let mut twice = stat(FILE | 0o660, 7, 5);
        twice.st_nlink = 2;
        compare(&access, &twice, Part::File, Some("has 2 names, and who has left the group"));
    }

    #[test]
    fn a_link_of_somebody_else_is_not_followed() {
        let path = Path::new("/tmp/link");
        let check = |owner, me| Access { me, group: None }.check_link(path, owner);
        assert!(check(7, 7).is_ok());
        assert!(check(0, 7).is_ok());
        assert!(check(0, 0).is_ok());
        for (owner, me) in [(8, 7), (7, 0)] {
            let error = check(owner, me).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission);
            assert!(error.to_string().contains("use the directory itself"), "{error}");
        }
    }

    #[test]
    fn a_command_can_be_copied() {
        let group = Group { id: 5, name: "five of us".into() };
        let path = format!("/srv/{}", "long/".repeat(40));
        assert_eq!(
            made_by(Path::new(&path), &group),
            format!("install -d -o root -g 'five of us' -m 2770 {path}")
        );
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word("a;b\n"), r"'a;b\n'");
    }
}
