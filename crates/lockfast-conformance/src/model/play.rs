//! Plays a story on a real store and compares each step with what the rule says.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::time::wall_clock_us;
use lockfast_core::{
    AcquireRequest, DowngradeRequest, Fence, HolderId, LockName, LossReport, Moment,
    ReleaseRequest, Wait,
};
use tokio::task::JoinHandle;

use super::answer::{
    Answer, Facts, Thread, is_heard, is_told_right, is_view, outcomes, with_refusals,
};
use super::send::{self, Ear};
use super::step::{CONNECTIONS, LOCKS, Lock, Patience, Request, Step, What, Who, letter};
use super::world::{Act, Expect, World};
use crate::arena::{Client, GRACE, name, renewal};

/// For how long somebody waits who does not wait for long.
const MOMENT: Duration = Duration::from_millis(20);
/// How far above all fences and clocks a floor is at least, so that no fence is above it by chance.
const ABOVE_US: u64 = 20_000;
/// How far above them one is that no store may believe.
const TOO_FAR_US: u64 = 3_600_000_000;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// How a story ended.
pub(super) enum Ending {
    /// The store always said what the rule says.
    Agreed,
    /// This step went otherwise.
    Differed { step: usize, how: String },
    /// This machine stopped the test for so long that a lease may have run out.
    Void,
}

/// The connections that a story is played on.
#[derive(Clone)]
pub(super) struct Stage {
    pub(super) clients: Arc<[Client; CONNECTIONS]>,
    /// How long the store may take until what it says is what the rule says.
    pub(super) patience: Duration,
    /// What the names of the locks start with: other names each time.
    pub(super) prefix: String,
}

struct Player {
    stage: Stage,
    names: [LockName; LOCKS],
    /// Everything that can be so, as far as the answers tell.
    worlds: Vec<World>,
    facts: Facts,
    holders: BTreeMap<Who, HolderId>,
    requests: BTreeMap<Who, AcquireRequest>,
    waiters: BTreeMap<Who, JoinHandle<()>>,
    ear: Arc<Ear>,
    revocations: usize,
    /// Before which moment the lease that is meant to run out in this step must not.
    lasts_until: Option<Moment>,
}

/// A request that is on its way, and its answers.
type Asking = Pin<Box<dyn Future<Output = Vec<Thread>> + Send>>;

/// Plays a story on locks that nobody has used, and leaves them free.
pub(super) async fn play(stage: Stage, story: &[Step]) -> Ending {
    let mut player = Player::new(stage);
    let mut ending = Ending::Agreed;
    for (at, step) in story.iter().enumerate() {
        if let Err(how) = player.step(step).await {
            ending = Ending::Differed { step: at, how };
            break;
        }
    }
    player.clear().await;
    if player.ear.is_late() { Ending::Void } else { ending }
}

impl Player {
    fn new(stage: Stage) -> Self {
        let names = std::array::from_fn(|lock| name(&format!("{}/{}", stage.prefix, letter(lock))));
        Self {
            stage,
            names,
            worlds: vec![World::new(LOCKS)],
            facts: Facts::default(),
            holders: BTreeMap::new(),
            requests: BTreeMap::new(),
            waiters: BTreeMap::new(),
            ear: Arc::default(),
            revocations: 0,
            lasts_until: None,
        }
    }

    /// The connection of a holder.
    fn own(&self, who: Who) -> Client {
        self.stage.clients[who % CONNECTIONS].clone()
    }

    fn holder(&mut self, who: Who) -> HolderId {
        let client = self.own(who);
        *self.holders.entry(who).or_insert_with(|| client.holder())
    }

    async fn step(&mut self, step: &Step) -> Result<(), String> {
        let heard = std::mem::take(&mut self.facts.heard);
        self.facts.listening.retain(|who| !heard.contains_key(who));
        self.lasts_until = None;
        let mut sent = Vec::new();
        for request in &step.0 {
            if self.makes_sense(request, step) {
                sent.push((request, tokio::spawn(self.send(request))));
            }
        }
        let mut threads = Vec::new();
        for (request, task) in sent {
            match tokio::time::timeout(self.stage.patience, task).await {
                Ok(Ok(said)) => threads.extend(said),
                Ok(Err(error)) => return Err(format!("{request}: {error}")),
                Err(_) => return Err(format!("no answer to: {request}")),
            }
        }
        self.compare(&threads).await
    }

    /// Whether a request means something here: others may have been left out of the story since it
    /// was invented, and some are no use at the same time as others.
    fn makes_sense(&self, request: &Request, step: &Step) -> bool {
        let Request { lock, who, .. } = *request;
        let others = || step.0.iter().filter(|other| !std::ptr::eq(*other, request));
        match &request.what {
            // A holder does not ask again for what it has released.
            What::Release => !others().any(|other| other.who == who && other.what.is_first()),
            What::Again { .. } => {
                let ends = |other: &Request| match other.what {
                    What::Revoke { .. } => other.lock == lock,
                    What::Release | What::Again { .. } => other.who == who,
                    _ => false,
                };
                self.requests.contains_key(&who)
                    && self.worlds.iter().all(|world| world.find(who).is_some())
                    && !others().any(ends)
            }
            What::OtherMode { mode } => self.worlds.iter().all(|world| {
                world.find(who).is_some_and(|claim| claim.is_granted && claim.mode != *mode)
            }),
            What::Expire { .. } => self.worlds.iter().all(|world| world.holds(who)),
            _ => true,
        }
    }

    /// Asks what the request says. Whatever it takes to send it is done when this returns but for the
    /// sending itself.
    fn send(&mut self, request: &Request) -> Asking {
        let Request { lock, who, via, ref what } = *request;
        let (name, client) = (self.names[lock].clone(), self.stage.clients[via].clone());
        match what {
            What::Acquire { mode, patience, floor } => {
                let floor = floor.map(|above| self.floor(lock, ABOVE_US + above));
                let asked = match self.requests.get(&who) {
                    // At once with the same request.
                    Some(asked) => asked.clone(),
                    None => AcquireRequest {
                        mode: *mode,
                        holder: self.holder(who),
                        floor,
                        ..client.waiting_request(&name)
                    },
                };
                self.facts.floors.extend(asked.floor.map(|floor| (who, floor.get())));
                self.requests.insert(who, asked.clone());
                self.acquire(lock, who, asked, *patience)
            }
            What::Again { may_wait } => {
                let mut asked = self.requests[&who].clone();
                if *may_wait && let Some(claim) = self.worlds[0].find(who) {
                    // A writer that became a reader asks as one, and otherwise is told so.
                    asked.mode = claim.mode;
                }
                let patience = if *may_wait { Patience::Endless } else { Patience::None };
                self.acquire(lock, who, asked, patience)
            }
            What::AcquireAndCancel { mode } => {
                let (holder, own, mode) = (self.holder(who), self.own(who), *mode);
                let asked = AcquireRequest { mode, holder, ..own.waiting_request(&name) };
                Box::pin(async move {
                    let answer = send::acquire_and_cancel(&own, asked, who % 5).await;
                    vec![vec![
                        (Act::Enter(lock, who, mode), Answer::Unheard),
                        (Act::Leave(lock, who), answer),
                    ]]
                })
            }
            What::AcquireFarAhead { mode } => {
                let floor = Some(self.floor(lock, TOO_FAR_US));
                self.try_alone(name, who, *mode, floor, Act::Overreach(lock, who, *mode))
            }
            What::OtherMode { mode } => {
                self.try_alone(name, who, *mode, None, Act::Try(lock, who, *mode))
            }
            What::Release => self.release(lock, who, client),
            _ => self.send_upkeep(request, name, client),
        }
    }

    /// The same for what changes no line by itself.
    fn send_upkeep(&mut self, request: &Request, name: LockName, client: Client) -> Asking {
        let Request { lock, who, ref what, .. } = *request;
        match what {
            What::Renew { others } => {
                let all: Vec<Who> = [&[who][..], others].concat();
                let ttl = client.long_ttl();
                let batch: Vec<_> =
                    all.iter().map(|who| renewal(&name, self.holder(*who), ttl)).collect();
                Box::pin(async move {
                    let answers = send::renew(&client, batch).await;
                    let threads = all.into_iter().zip(answers);
                    threads.map(|(who, answer)| vec![(Act::Renew(lock, who), answer)]).collect()
                })
            }
            What::Expire { with_delay } => {
                let ttl = send::short_ttl(&client);
                let lock_delay = if *with_delay { ttl } else { Duration::ZERO };
                let mut lease = renewal(&name, self.holder(who), ttl);
                lease.lock_delay = lock_delay;
                self.lasts_until = Some(Moment::now() + ttl + lock_delay);
                Box::pin(async move {
                    let mut answers = send::renew(&client, vec![lease]).await;
                    let end = (Act::Expire(lock, who), Answer::Expired);
                    vec![vec![(Act::Renew(lock, who), answers.remove(0)), end]]
                })
            }
            What::Downgrade => {
                let asked = DowngradeRequest { name, holder: self.holder(who) };
                one(Act::Downgrade(lock, who), async move { send::downgrade(&client, asked).await })
            }
            What::Revoke { expect } => {
                self.revocations += 1;
                let number = self.revocations;
                // The last fence that there can be is nobody's.
                let nobody = Fence::new(Fence::LIMIT - 1).ok();
                let fence = match expect {
                    Expect::Any => None,
                    Expect::Of(who) => self.facts.fences.get(who).copied().or(nobody),
                    Expect::Nobody => nobody,
                };
                let known =
                    !matches!(expect, Expect::Of(who) if !self.facts.fences.contains_key(who));
                let expect = if known { *expect } else { Expect::Nobody };
                let act = Act::Revoke(lock, number, expect);
                one(act, async move { send::revoke(&client, name, fence, number).await })
            }
            What::List => {
                let (prefix, names) = (self.stage.prefix.clone(), self.names.clone());
                Box::pin(async move {
                    let answers = send::list(&client, format!("{prefix}/"), &names).await;
                    let threads = answers.into_iter().enumerate();
                    threads.map(|(lock, answer)| vec![(Act::Look(lock), answer)]).collect()
                })
            }
            _ => one(Act::Look(lock), async move { send::look(&client, &name).await }),
        }
    }

    /// A fence that is so far above all that are known, and above what the store's clock says.
    fn floor(&self, lock: Lock, above_us: u64) -> Fence {
        let known = self.facts.highest[lock].max(wall_clock_us());
        Fence::new(known + above_us).expect("below the limit")
    }

    /// Asks for a lock, in the place of an earlier request of the same holder that waits.
    fn acquire(
        &mut self,
        lock: Lock,
        who: Who,
        asked: AcquireRequest,
        patience: Patience,
    ) -> Asking {
        let (own, ear, mode) = (self.own(who), Arc::clone(&self.ear), asked.mode);
        let earlier = self.waiters.remove(&who);
        self.facts.listening.remove(&who);
        if patience == Patience::Endless {
            self.facts.listening.insert(who);
            let waiter = tokio::spawn(async move {
                end(earlier).await;
                ear.listen(own, who, asked).await;
            });
            self.waiters.insert(who, waiter);
            return one(Act::Enter(lock, who, mode), std::future::ready(Answer::Waits));
        }
        Box::pin(async move {
            end(earlier).await;
            let may_wait = patience == Patience::Short;
            let wait = if may_wait { Wait::Until(Moment::now() + MOMENT) } else { Wait::No };
            let last = match ear.acquire(&own, AcquireRequest { wait, ..asked }).await {
                // The lock is looked at when the wait is over.
                Answer::Taken(_) if may_wait => Answer::Taken(None),
                answer => answer,
            };
            let mut thread = vec![(Act::Try(lock, who, mode), last)];
            if may_wait {
                thread.insert(0, (Act::Enter(lock, who, mode), Answer::Unheard));
            }
            vec![thread]
        })
    }

    /// Asks without waiting for what is refused whatever happens.
    fn try_alone(
        &mut self,
        name: LockName,
        who: Who,
        mode: lockfast_core::Mode,
        floor: Option<Fence>,
        act: Act,
    ) -> Asking {
        let (own, ear, holder) = (self.own(who), Arc::clone(&self.ear), self.holder(who));
        let asked = AcquireRequest { mode, floor, holder, ..own.request(&name) };
        one(act, async move { ear.acquire(&own, asked).await })
    }

    /// Gives back what the holder has, or gives up waiting: then its request is dropped before.
    fn release(&mut self, lock: Lock, who: Who, client: Client) -> Asking {
        let waiter = self.waiters.remove(&who);
        let is_waiting = self.facts.listening.remove(&who);
        let client = if is_waiting { self.own(who) } else { client };
        let gone = ReleaseRequest { name: self.names[lock].clone(), holder: self.holder(who) };
        one(Act::Leave(lock, who), async move {
            end(waiter).await;
            send::release(&client, gone).await
        })
    }

    /// Waits until everything that is heard and seen is right in some world, and goes on with those
    /// worlds.
    async fn compare(&mut self, threads: &[Thread]) -> Result<(), String> {
        for (act, answer) in threads.iter().flatten() {
            if let (Act::Enter(_, who, _) | Act::Try(_, who, _), Answer::Granted(fence)) =
                (act, answer)
            {
                self.facts.fences.entry(*who).or_insert(*fence);
            }
        }
        let start = Moment::now();
        loop {
            self.hear();
            let waited = Moment::now().since(start);
            let possible =
                outcomes(&self.worlds, &with_refusals(threads, &self.facts), &self.facts);
            let is_hopeless = possible.is_empty() && waited > GRACE;
            let mut next: Vec<World> = possible
                .into_iter()
                .filter(|world| is_heard(world, &self.facts) && is_told_right(world, &self.facts))
                .collect();
            let mut seen = Vec::new();
            if !next.is_empty() || is_hopeless || waited > self.stage.patience {
                for name in &self.names {
                    seen.push(send::look(&self.stage.clients[0], name).await);
                }
                next.retain(|world| {
                    seen.iter().enumerate().all(|(lock, answer)| {
                        matches!(answer, Answer::Seen(view) if is_view(&world.sight(lock), view, &self.facts))
                    })
                });
            }
            if !next.is_empty() {
                return self.go_on(next);
            }
            if is_hopeless || waited > self.stage.patience {
                return Err(self.describe(threads, &seen));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn go_on(&mut self, mut worlds: Vec<World>) -> Result<(), String> {
        if self.lasts_until.is_some_and(|until| !until.has_passed(Moment::now())) {
            return Err("the lease ended before its time".into());
        }
        for world in &mut worlds {
            for lock in 0..LOCKS {
                let fences =
                    world.granted(lock).iter().filter_map(|who| self.facts.fences.get(who));
                let highest = fences.map(|fence| fence.get()).max().unwrap_or(0);
                self.facts.highest[lock] = self.facts.highest[lock].max(highest);
            }
            world.forget_grants();
        }
        worlds.dedup();
        self.worlds = worlds;
        Ok(())
    }

    /// Takes note of what those who wait and those who lost their locks were told.
    fn hear(&mut self) {
        for (who, said) in self.ear.take() {
            if let Ok(fence) = said {
                self.facts.fences.entry(who).or_insert(fence);
            }
            self.facts.heard.insert(who, said);
        }
        for client in self.stage.clients.iter() {
            for report in client.reported_losses() {
                let LossReport::Lease(holder, cause) = report else { continue };
                let who = self.holders.iter().find(|(_, known)| **known == holder);
                if let Some((who, _)) = who {
                    self.facts.told.entry(*who).or_insert(cause);
                }
            }
        }
    }

    fn describe(&self, threads: &[Thread], seen: &[Answer]) -> String {
        let before: Vec<String> = self.worlds.iter().map(ToString::to_string).collect();
        let mut text = format!("before: {}", before.join(", or "));
        for (act, answer) in threads.iter().flatten() {
            text += &format!("\nanswer: {act:?}: {}", self.facts.in_words(answer));
        }
        for (lock, answer) in seen.iter().enumerate() {
            text += &format!("\nafter that {}: {}", letter(lock), self.facts.in_words(answer));
        }
        let Facts { fences, highest, told, heard, listening, .. } = &self.facts;
        let numbers: Vec<String> = fences.iter().map(|(who, it)| format!("{who}: {it}")).collect();
        text + &format!(
            "\nwaiting {listening:?}, of whom heard {heard:?}\nfences {}, the highest before \
             {highest:?}\ntold of losses {told:?}",
            numbers.join(", "),
        )
    }

    /// Gives back whatever is left.
    async fn clear(&mut self) {
        for (_, waiter) in std::mem::take(&mut self.waiters) {
            end(Some(waiter)).await;
        }
        let live = self.requests.clone();
        for (who, asked) in live {
            let gone = ReleaseRequest { name: asked.name, holder: asked.holder };
            if self.worlds.iter().any(|world| world.find(who).is_some()) {
                let _ = send::release(&self.own(who), gone).await;
            }
        }
    }
}

/// One act and its answer.
fn one(act: Act, answer: impl Future<Output = Answer> + Send + 'static) -> Asking {
    Box::pin(async move { vec![vec![(act, answer.await)]] })
}

/// Drops what a task does, and returns when it is dropped.
async fn end(task: Option<JoinHandle<()>>) {
    if let Some(task) = task {
        task.abort();
        let _ = task.await;
    }
}
