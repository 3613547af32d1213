//! One advisory lock and the connection that it lives in.

use std::pin::pin;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{AcquireRequest, Error, Fence, Grant, Label, LockName, Mode, Moment};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::types::Type;

use super::patience;
use crate::claim::read_fence;
use crate::failure::{self, Failure};
use crate::store::{closed, lock};
use crate::wire::{Dialer, Param, Session, get};

/// A name that is a whole number, written as usual, is that key; any other has the key that SQL gives it, so that
/// other programs can use the same.
pub(super) fn key_of(name: &str) -> String {
    format!(
        "CASE WHEN {name} ~ '^(0|-?[1-9][0-9]{{0,17}})$' THEN {name}::bigint \
         ELSE hashtextextended({name}, 0) END"
    )
}

/// How long a session may take to leave the queue before it is told again, and how often it is.
const LEAVE_TIME: Duration = Duration::from_millis(200);
const CANCELS_MAX: u32 = 10;
/// How long after a request has failed the end of its session may be noticed.
const END_TIME: Duration = Duration::from_millis(500);
const UNLOCK_ALL: &str = "SELECT pg_advisory_unlock_all()";

/// A lock that we have.
pub(crate) struct Held {
    /// Absent once it is closed.
    session: Mutex<Option<std::sync::Arc<Session>>>,
    ended: Notify,
    name: LockName,
    /// Locked while it is changed, and while what it says is used.
    mode: tokio::sync::Mutex<Mode>,
    pub(crate) fence: Fence,
}

/// What became of an acquisition.
pub(super) enum Taken {
    Held(Held, Grant),
    ByOthers,
}

/// Takes a lock on a new connection, waiting in the server's queue until `stopped`.
pub(super) async fn take(
    dialer: &Dialer,
    label: &Label,
    request: &AcquireRequest,
    stopped: oneshot::Receiver<()>,
) -> Result<Taken, Failure> {
    let limit = dialer.config.request_timeout;
    let session = dialer.dial().await?;
    if !session.is_direct {
        return Err(super::unsafe_pooler());
    }
    let lease = request.ttl + request.lock_delay;
    session.execute(&settings(label, lease), limit).await?;
    let shared = if request.mode == Mode::Shared { "_shared" } else { "" };
    let name = request.name.as_str();
    let params: [Param<'_>; 1] = [(&name, Type::TEXT)];
    let patience = patience(request.wait);
    let sent = Moment::now();
    let statement = format!("SELECT pg_try_advisory_lock{shared}({key})", key = key_of("$1"));
    let rows = session.ask(&statement, &params, limit).await?;
    let mut is_held = rows.first().map_or(Ok(false), |row| get(row, 0))?;
    let mut from = sent;
    if !is_held && patience != Some(Duration::ZERO) {
        let statement = format!("SELECT pg_advisory_lock{shared}({key})", key = key_of("$1"));
        let waiting = session.client.query_typed(&statement, &params);
        is_held = wait(&session, waiting, patience, stopped).await?;
        // It was ours from some moment before the answer; the connection was alive until then.
        from = Moment::now().before(limit.min(request.ttl / 4));
    }
    if !is_held {
        return Ok(Taken::ByOthers);
    }
    let fence = match raise_fence(dialer, &session, request).await {
        Ok(fence) => fence,
        Err(failure) => {
            unlock_all(&session).await;
            return Err(failure);
        }
    };
    let held = Held {
        session: Mutex::new(Some(std::sync::Arc::new(session))),
        ended: Notify::new(),
        name: request.name.clone(),
        mode: tokio::sync::Mutex::new(request.mode),
        fence,
    };
    Ok(Taken::Held(held, Grant::new(fence, from)))
}

async fn raise_fence(
    dialer: &Dialer,
    session: &Session,
    request: &AcquireRequest,
) -> Result<Fence, Failure> {
    let statement = format!("SELECT {}.raise_fence($1, $2)", dialer.config.schema);
    let name = request.name.as_str();
    let floor = request.floor.map(|floor| i64::try_from(floor.get()).unwrap_or(i64::MAX));
    let params: [Param<'_>; 2] = [(&name, Type::TEXT), (&floor, Type::INT8)];
    let rows = session.ask(&statement, &params, dialer.config.request_timeout).await?;
    let number: Option<i64> = rows.first().map_or(Ok(None), |row| get(row, 0))?;
    match number {
        Some(number) => read_fence(Some(number)),
        None => Err(Error::floor_ahead().into()),
    }
}

/// Gives back what nobody wants: closing would do, but then nobody knows when.
async fn unlock_all(session: &Session) {
    // A session that does not answer ends, and its locks with it.
    let _ = session.execute(UNLOCK_ALL, LEAVE_TIME).await;
}

/// Waits for the server, for as long as it is wanted. A statement that is given up is cancelled,
/// so that the session leaves the queue.
async fn wait<T>(
    session: &Session,
    waiting: impl Future<Output = Result<T, tokio_postgres::Error>>,
    patience: Option<Duration>,
    stopped: oneshot::Receiver<()>,
) -> Result<bool, Failure> {
    let mut waiting = pin!(waiting);
    let mut stopped = pin!(stopped);
    let mut timer = pin!(tokio::time::sleep(patience.unwrap_or(Duration::from_secs(86_400 * 365))));
    let mut is_answered = false;
    let outcome = std::future::poll_fn(|context| {
        if let Poll::Ready(result) = waiting.as_mut().poll(context) {
            is_answered = true;
            let result = result.map_err(|error| failure::of_driver(&session.endpoint, &error));
            return Poll::Ready(Some(result.map(|_| true)));
        }
        if stopped.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(closed())));
        }
        timer.as_mut().poll(context).map(|()| None)
    })
    .await;
    if !is_answered {
        // One that comes before the server has begun to wait does nothing, and a server that waits does
        // not notice that a connection is closed.
        for _ in 0..CANCELS_MAX {
            session.cancel().await;
            if tokio::time::timeout(LEAVE_TIME, waiting.as_mut()).await.is_ok() {
                break;
            }
        }
        // It is not in the queue any more, and shall not have what it was granted meanwhile.
        unlock_all(session).await;
    }
    outcome.unwrap_or(Ok(false))
}

/// Lets the server notice that we are gone, but not before we have noticed ourselves; and says
/// who we are.
fn settings(label: &Label, lease: Duration) -> String {
    let mut who = format!("lockfast {} {} {}", label.pid, label.host, label.program);
    who.retain(|c| c != '\'' && c != '\\');
    format!(
        "SET application_name = '{who}'; SET statement_timeout = 0; SET lock_timeout = 0; {}",
        keepalive(lease)
    )
}

fn keepalive(lease: Duration) -> String {
    let seconds = lease.as_secs() + 2;
    format!(
        "SET tcp_keepalives_idle = {seconds}; SET tcp_user_timeout = {}",
        seconds.saturating_mul(1000).min(2_000_000_000)
    )
}

impl Held {
    fn session(&self) -> Result<std::sync::Arc<Session>, Failure> {
        lock(&self.session).clone().ok_or_else(closed)
    }

    /// Whether the session still answers.
    pub(super) async fn ping(&self, dialer: &Dialer) -> Result<(), Failure> {
        self.session()?.execute("", dialer.config.request_timeout).await
    }

    /// The same, and the server waits for so long before it takes us for dead.
    pub(super) async fn prolong(&self, dialer: &Dialer, lease: Duration) -> Result<(), Failure> {
        self.session()?.execute(&keepalive(lease), dialer.config.request_timeout).await
    }

    /// How it is held, which a downgrade that is under way may change first.
    pub(super) async fn mode(&self) -> Mode {
        *self.mode.lock().await
    }

    /// Makes a shared lock of an exclusive one. The session takes the shared lock too, which the server
    /// grants ahead of whoever waits because that one waits for this session, and then gives the
    /// exclusive one back: only that lets others in. The form that does not wait would be refused while
    /// somebody waits.
    pub(super) async fn downgrade(&self, dialer: &Dialer) -> Result<(), Failure> {
        let mut mode = self.mode.lock().await;
        if *mode == Mode::Shared {
            return Ok(());
        }
        let statement = format!(
            "WITH shared AS MATERIALIZED (SELECT pg_advisory_lock_shared({key})) \
             SELECT pg_advisory_unlock({key}) FROM shared",
            key = key_of("$1")
        );
        let name = self.name.as_str();
        let params: [Param<'_>; 1] = [(&name, Type::TEXT)];
        let session = self.session()?;
        let rows = session.ask(&statement, &params, dialer.config.request_timeout).await?;
        if !rows.first().map_or(Ok(false), |row| get(row, 0))? {
            return Err(failure::of_nonsense("a session without its lock"));
        }
        *mode = Mode::Shared;
        Ok(())
    }

    pub(super) async fn unlock(&self, dialer: &Dialer) -> Result<bool, Failure> {
        let mode = self.mode.lock().await;
        let shared = if *mode == Mode::Shared { "_shared" } else { "" };
        let statement = format!("SELECT pg_advisory_unlock{shared}({key})", key = key_of("$1"));
        let name = self.name.as_str();
        let params: [Param<'_>; 1] = [(&name, Type::TEXT)];
        let session = self.session()?;
        let rows = session.ask(&statement, &params, dialer.config.request_timeout).await?;
        rows.first().map_or(Ok(false), |row| get(row, 0))
    }

    /// Gives it back before the session ends.
    pub(super) async fn abandon(self) {
        if let Ok(session) = self.session() {
            unlock_all(&session).await;
        }
    }

    /// Ends the session, and with it whatever it has.
    pub(super) fn close(&self) {
        drop(lock(&self.session).take());
        self.ended.notify_one();
    }

    /// Whether the session has ended. A request in it may fail a moment before its end is known.
    pub(super) async fn has_ended(&self) -> bool {
        tokio::time::timeout(END_TIME, self.ended()).await.is_ok()
    }

    /// Returns when the session has ended.
    pub(super) async fn ended(&self) {
        let Ok(session) = self.session() else { return };
        let watch = session.watch_end();
        drop(session);
        let mut watch = pin!(watch);
        let mut closed = pin!(self.ended.notified());
        std::future::poll_fn(|context| match closed.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => watch.as_mut().poll(context),
        })
        .await;
    }
}
