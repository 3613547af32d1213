//! The front of the embedded store: requests go into the inbox of the thread that has the
//! database, and the answers come back through channels. Nothing here blocks, and nothing needs
//! the caller's runtime.

use std::future::{Future as _, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use lockfast_core::batch::Inbox;
use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, ErrorKind, EventStream, Guarantee, LockName, LockView, LossCause,
    Moment, Profile, Query, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result,
    RevokeOutcome, RevokeRequest, TtlLimits, VersionedValue, WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;

use crate::bell::Bell;
use crate::config;
use crate::failure::{Failure, Scope};
use crate::store::Store;

/// Why its grants are good for what they are.
pub(crate) const BECAUSE: &str =
    "one database on this machine decides, and a lease never outlives the machine";

/// Opens the store on a thread of its own.
pub(crate) async fn connect(
    config: config::Embedded,
    context: ConnectContext,
) -> Result<Arc<dyn Backend>> {
    let bell = Arc::new(Bell::new().map_err(no_thread)?);
    let inbox = Arc::new(Inbox::new({
        let bell = Arc::clone(&bell);
        move || bell.ring()
    }));
    let (opened, result) = oneshot::channel();
    std::thread::Builder::new()
        .name("lockfast-store".into())
        .spawn({
            let (inbox, bell) = (Arc::clone(&inbox), Arc::clone(&bell));
            move || match Store::open(&config, context, inbox, bell) {
                Ok(store) => {
                    if opened.send(Ok(store.witness())).is_ok() {
                        store.run();
                    } else {
                        store.close();
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        })
        .map_err(no_thread)?;
    let witness =
        result.await.map_err(|_| gone())?.map_err(|error| error.with_backend("embedded"))?;
    Ok(Arc::new(Embedded { inbox, bell, profile: profile(witness) }))
}

pub(crate) fn profile(witness: PathBuf) -> Profile {
    Profile {
        backend: "embedded",
        guarantee: Guarantee::Correctness,
        because: BECAUSE,
        order: Order::Fifo,
        expiry: Expiry::ProcessDeath { witness },
        reach: Reach::Host,
        fence: FenceSurvival::Durable,
        ttl: TtlLimits::LOCKFAST,
        lacks: &[],
    }
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Internal,
        "the store's thread cannot be started; the process may have too many files or threads",
    )
    .with_backend("embedded")
    .with_source(error)
}

fn gone() -> Error {
    Error::new(ErrorKind::Internal, "the store's thread has ended; connect again")
        .with_backend("embedded")
}

/// Something for the store's thread to do, and where the answer goes.
#[derive(Debug)]
pub(crate) enum Op {
    Acquire {
        request: AcquireRequest,
        /// Taken before it was sent.
        sent: Moment,
        reply: oneshot::Sender<Result<AcquireOutcome>>,
    },
    Renew {
        batch: Vec<RenewRequest>,
        reply: oneshot::Sender<Result<Vec<RenewOutcome>>>,
    },
    Downgrade {
        request: DowngradeRequest,
        reply: oneshot::Sender<Result<DowngradeOutcome>>,
    },
    Release {
        request: ReleaseRequest,
        reply: oneshot::Sender<Result<ReleaseOutcome>>,
    },
    Inspect {
        query: Query,
        reply: oneshot::Sender<Result<Vec<LockView>>>,
    },
    Revoke {
        request: RevokeRequest,
        reply: oneshot::Sender<Result<RevokeOutcome>>,
    },
    Read {
        name: LockName,
        reply: oneshot::Sender<Result<Option<VersionedValue>>>,
    },
    Write {
        request: WriteRequest,
        reply: oneshot::Sender<Result<WriteOutcome>>,
    },
    Watch {
        reply: oneshot::Sender<Result<EventStream>>,
    },
    Close,
}

impl Op {
    /// Whether it leaves the store as it is.
    pub(crate) fn only_reads(&self) -> bool {
        matches!(self, Self::Inspect { .. } | Self::Read { .. } | Self::Close)
    }

    /// Whether it is answered only when it is safe on the disk. A lease need not be: it does not
    /// outlive the machine.
    pub(crate) fn must_last(&self) -> bool {
        matches!(self, Self::Write { .. })
    }

    /// Answers that it did not work.
    pub(crate) fn fail(self, failure: &Failure) {
        let error = failure.to_error();
        // Whoever is gone does not care.
        match self {
            Self::Renew { batch, reply } if failure.handling == Scope::Gone => {
                let lost = batch.iter().map(|_| RenewOutcome::Lost(LossCause::DataLost));
                drop(reply.send(Ok(lost.collect())));
            }
            Self::Renew { reply, .. } => drop(reply.send(Err(error))),
            Self::Acquire { request, reply, .. } => {
                drop(reply.send(Err(error.with_lock(&request.name))));
            }
            Self::Downgrade { reply, .. } if failure.handling == Scope::Gone => {
                drop(reply.send(Ok(DowngradeOutcome::Lost(LossCause::DataLost))));
            }
            Self::Downgrade { request, reply } => {
                drop(reply.send(Err(error.with_lock(&request.name))));
            }
            Self::Release { request, reply } => {
                drop(reply.send(Err(error.with_lock(&request.name))));
            }
            Self::Inspect { reply, .. } => drop(reply.send(Err(error))),
            Self::Revoke { request, reply } => {
                drop(reply.send(Err(error.with_lock(&request.name))));
            }
            Self::Read { name, reply } => drop(reply.send(Err(error.with_lock(&name)))),
            Self::Write { request, reply } => {
                drop(reply.send(Err(error.with_lock(&request.name))));
            }
            Self::Watch { reply } => drop(reply.send(Err(error))),
            Self::Close => {}
        }
    }
}

/// One connection.
#[derive(Debug)]
struct Embedded {
    inbox: Arc<Inbox<Op>>,
    bell: Arc<Bell>,
    profile: Profile,
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.inbox.push(Op::Close);
    }
}

impl Embedded {
    /// Sends a request and waits for its answer.
    async fn ask<T>(&self, op: impl FnOnce(oneshot::Sender<Result<T>>) -> Op) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let mut asking = self.bell.begin_asking();
        self.inbox.push(op(reply));
        let mut answer = pin!(answer);
        let answered = poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            if polled.is_pending() && asking.looks_again() {
                context.waker().wake_by_ref();
            }
            polled
        });
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Backend for Embedded {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(async move {
            let sent = Moment::now();
            self.ask(|reply| Op::Acquire { request, sent, reply }).await
        })
    }

    fn renew(&self, batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(self.ask(|reply| Op::Renew { batch, reply }))
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(self.ask(|reply| Op::Downgrade { request, reply }))
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(self.ask(|reply| Op::Release { request, reply }))
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(self.ask(|reply| Op::Inspect { query, reply }))
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(self.ask(|reply| Op::Revoke { request, reply }))
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(self.ask(|reply| Op::Read { name, reply }))
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(self.ask(|reply| Op::Write { request, reply }))
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(self.ask(|reply| Op::Watch { reply }))
    }
}
