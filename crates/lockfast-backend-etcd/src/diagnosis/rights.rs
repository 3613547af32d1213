//! Who may do what on the server.

use lockfast_core::{ErrorKind, Finding};

use super::unseen;
use crate::config::{Config, Login};
use crate::failure::Failure;
use crate::key::Space;
use crate::wire::{Connection, Permission, RangeRequest};

/// The role that may do everything.
const SUPERUSER: &str = "root";

/// # Errors
/// When the server asks for a user and the URL names none.
pub(super) async fn look(config: &Config, serving: &Connection) -> Result<Vec<Finding>, Failure> {
    let asked = ask_as_nobody(config, serving).await;
    let users = judge_users(config, &asked);
    let rights = match (&asked, &config.login) {
        (Asked::Users(_), Some(login)) => look_at_rights(config, login, serving).await,
        (Asked::Users(refusal), None) => return Err(refusal.clone()),
        (Asked::Nobody, _) => {
            Finding::ok("rights", "everybody has all, because nobody is asked who he is")
        }
        (Asked::Unknown(failure), _) => unseen("rights", failure),
    };
    Ok(vec![users, rights])
}

/// Whether the server asks who one is.
enum Asked {
    Nobody,
    /// It does, and says so.
    Users(Failure),
    Unknown(Failure),
}

async fn ask_as_nobody(config: &Config, serving: &Connection) -> Asked {
    let key = Space::new(&config.prefix).span().from;
    match serving.range_as_nobody(RangeRequest { key, ..RangeRequest::default() }).await {
        Ok(_) => Asked::Nobody,
        Err(failure) if failure.kind() == ErrorKind::Permission => Asked::Users(failure),
        Err(failure) => Asked::Unknown(failure),
    }
}

fn judge_users(config: &Config, asked: &Asked) -> Finding {
    const CHECK: &str = "users";
    match asked {
        Asked::Unknown(failure) => unseen(CHECK, failure),
        Asked::Users(_) => Finding::ok(CHECK, "the server asks for a user and a password"),
        Asked::Nobody => Finding::warn(
            CHECK,
            match config.login {
                Some(_) => "the server asks nobody who he is, although the URL names a user",
                None => "the server asks nobody who he is",
            },
            "whoever reaches it can revoke every lease, and so take every lock away",
            "make users with the rights of the store's page, and then etcdctl auth enable",
        ),
    }
}

async fn look_at_rights(config: &Config, login: &Login, serving: &Connection) -> Finding {
    const CHECK: &str = "rights";
    let roles = match serving.roles_of(&login.user).await {
        Ok(roles) => roles,
        Err(failure) => return unseen(CHECK, &failure),
    };
    if roles.iter().any(|role| role == SUPERUSER) {
        return too_much("the user has the role root and may do everything");
    }
    let mut permissions = Vec::new();
    for role in roles {
        match serving.permissions_of(&role).await {
            Ok(more) => permissions.extend(more),
            Err(failure) => return unseen(CHECK, &failure),
        }
    }
    judge_permissions(config, &permissions)
}

fn judge_permissions(config: &Config, permissions: &[Permission]) -> Finding {
    const CHECK: &str = "rights";
    let ours = Space::new(&config.prefix).span();
    let covers = |it: &&Permission| it.key <= ours.from && is_not_before(&it.range_end, &ours.to);
    let covering: Vec<&Permission> = permissions.iter().filter(covers).collect();
    if !covering.iter().any(|it| it.may_read()) || !covering.iter().any(|it| it.may_write()) {
        return Finding::hazard(
            CHECK,
            "the user may not read and write all keys of the store",
            "no lock can be taken",
            "give it the rights of the store's page, for the prefix of the URL",
        );
    }
    let is_wider = |it: &&Permission| it.key < ours.from || is_after(&it.range_end, &ours.to);
    if permissions.iter().any(|it| is_wider(&it)) {
        return too_much("the user may use keys outside the prefix of the URL");
    }
    Finding::ok(CHECK, "the user may use the keys of the store and no others")
}

fn too_much(fact: &str) -> Finding {
    Finding::warn(
        "rights",
        fact,
        "whoever gets hold of the URL may do that too",
        "use a user with the rights of the store's page, and a prefix of its own",
    )
}

/// The end of a range of keys; a zero is behind all.
fn is_not_before(end: &[u8], other: &[u8]) -> bool {
    end == [0] || (other != [0] && end >= other)
}

fn is_after(end: &[u8], other: &[u8]) -> bool {
    other != [0] && (end == [0] || end > other)
}
