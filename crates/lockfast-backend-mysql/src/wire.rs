//! Connections and calls: the only part that knows the driver. A connection belongs to one task,
//! so a caller that goes away never leaves an answer half read.

use std::time::Duration;

use lockfast_core::{Error, ErrorKind, GateAnswer, GateStatement, Result};
use mysql_async::prelude::Queryable as _;
use mysql_async::{ClientIdentity, Conn, Opts, OptsBuilder, Params, Row, SslOpts, Value};

use crate::config::{Config, Tls};
use crate::failure::{self, Failure, Remedy};

/// What every connection begins with. Procedures read times in the session's zone, rows are
/// locked without gaps, and nobody waits for a row for long.
const SETTINGS: &[&str] = &[
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = 2, autocommit = 1, \
     group_concat_max_len = 16777216",
];
/// The same for a session whose times are those of everybody else's.
const SETTINGS_IN_ZONE: &[&str] = &[
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION innodb_lock_wait_timeout = 2, autocommit = 1",
];
/// A peer that is gone without a word is noticed in the end even when nothing is sent.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Statements that are kept prepared; there are fewer.
const STATEMENTS_MAX: usize = 32;
/// How long a gate's statement takes when nobody else has its row.
const RAISE_TIME_MAX: Duration = Duration::from_secs(3);

/// How to get a connection.
#[derive(Clone, Debug)]
pub(crate) struct Dialer {
    config: Config,
    options: Opts,
}

impl Dialer {
    /// Reads what the configuration names, so that a file that is missing is told at once.
    pub(crate) fn new(config: Config) -> Result<Self> {
        let mut options = OptsBuilder::default()
            .ip_or_hostname(config.host.clone())
            .tcp_port(config.port)
            .user(Some(config.user.clone()))
            .pass(config.password.as_ref().map(|secret| secret.0.clone()))
            .db_name(Some(config.database.clone()))
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEPALIVE))
            // The driver would leave for the server's socket by itself.
            .prefer_socket(false)
            .stmt_cache_size(STATEMENTS_MAX)
            .init(SETTINGS.to_vec());
        if let Some(tls) = &config.tls {
            options = options.ssl_opts(Some(encrypt(tls)?));
        }
        Ok(Self { config, options: options.into() })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Connects and introduces us, within the time that a request may take.
    pub(crate) async fn dial(&self) -> Result<Wire, Failure> {
        self.connect(self.options.clone()).await
    }

    /// The same, in the time zone that the server gives everybody.
    pub(crate) async fn dial_in_zone(&self) -> Result<Wire, Failure> {
        let settings = SETTINGS_IN_ZONE.to_vec();
        self.connect(OptsBuilder::from_opts(self.options.clone()).init(settings).into()).await
    }

    /// Connects and leaves the session as the server has it for this user.
    pub(crate) async fn dial_to_look(&self) -> Result<Wire, Failure> {
        let options = OptsBuilder::from_opts(self.options.clone()).init(Vec::<String>::new());
        self.connect(options.into()).await
    }

    async fn connect(&self, options: Opts) -> Result<Wire, Failure> {
        let (endpoint, limit) = (self.config.endpoint(), self.config.request_timeout);
        match tokio::time::timeout(limit, Conn::new(options)).await {
            Ok(Ok(conn)) => Ok(Wire { conn, endpoint }),
            Ok(Err(error)) => {
                let failed = failure::of_driver(&endpoint, &error);
                let is_plain = self.config.tls.is_none();
                Err(if is_plain { failure::with_hint_at_tls(failed) } else { failed })
            }
            Err(_) => Err(failure::of_silence(&endpoint, limit)),
        }
    }
}

fn encrypt(tls: &Tls) -> Result<SslOpts> {
    check_provider()?;
    let mut options = SslOpts::default().with_disable_built_in_roots(true);
    if tls.insecure {
        options =
            options.with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true);
    }
    let roots: Vec<Vec<u8>> = match &tls.ca {
        Some(path) => vec![read_file("ca", path)?],
        None => {
            let found = rustls_native_certs::load_native_certs().certs;
            found.iter().map(|cert| cert.as_ref().to_vec()).collect()
        }
    };
    if roots.is_empty() && !tls.insecure {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            "the system has no certificates to trust; name a file with the option ca",
        )
        .with_backend("mysql"));
    }
    options = options.with_root_certs(roots.into_iter().map(Into::into).collect());
    if let Some((cert, key)) = &tls.identity {
        let (cert, key) = (read_file("cert", cert)?, read_file("key", key)?);
        let identity = ClientIdentity::new(cert.into(), key.into());
        options = options.with_client_identity(Some(identity));
    }
    Ok(options)
}

/// The driver takes no provider of cryptography: it uses the one that the program has installed,
/// or else the only one that is compiled in, and panics when there are several. That choice is the
/// program's, so it is told to make it.
fn check_provider() -> Result<()> {
    let is_clear = rustls::crypto::CryptoProvider::get_default().is_some()
        || std::panic::catch_unwind(rustls::ClientConfig::builder).is_ok();
    if is_clear {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidConfig,
        "tls=yes needs a provider of cryptography, and this program is built with several; install \
         one with rustls::crypto::CryptoProvider::install_default when it starts",
    )
    .with_backend("mysql"))
}

fn read_file(option: &str, path: &std::path::Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        Error::new(
            ErrorKind::InvalidConfig,
            format!("option {option}: {} cannot be read", path.display()),
        )
        .with_backend("mysql")
        .with_source(error)
    })
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Wire {
    conn: Conn,
    endpoint: String,
}

/// A row of an answer.
#[derive(Debug)]
pub(crate) struct Answer(Row);

impl Answer {
    /// A column's bytes; none for NULL.
    pub(crate) fn bytes(&self, at: usize) -> Option<&[u8]> {
        match self.0.as_ref(at) {
            Some(Value::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// A column's text; what is not UTF-8 is not ours.
    pub(crate) fn text(&self, at: usize) -> Option<&str> {
        self.bytes(at).and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// A column's number.
    pub(crate) fn number(&self, at: usize) -> Option<u64> {
        match self.0.as_ref(at)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::UInt(number) => Some(*number),
            Value::Bytes(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// A column's number, where only a small one is ours.
    pub(crate) fn small(&self, at: usize) -> Option<u32> {
        self.number(at).and_then(|number| u32::try_from(number).ok())
    }

    /// A column's number, which may be below zero.
    pub(crate) fn signed(&self, at: usize) -> Option<i64> {
        match self.0.as_ref(at)? {
            Value::Int(number) => Some(*number),
            Value::UInt(number) => i64::try_from(*number).ok(),
            Value::Bytes(digits) => std::str::from_utf8(digits).ok()?.parse().ok(),
            _ => None,
        }
    }
}

impl Wire {
    /// Calls a procedure, or runs another statement, and returns the rows of its answer. When it fails,
    /// nothing of it is left in the connection.
    pub(crate) async fn call(
        &mut self,
        statement: &str,
        arguments: Vec<Value>,
        limit: Duration,
    ) -> Result<Vec<Answer>, Failure> {
        let arguments = match arguments.is_empty() {
            true => Params::Empty,
            false => Params::Positional(arguments),
        };
        let asked = async {
            match self.conn.exec::<Row, _, _>(statement, arguments).await {
                Ok(rows) => Ok(rows.into_iter().map(Answer).collect()),
                Err(error) => Err(self.recover(error).await),
            }
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(answered) => answered,
            Err(_) => Err(failure::of_silence(&self.endpoint, limit)),
        }
    }

    /// Runs a statement and tells how many rows it has changed.
    pub(crate) async fn change(
        &mut self,
        statement: &str,
        arguments: Vec<Value>,
        limit: Duration,
    ) -> Result<u64, Failure> {
        self.call(statement, arguments, limit).await?;
        Ok(self.conn.affected_rows())
    }

    /// Calls a procedure that answers bit by bit, and passes each row on when it comes. It leaves
    /// no transaction open.
    pub(crate) async fn follow(
        &mut self,
        statement: &'static str,
        arguments: Vec<Value>,
        limit: Duration,
        mut pass_on: impl FnMut(Answer),
    ) -> Result<(), Failure> {
        let followed = async {
            let mut parts = self.conn.exec_iter(statement, Params::Positional(arguments)).await?;
            while !parts.is_empty() {
                parts.for_each(|row| pass_on(Answer(row))).await?;
            }
            Ok(())
        };
        match tokio::time::timeout(limit, followed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failure::of_driver(&self.endpoint, &error)),
            Err(_) => Err(failure::of_silence(&self.endpoint, limit)),
        }
    }

    /// Ends the transaction that a call has left open when it was interrupted.
    async fn recover(&mut self, error: mysql_async::Error) -> Failure {
        let failure = failure::of_driver(&self.endpoint, &error);
        if error.is_fatal() || failure.handling == Remedy::ReconnectAndRepeat {
            return failure;
        }
        match self.conn.query_drop("ROLLBACK").await {
            Ok(()) => failure,
            Err(broken) => failure::of_driver(&self.endpoint, &broken),
        }
    }

    /// Runs a statement that has no arguments and no answer, as a migration does.
    pub(crate) async fn run(&mut self, statement: &str) -> Result<(), Failure> {
        let run = self.conn.query_drop(statement).await;
        run.map_err(|error| failure::of_driver(&self.endpoint, &error))
    }

    /// The first row of a query without arguments.
    pub(crate) async fn ask(&mut self, query: &str) -> Result<Option<Answer>, Failure> {
        let row: Result<Option<Row>, _> = self.conn.query_first(query).await;
        let row = row.map_err(|error| failure::of_driver(&self.endpoint, &error))?;
        Ok(row.map(Answer))
    }

    /// All rows of a query without arguments.
    pub(crate) async fn ask_all(
        &mut self,
        query: &str,
        limit: Duration,
    ) -> Result<Vec<Answer>, Failure> {
        match tokio::time::timeout(limit, self.conn.query::<Row, _>(query)).await {
            Ok(Ok(rows)) => Ok(rows.into_iter().map(Answer).collect()),
            Ok(Err(error)) => Err(failure::of_driver(&self.endpoint, &error)),
            Err(_) => Err(failure::of_silence(&self.endpoint, limit)),
        }
    }

    /// Which connection of the server's this is, as whoever accepted it has said.
    pub(crate) fn id(&self) -> u64 {
        self.conn.id().into()
    }

    /// Ends an earlier connection of ours that still has a named lock, perhaps because the server
    /// does not know yet that it is gone. One that is in a procedure is ended by the next.
    pub(crate) async fn evict(&mut self, name: &str, limit: Duration) -> Result<(), Failure> {
        let evicting = async {
            let query = format!("SELECT IS_USED_LOCK('{name}')");
            let earlier = self.ask(&query).await.ok().flatten().and_then(|row| row.number(0));
            if let Some(earlier) = earlier {
                // It may have ended by itself.
                let _ = self.run(&format!("KILL CONNECTION {earlier}")).await;
            }
        };
        let evicted = tokio::time::timeout(limit, evicting).await;
        evicted.map_err(|_| failure::of_silence(&self.endpoint, limit))
    }

    /// Runs a gate's statement, which is a transaction by itself. Its answer is the last insert id.
    pub(crate) async fn raise(&mut self, statement: &GateStatement) -> Result<GateAnswer, Failure> {
        let limit = GateStatement::WAIT + RAISE_TIME_MAX;
        let patience = GateStatement::WAIT.as_secs();
        let patience = format!("SET SESSION innodb_lock_wait_timeout = {patience}");
        let params = (statement.fence(), statement.lock.as_str());
        let asked = async {
            self.conn.query_drop(patience).await?;
            self.conn.exec_drop(&statement.sql, params).await
        };
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(())) => Ok(GateAnswer::Highest(self.conn.last_insert_id().map(u64::cast_signed))),
            Ok(Err(error)) => {
                let failure = failure::of_driver(&self.endpoint, &error);
                match failure::is_of_the_way(&failure) {
                    true => Err(failure),
                    false => Ok(GateAnswer::Refused(error.into())),
                }
            }
            Err(_) => Err(failure::of_silence(&self.endpoint, limit)),
        }
    }

    /// Says goodbye; what keeps it from that does not matter.
    pub(crate) async fn close(self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), self.conn.disconnect()).await;
    }
}

pub(crate) use mysql_async::Value as Argument;
