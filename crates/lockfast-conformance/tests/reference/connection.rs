//! One connection to the reference store, as the engine sees it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, Change, ConnectContext, DowngradeOutcome,
    DowngradeRequest, EventStream, Feature, LockName, LockView, Moment, Profile, Query,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result, RevokeOutcome,
    RevokeRequest, VersionedValue, Wait, WriteOutcome, WriteRequest,
};
use tokio::sync::oneshot;

use super::defect::Defect;
use super::store::{Entered, Store};

/// One connection to the reference store.
pub(crate) struct Connection {
    store: Arc<Store>,
    context: ConnectContext,
}

impl Connection {
    pub(crate) fn new(store: Arc<Store>, context: ConnectContext) -> Self {
        Self { store, context }
    }

    fn require(&self, feature: Feature) -> Result<()> {
        if self.store.has(Defect::ServesWhatItLacks) {
            return Ok(());
        }
        self.store.profile.require(feature)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reference")?;
        if self.store.has(Defect::ShowsHolder) {
            for holder in self.store.holders() {
                write!(f, " {}", holder.to_hex())?;
            }
        }
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.store.has(Defect::DetachedLeaseDies) {
            self.store.forget(self.context.client);
        }
    }
}

impl Backend for Connection {
    fn profile(&self) -> &Profile {
        &self.store.profile
    }

    fn acquire(&self, request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(async move {
            let store = &self.store;
            store.profile.ttl.check(request.ttl)?;
            if store.has(Defect::NeedsRuntime) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if store.has(Defect::ArrivesLate) {
                let (store, context) = (Arc::clone(store), self.context.clone());
                let (send, sent) = oneshot::channel();
                self.context.runtime.spawn(async move {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    let _ = send.send(store.enter(&context, request));
                });
                return match sent.await.unwrap() {
                    Entered::Now(answer) => answer,
                    Entered::Waiting(answer) => answer.await.unwrap(),
                };
            }
            let hurried = request.wait == Wait::No;
            let mut outcome = match store.enter(&self.context, request) {
                Entered::Now(outcome) => outcome,
                Entered::Waiting(mut answered)
                    if store.has(Defect::Herd) || store.has(Defect::HerdAtTimes) =>
                {
                    let mut herd = store.herd.subscribe();
                    loop {
                        tokio::select! {
                            answer = &mut answered => break answer.unwrap(),
                            _ = herd.changed() => {}
                        }
                    }
                }
                Entered::Waiting(answered) => answered.await.unwrap(),
            };
            if store.has(Defect::FromAtReply) && hurried {
                tokio::time::sleep(Duration::from_millis(120)).await;
            }
            if (store.has(Defect::FromAtReply) || store.has(Defect::FromAtHearing))
                && let Ok(AcquireOutcome::Granted(grant)) = &mut outcome
            {
                grant.from = Moment::now();
            }
            outcome
        })
    }

    fn renew(&self, mut batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        Box::pin(async move {
            for request in &batch {
                self.store.profile.ttl.check(request.ttl)?;
            }
            if self.store.has(Defect::RenewSortsAnswers) {
                batch.sort_by(|a, b| a.name.cmp(&b.name));
            }
            Ok(batch.iter().map(|request| self.store.renew(request)).collect())
        })
    }

    fn downgrade(&self, request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(async move {
            self.require(Feature::Downgrade)?;
            self.store.downgrade(&request)
        })
    }

    fn release(&self, request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move { Ok(self.store.release(&request)) })
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(async move { Ok(self.store.inspect(&query)) })
    }

    fn revoke(&self, request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(async move { Ok(self.store.revoke(&request)) })
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move {
            self.require(Feature::Values)?;
            Ok(self.store.read(&name))
        })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            self.require(Feature::Values)?;
            if matches!(request.change, Change::Put { keep: Some(_), .. }) {
                self.require(Feature::ValueExpiry)?;
            }
            if self.store.has(Defect::WriteIsTwoSteps) {
                let there = self.store.read(&request.name);
                tokio::time::sleep(Duration::from_millis(1)).await;
                return Ok(self.store.write_over(&self.context, request, there));
            }
            Ok(self.store.write(&self.context, request))
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(async move {
            self.require(Feature::Events)?;
            Ok(self.store.watch())
        })
    }
}
