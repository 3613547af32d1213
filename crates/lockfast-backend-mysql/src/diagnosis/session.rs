//! The way to the server, and what a session there is like.

use std::net::{IpAddr, ToSocketAddrs as _};

use lockfast_core::Finding;
use lockfast_core::diagnosis::Way;

use super::{Patient, settle};
use crate::failure::{self, Failure};

/// A client that is quiet sweeps at least as often as that.
const QUIET_SECONDS_MIN: f64 = 120.0;
/// A call that listens takes so long.
const CALL_SECONDS_MIN: f64 = 30.0;
/// Each process has two connections, so there is room for five.
const CONNECTIONS_FREE_MIN: f64 = 10.0;
/// What every connection of ours sets for itself, or the procedures do.
const OWN: &str = "Lockfast sets its own";

pub(super) async fn look(patient: &mut Patient<'_>) -> Result<Vec<Finding>, Failure> {
    let pooler = look_at_pooler(patient).await?;
    let encryption = look_at_way(patient).await;
    let sysdate = look_at_sysdate(patient).await;
    let sysdate = settle("sysdate", sysdate, || "repeat it".to_owned())?;
    let connections = look_at_connections(patient).await?;
    Ok(vec![
        pooler,
        encryption,
        judge_timeouts(patient),
        judge_harmless(patient, "isolation", &["transaction_isolation", "tx_isolation"]),
        judge_harmless(patient, "sql-mode", &["sql_mode"]),
        judge_time_zone(patient),
        sysdate,
        judge_lock_wait(patient),
        connections,
    ])
}

/// A proxy numbers connections itself, and may give each statement another one of the server's.
async fn look_at_pooler(patient: &mut Patient<'_>) -> Result<Finding, Failure> {
    const CHECK: &str = "pooler";
    let rows = patient.ask("SELECT CONNECTION_ID()").await?;
    let here = rows.first().and_then(|row| row.number(0));
    if here == Some(patient.wire.id()) {
        return Ok(Finding::ok(CHECK, "none: this is a connection to the server itself"));
    }
    Ok(Finding::warn(
        CHECK,
        "a proxy stands before the server",
        "if it shares connections between clients nothing works as it should: clients are known by \
         locks of their connections",
        "connect to the server itself, or see that the proxy shares no connections",
    ))
}

async fn look_at_way(patient: &Patient<'_>) -> Finding {
    let (host, port) = (patient.config.host.clone(), patient.config.port);
    let resolving = tokio::task::spawn_blocking(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().ok()?;
        Some(addresses.map(|address| address.ip()).collect::<Vec<IpAddr>>())
    });
    let addresses = resolving.await.ok().flatten().unwrap_or_default();
    let is_local = !addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback);
    let tls = patient.config.tls.as_ref();
    let (is_encrypted, is_checked) = (tls.is_some(), tls.is_some_and(|tls| !tls.insecure));
    Way { is_local, is_encrypted, is_checked }.judge(
        "add tls=yes, and ca if the certificate is your own",
        "leave out insecure=true, and add ca if the certificate is your own",
    )
}

/// What ends a call of ours, or the connection between two.
fn judge_timeouts(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "timeouts";
    let ours = &patient.ours;
    let wait = ours.number("wait_timeout").unwrap_or(f64::MAX);
    if wait < QUIET_SECONDS_MIN {
        return Finding::warn(
            CHECK,
            format!("wait_timeout is {wait} s"),
            "the server closes connections that are quiet for so long; a client that then wants to \
             renew has to connect first",
            format!("run SET GLOBAL wait_timeout = {QUIET_SECONDS_MIN} or more"),
        );
    }
    let call = ours.number("max_statement_time").unwrap_or(0.0);
    if call > 0.0 && call < CALL_SECONDS_MIN {
        return Finding::warn(
            CHECK,
            format!("max_statement_time is {call} s"),
            "the server ends calls that wait for a hand-over, so that those who wait are woken late",
            "run SET GLOBAL max_statement_time = 0, or ALTER USER … WITH MAX_STATEMENT_TIME 0",
        );
    }
    let interactive = ours.number("interactive_timeout").unwrap_or_default();
    Finding::ok(CHECK, format!("wait_timeout is {wait} s, interactive_timeout {interactive} s"))
}

/// What was looked for and does no harm, whatever it is.
fn judge_harmless(patient: &Patient<'_>, check: &'static str, names: &[&str]) -> Finding {
    let name = patient.ours.first(names).unwrap_or(names[0]);
    Finding::ok(check, format!("{}; {OWN}", patient.ours.shown(name)))
}

fn judge_time_zone(patient: &Patient<'_>) -> Finding {
    let ours = &patient.ours;
    let fact = format!("{}, {}", ours.shown("time_zone"), ours.shown("system_time_zone"));
    Finding::ok("time-zone", format!("{fact}; the procedures count in UTC"))
}

/// The procedures rely on `SYSDATE` being the clock, which an option of the server changes.
async fn look_at_sysdate(patient: &mut Patient<'_>) -> Result<Finding, Failure> {
    const CHECK: &str = "sysdate";
    // About a millisecond of work lies between the two.
    let rows = patient.ask("SELECT SYSDATE(6), BENCHMARK(50000, 1 + 1), SYSDATE(6)").await?;
    let row = rows.first().ok_or_else(|| failure::of_nonsense("no time"))?;
    if row.bytes(0) == row.bytes(2) {
        return Ok(Finding::hazard(
            CHECK,
            "SYSDATE() stands still within a statement: the server runs with sysdate-is-now",
            "whoever calls the procedures after SET timestamp decides what time it is, and can end \
             others' leases",
            "start the server without sysdate-is-now",
        ));
    }
    Ok(Finding::ok(CHECK, "SYSDATE() is the server's clock"))
}

fn judge_lock_wait(patient: &Patient<'_>) -> Finding {
    const CHECK: &str = "lock-wait";
    let fact = patient.ours.shown("innodb_lock_wait_timeout");
    if patient.globals.get("innodb_deadlock_detect") == Some("OFF") {
        return Finding::warn(
            CHECK,
            format!("{fact}, and innodb_deadlock_detect is OFF"),
            "calls that are in each other's way wait for two seconds before one is tried again",
            "run SET GLOBAL innodb_deadlock_detect = ON",
        );
    }
    Finding::ok(CHECK, format!("{fact}; {OWN}"))
}

async fn look_at_connections(patient: &mut Patient<'_>) -> Result<Finding, Failure> {
    const CHECK: &str = "connections";
    let name = patient.user.rsplit_once('@').map_or("", |(name, _)| name).to_owned();
    // Of the others nothing is shown without the right to see them.
    let sessions = patient.ask("SHOW PROCESSLIST").await?;
    #[allow(clippy::cast_precision_loss, reason = "nobody has 2^52 connections")]
    let ours = sessions.iter().filter(|row| row.text(1) == Some(&name)).count() as f64;
    let used = patient.status.number("threads_connected").unwrap_or_default();
    let max = patient.globals.number("max_connections").unwrap_or(f64::MAX);
    let limit = patient.ours.number("max_user_connections").filter(|limit| *limit > 0.0);
    let mut limits = vec![("the server (max_connections)", used, max)];
    limits.extend(limit.map(|limit| ("the user (max_user_connections)", ours, limit)));
    let scarcest = limits.into_iter().min_by(|a, b| (a.2 - a.1).total_cmp(&(b.2 - b.1)));
    let (what, used, max) = scarcest.unwrap_or_default();
    let fact = format!("{used} of {max} that {what} allows are in use");
    if max - used < CONNECTIONS_FREE_MIN {
        return Ok(Finding::warn(
            CHECK,
            fact,
            "each process needs two connections; one that gets none can neither take a lock nor \
             renew after its connection broke",
            "raise the limit",
        ));
    }
    Ok(Finding::ok(CHECK, fact))
}
