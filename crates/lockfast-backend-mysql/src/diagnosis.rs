//! What the server, the way to it and the schema are like, and what that means for locks. The session
//! is left as the server has it for this user. Nothing is changed.

mod durability;
mod pace;
mod replication;
mod rights;
mod schema;
mod server;
mod session;
mod variables;

use lockfast_core::{Address, Diagnosis, ErrorKind, Finding};

use crate::config::{Config, StoreMode};
use crate::failure::{self, Failure, Remedy};
use crate::wire::{Answer, Dialer, Wire};
use rights::Grants;
use variables::Variables;

/// What is looked at, in the order in which it is told.
pub(crate) const CHECKS: &[&str] = &[
    "version",
    "cluster",
    "read-only",
    "role",
    "pooler",
    "encryption",
    "timeouts",
    "isolation",
    "sql-mode",
    "time-zone",
    "sysdate",
    "lock-wait",
    "connections",
    "redo-log",
    "doublewrite",
    "binlog",
    "failover",
    "rights",
    "schema",
    "procedure-rights",
    "definer",
    "clock-offset",
    "clock-rate",
    "latency",
];

/// See [`crate::diagnose`].
pub(crate) async fn diagnose(address: Address) -> lockfast_core::Result<Diagnosis> {
    let config = Config::read(&address)?;
    if config.mode == StoreMode::Shedlock {
        let message = "what is looked at is the server and Lockfast's own schema; leave out \
                       mode=shedlock to look at these";
        return Err(Failure::new(ErrorKind::Unsupported, message).to_error());
    }
    let dialer = Dialer::new(config)?;
    let findings = look(&dialer).await.map_err(|failure| failure.to_error())?;
    let profile = crate::backend::profile();
    Ok(Diagnosis::conclude(findings, profile.guarantee, profile.because))
}

/// A server that is being looked at.
struct Patient<'a> {
    config: &'a Config,
    wire: Wire,
    /// As the server has them for everybody.
    globals: Variables,
    /// As they are for us.
    ours: Variables,
    status: Variables,
    grants: Grants,
    /// What it says of itself.
    version: String,
    /// Whom it takes us for, as `user@host`.
    user: String,
}

async fn look(dialer: &Dialer) -> Result<Vec<Finding>, Failure> {
    let wire = dialer.dial_to_look().await?;
    let mut patient = Patient::meet(dialer.config(), wire).await?;
    let mut findings = server::look(&mut patient).await?;
    findings.extend(session::look(&mut patient).await?);
    findings.extend(durability::look(&patient));
    findings.push(replication::look_at_failover(&mut patient).await?);
    findings.push(rights::judge(&patient));
    findings.extend(schema::look(&mut patient).await?);
    findings.extend(pace::look(&mut patient).await?);
    patient.wire.close().await;
    Ok(findings)
}

impl<'a> Patient<'a> {
    async fn meet(config: &'a Config, mut wire: Wire) -> Result<Self, Failure> {
        let limit = config.request_timeout;
        let globals = Variables::read(wire.ask_all("SHOW GLOBAL VARIABLES", limit).await?);
        let ours = Variables::read(wire.ask_all("SHOW SESSION VARIABLES", limit).await?);
        let status = Variables::read(wire.ask_all("SHOW GLOBAL STATUS", limit).await?);
        let grants = Grants::read(&wire.ask_all("SHOW GRANTS", limit).await?);
        let rows = wire.ask_all("SELECT VERSION(), CURRENT_USER()", limit).await?;
        let text = |at| {
            let found = rows.first().and_then(|row| row.text(at));
            found.map(ToOwned::to_owned).ok_or_else(|| failure::of_nonsense("no version"))
        };
        let (version, user) = (text(0)?, text(1)?);
        Ok(Self { config, wire, globals, ours, status, grants, version, user })
    }

    async fn ask(&mut self, query: &str) -> Result<Vec<Answer>, Failure> {
        self.wire.ask_all(query, self.config.request_timeout).await
    }

    /// A statement that gives us a right.
    fn grant(&self, right: &str) -> String {
        let (user, host) = self.user.rsplit_once('@').unwrap_or((&self.user, "%"));
        let (user, host) = (quoted(user), quoted(host));
        format!("run GRANT {right} TO {user}@{host}, for as long as you want to know")
    }
}

/// A text as a part of a statement.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// What was found, or why it could not be and which right would let it; a connection that is gone
/// ends everything.
fn settle(
    check: &'static str,
    found: Result<Finding, Failure>,
    fix: impl FnOnce() -> String,
) -> Result<Finding, Failure> {
    match found {
        Err(failure) if is_over(&failure) => Err(failure),
        Err(failure) => Ok(Finding::unknown(check, failure.message(), fix())),
        found => found,
    }
}

fn is_over(failure: &Failure) -> bool {
    matches!(failure.handling, Remedy::Reconnect | Remedy::ReconnectAndRepeat)
}
