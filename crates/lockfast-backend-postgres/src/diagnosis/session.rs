//! The way to the server, and what a session there is like.

use std::time::Duration;

use lockfast_core::Finding;
use lockfast_core::diagnosis::Way;

use super::{Patient, only};
use crate::config::{Config, TlsMode};
use crate::failure::Failure;
use crate::wire::{Dialer, Session, get};

/// A call waits for a row for two seconds, and then has to commit.
const CALL: Duration = Duration::from_secs(5);
/// Each process has two connections, so there is room for five.
const CONNECTIONS_FREE_MIN: i64 = 10;
/// What every connection to one database of one server sees.
const IDENTITY: &str = "SELECT pg_postmaster_start_time()::text || ' ' || current_database()";

pub(super) async fn look(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    let mut findings = look_at_pooler(patient).await?;
    findings.extend([
        judge_timeouts(patient),
        judge_idle_transactions(patient),
        judge_keepalive(patient),
        judge_isolation(patient),
        patient.settle("connections", look_at_connections(patient).await)?,
    ]);
    Ok(findings)
}

/// Whether pushes reach us, and whether anybody can listen in.
async fn look_at_pooler(patient: &Patient) -> Result<Vec<Finding>, Failure> {
    const CHECK: &str = "pooler";
    let encryption = judge_encryption(&patient.config, &patient.session);
    if patient.is_advisory() && !patient.is_direct() {
        let pooler = Finding::hazard(
            CHECK,
            "a pooler stands before the server",
            "mode=advisory is refused: another client would get the session that has the lock",
            "connect to the server itself, or use mode=lease",
        );
        return Ok(vec![pooler, encryption]);
    }
    let Some(listen) = &patient.config.listen else {
        let pooler = match patient.is_direct() {
            true => Finding::ok(CHECK, "none: this is a session of the server itself"),
            false => Finding::warn(
                CHECK,
                "a pooler stands before the server, and option listen is not given",
                "nothing can be pushed: those who wait look every 4 to 100 ms, and a revocation is \
                 learnt at the next renewal",
                "add option listen with the URL of the server itself",
            ),
        };
        return Ok(vec![pooler, encryption]);
    };
    let (pooler, way) = look_at_listener(patient, listen).await?;
    let mut findings = vec![pooler, encryption];
    findings.extend(way.map(|way| way.at("listen")));
    Ok(findings)
}

/// The connection that listens: it has to lead to the same server, without a pooler.
async fn look_at_listener(
    patient: &Patient,
    listen: &Config,
) -> Result<(Finding, Option<Finding>), Failure> {
    const CHECK: &str = "pooler";
    let wrong = |fact: String| {
        Finding::hazard(
            CHECK,
            fact,
            "no program can connect, so no lock can be taken",
            "let option listen be the URL of the server itself, with the same database",
        )
    };
    let dialer = Dialer::new(listen.clone())?;
    let session = match dialer.dial_to_look().await {
        Ok(session) => session,
        Err(failure) => {
            let fact = format!("option listen leads nowhere: {}", failure.message());
            return Ok((wrong(fact), None));
        }
    };
    let encryption = Some(judge_encryption(listen, &session));
    if !session.is_direct {
        return Ok((wrong("option listen leads to a pooler".to_owned()), encryption));
    }
    let there = session.ask(IDENTITY, &[], listen.request_timeout).await?;
    let here = patient.ask(IDENTITY).await?;
    let (there, here): (String, String) = (get(only(&there)?, 0)?, get(only(&here)?, 0)?);
    if there != here {
        return Ok((wrong("option listen leads to another database".to_owned()), encryption));
    }
    let fact = match patient.is_direct() {
        true => "none, and option listen leads to the same server",
        false => "a pooler stands before the server, and option listen leads past it",
    };
    Ok((Finding::ok(CHECK, fact), encryption))
}

fn judge_encryption(config: &Config, session: &Session) -> Finding {
    let plug = session.plug();
    let (is_local, is_encrypted) = (plug.is_local(), plug.is_encrypted());
    Way { is_local, is_encrypted, is_checked: config.tls.mode == TlsMode::VerifyFull }.judge(
        "set ssl = on at the server, and add sslmode=verify-full",
        "add sslmode=verify-full, and ca if the certificate is your own",
    )
}

/// What ends a call of ours, or the connection between two.
fn judge_timeouts(patient: &Patient) -> Finding {
    const CHECK: &str = "timeouts";
    // A session of our own sets them for itself.
    let harmful: &[&str] = match patient.is_direct() {
        true => &[],
        false => &["statement_timeout", "transaction_timeout"],
    };
    let set = |name: &str| patient.settings.number(name).filter(|ms| *ms > 0);
    for name in harmful {
        let is_short = set(name).is_some_and(|ms| {
            i128::from(ms) < i128::try_from(CALL.as_millis()).unwrap_or(i128::MAX)
        });
        if is_short {
            return Finding::warn(
                CHECK,
                format!("{} ms", patient.settings.shown(name)),
                "the server ends calls that wait for others, and leases are lost that could be renewed",
                patient.settings.remedy(name, "0", &patient.role),
            );
        }
    }
    let names =
        ["idle_session_timeout", "statement_timeout", "lock_timeout", "transaction_timeout"];
    let seen: Vec<String> =
        names.iter().filter_map(|name| set(name).map(|ms| format!("{name} is {ms} ms"))).collect();
    Finding::ok(
        CHECK,
        match (seen.as_slice(), patient.is_direct()) {
            ([], _) => "none is set".to_owned(),
            (seen, true) => {
                format!("{}; Lockfast sets its own for its own connections", seen.join(", "))
            }
            (seen, false) => format!("{}, which is long enough", seen.join(", ")),
        },
    )
}

/// Nothing of ours is ever idle in a transaction; others' make locks slow (see `old-snapshots`).
fn judge_idle_transactions(patient: &Patient) -> Finding {
    const CHECK: &str = "idle-in-transaction";
    let name = "idle_in_transaction_session_timeout";
    let fact = patient.settings.shown(name);
    Finding::ok(
        CHECK,
        match patient.settings.number(name) {
            Some(0) => format!("{fact}: nothing ends a forgotten BEGIN, see old-snapshots"),
            _ => format!("{fact}, in ms"),
        },
    )
}

/// Whether the server notices that a client is gone.
fn judge_keepalive(patient: &Patient) -> Finding {
    const CHECK: &str = "keepalive";
    let name = "client_connection_check_interval";
    if patient.is_advisory() && patient.settings.number(name) == Some(0) {
        return Finding::warn(
            CHECK,
            patient.settings.shown(name),
            "a waiter whose machine is gone stays in the server's queue until its turn, and may then \
             hold the others up",
            patient.settings.remedy(name, "'2s'", &patient.role),
        );
    }
    let names = ["tcp_keepalives_idle", "tcp_user_timeout", name];
    let seen: Vec<String> = names
        .iter()
        .filter_map(|name| patient.settings.get(name).map(|value| format!("{name} is {value}")))
        .collect();
    Finding::ok(
        CHECK,
        match patient.is_direct() {
            true => {
                format!("{}; Lockfast sets its own for its own connections", seen.join(", "))
            }
            false => format!("{}; a lease ends by its ttl, whoever is gone", seen.join(", ")),
        },
    )
}

fn judge_isolation(patient: &Patient) -> Finding {
    const CHECK: &str = "isolation";
    let name = "default_transaction_isolation";
    let fact = patient.settings.shown(name);
    match patient.settings.get(name) {
        Some("read committed") => Finding::ok(CHECK, fact),
        Some(_) if patient.is_direct() => Finding::ok(
            CHECK,
            format!("{fact}; Lockfast sets read committed for its own connections"),
        ),
        _ => Finding::hazard(
            CHECK,
            fact,
            "every call through the pooler is refused, so no lock can be taken",
            patient.settings.remedy(name, "'read committed'", &patient.role),
        ),
    }
}

async fn look_at_connections(patient: &Patient) -> Result<Finding, Failure> {
    const CHECK: &str = "connections";
    const QUESTION: &str = "SELECT \
        (SELECT sum(d.numbackends)::bigint FROM pg_stat_database d), \
        (SELECT count(*) FROM pg_stat_activity a WHERE a.usesysid = r.oid), r.rolconnlimit::bigint, \
        (SELECT count(*) FROM pg_stat_activity a WHERE a.datid = d.oid), d.datconnlimit::bigint \
        FROM pg_roles r, pg_database d \
        WHERE r.rolname = current_user AND d.datname = current_database()";
    let rows = patient.ask(QUESTION).await?;
    let row = only(&rows)?;
    let number = |name| patient.settings.number(name).unwrap_or(0);
    let max = number("max_connections")
        - number("superuser_reserved_connections")
        - number("reserved_connections");
    let limits: [(&str, i64, i64); 3] = [
        ("the server (max_connections)", get(row, 0)?, max),
        ("the role (CONNECTION LIMIT)", get(row, 1)?, get(row, 2)?),
        ("the database (CONNECTION LIMIT)", get(row, 3)?, get(row, 4)?),
    ];
    let scarcest = limits.iter().filter(|limit| limit.2 >= 0).min_by_key(|limit| limit.2 - limit.1);
    let Some((what, used, max)) = scarcest else {
        return Ok(Finding::ok(CHECK, "there is no limit"));
    };
    let fact = format!("{used} of {max} that {what} allows are in use");
    if max - used < CONNECTIONS_FREE_MIN {
        return Ok(Finding::warn(
            CHECK,
            fact,
            "each process needs two connections; one that gets none can neither take a lock nor \
             renew after its connection broke",
            "raise the limit, or put a pooler before the server",
        ));
    }
    Ok(Finding::ok(CHECK, fact))
}
