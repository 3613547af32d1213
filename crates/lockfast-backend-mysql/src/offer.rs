//! What is pushed to us, in an answer or by mail: a lock that we waited for, our place at the head
//! of a queue, or that a lease was taken away.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::lobby::{TICK, Waiter};
use lockfast_core::time::ClockPair;
use lockfast_core::{Fence, Grant, HolderId, LossCause, Moment, RenewRequest};
use tokio::sync::oneshot;

use crate::answer::tell_all;
use crate::batch::{Op, Renew, Take};
use crate::claim::{Answer, Claim};
use crate::store::Store;

/// A lock that was given to a claim that waited. It lasts only briefly until it is renewed, so
/// that a waiter that hangs does not hold up those behind it.
#[derive(Debug)]
struct Offer {
    holder: HolderId,
    fence: Fence,
    /// When, by the server's clock.
    at_us: u64,
    /// For how long, without the lock-delay.
    lasts: Duration,
}

impl Offer {
    fn read(fields: &[&str]) -> Option<Self> {
        let [holder, fence, at_us, lasts_us, _name] = fields else { return None };
        Some(Self {
            holder: HolderId::parse(holder).ok()?,
            fence: Fence::parse(fence).ok()?,
            at_us: at_us.parse().ok()?,
            lasts: Duration::from_micros(lasts_us.parse().ok()?),
        })
    }

    /// The first renewal makes a full lease of it. None when the offer may have ended before that
    /// renewal.
    fn grant(&self, clock: Option<ClockPair>) -> Option<Grant> {
        let now = Moment::now();
        let from = now.earlier_of(clock?.locate(self.at_us));
        let is_fresh = now.since(from) <= self.lasts / 2;
        is_fresh.then_some(Grant::new(self.fence, from).lasting(self.lasts))
    }
}

impl Store {
    /// Listens to one line: `G` a grant, `H` the head of a queue, `R` a revocation. It may have
    /// come with the answer to what was sent at the time that `clock` tells.
    pub(crate) fn hear(&self, line: &str, clock: Option<ClockPair>) {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields.as_slice() {
            ["G", fields @ ..] => {
                let offer = Offer::read(fields);
                offer.into_iter().for_each(|offer| self.take_offer(&offer, clock));
            }
            ["H", holder, at_us, blocked_us] => {
                let (at_us, blocked) = (at_us.parse(), blocked_us.parse());
                if let (Ok(holder), Ok(at_us), Ok(blocked)) =
                    (HolderId::parse(holder), at_us, blocked)
                {
                    self.lead(holder, (at_us, Duration::from_micros(blocked)), clock);
                }
            }
            ["R", holder, reason @ ..] => {
                if let Ok(holder) = HolderId::parse(holder) {
                    let reason = reason.join(" ");
                    self.losses.report(holder, LossCause::Revoked { reason });
                }
            }
            ["E", fields @ ..] => self.feeds.tell(fields),
            _ => {}
        }
    }

    /// The claim is the next, and what was in its way at a time lasted so long from then.
    fn lead(&self, holder: HolderId, (at_us, blocked): (u64, Duration), clock: Option<ClockPair>) {
        let now = Moment::now();
        let at = clock.map_or(now, |clock| now.earlier_of(clock.locate(at_us)));
        self.lobby.hasten(holder, (at + blocked).remaining(now) + TICK);
    }

    /// Tells whoever waits for it. What nobody here waits for is left alone: mail may come twice,
    /// or after an answer that said the same, and then its holder has the lock and uses it. Only a
    /// release gives a lock back, and whoever gave up an acquisition releases it.
    fn take_offer(&self, offer: &Offer, clock: Option<ClockPair>) {
        let Some(waiter) = self.lobby.take_called(offer.holder, ()) else { return };
        // Nobody renews a detached lease, and an old offer may end before it is renewed.
        match (offer.grant(clock), self.me()) {
            (Some(grant), _) if !waiter.claim.detached => {
                tell_all(waiter.askers, || Answer::Granted(grant.clone()));
            }
            (_, Some(store)) if waiter.claim.detached => {
                drop(self.runtime.spawn(store.confirm(waiter)));
            }
            _ => self.ask_again(waiter),
        }
    }

    /// Makes a full lease of an offer before its asker is told.
    async fn confirm(self: Arc<Self>, waiter: Waiter<Claim>) {
        let claim = &waiter.claim;
        let lease = RenewRequest {
            name: claim.name.clone(),
            holder: claim.holder,
            ttl: claim.ttl,
            lock_delay: claim.lock_delay,
        };
        let (asker, answer) = oneshot::channel();
        self.submit(Op::Renew(Renew { leases: [lease].into(), asker, tries: 0 }));
        match answer.await {
            Ok(Ok(_)) => self.ask_again(waiter),
            // Its asker asks again, or releases it.
            Ok(Err(failure)) => {
                for asker in waiter.askers {
                    let _ = asker.send(Err(failure.clone()));
                }
            }
            Err(_) => {}
        }
    }

    /// Asks for what was offered: it has it still, or is offered it again, or waits again at its old
    /// place. It may have been passed over and offered the lock once more since, so only the answer
    /// tells the fence.
    fn ask_again(&self, waiter: Waiter<Claim>) {
        for asker in waiter.askers {
            self.submit(Op::Take(Take::first(Arc::clone(&waiter.claim), asker)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Batch, Give};
    use crate::config::Config;
    use crate::store::Work;
    use crate::wire::Dialer;
    use lockfast_core::{
        AcquireRequest, Address, ClientId, ConnectContext, Label, LockName, LossReporter, Mode,
        ReleaseOutcome, Wait,
    };
    use oneshot::error::TryRecvError;

    const NAME: &str = "nightly";
    const FENCE: u64 = 1_790_000_000_000_000;
    type Told<T> = oneshot::Receiver<Result<T, crate::failure::Failure>>;

    /// A store without a server: what it would send is looked at, and what the server would say
    /// is said by the test.
    struct Stage {
        store: Arc<Store>,
        client: ClientId,
    }

    impl Stage {
        fn new() -> Self {
            let client = ClientId::random().unwrap();
            let context = ConnectContext {
                runtime: tokio::runtime::Handle::current(),
                client,
                label: Label::of_this_process(),
                losses: LossReporter::new(|_| {}),
            };
            let address = Address::parse("mysql://locks@127.0.0.1:1/lockfast").unwrap();
            let dialer = Dialer::new(Config::read(&address).unwrap()).unwrap();
            Self { store: Store::new(dialer, context).unwrap(), client }
        }

        /// Asks for the lock.
        fn ask(&self, detached: bool) -> (Arc<Claim>, Told<Answer>) {
            let claim = Arc::new(Claim::new(AcquireRequest {
                name: LockName::new(NAME).unwrap(),
                mode: Mode::Exclusive,
                holder: HolderId::random(self.client).unwrap(),
                ttl: Duration::from_secs(30),
                lock_delay: Duration::ZERO,
                wait: Wait::Forever,
                detached,
                floor: None,
            }));
            let (asker, told) = oneshot::channel();
            self.store.submit(Op::Take(Take::first(Arc::clone(&claim), asker)));
            (claim, told)
        }

        /// Asks and is told to wait.
        fn wait(&self) -> (Arc<Claim>, Told<Answer>) {
            let (claim, told) = self.ask(false);
            self.say(self.batch(), "1\tW\t5000000\n");
            (claim, told)
        }

        fn release(&self, claim: &Claim) -> Told<ReleaseOutcome> {
            drop(self.store.lobby.take(claim.holder));
            let (asker, told) = oneshot::channel();
            let (name, holder) = (claim.name.clone(), claim.holder);
            self.store.submit(Op::Give(Give::new(name, holder, asker)));
            told
        }

        /// What is sent next.
        fn batch(&self) -> Batch {
            match self.store.next_work() {
                Work::Batch(batch, _) => batch,
                Work::Ask(..) | Work::Nothing => panic!("nothing is sent"),
            }
        }

        /// The server's answer to it.
        fn say(&self, batch: Batch, answers: &str) {
            let clock = ClockPair { sent: Moment::now(), server_us: FENCE };
            self.store.hand_out(batch, clock, answers, "");
        }

        /// The offer as it is mailed, given so long before the last answer.
        fn offer(&self, claim: &Claim, before: Duration) {
            let at_us = FENCE - u64::try_from(before.as_micros()).unwrap();
            let holder = claim.holder.to_hex().to_ascii_uppercase();
            let line = format!("G\t{holder}\t{FENCE}\t{at_us}\t1500000\t{NAME}");
            self.store.hear(&line, self.store.clock());
        }

        /// Those who wait look if their time has come.
        fn look(&self) {
            let (due, _) = self.store.lobby.take_due(Moment::now());
            self.store.look_again(due);
        }

        #[track_caller]
        fn assert_nothing_is_sent(&self) {
            self.look();
            assert!(matches!(self.store.next_work(), Work::Nothing), "something is sent");
        }
    }

    #[track_caller]
    fn granted(told: &mut Told<Answer>) -> u64 {
        match told.try_recv().expect("it is told").expect("it is no failure") {
            Answer::Granted(grant) => grant.fence.get(),
            _ => panic!("it is granted"),
        }
    }

    #[track_caller]
    fn assert_granted(told: &mut Told<Answer>) {
        assert_eq!(granted(told), FENCE);
    }

    /// B6: an offer that comes twice is taken once, and what is held is not given back.
    #[tokio::test]
    async fn an_offer_comes_twice() {
        let stage = Stage::new();
        let (claim, mut told) = stage.wait();
        stage.offer(&claim, Duration::ZERO);
        assert_granted(&mut told);
        stage.offer(&claim, Duration::ZERO);
        stage.assert_nothing_is_sent();
    }

    /// B6: so is one that comes after the answer which has granted the lock already.
    #[tokio::test]
    async fn an_offer_comes_after_its_answer() {
        let stage = Stage::new();
        let (claim, mut told) = stage.wait();
        stage.store.lobby.rouse();
        stage.look();
        stage.say(stage.batch(), &format!("1\tG\t{FENCE}\n"));
        assert_granted(&mut told);
        stage.offer(&claim, Duration::ZERO);
        stage.assert_nothing_is_sent();
    }

    /// P10: one that comes before the answer that lets its claim wait is not lost: the claim looks
    /// at once.
    #[tokio::test]
    async fn an_offer_comes_before_its_answer() {
        let stage = Stage::new();
        let (claim, mut told) = stage.ask(false);
        let batch = stage.batch();
        stage.offer(&claim, Duration::ZERO);
        stage.say(batch, "1\tW\t5000000\n");
        assert!(matches!(told.try_recv(), Err(TryRecvError::Empty)));
        stage.look();
        stage.say(stage.batch(), &format!("1\tG\t{FENCE}\n"));
        assert_granted(&mut told);
        stage.assert_nothing_is_sent();
    }

    /// P5: a call that was given up is released by whoever gave it up, once, whatever it is
    /// offered before or after.
    #[tokio::test]
    async fn an_offer_comes_for_a_call_that_was_given_up() {
        let stage = Stage::new();
        let (claim, told) = stage.wait();
        drop(told);
        stage.offer(&claim, Duration::ZERO);
        stage.assert_nothing_is_sent();
        let mut released = stage.release(&claim);
        let batch = stage.batch();
        assert_eq!((batch.gives.len(), batch.takes.len()), (1, 0));
        stage.offer(&claim, Duration::ZERO);
        stage.say(batch, "1\t1\n");
        assert!(matches!(released.try_recv(), Ok(Ok(ReleaseOutcome::Released))));
        stage.assert_nothing_is_sent();
    }

    /// P5: a claim that was about to look when it was released does not look afterwards, because
    /// it would be granted what nobody knows of.
    #[tokio::test]
    async fn nobody_looks_after_a_release() {
        let stage = Stage::new();
        let (claim, told) = stage.wait();
        stage.store.lobby.rouse();
        let (due, _) = stage.store.lobby.take_due(Moment::now());
        drop(told);
        let _released = stage.release(&claim);
        assert_eq!(stage.batch().gives.len(), 1);
        stage.store.look_again(due);
        stage.assert_nothing_is_sent();
    }

    /// P7: an acquisition that asks again after a failure has what it is granted: nothing that
    /// the failure left behind gives it back.
    #[tokio::test]
    async fn a_failure_to_confirm_gives_nothing_back() {
        let stage = Stage::new();
        let (claim, told) = stage.ask(true);
        stage.say(stage.batch(), "1\tW\t5000000\n");
        stage.offer(&claim, Duration::ZERO);
        tokio::task::yield_now().await;
        let batch = stage.batch();
        assert_eq!(batch.renews.len(), 1, "it is confirmed before it is told");
        let failure = crate::failure::of_silence("here", Duration::ZERO);
        batch.into_ops().for_each(|op| stage.store.fail_op(op, &failure));
        assert!(told.await.unwrap().is_err());
        stage.assert_nothing_is_sent();
    }

    /// B58, P4: an offer that may be over is asked for again: its claim may have been passed over and
    /// offered the lock once more, with another fence.
    #[tokio::test]
    async fn an_offer_comes_late() {
        let stage = Stage::new();
        let (claim, mut told) = stage.wait();
        stage.offer(&claim, Duration::from_secs(2));
        let batch = stage.batch();
        assert_eq!((batch.takes.len(), batch.renews.len()), (1, 0));
        stage.say(batch, &format!("1\tG\t{}\n", FENCE + 1));
        assert_eq!(granted(&mut told), FENCE + 1);
        stage.assert_nothing_is_sent();
    }

    /// B58, P4: so is one of a lease that nobody renews, once that has become a full one.
    #[tokio::test]
    async fn an_offer_comes_to_a_detached_claim() {
        let stage = Stage::new();
        let (claim, mut told) = stage.ask(true);
        stage.say(stage.batch(), "1\tW\t5000000\n");
        stage.offer(&claim, Duration::ZERO);
        tokio::task::yield_now().await;
        let batch = stage.batch();
        assert_eq!((batch.takes.len(), batch.renews.len()), (0, 1));
        stage.say(batch, "");
        tokio::task::yield_now().await;
        let batch = stage.batch();
        assert_eq!((batch.takes.len(), batch.renews.len()), (1, 0));
        stage.say(batch, &format!("1\tG\t{}\n", FENCE + 1));
        assert_eq!(granted(&mut told), FENCE + 1);
        stage.assert_nothing_is_sent();
    }
}
