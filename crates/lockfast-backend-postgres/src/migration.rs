//! What the database must hold: tables and functions in a schema of their own, made in one
//! transaction. The version is a function of the schema, so that to read it needs no more than
//! the right to call.

use std::time::Duration;

use lockfast_core::{Address, ErrorKind, Migration, Result};

use crate::config::{Config, StoreMode};
use crate::failure::{self, Failure};
use crate::wire::{Dialer, Session, get};

/// The version that this program makes. It also works with the one before, and with a newer one that
/// says so, so that programs and schemas can be updated in any order, one version at a time: what
/// clients call keeps its name, arguments and answers for one version more, and what answers otherwise
/// has another name.
pub(crate) const VERSION: u32 = 1;
/// The version of the oldest program that this schema serves: the one before, once there is one.
const SERVES_SINCE: u32 = 1;
/// How long a lock that was handed over waits to be heard of.
const OFFER: Duration = Duration::from_millis(1500);
/// After so long without reading its mail a process that waits for some counts as gone.
const SILENCE: Duration = Duration::from_secs(2);
/// How long claims that were passed over keep their places before it is looked whether their process
/// is still there.
const PATIENCE: Duration = Duration::from_secs(20);
/// For at least so long a row is kept after its lock became free.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// How long a call waits for a row that another one has locked.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
const TIME_MAX: Duration = Duration::from_secs(30);
/// How often a migration that others were in the way of is tried.
const TRIES: usize = 3;
/// The name of a channel that nobody can guess.
const SECRET_CHANNEL: &str = "'lockfast:' || substr(encode(sha256(\
    uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())), 'hex'), 1, 32)";

const TABLES: &str = include_str!("sql/tables.sql");
/// Each may be run again, on a schema of the version before too, so that they are also the way from
/// there to here; the version comes last.
const STEPS: &[&str] = &[
    include_str!("sql/clock.sql"),
    include_str!("sql/tell.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/inspect.sql"),
    include_str!("sql/acquire.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/downgrade.sql"),
    include_str!("sql/serve.sql"),
    include_str!("sql/revoke.sql"),
    include_str!("sql/client.sql"),
    include_str!("sql/values.sql"),
    include_str!("sql/sweep.sql"),
    include_str!("sql/advisory.sql"),
    include_str!("sql/version.sql"),
];

/// See [`crate::migrate`].
pub(crate) async fn migrate(address: Address) -> Result<Migration> {
    let named = |failure: Failure| failure.to_error();
    let config = Config::read(&address)?;
    if config.mode == StoreMode::Shedlock {
        let message = format!(
            "the table of mode=shedlock is ShedLock's, and nothing is migrated there; if it is \
             missing, run {}",
            crate::shedlock::creation(&config.table)
        );
        return Err(named(Failure::new(ErrorKind::Unsupported, message)));
    }
    let session = Dialer::new(config.clone()).map_err(named)?.dial().await.map_err(named)?;
    update(&config, &session).await.map_err(named)
}

/// Makes sure that the schema is there and right; it is made if there is none, but never upgraded.
pub(crate) async fn ensure(config: &Config, session: &Session) -> Result<(), Failure> {
    match version(config, session).await? {
        None => match update(config, session).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.kind() == ErrorKind::Permission => {
                Err(failure::of_missing_schema(&config.schema))
            }
            Err(failure) => Err(failure),
        },
        Some(found) => check(config, session, found).await,
    }
}

/// Whether this program can use a schema of that version: of one that is newer the schema says so.
pub(crate) async fn check(config: &Config, session: &Session, found: u32) -> Result<(), Failure> {
    let serves_since = match found > VERSION {
        true => ask(config, session, "serves_since").await?,
        false => None,
    };
    judge(&config.schema, VERSION, found, serves_since)?;
    if found < VERSION {
        tracing::warn!(
            "schema {} has version {found}; run \"lockfast migrate\" to bring it to version {VERSION}",
            config.schema
        );
    }
    Ok(())
}

fn judge(schema: &str, own: u32, found: u32, serves_since: Option<u32>) -> Result<(), Failure> {
    if found > own && serves_since.is_none_or(|since| since > own) {
        return Err(too_new(schema, own, found));
    }
    if found + 1 < own {
        let message = format!(
            "schema {schema} has version {found}, and this program needs {} at least; run \"lockfast \
             migrate\" as a role that may change it",
            own - 1
        );
        return Err(Failure::new(ErrorKind::InvalidConfig, message));
    }
    Ok(())
}

fn too_new(schema: &str, own: u32, found: u32) -> Failure {
    let message = format!(
        "schema {schema} has version {found}, which is newer than this program's {own}; update the \
         program"
    );
    Failure::new(ErrorKind::InvalidConfig, message)
}

/// The version of the schema, if there is one.
pub(crate) async fn version(config: &Config, session: &Session) -> Result<Option<u32>, Failure> {
    ask(config, session, "version").await
}

/// What a function of the schema says of versions. There may be no schema, not yet the last part of it,
/// or one whose version does not have that function.
async fn ask(config: &Config, session: &Session, of: &str) -> Result<Option<u32>, Failure> {
    let statement = format!("SELECT {}.{of}()", config.schema);
    let rows = match session.ask(&statement, &[], config.request_timeout).await {
        Ok(rows) => rows,
        Err(failed) if failure::is_of_schema(&failed) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let row = rows.first().ok_or_else(|| failure::of_nonsense("no version"))?;
    let number: i32 = get(row, 0)?;
    let number = u32::try_from(number);
    number.map(Some).map_err(|_| failure::of_nonsense("a version below 0"))
}

async fn update(config: &Config, session: &Session) -> Result<Migration, Failure> {
    let from = version(config, session).await?;
    let mut tries = 1;
    loop {
        let found = version(config, session).await?;
        match found {
            Some(found) if found > VERSION => {
                return Err(too_new(&config.schema, VERSION, found));
            }
            Some(VERSION) if from == found => {
                return Ok(Migration::Unchanged { version: VERSION });
            }
            Some(VERSION) => break,
            _ => {}
        }
        match session.execute(&script(&config.schema), TIME_MAX).await {
            Ok(()) => {
                // Only what is asked is sure to be answered by whom it was asked, if there is a pooler.
                version(config, session).await?;
                break;
            }
            // Somebody did the same at the same moment, and has done it by now.
            Err(failure) if failure.kind() == ErrorKind::Internal && tries < TRIES => {
                session.execute("ROLLBACK", TIME_MAX).await?;
                tries += 1;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(Migration::Changed { from, to: VERSION })
}

/// Everything as one transaction. Whoever does it at the same time waits, and either finds it done
/// or fails and tries again. That is decided by tables of ours, which no stranger can lock.
fn script(schema: &str) -> String {
    let create = fill(&format!("CREATE SCHEMA IF NOT EXISTS {schema};\n{TABLES}"), schema);
    let create = create.replace('\'', "''");
    let text = format!(
        "BEGIN;
         DO $do$ BEGIN
           IF to_regclass('{schema}.store') IS NULL THEN
             EXECUTE '{create}';
           END IF;
         END $do$;
         LOCK TABLE {schema}.store IN SHARE ROW EXCLUSIVE MODE;
         {}
         COMMIT;",
        STEPS.join("\n")
    );
    fill(&text, schema)
}

fn fill(text: &str, schema: &str) -> String {
    let numbers = [
        ("{schema}", schema.to_owned()),
        ("{version}", VERSION.to_string()),
        ("{secret_channel}", SECRET_CHANNEL.to_owned()),
        ("{serves_since}", SERVES_SINCE.to_string()),
        ("{offer_us}", OFFER.as_micros().to_string()),
        ("{silence_us}", SILENCE.as_micros().to_string()),
        ("{patience_us}", PATIENCE.as_micros().to_string()),
        ("{idle_us_min}", IDLE_MIN.as_micros().to_string()),
        ("{lock_timeout}", format!("{}ms", LOCK_TIMEOUT.as_millis())),
    ];
    numbers.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
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

    /// B35: a program works with its own version, the one before, and newer ones that say so.
    #[test]
    fn neighbours_are_served() {
        let table = [
            (
                1,
                None,
                Err("version 1, and this program needs 2 at least; run \"lockfast migrate\""),
            ),
            (2, None, Ok(())),
            (3, None, Ok(())),
            (4, Some(3), Ok(())),
            (
                4,
                Some(4),
                Err("version 4, which is newer than this program's 3; update the program"),
            ),
            (4, None, Err("version 4, which is newer than this program's 3; update the program")),
            (9, Some(2), Ok(())),
        ];
        for (found, serves_since, expected) in table {
            let judged = judge("locks", 3, found, serves_since);
            match (judged, expected) {
                (Ok(()), Ok(())) => {}
                (Err(failure), Err(said)) => {
                    assert_eq!(failure.kind(), ErrorKind::InvalidConfig);
                    assert!(failure.message().contains(said), "{}", failure.message());
                }
                (judged, _) => panic!("{judged:?} of version {found}"),
            }
        }
    }
}
