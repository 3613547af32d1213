//! The ear: a task on the runtime of whoever asks that reads the answers, so that they need not
//! cross from one thread to another. Nothing depends on it: whatever is asked from elsewhere is
//! heard by the keeper at once, and the rest as soon as the ear does not make progress.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::runtime::{self, Handle};

use super::super::stream::{Readiness, Stream};
use super::{Shared, Traffic, lock};

/// Who listens to a connection.
#[derive(Default)]
pub(super) struct Attention {
    home: Mutex<Home>,
    /// The ear that counts; one with another number is of an earlier connection or home.
    number: AtomicU64,
    /// How often the ear was woken.
    beats: AtomicU64,
    /// Whether somebody asked who is not at home, since the keeper last looked.
    is_called: AtomicBool,
    is_keeper_listening: AtomicBool,
}

/// The runtime on which the ear is.
#[derive(Default)]
struct Home {
    /// Absent while there is no connection.
    stream: Option<Arc<Stream>>,
    runtime: Option<runtime::Id>,
    /// Whether there was something that it did not hear in time.
    is_deaf: bool,
    /// A runtime on which no ear could begin to listen.
    unfit: Option<runtime::Id>,
}

impl Attention {
    /// A new connection is there, which the keeper listens to.
    pub(super) fn open(&self, stream: &Arc<Stream>) {
        self.number.fetch_add(1, Ordering::SeqCst);
        self.is_keeper_listening.store(true, Ordering::SeqCst);
        let stream = Some(Arc::clone(stream));
        *lock(&self.home) = Home { stream, runtime: None, is_deaf: false, unfit: None };
    }

    /// Ends the connection, and with it the ear.
    pub(super) fn close(&self) {
        self.number.fetch_add(1, Ordering::SeqCst);
        let home = std::mem::take(&mut *lock(&self.home));
        home.stream.into_iter().for_each(|stream| stream.close());
    }

    pub(super) fn has_ear(&self) -> bool {
        lock(&self.home).runtime.is_some()
    }

    pub(super) fn beats(&self) -> u64 {
        self.beats.load(Ordering::SeqCst)
    }

    pub(super) fn is_called(&self) -> bool {
        self.is_called.load(Ordering::SeqCst)
    }

    pub(super) fn take_call(&self) -> bool {
        self.is_called.swap(false, Ordering::SeqCst)
    }

    pub(super) fn set_keeper_listening(&self, is_listening: bool) {
        self.is_keeper_listening.store(is_listening, Ordering::SeqCst);
    }

    pub(super) fn set_deaf(&self, is_deaf: bool) {
        lock(&self.home).is_deaf = is_deaf;
    }

    /// Whether this runtime is the ear's home. If there is no ear, or one that does not hear, the
    /// runtime becomes its home, and what the new ear needs is returned.
    fn welcome(&self, runtime: runtime::Id) -> (bool, Option<(u64, Arc<Stream>)>) {
        let mut home = lock(&self.home);
        if home.runtime == Some(runtime) {
            return (true, None);
        }
        if home.unfit == Some(runtime) || (home.runtime.is_some() && !home.is_deaf) {
            return (false, None);
        }
        let Some(stream) = home.stream.clone() else { return (false, None) };
        home.runtime = Some(runtime);
        home.is_deaf = false;
        (false, Some((self.number.fetch_add(1, Ordering::SeqCst) + 1, stream)))
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

    /// The ear was woken; whether it still counts.
    fn beat(&self, number: u64) -> bool {
        self.beats.fetch_add(1, Ordering::SeqCst);
        self.number.load(Ordering::SeqCst) == number
    }
}

impl<T: Traffic> Shared<T> {
    /// Sees to it that the answer to what is about to be asked is heard: by the ear if this is
    /// its home, otherwise by the keeper.
    /// Returns whether it is by the ear.
    pub(super) fn attend(self: &Arc<Self>) -> bool {
        let here = Handle::try_current().ok().filter(|here| here.id() != self.keeper);
        // Tokio panics when a runtime was built without I/O, and nobody can ask it before. Where
        // that would end the process it must not be tried.
        if let Some(here) = here.filter(|_| cfg!(panic = "unwind")) {
            let (is_home, elected) = self.attention.welcome(here.id());
            if is_home {
                return true;
            }
            if let Some((number, stream)) = elected {
                let ear = Ear { shared: Arc::downgrade(self), number, has_listened: false };
                here.spawn(ear.listen(stream));
            }
        }
        self.call_keeper();
        false
    }

    /// Whether this is the ear's home.
    pub(super) fn is_home(&self) -> bool {
        let here = Handle::try_current().ok().map(|here| here.id());
        here.is_some() && lock(&self.attention.home).runtime == here
    }

    /// Lets the keeper listen.
    pub(super) fn call_keeper(&self) {
        self.attention.is_called.store(true, Ordering::SeqCst);
        if !self.attention.is_keeper_listening.load(Ordering::SeqCst) {
            lock(&self.state).task.wake_by_ref();
        }
    }
}

/// Listens on a caller's runtime. When that ends, the keeper is told by its drop.
struct Ear<T: Traffic> {
    shared: Weak<Shared<T>>,
    number: u64,
    has_listened: bool,
}

impl<T: Traffic> Ear<T> {
    async fn listen(mut self, stream: Arc<Stream>) {
        let Ok(readiness) = Readiness::new(&stream) else { return };
        drop(stream);
        self.has_listened = true;
        while poll_fn(|context| readiness.poll_read(context)).await.is_ok() {
            let Some(shared) = self.shared.upgrade() else { return };
            if !shared.attention.beat(self.number) {
                return;
            }
            shared.rouse();
            loop {
                let Some(shared) = self.shared.upgrade() else { return };
                let progress = shared.read(true);
                drop(shared);
                if progress.gathers {
                    // Those who were answered go on, and ask again.
                    tokio::task::yield_now().await;
                    let Some(shared) = self.shared.upgrade() else { return };
                    shared.send_gathered();
                }
                if !progress.is_answered {
                    break;
                }
            }
        }
    }
}

impl<T: Traffic> Drop for Ear<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade()
            && shared.attention.leave(self.number, self.has_listened)
        {
            shared.call_keeper();
            shared.send_gathered();
            shared.read_rest();
        }
    }
}
