//! What the database must hold: tables and functions in a schema of their own, made in one
//! transaction. The version is a function of the schema, so that to read it needs no more than
//! the right to call.

use std::time::Duration;

use lockfast_core::{Address, ErrorKind, Migration, Result};

use crate::config::Config;
use crate::failure::Failure;
use crate::wire::{Dialer, Session, get};

/// The version that this program needs.
const VERSION: u32 = 3;
/// The first keys of the advisory locks: of those who listen, of links, of sweeps, of migrations.
pub(crate) const LISTENER_CLASS: i32 = 0x4c46_4b01;
const LINK_CLASS: i32 = 0x4c46_4b02;
const SWEEP_CLASS: i32 = 0x4c46_4b03;
const MIGRATION_CLASS: i32 = 0x4c46_4b04;
/// How long a lock that was handed over waits to be heard of.
const OFFER: Duration = Duration::from_millis(1500);
/// After so long without reading its mail a process that waits for some counts as gone.
const SILENCE: Duration = Duration::from_secs(2);
/// How long a waiting claim that is not heard of keeps its place.
const PATIENCE: Duration = Duration::from_secs(20);
/// For at least so long a row is kept after its lock became free.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// How long a call waits for a row that another one has locked.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const TIME_MAX: Duration = Duration::from_secs(30);

const TABLES: &str = include_str!("sql/tables.sql");
/// Each may be run again; the version comes last.
const FUNCTIONS: &[&str] = &[
    include_str!("sql/upgrade.sql"),
    include_str!("sql/clock.sql"),
    include_str!("sql/tell.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/serve.sql"),
    include_str!("sql/revoke.sql"),
    include_str!("sql/client.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/advisory.sql"),
    include_str!("sql/version.sql"),
];

/// See [`crate::migrate`].
pub(crate) async fn migrate(address: Address) -> Result<Migration> {
    let named = |failure: Failure| failure.to_error();
    let config = Config::read(&address)?;
    let session = Dialer::new(config.clone()).map_err(named)?.dial().await.map_err(named)?;
    update(&config, &session).await.map_err(named)
}

/// Makes sure that the schema is there and right.
pub(crate) async fn ensure(config: &Config, session: &Session) -> Result<(), Failure> {
    let found = version(config, session).await?;
    if found == VERSION {
        return Ok(());
    }
    match update(config, session).await {
        Ok(_) => Ok(()),
        Err(failure) if failure.kind == ErrorKind::Permission => {
            Err(Failure::of_missing_schema(&config.schema))
        }
        Err(failure) => Err(failure),
    }
}

/// The version of the schema; 0 when there is none.
async fn version(config: &Config, session: &Session) -> Result<u32, Failure> {
    let statement = format!("SELECT {}.version()", config.schema);
    let limit = config.request_timeout;
    let rows = match session.ask(&statement, &[], limit).await {
        Ok(rows) => rows,
        // There is no schema, or not yet the last part of it.
        Err(failure) if failure.is_of_schema() => return Ok(0),
        Err(failure) => return Err(failure),
    };
    let row = rows.first().ok_or_else(|| Failure::of_nonsense("no version"))?;
    let version: i32 = get(row, 0)?;
    u32::try_from(version).map_err(|_| Failure::of_nonsense(format!("version {version}")))
}

async fn update(config: &Config, session: &Session) -> Result<Migration, Failure> {
    let from = version(config, session).await?;
    if from > VERSION {
        return Err(Failure::new(
            ErrorKind::InvalidConfig,
            format!(
                "schema {} has version {from}, which is newer than this program's {VERSION}; \
                 update the program",
                config.schema
            ),
        ));
    }
    if from == VERSION {
        return Ok(Migration::Unchanged { version: VERSION });
    }
    session.execute(&script(&config.schema), TIME_MAX).await?;
    Ok(Migration::Changed { from: Some(from).filter(|from| *from > 0), to: VERSION })
}

/// Everything as one transaction. Whoever does it at the same time waits, and finds it done.
fn script(schema: &str) -> String {
    let create = format!("CREATE SCHEMA IF NOT EXISTS {schema};\n{TABLES}");
    let create = create.replace("{schema}", schema).replace('\'', "''");
    let text = format!(
        "BEGIN;
         SELECT pg_advisory_xact_lock({MIGRATION_CLASS}, 0);
         DO $do$ BEGIN
           IF to_regclass('{schema}.store') IS NULL THEN
             EXECUTE '{create}';
           END IF;
         END $do$;
         {}
         COMMIT;",
        FUNCTIONS.join("\n")
    );
    let numbers = [
        ("{schema}", schema.to_owned()),
        ("{version}", VERSION.to_string()),
        ("{listener_class}", LISTENER_CLASS.to_string()),
        ("{link_class}", LINK_CLASS.to_string()),
        ("{sweep_class}", SWEEP_CLASS.to_string()),
        ("{offer_us}", OFFER.as_micros().to_string()),
        ("{silence_us}", SILENCE.as_micros().to_string()),
        ("{patience_us}", PATIENCE.as_micros().to_string()),
        ("{idle_us_min}", IDLE_MIN.as_micros().to_string()),
        ("{lock_timeout}", format!("{}ms", LOCK_TIMEOUT.as_millis())),
    ];
    numbers.iter().fold(text, |text, (name, value)| text.replace(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_fill_in() {
        let script = script("my_locks");
        assert!(!script.contains("{schema}") && !script.contains("_us}"), "{script}");
        assert!(script.contains("CREATE TABLE my_locks.locks"));
    }
}
