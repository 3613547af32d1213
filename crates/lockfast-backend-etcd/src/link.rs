//! The connection that is in use. When it breaks, another is made, to another member if there is
//! one; what was under way is told that it broke.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{ErrorKind, jitter};
use tokio::sync::{Notify, watch};

use crate::failure::{self, Failure, Fate};
use crate::wire::{
    Connection, Dialer, LeaseGrantRequest, LeaseGrantResponse, LeaseRevokeResponse, RangeRequest,
    RangeResponse, TimeToLiveResponse, TxnRequest, TxnResponse,
};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long a member may take to say that it is there, when it did not answer something else.
const CHECK_MAX: Duration = Duration::from_millis(700);

/// Whether there is a connection.
#[derive(Clone)]
pub(crate) enum State {
    /// None; and why the last try failed.
    Down(Option<Failure>),
    /// This one, with its number.
    Up(u64, Connection),
}

/// The way to the cluster.
pub(crate) struct Link {
    pub(crate) dialer: Dialer,
    state: watch::Sender<State>,
    /// Told when the connection is given up.
    given_up: Notify,
}

impl Link {
    /// A way that starts with a connection.
    pub(crate) fn new(dialer: Dialer, first: Connection) -> Self {
        dialer.crew().set_plug(Some(Arc::clone(first.plug())));
        let (state, _) = watch::channel(State::Up(1, first));
        Self { dialer, state, given_up: Notify::new() }
    }

    /// Makes a new connection whenever the last one is given up, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut number = 1;
        loop {
            while matches!(&*self.state.borrow(), State::Up(..)) {
                self.given_up.notified().await;
            }
            self.dialer.crew().set_plug(None);
            let mut pause = PAUSE_MIN;
            loop {
                match self.dialer.dial().await {
                    Ok(connection) => {
                        number += 1;
                        self.dialer.crew().set_plug(Some(Arc::clone(connection.plug())));
                        self.state.send_replace(State::Up(number, connection));
                        break;
                    }
                    Err(failure) => {
                        tracing::debug!(failure = failure.message(), "no member can be reached");
                        self.state.send_replace(State::Down(Some(failure)));
                        tokio::time::sleep(pause.mul_f64(0.5 + jitter())).await;
                        pause = (pause * 2).min(PAUSE_MAX);
                    }
                }
            }
        }
    }

    /// The connection, once there is one; or why there is none, as soon as that is known.
    pub(crate) async fn current(&self) -> Result<(u64, Connection), Failure> {
        let mut state = self.state.subscribe();
        if let State::Up(number, connection) = &*state.borrow_and_update() {
            return Ok((*number, connection.clone()));
        }
        let limit = self.dialer.config().request_timeout;
        match tokio::time::timeout(limit, state.changed()).await {
            Ok(Ok(())) => match &*state.borrow() {
                State::Up(number, connection) => Ok((*number, connection.clone())),
                State::Down(Some(failure)) => Err(failure.clone().with(Fate::Refused)),
                State::Down(None) => Err(failure::of_closing().with(Fate::Refused)),
            },
            _ => Err(failure::of_silence(&self.dialer.config().shown(), limit).with(Fate::Refused)),
        }
    }

    /// The connection as soon as there is one, however long that takes.
    pub(crate) async fn wait(&self) -> (u64, Connection) {
        let mut state = self.state.subscribe();
        loop {
            if let State::Up(number, connection) = &*state.borrow_and_update() {
                return (*number, connection.clone());
            }
            if state.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns when this connection is not the one in use any more.
    pub(crate) async fn ended(&self, number: u64) {
        let mut state = self.state.subscribe();
        let is_other =
            |state: &State| !matches!(state, State::Up(present, _) if *present == number);
        let _ = state.wait_for(is_other).await;
    }

    /// This connection is of no use any more.
    pub(crate) fn give_up(&self, number: u64) {
        let was_present = self.state.send_if_modified(|state| match state {
            State::Up(present, _) if *present == number => {
                *state = State::Down(None);
                true
            }
            _ => false,
        });
        if was_present {
            self.dialer.turn_away();
            self.given_up.notify_one();
        }
    }

    /// Makes a call on the present connection.
    async fn call<Q: Clone, A, F>(
        &self,
        request: Q,
        call: impl Fn(Connection, Q) -> F,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<A, Failure>>,
    {
        let (number, connection) = self.current().await?;
        let token = connection.token_number();
        let asked = self.until_given_up(number, call(connection.clone(), request.clone()));
        let mut answer = asked.await;
        if matches!(&answer, Err(failure) if self.dialer.may_introduce(failure)) {
            self.dialer.renew_token(&connection, token).await?;
            answer = self.until_given_up(number, call(connection.clone(), request)).await;
        }
        let Err(failure) = answer else { return answer };
        match failure.handling {
            Fate::Broken => self.give_up(number),
            // The cluster may be at a loss, and not the connection. What comes next is not to be
            // asked over one of no use.
            Fate::Unknown | Fate::Silent => self.check(number, &connection).await,
            Fate::Refused | Fate::Stranger | Fate::NoLease => {}
        }
        Err(self.dialer.config().explain(failure))
    }

    /// What is asked over a connection, as long as that is the one in use.
    async fn until_given_up<A>(
        &self,
        number: u64,
        asked: impl Future<Output = Result<A, Failure>>,
    ) -> Result<A, Failure> {
        tokio::select! {
            biased;
            answer = asked => answer,
            () = self.ended(number) => Err(failure::of_closing()),
        }
    }

    /// Something was not answered over this connection: it is given up if its member does not
    /// answer at all, or does not know of a leader.
    pub(crate) async fn check(&self, number: u64, connection: &Connection) {
        let is_present =
            matches!(&*self.state.borrow(), State::Up(present, _) if *present == number);
        if !is_present {
            return;
        }
        let is_well = tokio::time::timeout(CHECK_MAX, self.knows_leader(connection)).await;
        if !is_well.unwrap_or(false) {
            self.give_up(number);
        }
    }

    async fn knows_leader(&self, connection: &Connection) -> bool {
        match connection.status().await {
            Ok(status) => status.leader != 0,
            // The newest servers tell it to the role root only. In a read most members take part.
            Err(failure) if failure.kind() == ErrorKind::Permission => {
                let read = connection.range(self.dialer.glance()).await;
                !matches!(read, Err(failure) if failure.handling.is_in_doubt())
            }
            Err(_) => false,
        }
    }

    /// Makes a call that may be made twice, once more on another connection if one broke.
    async fn look<Q: Clone, A, F>(
        &self,
        request: Q,
        call: impl Fn(Connection, Q) -> F,
    ) -> Result<A, Failure>
    where
        F: Future<Output = Result<A, Failure>>,
    {
        match self.call(request.clone(), &call).await {
            Err(failure) if failure.handling.is_in_doubt() => self.call(request, &call).await,
            answer => answer,
        }
    }

    /// A transaction, once.
    pub(crate) async fn txn(&self, request: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call(request, |it, request| async move { it.txn(request).await }).await
    }

    /// A transaction that may be made twice.
    pub(crate) async fn repeat_txn(
        self: &Arc<Self>,
        request: TxnRequest,
    ) -> Result<TxnResponse, Failure> {
        self.look(request, |it, request| async move { it.txn(request).await }).await
    }

    pub(crate) async fn range(
        self: &Arc<Self>,
        request: RangeRequest,
    ) -> Result<RangeResponse, Failure> {
        self.look(request, |it, request| async move { it.range(request).await }).await
    }

    /// A new lease. Its number is ours, so that one whose answer is lost can be ended. It is not asked
    /// for once more by the same number: what was not answered could come late, when that lease has been
    /// ended, and let what was written under it take effect.
    pub(crate) async fn grant(self: &Arc<Self>, ttl: i64) -> Result<LeaseGrantResponse, Failure> {
        match self.grant_once(ttl).await {
            Err(failure) if failure.handling.is_in_doubt() => self.grant_once(ttl).await,
            answer => answer,
        }
    }

    async fn grant_once(self: &Arc<Self>, ttl: i64) -> Result<LeaseGrantResponse, Failure> {
        let id = random_lease()?;
        let request = LeaseGrantRequest { ttl, id };
        let answer = self.call(request, |it, request| async move { it.grant(request).await }).await;
        if matches!(&answer, Err(failure) if failure.handling.is_in_doubt()) {
            let link = Arc::clone(self);
            // If that fails, or it comes even later, it ends by itself.
            self.dialer.crew().spawn(async move { drop(link.revoke(id).await) });
        }
        answer
    }

    pub(crate) async fn revoke(
        self: &Arc<Self>,
        lease: i64,
    ) -> Result<LeaseRevokeResponse, Failure> {
        self.look(lease, |it, lease| async move { it.revoke(lease).await }).await
    }

    pub(crate) async fn time_to_live(
        self: &Arc<Self>,
        lease: i64,
    ) -> Result<TimeToLiveResponse, Failure> {
        self.look(lease, |it, lease| async move { it.time_to_live(lease).await }).await
    }
}

/// A number that no lease has.
fn random_lease() -> Result<i64, Failure> {
    let number = getrandom::u64().map_err(|error| {
        let message = format!("the operating system gave no random numbers: {error}");
        Failure::new(ErrorKind::Internal, message)
    })?;
    // Positive, as those that servers choose, and not 0, which lets the server choose.
    Ok((number >> 1).max(1).cast_signed())
}
