//! Which server it is, and whether it decides alone.

use lockfast_core::Finding;

use super::{Patient, replication};
use crate::failure::Failure;

pub(super) async fn look(patient: &mut Patient<'_>) -> Result<Vec<Finding>, Failure> {
    Ok(vec![
        judge_version(&patient.version),
        judge_cluster(patient),
        judge_read_only(patient),
        replication::look_at_role(patient).await?,
    ])
}

/// The versions of one kind of server, as major and minor.
struct Versions {
    name: &'static str,
    needed: (u32, u32),
    tested: [(u32, u32); 2],
}

const MARIADB: Versions =
    Versions { name: "MariaDB", needed: (10, 6), tested: [(10, 11), (11, 8)] };
const MYSQL: Versions = Versions { name: "MySQL", needed: (8, 0), tested: [(9, 7), (9, 7)] };

fn judge_version(version: &str) -> Finding {
    const CHECK: &str = "version";
    let kind = if version.contains("MariaDB") { MARIADB } else { MYSQL };
    let mut parts =
        version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let number: (u32, u32) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let fact = match version.contains(kind.name) {
        true => version.to_owned(),
        false => format!("{} {version}", kind.name),
    };
    if number < kind.needed {
        let meaning = "it lacks what the schema's procedures need, so no lock can be taken";
        return Finding::hazard(CHECK, fact, meaning, "upgrade the server");
    }
    let [from, to] = kind.tested;
    if number < from || number > to {
        let meaning = format!(
            "Lockfast is tested with {} {}.{} to {}.{}; nobody has looked whether its promises hold \
             here",
            kind.name, from.0, from.1, to.0, to.1
        );
        return Finding::warn(CHECK, fact, meaning, "use a version that is tested");
    }
    Finding::ok(CHECK, fact)
}

/// Whether several nodes decide at once, or a new one before it knows everything.
fn judge_cluster(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "cluster";
    let globals = &patient.globals;
    if globals.is_on("wsrep_on") {
        return Finding::hazard(
            CHECK,
            "the server is a node of a Galera cluster (wsrep_on is ON)",
            "several nodes decide at once, and one learns at its commit that it was too late; no lock \
             can be taken, because Lockfast refuses it",
            "use one server, or another store",
        );
    }
    let single = "group_replication_single_primary_mode";
    if globals.get(single) == Some("OFF") {
        return Finding::hazard(
            CHECK,
            format!(
                "the server is of a replication group with several primaries ({single} is OFF)"
            ),
            "several servers decide at once; no lock can be taken, because Lockfast refuses it",
            "let the group have a single primary, or use another store",
        );
    }
    let is_of_group = globals.get("group_replication_group_name").is_some_and(|it| !it.is_empty());
    let consistency = "group_replication_consistency";
    if is_of_group && globals.get(consistency) == Some("EVENTUAL") {
        return Finding::hazard(
            CHECK,
            format!("the server is of a replication group, and {consistency} is EVENTUAL"),
            "a new primary decides before it has applied the last grants, so that a lock is granted \
             twice",
            format!("set {consistency} to BEFORE_ON_PRIMARY_FAILOVER on all members"),
        );
    }
    Finding::ok(
        CHECK,
        match is_of_group {
            true => "a replication group with a single primary",
            false => "none: this server decides alone",
        },
    )
}

fn judge_read_only(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "read-only";
    let names = ["read_only", "super_read_only", "innodb_read_only"];
    let set: Vec<String> = names
        .iter()
        // MariaDB has more words for it.
        .filter(|name| patient.globals.get(name).is_some_and(|value| value != "OFF"))
        .map(|name| patient.globals.shown(name))
        .collect();
    if set.is_empty() {
        return Finding::ok(CHECK, "the server takes writes");
    }
    Finding::hazard(
        CHECK,
        set.join(", "),
        "the server only reads, so no lock can be taken",
        "connect to the server that takes writes, or run SET GLOBAL read_only = OFF if this is it",
    )
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn versions() {
        let table = [
            ("10.5.8-MariaDB", Severity::Unsafe),
            ("10.6.1-MariaDB-log", Severity::Warn),
            ("10.11.19-MariaDB-0+deb12u1-log", Severity::Ok),
            ("11.8.9-MariaDB", Severity::Ok),
            ("12.1.2-MariaDB", Severity::Warn),
            ("5.7.44", Severity::Unsafe),
            ("8.4.7", Severity::Warn),
            ("9.7.4-2", Severity::Ok),
        ];
        for (version, severity) in table {
            assert_eq!(judge_version(version).severity, severity, "{version}");
        }
    }
}
