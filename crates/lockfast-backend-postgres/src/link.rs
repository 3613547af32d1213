//! The link for commands: one connection, one statement at a time. While it is in flight, what is
//! asked forms the next batch. The link is made anew when it breaks; what was in flight is then
//! asked again, which every request allows.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{Moment, jitter};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Statement};

use crate::answer::Reply;
use crate::batch::{Batch, One, Op, Plain, Told, Value, whole_us};
use crate::failure::{self, Failure, Remedy};
use crate::migration;
use crate::store::{Store, Work};
use crate::wire::{Param, Session, Uuid, get, random};

const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_URGENT: Duration = Duration::from_millis(200);

const SERVE: &str = "SELECT codes, numbers, notes, now_us, owed \
    FROM {schema}.serve($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const SERVE_TYPES: [Type; 10] = [
    Type::BYTEA,
    Type::INT8,
    Type::INT2_ARRAY,
    Type::TEXT_ARRAY,
    Type::UUID_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
    Type::INT4_ARRAY,
    Type::INT8_ARRAY,
    Type::INT8_ARRAY,
];

/// Tells whom it concerns, after the commit: see the function.
const PUSH: &str = "SELECT {schema}.push_later($1)";

const ENROL: &str = "SELECT {schema}.enrol($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const TAKE_ONE: &str = include_str!("sql/take.sql");
const TAKE_ONE_TYPES: [Type; 7] =
    [Type::BYTEA, Type::INT8, Type::TEXT, Type::UUID, Type::INT8, Type::INT8, Type::BOOL];
/// Whether the role may use the tables themselves.
const RIGHTS: &str = "SELECT has_table_privilege('{schema}.locks', 'SELECT') \
    AND has_table_privilege('{schema}.locks', 'UPDATE') \
    AND has_table_privilege('{schema}.clients', 'SELECT')";
const GIVE_ONE: &str = include_str!("sql/give.sql");
const GIVE_ONE_TYPES: [Type; 4] = [Type::BYTEA, Type::INT8, Type::TEXT, Type::UUID];

/// A connection that the server knows as ours.
pub(crate) struct Link {
    session: Session,
    serve: String,
    push: String,
    /// Kept in the server's session where we have one of our own.
    prepared: Option<Prepared>,
}

struct Prepared {
    serve: Statement,
    push: Statement,
    /// For requests that come alone, where the role has the rights.
    one: Option<PreparedOne>,
}

struct PreparedOne {
    take: Statement,
    give: Statement,
}

impl Link {
    /// Makes a connection known to the server, in the place of earlier ones.
    pub(crate) async fn enrol(store: &Store, session: Session) -> Result<Self, Failure> {
        store.set_link(random()?);
        let limit = store.config().request_timeout;
        let text = |statement: &str| statement.replace("{schema}", &store.config().schema);
        let mut link = Self { session, serve: text(SERVE), push: text(PUSH), prepared: None };
        link.introduce(store).await?;
        if link.session.is_direct {
            let preparing = link.session.attend(link.prepare(store));
            link.prepared = Some(match tokio::time::timeout(limit, preparing).await {
                Ok(result) => {
                    result.map_err(|error| failure::of_driver(&link.session.endpoint, &error))?
                }
                Err(_) => return Err(failure::of_silence(&link.session.endpoint, limit)),
            });
        }
        store.drive.set_plug(Some(Arc::clone(link.session.plug())));
        Ok(link)
    }

    async fn prepare(&self, store: &Store) -> Result<Prepared, tokio_postgres::Error> {
        let client = &self.session.client;
        let text = |statement: &str| statement.replace("{schema}", &store.config().schema);
        let serve = client.prepare_typed(&self.serve, &SERVE_TYPES).await?;
        let push = client.prepare_typed(&self.push, &[Type::TEXT_ARRAY]).await?;
        let rights = client.query_typed(&text(RIGHTS), &[]).await?;
        let has_rights = rights.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
        let one = match has_rights {
            true => Some(PreparedOne {
                take: client.prepare_typed(&text(TAKE_ONE), &TAKE_ONE_TYPES).await?,
                give: client.prepare_typed(&text(GIVE_ONE), &GIVE_ONE_TYPES).await?,
            }),
            false => None,
        };
        Ok(Prepared { serve, push, one })
    }

    async fn introduce(&self, store: &Store) -> Result<(), Failure> {
        let config = store.config();
        let label = &store.label;
        let client = store.client.as_bytes().as_slice();
        let (link, by_mail, pid) = (store.link(), store.is_by_mail(), i64::from(label.pid));
        let presence = store.presence();
        let channel = presence.as_ref().map(|presence| &presence.channel);
        let key = presence.as_ref().map(|presence| presence.key);
        let params: [Param<'_>; 9] = [
            (&client, Type::BYTEA),
            (&link, Type::INT8),
            (&by_mail, Type::BOOL),
            (&channel, Type::TEXT),
            (&key, Type::INT8),
            (&label.program, Type::TEXT),
            (&label.host, Type::TEXT),
            (&pid, Type::INT8),
            (&label.text, Type::TEXT),
        ];
        let statement = ENROL.replace("{schema}", &config.schema);
        let rows = self.session.ask(&statement, &params, config.request_timeout).await?;
        let row = rows.first().ok_or_else(|| failure::of_nonsense("no row"))?;
        store.set_events(get(row, 0)?);
        Ok(())
    }

    /// Serves what is asked, for ever.
    pub(crate) async fn run(mut self, store: Arc<Store>) {
        loop {
            let failure = self.serve(&store).await;
            tracing::debug!(failure = failure.message(), "the connection to PostgreSQL broke");
            store.drive.set_plug(None);
            drop(self);
            self = reconnect(&store).await;
            // What ended or was handed over meanwhile is found by looking.
            store.lobby.rouse();
            if store.is_by_mail() {
                // Mail that was taken by a call without an answer is lost.
                store.feeds.miss();
                store.ask_for_losses();
            }
        }
    }

    /// Serves until the connection is of no use any more.
    async fn serve(&mut self, store: &Store) -> Failure {
        loop {
            if store.takes_enrolment()
                && let Err(failure) = self.introduce(store).await
            {
                store.ask_for_enrolment();
                return failure;
            }
            if let Some(failure) = self.tell(store).await {
                return failure;
            }
            let work = store.gather();
            store.drive.set_flying(work.is_some());
            let broken = match work {
                Some(Work::Batch(batch, limit)) => self.carry(store, batch, limit).await,
                Some(Work::Plain(plain)) => self.carry_plain(store, plain).await,
                None => self.idle(store).await,
            };
            if let Some(failure) = broken {
                return failure;
            }
        }
    }

    /// Waits until something is asked, or the connection ends.
    async fn idle(&self, store: &Store) -> Option<Failure> {
        let mut asked = pin!(store.asked.notified());
        let has_ended = poll_fn(|context| {
            if asked.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            self.session.poll_end(context).map(|()| true)
        });
        has_ended.await.then(|| failure::of_end(&self.session.endpoint))
    }

    /// Asks a batch. Where somebody is likely to wait for what it gives back, those are told by the
    /// same message: the server does so after the commit, and nobody has to come back for it.
    async fn carry(&self, store: &Store, batch: Batch, limit: Duration) -> Option<Failure> {
        let sent = Moment::now();
        // Not through a pooler: if we were gone before the second answer, an old PgBouncer would give
        // that to somebody else.
        let is_direct = self.session.is_direct;
        let sought = if is_direct { store.guess_owed(&batch) } else { Vec::new() };
        let mut telling = pin!(self.push(&sought));
        let mut told = sought.is_empty().then_some(Ok(()));
        let answered = {
            let mut calling = pin!(self.session.attend(self.call(store, &batch)));
            // No timer: whoever drives the link looks at it often enough.
            poll_fn(|context| match calling.as_mut().poll(context) {
                Poll::Pending if (sent + limit).has_passed(Moment::now()) => {
                    Poll::Ready(Err(failure::of_silence(&self.session.endpoint, limit)))
                }
                Poll::Pending if told.is_none() => {
                    if let Poll::Ready(result) = telling.as_mut().poll(context) {
                        told = Some(result);
                    }
                    // The second message has to leave too.
                    calling.as_mut().poll(context)
                }
                polled => polled,
            })
            .await
        };
        let mut reply = match answered {
            Ok(reply) => reply,
            Err(failure) => return store.recover(batch.into_ops().collect(), failure),
        };
        let owed = std::mem::take(&mut reply.owed);
        store.note_owed(&batch, &owed);
        store.distribute(batch, sent, &reply);
        let told = match told {
            Some(told) => told,
            None => self.within(store, telling).await,
        };
        let is_told = told.is_ok();
        store.owe(owed.into_iter().filter(|name| !is_told || !sought.contains(name)).collect());
        told.err().filter(|failure| failure.handling.remedy == Remedy::Reconnect)
    }

    /// Lets those be told who were granted something. If that fails they find out by looking.
    async fn tell(&self, store: &Store) -> Option<Failure> {
        let owed = store.take_owed();
        if owed.is_empty() {
            return None;
        }
        let failure = self.within(store, self.push(&owed)).await.err()?;
        if failure.handling.remedy != Remedy::Reconnect {
            tracing::debug!(failure = failure.message(), "those who wait could not be told");
            return None;
        }
        store.owe(owed);
        Some(failure)
    }

    /// Waits for the server no longer than it may take.
    async fn within(
        &self,
        store: &Store,
        telling: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let limit = store.config().request_timeout;
        let told = tokio::time::timeout(limit, self.session.attend(telling)).await;
        told.unwrap_or_else(|_| Err(failure::of_silence(&self.session.endpoint, limit)))
    }

    async fn push(&self, owed: &[String]) -> Result<(), Failure> {
        let told = match &self.prepared {
            Some(prepared) => {
                let told = self.session.client.query(&prepared.push, &[&owed]).await;
                told.map_err(|error| failure::of_driver(&self.session.endpoint, &error))
            }
            None => self.session.query(&self.push, &[(&owed, Type::TEXT_ARRAY)]).await,
        };
        told.map(drop)
    }

    async fn call(&self, store: &Store, batch: &Batch) -> Result<Reply, Failure> {
        if let Some(prepared) = self.prepared.as_ref().and_then(|prepared| prepared.one.as_ref())
            && let Some(one) = batch.only()
        {
            let name = one.name();
            let rows = self.call_one(prepared, store, one).await;
            let rows = rows.map_err(|error| failure::of_driver(&self.session.endpoint, &error))?;
            let row = rows.first().ok_or_else(|| failure::of_nonsense("no row"))?;
            return Reply::read_one(get(row, 0)?, name);
        }
        let rows = self.call_batch(store, batch).await?;
        Reply::read(rows.first().ok_or_else(|| failure::of_nonsense("no row"))?)
    }

    async fn call_one(
        &self,
        prepared: &PreparedOne,
        store: &Store,
        one: One<'_>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let client = store.client.as_bytes().as_slice();
        let link = store.link();
        match one {
            One::Take(claim, may_wait) => {
                let (name, holder) = (claim.name.as_str(), Uuid(claim.holder));
                let ttl = whole_us(claim.ttl);
                let values: [&(dyn ToSql + Sync); 7] =
                    [&client, &link, &name, &holder, &ttl, &claim.call, &may_wait];
                self.session.client.query(&prepared.take, &values).await
            }
            One::Give(give) => {
                let (name, holder) = (give.name.as_str(), Uuid(give.holder));
                let values: [&(dyn ToSql + Sync); 4] = [&client, &link, &name, &holder];
                self.session.client.query(&prepared.give, &values).await
            }
        }
    }

    async fn call_batch(&self, store: &Store, batch: &Batch) -> Result<Vec<Row>, Failure> {
        let columns = batch.columns();
        let client = store.client.as_bytes().as_slice();
        let link = store.link();
        let values: [&(dyn ToSql + Sync); 10] = [
            &client,
            &link,
            &columns.kinds,
            &columns.names,
            &columns.holders,
            &columns.ttls,
            &columns.delays,
            &columns.modes,
            &columns.floors,
            &columns.calls,
        ];
        match &self.prepared {
            Some(prepared) => {
                let rows = self.session.client.query(&prepared.serve, &values).await;
                rows.map_err(|error| failure::of_driver(&self.session.endpoint, &error))
            }
            None => {
                let params: Vec<Param<'_>> = values.into_iter().zip(SERVE_TYPES).collect();
                self.session.query(&self.serve, &params).await
            }
        }
    }

    /// Asks anything else.
    async fn carry_plain(&self, store: &Store, mut plain: Plain) -> Option<Failure> {
        let link = store.link();
        let params: Vec<Param<'_>> = plain.values.iter().map(|value| value.param(&link)).collect();
        let limit = store.config().request_timeout;
        let session = &self.session;
        let (answered, was_unproven) = match plain.is_repeatable {
            true => session.ask_knowingly(&plain.statement, &params, limit).await,
            false => (session.ask_once(&plain.statement, &params, limit).await, false),
        };
        drop(params);
        match answered {
            Ok(rows) => {
                let is_doubtful = plain.is_doubtful || was_unproven;
                drop(plain.asker.send(Ok(Told { rows, is_doubtful })));
                None
            }
            Err(failure) => {
                // This is told now; what is asked again is known again.
                let is_told =
                    matches!(failure.handling.remedy, Remedy::Tell | Remedy::TellAndReconnect);
                plain.is_doubtful |= was_unproven && is_told;
                store.recover(vec![Op::Plain(plain)], failure)
            }
        }
    }
}

impl Value {
    fn param<'a>(&'a self, link: &'a i64) -> Param<'a> {
        match self {
            Self::Text(value) => (value, Type::TEXT),
            Self::OptionalText(value) => (value, Type::TEXT),
            Self::Number(value) => (value, Type::INT8),
            Self::OptionalNumber(value) => (value, Type::INT8),
            Self::Bytes(value) => (value, Type::BYTEA),
            Self::OptionalBytes(value) => (value, Type::BYTEA),
            Self::Holder(value) => (value, Type::UUID),
            Self::Link => (link, Type::INT8),
        }
    }
}

async fn reconnect(store: &Store) -> Link {
    let mut pause = PAUSE_MIN;
    loop {
        rest(store, pause.mul_f64(0.5 + jitter())).await;
        let made = remake(store).await;
        match made {
            Ok(link) => return link,
            Err(failure) => {
                store.take_waiting().into_iter().for_each(|op| store.fail_op(op, &failure));
            }
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// The schema may have been migrated meanwhile.
async fn remake(store: &Store) -> Result<Link, Failure> {
    let session = store.dialer.dial_unattended().await?;
    match migration::version(store.config(), &session).await? {
        Some(found) => migration::check(store.config(), &session, found).await?,
        None => return Err(failure::of_missing_schema(&store.config().schema)),
    }
    Link::enrol(store, session).await
}

/// Waits before the next try, but not for long when somebody waits for it: a lease must not run
/// out because we are slow to see that the server is back.
async fn rest(store: &Store, pause: Duration) {
    let mut all = pin!(tokio::time::sleep(pause));
    let mut least = pin!(tokio::time::sleep(pause.min(PAUSE_URGENT)));
    let mut is_urgent = false;
    poll_fn(|context| {
        is_urgent = is_urgent || least.as_mut().poll(context).is_ready();
        match is_urgent && store.has_waiting() {
            true => Poll::Ready(()),
            false => all.as_mut().poll(context),
        }
    })
    .await;
}
