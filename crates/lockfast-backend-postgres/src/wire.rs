//! Connections to the server: how they are made, what stands between, and what is asked.

mod process;
mod stamp;
mod tls;

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use lockfast_core::{ErrorKind, GateAnswer, GateStatement, HolderId};
use lockfast_net::drive::{Plug, Raw, Socket};
use lockfast_net::tcp::{self, Keepalive};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Row};

use crate::config::{Config, Endpoint, TlsMode};
use crate::failure::{self, Failure};
use crate::store::lock;
use tls::{Encrypted, Encryption};

const KEEPALIVE: Keepalive =
    Keepalive { idle: Duration::from_secs(5), interval: Duration::from_secs(2) };
const CANCEL_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a gate's statement takes when nobody else has its row.
const RAISE_TIME_MAX: Duration = Duration::from_secs(3);

/// What the server is told about a session of our own, whatever the role or the database would have
/// it be: to notice when we are gone and not to give us up, to write before it answers, and to plan
/// each statement once and not five times more. It is not told when connecting, because poolers refuse
/// what they do not know.
const SETTINGS: &str = "SET default_transaction_isolation = 'read committed'; SET jit = off; \
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; \
    SET tcp_user_timeout = 10000; SET lock_timeout = '2s'; SET statement_timeout = 0; \
    SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
    SET enable_hashjoin = off; SET enable_mergejoin = off;";
/// The same for servers from a version on.
const SETTINGS_SINCE: [(i32, &str); 2] =
    [(140_000, "SET idle_session_timeout = 0;"), (170_000, "SET transaction_timeout = 0;")];

type Connection = tokio_postgres::Connection<Socket, Encrypted>;

/// Makes connections.
pub(crate) struct Dialer {
    pub(crate) config: Config,
    encryption: Option<Encryption>,
}

/// A connection that is in use. It is closed when this is dropped. Whoever asks drives it while it
/// waits, unless a task of its own does ([`Session::detach`]).
pub(crate) struct Session {
    pub(crate) client: Client,
    /// What the server pushes.
    pub(crate) messages: mpsc::UnboundedReceiver<Push>,
    /// Whether we talk to a server's session and not to a pooler, which gives each transaction
    /// another one.
    pub(crate) is_direct: bool,
    pub(crate) endpoint: Endpoint,
    encryption: Option<Encryption>,
    /// The number of the next statement through a pooler.
    stamps: AtomicI64,
    plug: Arc<Plug>,
    pump: Arc<Pump>,
    /// Closed when the connection has ended.
    alive: watch::Receiver<()>,
    task: Option<AbortHandle>,
}

/// Reads and writes for a connection, as long as that lasts.
struct Pump(Mutex<Option<Flow>>);

struct Flow {
    connection: Connection,
    pushes: mpsc::UnboundedSender<Push>,
    _living: watch::Sender<()>,
}

impl Pump {
    /// Does what can be done now; ready when the connection has ended.
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut place = lock(&self.0);
        let Some(flow) = &mut *place else { return Poll::Ready(()) };
        loop {
            match flow.connection.poll_message(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(AsyncMessage::Notification(message)))) => {
                    let channel = message.channel().to_owned();
                    let payload = message.payload().to_owned();
                    // Nobody listens on the connection for commands.
                    let _ = flow.pushes.send(Push { channel, payload });
                }
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => break,
            }
        }
        *place = None;
        Poll::Ready(())
    }
}

/// A notification.
pub(crate) struct Push {
    pub(crate) channel: String,
    pub(crate) payload: String,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
        *lock(&self.pump.0) = None;
    }
}

/// A value of a statement and its type, so that the server need not be asked for it.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

impl Session {
    /// Lets a task of the present runtime drive the connection, also while nobody asks.
    pub(crate) fn detach(&mut self) {
        let pump = Arc::clone(&self.pump);
        let driving = async move { poll_fn(|context| pump.poll(context)).await };
        self.task = Some(tokio::spawn(driving).abort_handle());
    }

    /// Waits for what was asked on this connection, and drives it meanwhile if nobody else does.
    pub(crate) async fn attend<F: Future>(&self, asking: F) -> F::Output {
        let mut asking = pin!(asking);
        poll_fn(|context| {
            let polled = asking.as_mut().poll(context);
            if polled.is_ready() || self.task.is_some() {
                return polled;
            }
            // What it has to say is known to the one who asks.
            let _ = self.pump.poll(context);
            asking.as_mut().poll(context)
        })
        .await
    }

    /// Drives the connection while nothing is asked; ready when it has ended.
    pub(crate) fn poll_end(&self, context: &mut Context<'_>) -> Poll<()> {
        self.pump.poll(context)
    }

    /// Finds out whether the process that serves us is the one that we were told of. A pooler gives
    /// out numbers of its own, so that it can cancel what runs elsewhere.
    async fn note_process(&mut self, process: i32) {
        self.is_direct = process::id_of(&self.client).await == Some(process);
    }

    /// The socket under it.
    pub(crate) fn plug(&self) -> &Arc<Plug> {
        &self.plug
    }

    /// Runs a statement, which may be repeated, and drives the connection meanwhile, for no longer
    /// than `limit`.
    pub(crate) async fn ask(
        &self,
        statement: &str,
        params: &[Param<'_>],
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        self.ask_knowingly(statement, params, limit).await.0
    }

    /// The same, and whether an earlier try may have done it.
    pub(crate) async fn ask_knowingly(
        &self,
        statement: &str,
        params: &[Param<'_>],
        limit: Duration,
    ) -> (Result<Vec<Row>, Failure>, bool) {
        let asking = async {
            match self.query(statement, params).await {
                Err(failure) if failure.handling.is_unproven => {
                    (self.query(statement, params).await.map_err(failure::proven), true)
                }
                answered => (answered, false),
            }
        };
        let silence = |_| (Err(failure::of_silence(&self.endpoint, limit)), true);
        tokio::time::timeout(limit, self.attend(asking)).await.unwrap_or_else(silence)
    }

    /// The same for what must not be done twice: through a pooler an error of it stays unproven.
    pub(crate) async fn ask_once(
        &self,
        statement: &str,
        params: &[Param<'_>],
        limit: Duration,
    ) -> Result<Vec<Row>, Failure> {
        let asking = self.attend(self.query(statement, params));
        let silence = |_| Err(failure::of_silence(&self.endpoint, limit));
        tokio::time::timeout(limit, asking).await.unwrap_or_else(silence)
    }

    /// Asks the server to give up what it is doing for this session, on a connection of its own.
    pub(crate) async fn cancel(&self) {
        let cancelling = async {
            let stream = open(&self.endpoint).await.ok()?;
            let connector = tls::Connector(self.encryption.clone());
            self.client.cancel_token().cancel_query_raw(stream, connector).await.ok()
        };
        // If it does not arrive, the end of the connection does the same, later.
        let _ = tokio::time::timeout(CANCEL_TIME_MAX, cancelling).await;
    }

    /// Returns when the connection has ended.
    pub(crate) fn watch_end(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut alive = self.alive.clone();
        async move { while alive.changed().await.is_ok() {} }
    }

    /// Runs a gate's statement, which is a transaction by itself.
    pub(crate) async fn raise(&self, statement: &GateStatement) -> Result<GateAnswer, Failure> {
        let limit = GateStatement::WAIT + RAISE_TIME_MAX;
        if self.is_direct {
            let patience = format!("SET lock_timeout = {}", GateStatement::WAIT.as_millis());
            self.execute(&patience, limit).await?;
        }
        let (fence, lock) = (statement.fence(), statement.lock.as_str());
        let params: [Param<'_>; 2] = [(&fence, Type::INT8), (&lock, Type::TEXT)];
        let asking = self.attend(self.client.query_typed(&statement.sql, &params));
        let rows = match tokio::time::timeout(limit, asking).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(error)) => {
                let failure = failure::of_driver(&self.endpoint, &error);
                return match failure::is_of_the_way(&failure) {
                    true => Err(failure),
                    false => Ok(GateAnswer::Refused(error.into())),
                };
            }
            Err(_) => return Err(failure::of_silence(&self.endpoint, limit)),
        };
        let highest = rows.first().map(|row| row.try_get(0)).transpose();
        Ok(highest.map_or_else(|error| GateAnswer::Refused(error.into()), GateAnswer::Highest))
    }

    /// Runs statements of which no answer is expected.
    pub(crate) async fn execute(&self, script: &str, limit: Duration) -> Result<(), Failure> {
        let asking = self.attend(self.client.batch_execute(script));
        match tokio::time::timeout(limit, asking).await {
            Ok(result) => result.map_err(|error| failure::of_driver(&self.endpoint, &error)),
            Err(_) => Err(failure::of_silence(&self.endpoint, limit)),
        }
    }
}

impl Dialer {
    pub(crate) fn new(config: Config) -> Result<Self, Failure> {
        let encryption = match (&config.endpoint, config.tls.mode) {
            (Endpoint::Unix(_), _) | (_, TlsMode::Disable) => None,
            (Endpoint::Tcp { host, .. }, _) => Some(Encryption::prepare(&config.tls, host)?),
        };
        Ok(Self { config, encryption })
    }

    /// Connects to a server that takes locks; a task of the present runtime drives it.
    pub(crate) async fn dial(&self) -> Result<Session, Failure> {
        let mut session = self.dial_unattended().await?;
        session.detach();
        Ok(session)
    }

    /// The same; whoever asks must drive it.
    pub(crate) async fn dial_unattended(&self) -> Result<Session, Failure> {
        let limit = self.config.request_timeout;
        let endpoint = &self.config.endpoint;
        match tokio::time::timeout(limit, self.dial_at_leisure()).await {
            Ok(result) => result,
            Err(_) => Err(failure::of_silence(endpoint, limit)),
        }
    }

    /// Connects to a server whatever it is like, and leaves the session as the role and the database
    /// have it.
    pub(crate) async fn dial_to_look(&self) -> Result<Session, Failure> {
        let limit = self.config.request_timeout;
        let dialing = async {
            let mut session = self.open_session().await?;
            let rows = session.ask("SELECT pg_backend_pid()", &[], limit).await?;
            let row = rows.first().ok_or_else(|| failure::of_nonsense("no process"))?;
            session.note_process(get(row, 0)?).await;
            session.detach();
            Ok(session)
        };
        match tokio::time::timeout(limit, dialing).await {
            Ok(result) => result,
            Err(_) => Err(failure::of_silence(&self.config.endpoint, limit)),
        }
    }

    async fn dial_at_leisure(&self) -> Result<Session, Failure> {
        let mut session = self.open_session().await?;
        self.look(&mut session).await?;
        Ok(session)
    }

    async fn open_session(&self) -> Result<Session, Failure> {
        let (client, connection, plug) = self.start().await.map_err(|error| match error {
            Unconnected::Unknown(error) => Failure::new(
                ErrorKind::Unreachable,
                format!("the host of {} is not known: {error}", self.config.endpoint),
            ),
            Unconnected::Failed(error) => failure::of_io(&self.config.endpoint, &error),
            Unconnected::Driver(error) => failure::of_driver(&self.config.endpoint, &error),
        })?;
        let (pushes, messages) = mpsc::unbounded_channel();
        let (living, alive) = watch::channel(());
        let flow = Flow { connection, pushes, _living: living };
        Ok(Session {
            client,
            messages,
            is_direct: false,
            endpoint: self.config.endpoint.clone(),
            encryption: self.encryption.clone(),
            stamps: AtomicI64::new(random()?),
            plug,
            pump: Arc::new(Pump(Mutex::new(Some(flow)))),
            alive,
            task: None,
        })
    }

    /// Finds out with whom we talk, and makes a session of our own what we need.
    async fn look(&self, session: &mut Session) -> Result<(), Failure> {
        const QUESTION: &str = "SELECT pg_backend_pid(), pg_is_in_recovery(), \
            current_setting('transaction_read_only') = 'on', \
            current_setting('synchronous_commit') = 'off', current_setting('fsync') = 'off', \
            current_setting('server_version_num')::integer";
        let limit = self.config.request_timeout;
        let rows = session.ask(QUESTION, &[], limit).await?;
        let row = rows.first().ok_or_else(|| failure::of_nonsense("no settings"))?;
        session.note_process(get(row, 0)?).await;
        if get(row, 1)? {
            return Err(failure::of_standby());
        }
        if get(row, 2)? {
            return Err(failure::of_reader());
        }
        let is_hasty: bool = get(row, 3)?;
        if session.is_direct {
            let mut settings = String::from(SETTINGS);
            let version: i32 = get(row, 5)?;
            let since = SETTINGS_SINCE.iter().filter(|(since, _)| *since <= version);
            settings.extend(since.map(|(_, setting)| *setting));
            if is_hasty {
                // A grant that was told must not be lost in a crash.
                settings.push_str("SET synchronous_commit = on");
            }
            session.execute(&settings, limit).await?;
        } else if is_hasty {
            tracing::warn!(
                "synchronous_commit is off for the pooler's role: grants can be lost in a crash"
            );
        }
        if get(row, 4)? {
            tracing::warn!("fsync is off: grants can be lost when the server's machine crashes");
        }
        Ok(())
    }

    async fn start(&self) -> Result<(Client, Connection, Arc<Plug>), Unconnected> {
        let stream = open(&self.config.endpoint).await?;
        let plug = Arc::clone(&stream.0);
        let mut login = tokio_postgres::Config::new();
        login.application_name("lockfast");
        if let Some(user) = &self.config.user {
            login.user(user);
        }
        if let Some(password) = &self.config.password {
            login.password(&password.0);
        }
        if let Some(database) = &self.config.database {
            login.dbname(database);
        }
        login.ssl_mode(match self.config.tls.mode {
            _ if self.encryption.is_none() => SslMode::Disable,
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
        });
        let connecting = login.connect_raw(stream, tls::Connector(self.encryption.clone()));
        let (client, connection) = connecting.await.map_err(Unconnected::Driver)?;
        Ok((client, connection, plug))
    }
}

async fn open(endpoint: &Endpoint) -> Result<Socket, Unconnected> {
    let raw = match endpoint {
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(Unconnected::Failed)?;
            stream.into_std().map(Raw::Unix)
        }
        Endpoint::Tcp { host, port } => match tcp::connect(host, *port, KEEPALIVE).await {
            Ok(stream) => stream.into_std().map(Raw::Tcp),
            Err(tcp::Unconnected::Unknown(error)) => return Err(Unconnected::Unknown(error)),
            Err(tcp::Unconnected::Failed(error)) => return Err(Unconnected::Failed(error)),
        },
    };
    let plug = raw.and_then(Plug::new).map_err(Unconnected::Failed)?;
    Ok(Socket(Arc::new(plug)))
}

enum Unconnected {
    Unknown(io::Error),
    Failed(io::Error),
    Driver(tokio_postgres::Error),
}

/// A number that nobody else has.
pub(crate) fn random() -> Result<i64, Failure> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::new(ErrorKind::Internal, format!("no random numbers: {error}"))
    })?;
    Ok(i64::from_le_bytes(bytes))
}

/// A field of a row.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Failure> {
    row.try_get(at).map_err(failure::of_nonsense)
}

/// A holder's id as the server stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uuid(pub(crate) HolderId);

impl ToSql for Uuid {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(HolderId::from_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}
