//! One task of a worker: it asks for a lock in some way, holds it for a while, and begins again.

use std::sync::Arc;
use std::time::Duration;

use lockfast::{AnyLock, Guard, Locker};
use lockfast_faults::seed::Dice;

use super::hold::Hold;
use super::{Shared, Use, run, word_of_error};
use crate::history::{Mode, What};

/// One acquisition in this many is a `lockfast run`.
const RUN_ONE_IN: u64 = 60;

/// One acquisition in this many is of a lock that is mostly free.
const QUIET_ONE_IN: u64 = 10;

/// A task.
pub(super) struct Task {
    pub(super) shared: Arc<Shared>,
    pub(super) dice: Dice,
    /// Which of the worker's two connections it uses.
    side: usize,
}

/// What a task wants this time.
pub(super) struct Wish {
    pub(super) claim: u64,
    /// Which of the targets.
    pub(super) place: usize,
    pub(super) mode: Mode,
    /// How long it would wait; none if for ever.
    pub(super) wait: Option<Duration>,
}

impl Task {
    pub(super) fn new(shared: Arc<Shared>, number: u32) -> Self {
        let dice = shared.seed(&format!("task {number}")).dice();
        Self { shared, dice, side: number as usize % 2 }
    }

    /// Goes on until the run ends.
    pub(super) async fn run(mut self) {
        while !self.shared.is_ending() {
            self.shared.wait_for_budget().await;
            let wish = self.wish();
            let runs = wish.mode == Mode::Exclusive && self.dice.one_in(RUN_ONE_IN);
            let chance = self.dice.number();
            if !runs || !run::under_lock(&self.shared, &wish, chance).await {
                self.cycle(&wish).await;
            }
            let pause = match self.dice.below(10) {
                0..4 => Duration::ZERO,
                4..8 => self.dice.time_below(Duration::from_millis(20)),
                _ => self.dice.time_below(Duration::from_millis(200)),
            };
            self.shared.sleep(pause).await;
        }
    }

    fn wish(&mut self) -> Wish {
        let place = self.place();
        let mode = match self.shared.script.targets[place].used {
            Use::Exclusive => Mode::Exclusive,
            Use::ReadWrite if self.dice.below(10) < 3 => Mode::Exclusive,
            Use::ReadWrite => Mode::Shared,
            Use::Permits(limit) => Mode::Permits(limit),
        };
        let ttl = self.shared.ttl;
        let wait = match self.dice.below(10) {
            0 => Some(Duration::ZERO),
            1..4 => Some(self.dice.time_between(Duration::from_millis(1), ttl / 4)),
            4..7 => Some(self.dice.time_between(ttl, ttl * 5)),
            _ => None,
        };
        Wish { claim: self.shared.claim(), place, mode, wait }
    }

    /// Which lock it wants: mostly one that everybody wants.
    fn place(&mut self) -> usize {
        let quiet = self.dice.one_in(QUIET_ONE_IN);
        let targets = &self.shared.script.targets;
        let places: Vec<usize> =
            (0..targets.len()).filter(|place| targets[*place].quiet == quiet).collect();
        places[self.dice.below(places.len() as u64) as usize]
    }

    async fn cycle(&mut self, wish: &Wish) {
        let lock = match self.lock(wish) {
            Ok(lock) => lock,
            Err(error) => return self.refuse(wish.claim, &word_of_error(error.kind())),
        };
        let Some(guard) = self.ask(wish, &lock).await else { return };
        let mut deadline = 0;
        let is_held = self.shared.recorder.record_if(|_| {
            let checked = guard.check().ok()?;
            deadline = guard.deadline().host_ns();
            Some(What::Granted { claim: wish.claim, fence: checked.fence.get(), deadline })
        });
        if is_held {
            Hold::new(self, wish, guard, deadline).live().await;
        } else {
            // The process was stopped between the grant and this look.
            self.refuse(wish.claim, "lost");
        }
    }

    fn lock(&self, wish: &Wish) -> lockfast::Result<AnyLock> {
        let mode = match wish.mode {
            Mode::Exclusive => lockfast::Mode::Exclusive,
            Mode::Shared => lockfast::Mode::Shared,
            Mode::Permits(limit) => lockfast::Mode::permit(limit)?,
        };
        let name = &self.shared.script.targets[wish.place].name;
        let lock = self.locker().any_lock(name, mode)?.ttl(self.shared.ttl);
        Ok(match wish.wait {
            None => lock.wait_forever(),
            Some(wait) => lock.wait(wait),
        })
    }

    /// Asks, and sometimes gives up at a random moment.
    async fn ask(&mut self, wish: &Wish, lock: &AnyLock) -> Option<Guard> {
        let patience = match self.dice.below(12) {
            0 => Some(self.dice.time_below(Duration::from_millis(2))),
            1 => Some(self.dice.time_below(Duration::from_millis(50))),
            2 => Some(self.dice.time_below(self.shared.ttl)),
            _ => None,
        };
        self.shared.recorder.record(What::Asked {
            claim: wish.claim,
            lock: lock.name().to_string(),
            mode: wish.mode,
            wait: wish.wait.map(|wait| wait.as_nanos() as u64),
        });
        let answer = tokio::select! {
            biased;
            answer = lock.acquire() => Some(answer),
            () = sleep_if(patience) => None,
            () = self.shared.ended() => None,
        };
        match answer {
            Some(Ok(guard)) => Some(guard),
            Some(Err(error)) => {
                self.refuse(wish.claim, &word_of_error(error.kind()));
                // A store that is down is not asked all the time.
                let pause = self.dice.time_below(Duration::from_millis(100));
                self.shared.sleep(pause).await;
                None
            }
            None => {
                self.refuse(wish.claim, "cancelled");
                None
            }
        }
    }

    fn refuse(&self, claim: u64, why: &str) {
        self.shared.recorder.record(What::NotGranted { claim, why: why.to_owned() });
    }

    pub(super) fn locker(&self) -> &Locker {
        &self.shared.lockers[self.side]
    }

    /// The connection that it does not use.
    pub(super) fn other_locker(&self) -> &Locker {
        &self.shared.lockers[1 - self.side]
    }
}

async fn sleep_if(span: Option<Duration>) {
    match span {
        Some(span) => tokio::time::sleep(span).await,
        None => std::future::pending().await,
    }
}
