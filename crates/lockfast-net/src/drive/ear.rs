//! The part on the caller's runtime. Nothing depends on it.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use tokio::runtime::{self, Handle};

use super::{Drive, Gather, Readiness, lock, remember, wake};

impl Drive {
    /// Sees to it that what is about to be asked is sent and its answer heard: by the ear if this
    /// is its home, otherwise by the keeper.
    pub fn attend(self: &Arc<Self>, store: &Weak<dyn Gather>) {
        let here = Handle::try_current().ok().filter(|here| here.id() != self.runtime.id());
        // Tokio panics when a runtime was built without I/O, and nobody can ask it before. Where
        // that would end the process it must not be tried.
        if let Some(here) = here.filter(|_| cfg!(panic = "unwind")) {
            let (is_home, elected) = self.welcome(here.id());
            if is_home {
                return;
            }
            if let Some(number) = elected {
                let drive = Arc::downgrade(self);
                let ear =
                    Ear { drive, store: store.clone(), number, socket: None, has_listened: false };
                here.spawn(ear.listen());
            }
        }
        self.is_called.store(true, Ordering::SeqCst);
        wake(&self.keeper);
    }

    /// Whether the present thread is of the ear's home.
    pub(super) fn is_home(&self) -> bool {
        let here = Handle::try_current().ok().map(|here| here.id());
        here.is_some() && lock(&self.home).runtime == here
    }

    /// Whether this runtime is the ear's home. If there is no ear, or one that does not hear, the
    /// runtime becomes its home, and the number of the new ear is returned.
    fn welcome(&self, runtime: runtime::Id) -> (bool, Option<u64>) {
        let mut home = lock(&self.home);
        if home.runtime == Some(runtime) && !home.is_deaf {
            return (true, None);
        }
        if home.unfit == Some(runtime)
            || home.runtime == Some(runtime)
            || (home.runtime.is_some() && !home.is_deaf)
        {
            return (false, None);
        }
        home.runtime = Some(runtime);
        home.is_deaf = false;
        (false, Some(self.number.fetch_add(1, Ordering::SeqCst) + 1))
    }

    /// An ear is gone; whether it was the one that counts.
    fn leave(&self, number: u64, has_listened: bool) -> bool {
        let mut home = lock(&self.home);
        let counts = self.number.load(Ordering::SeqCst) == number;
        if counts {
            let runtime = home.runtime.take();
            home.unfit = runtime.filter(|_| !has_listened);
        }
        counts
    }
}

/// Drives the link on a caller's runtime. When that ends, the keeper is told by its drop.
struct Ear {
    drive: Weak<Drive>,
    store: Weak<dyn Gather>,
    number: u64,
    /// Which connection it listens to, until the other side ends it.
    socket: Option<(u64, Option<Readiness>)>,
    has_listened: bool,
}

impl Ear {
    async fn listen(mut self) {
        poll_fn(|context| self.poll(context)).await;
    }

    /// Ready when it does not count any more.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(drive) = self.drive.upgrade() else { return Poll::Ready(()) };
        if drive.number.load(Ordering::SeqCst) != self.number {
            return Poll::Ready(());
        }
        drive.beats.fetch_add(1, Ordering::SeqCst);
        remember(&drive.ear, context);
        let has_come = self.hear(&drive, context);
        if !has_come && self.store.upgrade().is_some_and(|store| store.is_gathering()) {
            // Those who were answered together go on first, and ask again together.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        drive.turn();
        Poll::Pending
    }

    /// Whether something has arrived.
    fn hear(&mut self, drive: &Drive, context: &mut Context<'_>) -> bool {
        let connection = drive.connection.load(Ordering::SeqCst);
        if self.socket.as_ref().is_none_or(|(of, _)| *of != connection) {
            self.socket = None;
            let Some(plug) = lock(&drive.plug).clone() else { return true };
            self.socket = Readiness::new(&plug).ok().map(|it| (connection, Some(it)));
            self.has_listened = true;
        }
        let Some((_, socket)) = &mut self.socket else { return true };
        let mut has_come = false;
        while let Some(readiness) = socket
            && let Poll::Ready(Ok(())) = readiness.poll_read(context)
        {
            has_come = true;
            if readiness.has_ended() {
                // It is ready for ever, and the last that arrives is there.
                *socket = None;
                let plug = lock(&drive.plug);
                plug.iter().for_each(|plug| plug.end());
            }
        }
        if has_come {
            drive.has_arrived.store(true, Ordering::SeqCst);
        }
        has_come
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some(drive) = self.drive.upgrade()
            && drive.leave(self.number, self.has_listened)
        {
            drive.is_called.store(true, Ordering::SeqCst);
            wake(&drive.keeper);
        }
    }
}
