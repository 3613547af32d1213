//! What the server, the way to it and the schema are like, and what that means for locks. The session
//! is left as the role and the database have it, so that their settings are seen. It only looks: the
//! one thing that is written is an empty message to the server's log, to see how long a commit takes.

mod durability;
mod pace;
mod rights;
mod server;
mod session;
mod settings;
mod upkeep;

use lockfast_core::{Address, Diagnosis, ErrorKind, Finding};
use tokio_postgres::Row;

use crate::config::{Config, StoreMode};
use crate::failure::{self, Failure, Remedy};
use crate::wire::{Dialer, Session, get};
use settings::Settings;

/// What is looked at, in the order in which it is told.
pub(crate) const CHECKS: &[&str] = &[
    "version",
    "role",
    "read-only",
    "timeline",
    "pooler",
    "encryption",
    "timeouts",
    "idle-in-transaction",
    "keepalive",
    "isolation",
    "connections",
    "fsync",
    "full-page-writes",
    "synchronous-commit",
    "failover",
    "superuser",
    "schema",
    "definer",
    "function-rights",
    "table-rights",
    "schema-rights",
    "old-snapshots",
    "dead-rows",
    "notify-queue",
    "clock-offset",
    "clock-rate",
    "latency",
    "commits",
];

/// Lets a role see everything that is looked at here.
const MONITOR: &str = "GRANT pg_monitor TO";

/// See [`crate::diagnose`].
pub(crate) async fn diagnose(address: Address) -> lockfast_core::Result<Diagnosis> {
    let config = Config::read(&address)?;
    let profile = match config.mode {
        StoreMode::Lease => crate::backend::profile(),
        StoreMode::Advisory => crate::advisory::profile(),
        StoreMode::Shedlock => {
            let message = "what is looked at is the server and Lockfast's own schema; leave out \
                           mode=shedlock to look at these";
            return Err(Failure::new(ErrorKind::Unsupported, message).to_error());
        }
    };
    let findings = look(config).await.map_err(|failure| failure.to_error())?;
    Ok(Diagnosis::conclude(findings, profile.guarantee, profile.because))
}

/// A server that is being looked at.
struct Patient {
    config: Config,
    session: Session,
    settings: Settings,
    /// As the server calls us, fit for a statement.
    role: String,
    /// Those that this role is, or can become.
    superusers: String,
    is_standby: bool,
    is_read_only: bool,
    version: String,
    version_number: i32,
}

async fn look(config: Config) -> Result<Vec<Finding>, Failure> {
    let dialer = Dialer::new(config)?;
    let session = dialer.dial_to_look().await?;
    let patient = Patient::meet(dialer.config, session).await?;
    let mut findings = server::look(&patient).await?;
    findings.extend(session::look(&patient).await?);
    findings.extend(durability::look(&patient).await?);
    findings.extend(rights::look(&patient).await?);
    findings.extend(upkeep::look(&patient).await?);
    // The last, because a commit may hang.
    findings.extend(pace::look(&patient).await?);
    Ok(findings)
}

impl Patient {
    async fn meet(config: Config, session: Session) -> Result<Self, Failure> {
        // Whoever is a member of a role can take it on.
        const QUESTION: &str = "SELECT quote_ident(current_user), CASE WHEN r.rolsuper THEN \
            quote_ident(current_user) ELSE coalesce((SELECT string_agg(quote_ident(s.rolname), ', ') \
            FROM pg_roles s WHERE s.rolsuper AND pg_has_role(s.oid, 'MEMBER')), '') END, \
            pg_is_in_recovery(), \
            current_setting('default_transaction_read_only') = 'on', \
            current_setting('server_version'), \
            current_setting('server_version_num')::integer \
            FROM pg_roles r WHERE r.rolname = current_user";
        let limit = config.request_timeout;
        let rows = session.ask(QUESTION, &[], limit).await?;
        let row = only(&rows)?;
        let settings = Settings::read(&session, limit).await?;
        Ok(Self {
            role: get(row, 0)?,
            superusers: get(row, 1)?,
            is_standby: get(row, 2)?,
            is_read_only: get(row, 3)?,
            version: get(row, 4)?,
            version_number: get(row, 5)?,
            config,
            session,
            settings,
        })
    }

    fn is_direct(&self) -> bool {
        self.session.is_direct
    }

    fn is_advisory(&self) -> bool {
        self.config.mode == StoreMode::Advisory
    }

    /// Asks something, in which `{schema}` stands for the schema.
    async fn ask(&self, statement: &str) -> Result<Vec<Row>, Failure> {
        let statement = statement.replace("{schema}", &self.config.schema);
        self.session.ask(&statement, &[], self.config.request_timeout).await
    }

    /// What lets this role see more.
    fn monitor(&self) -> String {
        format!("run {MONITOR} {}, for as long as you want to know", self.role)
    }

    /// What was found, or why it could not be; a connection that is gone ends everything.
    fn settle(
        &self,
        check: &'static str,
        found: Result<Finding, Failure>,
    ) -> Result<Finding, Failure> {
        match found {
            Err(failure) if failure.handling.remedy == Remedy::Reconnect => Err(failure),
            Err(failure) => Ok(Finding::unknown(check, failure.message(), self.monitor())),
            found => found,
        }
    }
}

fn only(rows: &[Row]) -> Result<&Row, Failure> {
    rows.first().ok_or_else(|| failure::of_nonsense("no row"))
}
