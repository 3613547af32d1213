//! The users and groups of this machine, as its name service knows them.

use std::ffi::CString;
use std::fmt;

use lockfast_core::address::{digits, invalid};
use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Result};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, User, getgrouplist};

/// A group of users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) id: u32,
    /// What people call it, which is its number if it has no name.
    pub(crate) name: String,
}

impl Group {
    /// The group that somebody names, or gives the number of.
    pub(crate) fn find(given: &str) -> Result<Self> {
        match nix::unistd::Group::from_name(given) {
            Ok(Some(found)) => return Ok(Self { id: found.gid.as_raw(), name: found.name }),
            // Some name services say so of a name that is not there.
            Ok(None) | Err(Errno::ENOENT | Errno::ESRCH) => {}
            Err(error) => {
                let message = format!("group {} cannot be looked up; try again", quote(given));
                return Err(Error::new(ErrorKind::Unreachable, message).with_source(error));
            }
        }
        match digits(given) {
            // The last number means "leave the group as it is" to the operating system.
            Some(id) if id != u32::MAX => Ok(Self::of(id)),
            _ => Err(invalid(format!(
                "option group is {}, and this machine has no such group; it can be the name or \
                 number of a group, and groupadd makes one",
                quote(given)
            ))),
        }
    }

    /// The group of this number.
    pub(crate) fn of(id: u32) -> Self {
        let found = nix::unistd::Group::from_gid(Gid::from_raw(id)).ok().flatten();
        Self { id, name: found.map_or_else(|| id.to_string(), |found| found.name) }
    }

    /// Whether a user is known to be in the group. Nobody whom this machine does not know is.
    pub(crate) fn has(&self, user: u32) -> bool {
        let Ok(Some(user)) = User::from_uid(Uid::from_raw(user)) else {
            return false;
        };
        let groups =
            CString::new(user.name).ok().and_then(|name| getgrouplist(&name, user.gid).ok());
        groups.is_some_and(|groups| groups.contains(&Gid::from_raw(self.id)))
    }
}

/// For people: the name and the number.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", quote(&self.name), self.id)
    }
}

/// What people call a user, which is its number if it has no name.
pub(crate) fn user_name(id: u32) -> String {
    let found = User::from_uid(Uid::from_raw(id)).ok().flatten();
    found.map_or_else(|| id.to_string(), |user| user.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_name_or_number() {
        let root = Group::find("root").unwrap();
        assert_eq!(root.to_string(), "\"root\" (0)");
        assert_eq!(Group::find("0").unwrap(), root);
        assert_eq!(Group::find("64321").unwrap().to_string(), "\"64321\" (64321)");
        for given in ["no-such-group", "-1", "4294967295", "4294967296", "a\0b", ""] {
            let error = Group::find(given).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{given:?}");
            assert!(error.to_string().contains("groupadd"), "{error}");
        }
    }

    #[test]
    fn only_who_is_known_is_a_member() {
        assert!(Group::of(0).has(0), "root's own group");
        assert!(!Group::of(64_321).has(0));
        assert!(!Group::of(64_321).has(64_321), "a user whom nobody knows");
        assert_eq!((user_name(0), user_name(64_321)), ("root".into(), "64321".into()));
    }
}
