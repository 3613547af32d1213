//! What a store over a network does when the way to its server fails: the same for every such
//! store, so that each only says what its server shows of it.

use std::net::SocketAddr;
use std::time::Duration;

use lockfast::{
    ErrorKind, Guard, LeaseStatus, Locker, LossCause, Mode, Moment, Options, Released,
    RevokeOutcome,
};

use crate::shorthand::{
    Connect, TIME_MAX, bounded, connect, hold, loss, queue_for, refusal, ttl, wait_for_jeopardy,
    wait_for_renewal,
};
use lockfast_faults::lateness::Lateness;
use lockfast_faults::proxy::{Link, Proxy};
use lockfast_faults::wait::eventually;
use tokio::task::JoinHandle;

/// The lock that everything is about.
pub const NAME: &str = "nightly";
/// How long its leases are, where a store does not need more.
pub const TTL: Duration = Duration::from_secs(3);
/// How much later than they should things may happen.
pub const SLACK: Duration = Duration::from_secs(1);
/// How long those who hang or are dead may delay the others.
const HUNG_MAX: Duration = Duration::from_secs(2);
/// A lease that lasts much longer than anybody is delayed.
const TTL_LONG: Duration = Duration::from_secs(30);
/// How long everything takes on a way on which somebody dies before an answer comes.
const SLOW: Duration = Duration::from_millis(200);
/// How much later than its deadline a loss may be told.
pub const TOLD_MAX: Duration = Duration::from_millis(200);

/// A proxy before a server, somebody who goes through it and somebody who does not.
#[derive(Debug)]
pub struct Way {
    /// The proxy.
    pub proxy: Proxy,
    /// Who goes through it.
    pub far: Locker,
    /// Who does not.
    pub near: Locker,
    /// How long leases are: [`TTL`] unless set otherwise.
    pub span: Duration,
}

/// When others begin to wait behind somebody who dies as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Before it comes: they see it come.
    Before,
    /// After that, before its turn.
    BeforeItsTurn,
    /// After its turn has come.
    AfterItsTurn,
}

impl Arrival {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Before, Self::BeforeItsTurn, Self::AfterItsTurn];
}

/// A lease that was lost to a cut, and who came after it.
#[derive(Debug)]
pub struct Succession {
    /// Who had the lock.
    pub lost: Guard,
    /// Who has it now.
    pub next: Guard,
}

impl Way {
    /// Puts a proxy before `server`; `url_at` is the URL of a store at an address.
    ///
    /// # Cancel safety
    /// Safe: what is there by then ends.
    pub async fn start(
        server: SocketAddr,
        url_at: impl Fn(SocketAddr) -> String,
        how: Connect,
    ) -> Self {
        let proxy = Proxy::start(server).await.unwrap();
        let far = connect(&url_at(proxy.address()), how).await;
        let near = connect(&url_at(server), how).await;
        Self { proxy, far, near, span: TTL }
    }

    /// P1, P3: a cut that ends in time costs nothing: the lease is in jeopardy at most, and goes on
    /// over a new connection. Nobody else gets in meanwhile.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn outlive(&self, cut: Link) {
        let guard = hold(&self.far, NAME, ttl(self.span)).await;
        self.proxy.set(cut);
        wait_for_jeopardy(&guard, self.span).await;
        refusal(&self.near, NAME).await;
        self.proxy.set(Link::Pass);
        wait_for_renewal(&guard, self.span).await;
        eventually("held", self.span, async || guard.status() == LeaseStatus::Held).await;
        refusal(&self.near, NAME).await;
        release(guard).await;
    }

    /// P2, P3, P9: a cut that does not end: the holder is told by its deadline with what the
    /// renewals met, and only after that the next gets in, within a second.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn lose(&self) -> Succession {
        let lost = hold(&self.far, NAME, ttl(self.span)).await;
        // At once: the store counts from when it granted the lock, which was before this, and from no
        // renewal whose reply is lost.
        self.proxy.set(Link::Close);
        let stored_until = Moment::now() + self.span;
        let machine = Lateness::watch();
        let waiter = queue_for(&self.near, NAME, Options::default().wait(TIME_MAX)).await;
        let waiter = tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) });
        let cause = loss(&lost, TIME_MAX).await;
        let told = Moment::now();
        let LossCause::Expired { last_failure: Some(met) } = cause else { panic!("{cause:?}") };
        assert!(!met.is_empty());
        let deadline = lost.deadline();
        machine.check("to tell the loss", TOLD_MAX, deadline, told);
        let (next, granted) = bounded(waiter).await.unwrap();
        assert!(deadline.has_passed(granted));
        machine.check("to let the next in", SLACK, stored_until, granted);
        assert!(next.fence().get() > lost.fence().get());
        assert!(next.check().is_ok());
        Succession { lost, next }
    }

    /// P3: connections that are open at both ends but carry nothing are given up in time, and the
    /// lease goes on over a new one.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn outlive_silence(&self) {
        let guard = hold(&self.far, NAME, ttl(self.span * 2)).await;
        self.proxy.set_open(Link::HalfOpen);
        wait_for_renewal(&guard, self.span * 2).await;
        wait_for_renewal(&guard, self.span * 2).await;
        refusal(&self.near, NAME).await;
        release(guard).await;
    }

    /// P10: a waiter whose connections carry nothing does not hear its grant; it still gets in, on
    /// new connections, before anybody gives up. Returns how long that took.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn wait_in_silence(&self) -> Duration {
        let guard = hold(&self.near, NAME, ttl(self.span)).await;
        let fence = guard.fence();
        let waiter = queue_for(&self.far, NAME, ttl(self.span).wait(Duration::from_secs(25))).await;
        self.proxy.set_open(Link::HalfOpen);
        release(guard).await;
        let released = Moment::now();
        let next = bounded(waiter).await.unwrap();
        let took = Moment::now().since(released);
        assert!(next.fence().get() > fence.get());
        release(next).await;
        took
    }

    /// P5 (B76): waiters that give up while the way is cut, for longer than a lease of theirs would
    /// last, are out of the line when it is there again: nobody is offered what nobody wants.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn give_up_during_a_cut(&self) {
        let guard = hold(&self.near, NAME, ttl(self.span)).await;
        let brief = ttl(self.far.profile().ttl.fit(self.span / 3)).wait(TIME_MAX);
        let mut waiters = Vec::new();
        for _ in 0..3 {
            waiters.push(queue_for(&self.far, NAME, brief.clone()).await);
        }
        self.proxy.set(Link::Close);
        for waiter in waiters {
            waiter.abort();
            assert!(waiter.await.is_err(), "granted while it is taken");
        }
        tokio::time::sleep(self.span).await;
        self.proxy.set(Link::Pass);
        // The server may count only those who are connected.
        eventually("connected", TIME_MAX, async || self.far.inspect(guard.name()).await.is_ok())
            .await;
        eventually("nobody waits", self.span * 3, async || {
            self.near.inspect(guard.name()).await.unwrap().waiting == 0
        })
        .await;
        release(guard).await;
    }

    /// P7: the server grants and its reply is lost. The same request on a new connection answers
    /// the same grant: one holder, one fence, and no waiting for oneself. How many tries that takes
    /// depends on how long it takes to connect.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn repeat_a_lost_grant(&self) {
        self.proxy.set_open(Link::SwallowReplies);
        let guard = hold(&self.far, NAME, ttl(self.span * 3).retries(10)).await;
        let view = self.near.inspect(guard.name()).await.unwrap();
        let fences: Vec<_> = view.holders.iter().map(|holder| holder.fence).collect();
        assert_eq!(fences, [Some(guard.fence())]);
        assert!(guard.check().is_ok());
        release(guard).await;
    }

    /// P7, P8 (B130): a lock is taken away, and the reply is lost. Whoever has it next keeps it: it is
    /// not taken away once more.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn revoke_without_a_reply(&self) {
        let guard = hold(&self.near, NAME, ttl(self.span)).await;
        let waiter = queue_for(&self.near, NAME, ttl(self.span).wait(TIME_MAX)).await;
        // Whatever is prepared on first use is there.
        self.far.revoke("another", "it hangs").await.unwrap();
        self.proxy.set_open(Link::SwallowReplies);
        let far = self.far.clone();
        let revoking = tokio::spawn(async move { far.revoke(NAME, "it hangs").await });
        let next = bounded(waiter).await.unwrap();
        self.proxy.set_open(Link::Close);
        match bounded(revoking).await.unwrap() {
            Ok(RevokeOutcome::Revoked(holders)) => {
                let fences: Vec<_> = holders.iter().map(|holder| holder.fence).collect();
                assert_eq!(fences, [Some(guard.fence())], "taken from somebody else");
            }
            Ok(outcome) => panic!("{outcome:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}"),
        }
        let cause = loss(&guard, TIME_MAX).await;
        assert!(matches!(cause, LossCause::Revoked { .. }), "{cause:?}");
        wait_for_renewal(&next, self.span).await;
        release(next).await;
    }

    /// P9: a process hangs of which so many wait, in front of somebody else: that one is delayed by 2 s at
    /// most, and not by as much for each of them, whether its process has seen them come or not.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn pass_over_who_hangs(&self, count: usize, has_seen: bool) {
        let options = || ttl(self.span * 10).wait(TIME_MAX);
        let guard = hold(&self.near, NAME, options()).await;
        let early = match has_seen {
            true => Some(queue_for(&self.near, NAME, options()).await),
            false => None,
        };
        let mut hung = Vec::new();
        for _ in 0..count {
            hung.push(queue_for(&self.far, NAME, options()).await);
        }
        let waiter = queue_for(&self.near, NAME, options()).await;
        let waiter = tokio::spawn(async move { (waiter.await.unwrap(), Moment::now()) });
        early.iter().for_each(JoinHandle::abort);
        eventually("it has given up", TIME_MAX, async || {
            self.near.inspect(guard.name()).await.unwrap().waiting == count + 1
        })
        .await;
        let machine = Lateness::watch();
        // Whatever it would say is not heard, and it hears nothing.
        self.proxy.set(Link::HalfOpen);
        let released = Moment::now();
        release(guard).await;
        let (next, granted) = bounded(waiter).await.unwrap();
        machine.check(&format!("to pass over {count}"), HUNG_MAX, released, granted);
        release(next).await;
        hung.iter().for_each(JoinHandle::abort);
    }

    /// P9: a process that dies as soon as it stands in line, before it knows of it, may hang on a lease
    /// of its ttl. It does not delay others for as long: it never says that it has its turn.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn pass_over_who_dies_as_it_comes(&self, arrival: Arrival) {
        let options = || ttl(TTL_LONG).wait(TIME_MAX);
        // Whatever is prepared on first use is there before the way becomes slow.
        release(hold(&self.far, "another", options()).await).await;
        let guard = hold(&self.near, NAME, options()).await;
        let early = match arrival {
            Arrival::Before => Some(queue_for(&self.near, NAME, options()).await),
            _ => None,
        };
        let name = guard.name().clone();
        let are_waiting = async |count| {
            let reached = async || self.near.inspect(&name).await.unwrap().waiting == count;
            eventually("they stand in line", TIME_MAX, reached).await;
        };
        self.proxy.set(Link::Delay(SLOW));
        let far = self.far.clone();
        let dying =
            tokio::spawn(async move { hold(&far, NAME, ttl(TTL_LONG).wait(TIME_MAX)).await });
        are_waiting(1 + usize::from(early.is_some())).await;
        self.proxy.set(Link::HalfOpen);
        dying.abort();
        let waiter = match arrival {
            Arrival::AfterItsTurn => None,
            _ => Some(queue_for(&self.near, NAME, options()).await),
        };
        early.iter().for_each(JoinHandle::abort);
        are_waiting(1 + usize::from(waiter.is_some())).await;
        let (machine, released) = (Lateness::watch(), Moment::now());
        release(guard).await;
        let near = self.near.clone();
        let come = async move { hold(&near, NAME, ttl(TTL_LONG).wait(TIME_MAX)).await };
        let waiter = waiter.unwrap_or_else(|| tokio::spawn(come));
        let (next, granted) = (bounded(waiter).await.unwrap(), Moment::now());
        machine.check("to pass over it", HUNG_MAX, released, granted);
        release(next).await;
    }

    /// P7, P15: a writer becomes a reader, and the reply is lost. It is asked again and has been done:
    /// the reader that waited is in, the writer behind it is not, and the lease goes on.
    ///
    /// # Cancel safety
    /// The way stays as it is.
    pub async fn downgrade_without_a_reply(&self) {
        let [other, lock] = ["another", NAME].map(|name| {
            self.far.rwlock(name).unwrap().with_options(ttl(self.span * 3).retries(10))
        });
        // Whatever is prepared on first use is there.
        let guard = bounded(other.write()).await.unwrap();
        bounded(other.downgrade(&guard)).await.unwrap();
        let guard = bounded(lock.write()).await.unwrap();
        let fence = guard.fence();
        let beside = self.near.rwlock(NAME).unwrap().wait(TIME_MAX);
        let reader = tokio::spawn(async move { beside.read().await });
        let waits = async || self.near.inspect(guard.name()).await.unwrap().waiting == 1;
        eventually("a reader waits", TIME_MAX, waits).await;
        let writer = queue_for(&self.near, NAME, Options::default().wait(TIME_MAX)).await;
        // Also on connections that are made meanwhile: where the reader is told late, it is asked again.
        self.proxy.set(Link::SwallowReplies);
        let downgrading = tokio::spawn(async move { (lock.downgrade(&guard).await, guard) });
        // So it was done, and nobody has been told.
        let reader = bounded(reader).await.unwrap().unwrap();
        assert!(!downgrading.is_finished(), "the reply was not lost");
        self.proxy.set(Link::Close);
        self.proxy.reset_open();
        self.proxy.set(Link::Pass);
        let (downgraded, guard) = bounded(downgrading).await.unwrap();
        downgraded.unwrap();
        assert!(reader.fence().get() > fence.get());
        let view = self.near.inspect(guard.name()).await.unwrap();
        let seen: Vec<_> = view.holders.iter().map(|it| (it.mode, it.fence)).collect();
        let [first, second] = [fence, reader.fence()].map(|fence| (Mode::Shared, Some(fence)));
        assert!(seen == [first, second] && view.waiting == 1, "{view:?}");
        wait_for_renewal(&guard, self.span * 3).await;
        assert_eq!(guard.check().unwrap().fence, fence);
        release(reader).await;
        assert!(!writer.is_finished(), "a writer came in beside a reader");
        release(guard).await;
        release(bounded(writer).await.unwrap()).await;
    }
}

async fn release(guard: Guard) {
    let released = guard.release().await.unwrap();
    assert!(matches!(released, Released::Released), "{released:?}");
}
