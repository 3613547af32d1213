//! What this user may do, as the server says it.

use lockfast_core::Finding;

use super::Patient;
use crate::wire::Answer;

/// Rights on everything that only show, some of which other checks need.
const HARMLESS: &[&str] = &[
    "USAGE",
    "PROCESS",
    "SHOW DATABASES",
    "REPLICATION CLIENT",
    "REPLICATION SLAVE",
    "BINLOG MONITOR",
    "SLAVE MONITOR",
    "REPLICA MONITOR",
];

/// The rights of a user.
pub(super) struct Grants(Vec<Grant>);

#[derive(Debug, PartialEq, Eq)]
struct Grant {
    rights: Vec<String>,
    /// As `db`.* or PROCEDURE `db`.`name`; empty for a role.
    object: String,
}

impl Grants {
    pub(super) fn read(rows: &[Answer]) -> Self {
        Self(rows.iter().filter_map(|row| Grant::read(row.text(0)?)).collect())
    }

    /// Whether a right is given on a whole database, or on everything.
    pub(super) fn has(&self, right: &str, database: &str) -> bool {
        self.0.iter().any(|grant| {
            (grant.object == "*.*" || grant.is_on(database))
                && grant.rights.iter().any(|it| it == right || it == "ALL PRIVILEGES")
        })
    }

    /// The roles that were given. What they may do is not in the list, or only while they are on.
    fn roles(&self) -> String {
        let roles = self.0.iter().filter(|grant| grant.object.is_empty());
        let names = roles.flat_map(|grant| &grant.rights);
        names.map(|name| name.split(" TO ").next().unwrap_or(name)).collect::<Vec<_>>().join(", ")
    }

    /// What is more than taking locks in a database needs.
    fn surplus(&self, database: &str) -> Vec<String> {
        let mut surplus = Vec::new();
        for Grant { rights, object } in &self.0 {
            let is_global = object == "*.*";
            let is_ours = is_of_database(object, database);
            let too_many: Vec<&str> = rights
                .iter()
                .map(String::as_str)
                .filter(|right| is_global && !HARMLESS.contains(right) && *right != "EXECUTE")
                .chain(rights.iter().map(String::as_str).filter(|right| {
                    is_ours
                        && !object.starts_with("PROCEDURE")
                        && !matches!(*right, "EXECUTE" | "USAGE")
                }))
                .collect();
            match too_many.as_slice() {
                [] => {}
                [one, two, _, _, ..] => {
                    surplus
                        .push(format!("{one}, {two} and {} more on {object}", too_many.len() - 2));
                }
                few => surplus.push(format!("{} on {object}", few.join(", "))),
            }
        }
        surplus
    }
}

impl Grant {
    fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("GRANT ")?;
        let Some((rights, rest)) = rest.split_once(" ON ") else {
            return Some(Self { rights: vec![rest.to_owned()], object: String::new() });
        };
        let (object, _) = rest.split_once(" TO ")?;
        Some(Self { rights: split(rights), object: object.to_owned() })
    }

    fn is_on(&self, database: &str) -> bool {
        self.object.ends_with(".*") && is_of_database(&self.object, database)
    }
}

/// Rights are separated by commas, but so are the columns that a right is given on.
fn split(rights: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let parts = rights.split(|c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_owned()).collect()
}

/// Whether an object is the database, or something in it. Where all of a database is meant, its name
/// is a pattern.
fn is_of_database(object: &str, database: &str) -> bool {
    let name = object.trim_start_matches("PROCEDURE ").trim_start_matches("FUNCTION ");
    let name = name.trim_start_matches("TABLE ");
    let Some((owner, what)) = name.split_once("`.") else { return false };
    let owner = owner.trim_start_matches('`');
    match what {
        "*" => is_match(owner, database),
        _ => owner == database,
    }
}

/// Whether a name is one that a pattern means: `%` stands for anything, `_` for one character, and
/// either for itself after a backslash.
fn is_match(pattern: &str, name: &str) -> bool {
    let mut rest = pattern.chars();
    match rest.next() {
        None => name.is_empty(),
        Some('%') => {
            let mut ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.any(|at| is_match(rest.as_str(), &name[at..]))
        }
        Some(mark) => {
            let mut name = name.chars();
            let Some(first) = name.next() else { return false };
            let is_same = match mark {
                '_' => true,
                '\\' => rest.next().unwrap_or(mark) == first,
                _ => mark == first,
            };
            is_same && is_match(rest.as_str(), name.as_str())
        }
    }
}

pub(super) fn judge(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "rights";
    let surplus = patient.grants.surplus(&patient.config.database);
    let roles = patient.grants.roles();
    if surplus.is_empty() && !roles.is_empty() {
        let reason = format!("{} also has what these roles have: {roles}", patient.user);
        let fix = "see SHOW GRANTS FOR each of them, or give no roles to the user of a store";
        return Finding::unknown(CHECK, reason, fix);
    }
    if surplus.is_empty() {
        return Finding::ok(CHECK, format!("{} may do no more than it needs", patient.user));
    }
    Finding::warn(
        CHECK,
        format!("{} has {}", patient.user, surplus.join("; ")),
        "whoever gets hold of the URL can do more than take locks: read the ids of holders, end \
         leases, or worse",
        "use a user with the rights that the store's page lists",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_that_are_too_many() {
        let table = [
            ("GRANT USAGE ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*7'", ""),
            ("GRANT EXECUTE ON `locks`.* TO `a`@`%`", ""),
            ("GRANT EXECUTE ON PROCEDURE `locks`.`lockfast_take` TO `a`@`%`", ""),
            ("GRANT REPLICATION SLAVE, SLAVE MONITOR ON *.* TO `a`@`%`", ""),
            ("GRANT SELECT (`User`, `Host`, `Super_priv`) ON `mysql`.`user` TO `a`@`%`", ""),
            ("GRANT SELECT ON `other`.* TO `a`@`%`", ""),
            ("GRANT `clerk`@`%` TO `a`@`%`", ""),
            ("GRANT SELECT ON `lock%`.* TO `a`@`%`", "SELECT on `lock%`.*"),
            ("GRANT SELECT ON `l_cks`.* TO `a`@`%`", "SELECT on `l_cks`.*"),
            (r"GRANT SELECT ON `l\_cks`.* TO `a`@`%`", ""),
            ("GRANT SELECT ON `lock%`.`lockfast_locks` TO `a`@`%`", ""),
            ("GRANT ALL PRIVILEGES ON *.* TO `a`@`%` WITH GRANT OPTION", "ALL PRIVILEGES on *.*"),
            (
                "GRANT SELECT, INSERT, UPDATE, DROP, EXECUTE ON *.* TO `a`@`%`",
                "SELECT, INSERT and 2 more on *.*",
            ),
            (
                "GRANT SELECT ON `locks`.`lockfast_locks` TO `a`@`%`",
                "SELECT on `locks`.`lockfast_locks`",
            ),
        ];
        for (line, expected) in table {
            let grants = Grants(Grant::read(line).into_iter().collect());
            assert_eq!(grants.surplus("locks").join("; "), expected, "{line}");
        }
        let clerk = Grants(Grant::read("GRANT `clerk`@`%` TO `a`@`%`").into_iter().collect());
        assert_eq!(clerk.roles(), "`clerk`@`%`");
        let grants =
            Grants(Grant::read(r"GRANT SELECT ON `my\_locks`.* TO `a`@`%`").into_iter().collect());
        assert!(grants.roles().is_empty());
        assert_eq!(grants.surplus("my_locks").len(), 1);
        assert!(grants.has("SELECT", "my_locks") && !grants.has("CREATE ROUTINE", "my_locks"));
    }
}
