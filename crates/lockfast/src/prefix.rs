//! A part of a store: the locks whose names start with a prefix, which nobody above sees.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use lockfast_core::error::quote;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Backend, BoxFuture, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, ErrorKind, EventStream, LockName, LockView, Profile, Query,
    ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result, RevokeOutcome,
    RevokeRequest, VersionedValue, WatchKind, WriteOutcome, WriteRequest,
};
use tokio::runtime::Handle;

/// Refuses what cannot stand before every name.
pub(crate) fn check_prefix(prefix: &str) -> Result<()> {
    let flaw = prefix.chars().find(|c| matches!(c, '{' | '}') || c.is_whitespace());
    if let Some(flaw) = flaw {
        return Err(Error::new(
            ErrorKind::InvalidConfig,
            format!(
                "prefix {} holds {}; braces and spaces are not allowed there",
                quote(prefix),
                quote(&flaw.to_string()),
            ),
        ));
    }
    if prefix.is_empty() { Ok(()) } else { LockName::new(prefix).map(|_| ()) }
}

/// A store with a prefix before every name.
#[derive(Debug)]
pub(crate) struct Prefixed {
    store: Arc<dyn Backend>,
    prefix: String,
    runtime: Handle,
}

impl Prefixed {
    /// Connects to a store; without a prefix it is the store itself.
    pub(crate) fn connect<F>(
        prefix: String,
        context: ConnectContext,
        connect: F,
    ) -> BoxFuture<'static, Result<Arc<dyn Backend>>>
    where
        F: FnOnce(ConnectContext) -> BoxFuture<'static, Result<Arc<dyn Backend>>>,
    {
        let runtime = context.runtime.clone();
        let connecting = connect(context);
        if prefix.is_empty() {
            return connecting;
        }
        Box::pin(async move {
            let store = connecting.await?;
            let prefixed: Arc<dyn Backend> = Arc::new(Self { store, prefix, runtime });
            Ok(prefixed)
        })
    }

    /// The name in the store.
    fn full(&self, name: &LockName) -> Result<LockName> {
        LockName::new(format!("{}{name}", self.prefix))
    }

    /// The locks of this part by the page: what only looks like one is left out, without making a page
    /// shorter than it could be.
    async fn list(
        &self,
        prefix: String,
        after: Option<LockName>,
        limit: usize,
    ) -> Result<Vec<LockView>> {
        let prefix = format!("{}{prefix}", self.prefix);
        let mut after = after.map(|after| self.full(&after)).transpose()?;
        let mut views = Vec::new();
        loop {
            let left = limit - views.len();
            let query = Query::Prefix { prefix: prefix.clone(), after: after.clone(), limit: left };
            let page = self.store.inspect(query).await?;
            let is_last = page.len() < left;
            after = page.last().map(|view| view.name.clone());
            views.extend(page.into_iter().filter_map(|mut view| {
                view.name = strip(&view.name, &self.prefix)?;
                Some(view)
            }));
            if is_last || views.len() == limit {
                return Ok(views);
            }
        }
    }
}

/// The name without the prefix, if the rest is one.
fn strip(name: &LockName, prefix: &str) -> Option<LockName> {
    LockName::new(name.as_str().strip_prefix(prefix)?).ok()
}

/// An error that names a lock names it as the caller does.
fn rename(error: Error, name: &LockName) -> Error {
    if error.lock().is_some() { error.with_lock(name) } else { error }
}

impl Backend for Prefixed {
    fn profile(&self) -> &Profile {
        self.store.profile()
    }

    fn acquire(&self, mut request: AcquireRequest) -> BoxFuture<'_, Result<AcquireOutcome>> {
        Box::pin(async move {
            let full = self.full(&request.name)?;
            let name = std::mem::replace(&mut request.name, full);
            match self.store.acquire(request).await {
                Ok(AcquireOutcome::Taken(mut refusal)) => {
                    refusal.lock.name = name;
                    Ok(AcquireOutcome::Taken(refusal))
                }
                Ok(granted) => Ok(granted),
                Err(error) => Err(rename(error, &name)),
            }
        })
    }

    fn renew(&self, mut batch: Vec<RenewRequest>) -> BoxFuture<'_, Result<Vec<RenewOutcome>>> {
        let named = batch.iter_mut().try_for_each(|request| {
            request.name = self.full(&request.name)?;
            Ok(())
        });
        match named {
            Ok(()) => self.store.renew(batch),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn downgrade(&self, mut request: DowngradeRequest) -> BoxFuture<'_, Result<DowngradeOutcome>> {
        Box::pin(async move {
            let full = self.full(&request.name)?;
            let name = std::mem::replace(&mut request.name, full);
            self.store.downgrade(request).await.map_err(|error| rename(error, &name))
        })
    }

    fn release(&self, mut request: ReleaseRequest) -> BoxFuture<'_, Result<ReleaseOutcome>> {
        Box::pin(async move {
            let full = self.full(&request.name)?;
            let name = std::mem::replace(&mut request.name, full);
            self.store.release(request).await.map_err(|error| rename(error, &name))
        })
    }

    fn inspect(&self, query: Query) -> BoxFuture<'_, Result<Vec<LockView>>> {
        Box::pin(async move {
            match query {
                Query::Name(name) => {
                    let views = self.store.inspect(Query::Name(self.full(&name)?)).await;
                    let mut views = views.map_err(|error| rename(error, &name))?;
                    views.iter_mut().for_each(|view| view.name = name.clone());
                    Ok(views)
                }
                Query::Prefix { prefix, after, limit } => self.list(prefix, after, limit).await,
            }
        })
    }

    fn revoke(&self, mut request: RevokeRequest) -> BoxFuture<'_, Result<RevokeOutcome>> {
        Box::pin(async move {
            let full = self.full(&request.name)?;
            let name = std::mem::replace(&mut request.name, full);
            self.store.revoke(request).await.map_err(|error| rename(error, &name))
        })
    }

    fn read(&self, name: LockName) -> BoxFuture<'_, Result<Option<VersionedValue>>> {
        Box::pin(async move {
            let read = self.store.read(self.full(&name)?).await;
            read.map_err(|error| rename(error, &name))
        })
    }

    fn write(&self, mut request: WriteRequest) -> BoxFuture<'_, Result<WriteOutcome>> {
        Box::pin(async move {
            let full = self.full(&request.name)?;
            let name = std::mem::replace(&mut request.name, full);
            self.store.write(request).await.map_err(|error| rename(error, &name))
        })
    }

    fn watch(&self) -> BoxFuture<'_, Result<EventStream>> {
        Box::pin(async move {
            let mut events = self.store.watch().await?;
            let (mut feed, stream) = EventStream::channel();
            let prefix = self.prefix.clone();
            self.runtime.spawn(async move {
                let mut closing = pin!(feed.closing());
                loop {
                    let event = {
                        let mut next = pin!(events.next());
                        poll_fn(|context| match closing.as_mut().poll(context) {
                            Poll::Ready(()) => Poll::Ready(None),
                            Poll::Pending => next.as_mut().poll(context),
                        })
                        .await
                    };
                    let Some(mut event) = event else { return };
                    match strip(&event.name, &prefix) {
                        // What was missed may have been ours; it is told with our next event.
                        _ if event.kind == WatchKind::Missed => feed.miss(),
                        Some(name) => {
                            event.name = name;
                            feed.offer(event);
                        }
                        None => {}
                    }
                }
            });
            Ok(stream)
        })
    }
}
