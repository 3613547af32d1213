//! The user as whom servers run that refuse to run as root.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// Users without rights that are looked for, in this order.
const NAMES: [&str; 2] = ["postgres", "nobody"];

/// Somebody else, if this process is root's.
#[derive(Clone, Copy, Debug)]
pub(super) struct User {
    other: Option<(u32, u32)>,
}

impl User {
    /// Ourselves, or a user without rights when we are root.
    pub(super) fn unprivileged() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self { other: None };
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap();
        let other = NAMES.iter().find_map(|name| ids_of(name, &accounts));
        assert!(
            other.is_some(),
            "this server does not run as root, and there is no user {NAMES:?}"
        );
        Self { other }
    }

    /// Makes a program that is yet to be started run as this user.
    pub(super) fn run(self, command: &mut Command) -> &mut Command {
        match self.other {
            Some((user, group)) => command.uid(user).gid(group),
            None => command,
        }
    }

    /// Gives a file or a directory with all that is in it to this user.
    pub(super) fn give(self, path: &Path) {
        let Some((user, group)) = self.other else { return };
        chown(path, Some(user), Some(group)).unwrap();
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                self.give(&entry.unwrap().path());
            }
        }
    }
}

/// The numbers of a user and of its group.
fn ids_of(name: &str, accounts: &str) -> Option<(u32, u32)> {
    let line = accounts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut fields = line.split(':').skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let accounts = "nobody2:x:7:8::/:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\n";
        assert_eq!(ids_of("nobody", accounts), Some((65_534, 65_533)));
        assert_eq!(ids_of("postgres", accounts), None);
    }
}
