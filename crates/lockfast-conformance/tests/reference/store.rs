//! The reference store: every lock is a list of claims in the order in which they came.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use lockfast_core::capability::{Expiry, FenceSurvival, Order, Reach};
use lockfast_core::queue::check_use;
use lockfast_core::time::{wall_clock, wall_clock_us};
use lockfast_core::watch::EventFeeds;
use lockfast_core::{
    AcquireOutcome, AcquireRequest, Change, ClientId, ConnectContext, DowngradeOutcome,
    DowngradeRequest, Error, ErrorKind, EventStream, Expected, Feature, Fence, Grant, Guarantee,
    HolderId, HolderView, Label, LockName, LockView, LossCause, LossReporter, Mode, Moment,
    Profile, Query, Refusal, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest, Result,
    RevokeOutcome, RevokeRequest, TtlLimits, Version, VersionedValue, Wait, WatchEvent, WatchKind,
    WriteOutcome, WriteRequest,
};
use tokio::sync::{oneshot, watch};

use super::defect::Defect;

const TICK: Duration = Duration::from_millis(2);

/// What it cannot do.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) ttl: TtlLimits,
    pub(crate) lacks: &'static [(Feature, &'static str)],
}

impl Limits {
    pub(crate) const NONE: Self = Self { ttl: TtlLimits::LOCKFAST, lacks: &[] };
}

pub(crate) struct Store {
    state: Mutex<State>,
    defect: Option<Defect>,
    pub(crate) herd: watch::Sender<u64>,
    pub(crate) profile: Profile,
}

#[derive(Default)]
struct State {
    locks: BTreeMap<LockName, Vec<Claim>>,
    fence: u64,
    grants: u64,
    revoked: Vec<(HolderId, String)>,
    feeds: EventFeeds,
    values: BTreeMap<LockName, Stored>,
    writes: u64,
}

#[derive(Clone)]
struct Stored {
    id: [u8; 16],
    value: VersionedValue,
    ends: Option<Moment>,
}

struct Claim {
    request: AcquireRequest,
    label: Label,
    losses: LossReporter,
    asked: Moment,
    granted: Option<Granted>,
    answer: Option<oneshot::Sender<Result<AcquireOutcome>>>,
}

struct Granted {
    fence: Fence,
    expires: Moment,
    since: SystemTime,
}

impl Store {
    pub(crate) fn open(defect: Option<Defect>, limits: Limits) -> Arc<Self> {
        let store = Arc::new(Self {
            state: Mutex::default(),
            defect,
            herd: watch::Sender::new(0),
            profile: Profile {
                backend: "reference",
                guarantee: Guarantee::Efficiency,
                because: "it lives in the memory of a test",
                order: Order::Fifo,
                expiry: Expiry::Ttl,
                reach: Reach::Process,
                fence: FenceSurvival::Process,
                ttl: limits.ttl,
                lacks: limits.lacks,
            },
        });
        let clock = Arc::downgrade(&store);
        std::thread::spawn(move || {
            while let Some(store) = clock.upgrade() {
                store.tick();
                drop(store);
                std::thread::sleep(TICK);
            }
        });
        store
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The ids of all who hold or wait, which nobody should see.
    pub(crate) fn holders(&self) -> Vec<HolderId> {
        self.lock().locks.values().flatten().map(|claim| claim.request.holder).collect()
    }

    /// Forgets whatever a client has.
    pub(crate) fn forget(&self, client: ClientId) {
        for claims in self.lock().locks.values_mut() {
            claims.retain(|claim| claim.request.holder.client() != client);
        }
    }

    pub(crate) fn watch(&self) -> EventStream {
        self.lock().feeds.open()
    }

    pub(crate) fn read(&self, name: &LockName) -> Option<VersionedValue> {
        self.look(&self.lock(), name)
    }

    fn look(&self, state: &State, name: &LockName) -> Option<VersionedValue> {
        let now = Moment::now();
        let stored = state.values.get(&self.key(name))?;
        let ended = stored.ends.is_some_and(|ends| ends.has_passed(now));
        if ended && !self.has(Defect::ValueNeverEnds) {
            return None;
        }
        let remaining = stored.ends.map(|ends| ends.remaining(now));
        let remaining = remaining.filter(|_| !self.has(Defect::RemainingIsUntold));
        let VersionedValue { version, bytes, .. } = stored.value.clone();
        Some(VersionedValue::new(version, bytes, remaining))
    }

    pub(crate) fn write(&self, context: &ConnectContext, request: WriteRequest) -> WriteOutcome {
        let state = &mut *self.lock();
        let there = self.look(state, &request.name);
        self.change(state, context, request, there)
    }

    /// Writes over what was there when it was read, which others may have changed since.
    pub(crate) fn write_over(
        &self,
        context: &ConnectContext,
        request: WriteRequest,
        there: Option<VersionedValue>,
    ) -> WriteOutcome {
        self.change(&mut self.lock(), context, request, there)
    }

    fn change(
        &self,
        state: &mut State,
        context: &ConnectContext,
        request: WriteRequest,
        there: Option<VersionedValue>,
    ) -> WriteOutcome {
        let key = self.key(&request.name);
        let is_ours = state.values.get(&key).is_some_and(|stored| stored.id == request.id);
        if is_ours && !self.has(Defect::RepeatedWriteConflicts) {
            return WriteOutcome::Written(there.map(|value| value.version));
        }
        let expected = match request.expected {
            Expected::Nothing => None,
            Expected::Version(version) => Some(version),
        };
        if there.as_ref().map(|value| value.version) != expected {
            return WriteOutcome::Conflict(there);
        }
        state.writes = match self.has(Defect::VersionsBeginAnew) && there.is_none() {
            true => 1,
            false => state.writes + 1,
        };
        let version = Version::from_bytes(u128::from(state.writes).to_be_bytes());
        let outcome = match request.change {
            Change::Put { bytes, keep } => {
                let ends = keep.map(|keep| Moment::now() + keep);
                let value = VersionedValue::new(version, bytes, None);
                state.values.insert(key, Stored { id: request.id, value, ends });
                WriteOutcome::Written(Some(version))
            }
            Change::Remove => {
                state.values.remove(&key);
                WriteOutcome::Written(None)
            }
        };
        if !self.has(Defect::ChangeIsUntold) {
            let event = WatchEvent::new(wall_clock(), request.name, WatchKind::Changed);
            state.feeds.tell(&event.with_label(Some(context.label.clone())));
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn key(&self, name: &LockName) -> LockName {
        if self.has(Defect::FoldsCase) {
            return LockName::new(name.as_str().to_lowercase()).unwrap_or(name.clone());
        }
        name.clone()
    }

    /// Ends what has expired and refuses those whose time is up.
    fn tick(&self) {
        let now = Moment::now();
        let state = &mut *self.lock();
        for name in state.locks.keys().cloned().collect::<Vec<_>>() {
            let claims = state.locks.get_mut(&name).unwrap();
            let lapsed = |granted: &Granted| granted.expires.has_passed(now);
            let all_end = self.has(Defect::HoldersEndTogether)
                && claims.iter().any(|claim| claim.granted.as_ref().is_some_and(lapsed));
            let ended: Vec<Claim> = claims
                .extract_if(.., |claim| match &claim.granted {
                    Some(granted) => {
                        (all_end || lapsed(granted)) && !self.has(Defect::NeverExpires)
                    }
                    None => match claim.request.wait {
                        Wait::Until(at) if self.has(Defect::TimeoutIsEarly) => {
                            at.before(Duration::from_millis(30)).has_passed(now)
                        }
                        Wait::Until(at) => at.has_passed(now),
                        _ => false,
                    },
                })
                .collect();
            for claim in ended {
                self.end(state, &name, claim, WatchKind::Expired);
            }
            if !self.has(Defect::ExpiryWakesNobody) {
                self.settle(state, &name);
            }
        }
    }

    /// Tells everybody that a claim is gone.
    fn end(&self, state: &mut State, name: &LockName, mut claim: Claim, why: WatchKind) {
        let kind = if claim.granted.is_some() { why } else { WatchKind::Abandoned };
        if kind != WatchKind::Expired || !self.has(Defect::ExpiryIsSilent) {
            tell(state, name, kind, &claim);
        }
        if kind == WatchKind::Expired {
            claim.losses.report(claim.request.holder, LossCause::Forgotten);
        }
        if kind == WatchKind::Abandoned
            && let Some(answer) = claim.answer.take()
        {
            let waited = Moment::now().since(claim.asked);
            let lock = view(state, name);
            let _ = answer.send(Ok(AcquireOutcome::Taken(Refusal::new(lock, waited))));
            if self.has(Defect::TimeoutLeavesClaim) {
                claim.request.wait = Wait::Forever;
                state.locks.entry(name.clone()).or_default().push(claim);
            }
        }
    }

    /// Grants whatever may be granted now.
    fn settle(&self, state: &mut State, name: &LockName) {
        let Some(mut claims) = state.locks.remove(name) else {
            return;
        };
        let mut order: Vec<usize> = (0..claims.len()).collect();
        if self.has(Defect::Unfair) {
            order.sort_by_key(|at| (claims[*at].granted.is_none(), std::cmp::Reverse(*at)));
        }
        for place in 0..order.len() {
            let at = order[place];
            let ahead: Vec<&Claim> = order[..place].iter().map(|at| &claims[*at]).collect();
            if claims[at].granted.is_some() || !self.may_enter(state, &claims[at], &ahead) {
                continue;
            }
            let claim = &mut claims[at];
            match self.next_fence(state, claim.request.floor) {
                Ok(fence) => self.grant(state, name, claim, fence),
                Err(error) => {
                    let claim = claims.remove(at);
                    let _ = claim.answer.unwrap().send(Err(error));
                    break;
                }
            }
        }
        if !claims.is_empty() {
            state.locks.insert(name.clone(), claims);
        }
    }

    fn may_enter(&self, state: &State, claim: &Claim, ahead: &[&Claim]) -> bool {
        let exclusive = |claim: &&&Claim| claim.request.mode == Mode::Exclusive;
        let wanted =
            |claim: &&&Claim| claim.granted.is_some() || !self.has(Defect::OvertakesWriters);
        match claim.request.mode {
            Mode::Exclusive if self.has(Defect::DoubleGrant) && state.grants % 7 == 6 => true,
            Mode::Exclusive => ahead.is_empty(),
            Mode::Shared => !ahead.iter().filter(wanted).any(|claim| exclusive(&claim)),
            Mode::Permit { limit } => {
                let mut limit = limit.get() as usize;
                if self.has(Defect::OnePermitTooMany) {
                    limit += 1;
                }
                if self.has(Defect::OnePermitTooFew) {
                    limit -= 1;
                }
                ahead.len() < limit && !ahead.iter().any(|claim| exclusive(&claim))
            }
        }
    }

    fn next_fence(&self, state: &mut State, floor: Option<Fence>) -> Result<Fence> {
        let floor = floor.filter(|_| !self.has(Defect::FenceIgnoresFloor));
        let next = state.fence.max(floor.map_or(0, Fence::get)) + 1;
        if self.has(Defect::FenceWraps) && next >= Fence::LIMIT {
            state.fence = 1;
            return Fence::new(1);
        }
        let fence = Fence::new(next)?;
        if !self.has(Defect::FenceRepeats) || state.grants % 3 != 2 {
            state.fence = next;
        }
        Ok(fence)
    }

    fn grant(&self, state: &mut State, name: &LockName, claim: &mut Claim, fence: Fence) {
        state.grants += 1;
        let from = Moment::now();
        claim.granted = Some(Granted {
            fence,
            expires: self.expiry(from, claim.request.ttl, claim.request.lock_delay),
            since: wall_clock(),
        });
        tell(state, name, WatchKind::Granted, claim);
        if let Some(answer) = claim.answer.take() {
            // A waiter that is gone is released by its engine.
            let _ = answer.send(Ok(AcquireOutcome::Granted(Grant::new(fence, from))));
        }
    }

    fn expiry(&self, from: Moment, ttl: Duration, lock_delay: Duration) -> Moment {
        if self.has(Defect::ExpiresEarly) {
            return from + ttl * 3 / 4;
        }
        if self.has(Defect::ForgetsLockDelay) {
            return from + ttl;
        }
        from + ttl + lock_delay
    }

    /// Puts a request into the queue; answers what can be answered at once.
    pub(crate) fn enter(&self, context: &ConnectContext, request: AcquireRequest) -> Entered {
        let name = self.key(&request.name);
        let state = &mut *self.lock();
        let claims = state.locks.entry(name.clone()).or_default();
        let (answer, answered) = oneshot::channel();
        let known = claims.iter().position(|claim| claim.request.holder == request.holder);
        if let Some(at) = known.filter(|_| !self.has(Defect::RepeatIsSecondClaim)) {
            return self
                .repeat(state, &name, at, request, answer)
                .map_or_else(Entered::Now, |()| Entered::Waiting(answered));
        }
        let is_permit = |claim: &Claim| matches!(claim.request.mode, Mode::Permit { .. });
        let ignored = self.has(Defect::IgnoresLimit) && claims.iter().any(is_permit);
        let modes = claims.iter().map(|claim| claim.request.mode);
        if let Err(error) = check_use(modes, request.mode)
            && !ignored
        {
            return Entered::Now(Err(error));
        }
        if let Err(error) = self.check_floor(&request) {
            return Entered::Now(Err(error));
        }
        let holder = request.holder;
        let barges = self.has(Defect::ReleaseLeavesGap)
            && claims.iter().all(|claim| claim.granted.is_none());
        let place = if barges { 0 } else { claims.len() };
        let claim = Claim {
            request,
            label: context.label.clone(),
            losses: context.losses.clone(),
            asked: Moment::now(),
            granted: None,
            answer: Some(answer),
        };
        claims.insert(place, claim);
        self.settle(state, &name);
        let Some(claims) = state.locks.get_mut(&name) else {
            return Entered::Waiting(answered);
        };
        let at = claims
            .iter()
            .position(|claim| claim.request.holder == holder && claim.granted.is_none());
        let Some(at) = at else {
            return Entered::Waiting(answered);
        };
        let now = Moment::now();
        let one_try = match claims[at].request.wait {
            Wait::No => true,
            Wait::Until(until) => until.has_passed(now),
            Wait::Forever => false,
        };
        if one_try {
            claims.remove(at);
            let (lock, waited) = (view(state, &name), Duration::ZERO);
            return Entered::Now(Ok(AcquireOutcome::Taken(Refusal::new(lock, waited))));
        }
        let claim = claims.remove(at);
        tell(state, &name, WatchKind::Queued, &claim);
        state.locks.entry(name).or_default().insert(at, claim);
        Entered::Waiting(answered)
    }

    /// The same holder asks again, for what it has or waits for. Answers at once, or keeps its place.
    fn repeat(
        &self,
        state: &mut State,
        name: &LockName,
        at: usize,
        request: AcquireRequest,
        answer: oneshot::Sender<Result<AcquireOutcome>>,
    ) -> Result<(), Result<AcquireOutcome>> {
        let claims = state.locks.get_mut(name).unwrap();
        let claim = &mut claims[at];
        let is_hidden = self.has(Defect::DowngradeIsHidden)
            && (claim.request.mode, request.mode) == (Mode::Shared, Mode::Exclusive);
        if claim.request.mode != request.mode && !is_hidden && !self.has(Defect::ModeChanges) {
            return Err(Err(Error::new(ErrorKind::AlreadyHeld, "it is held")));
        }
        if let Some(granted) = &mut claim.granted {
            let (fence, from) = (granted.fence, Moment::now());
            if !self.has(Defect::RepeatKeepsTtl) {
                granted.expires = self.expiry(from, request.ttl, request.lock_delay);
            }
            return Err(Ok(AcquireOutcome::Granted(Grant::new(fence, from))));
        }
        if request.wait == Wait::No {
            let claim = claims.remove(at);
            self.end(state, name, claim, WatchKind::Abandoned);
            self.settle(state, name);
            let refusal = Refusal::new(view(state, name), Duration::ZERO);
            return Err(Ok(AcquireOutcome::Taken(refusal)));
        }
        claim.request.wait = request.wait;
        claim.answer = Some(answer);
        Ok(())
    }

    /// A single wrong number must not use up the future.
    fn check_floor(&self, request: &AcquireRequest) -> Result<()> {
        const AHEAD_MAX_US: u64 = 60_000_000;
        let floor = request.floor.map_or(0, Fence::get);
        let believes = self.has(Defect::FenceWraps) || self.has(Defect::FenceIgnoresFloor);
        if floor > wall_clock_us() + AHEAD_MAX_US && !believes {
            return Err(Error::new(ErrorKind::InvalidToken, "the floor is too far ahead"));
        }
        Ok(())
    }

    pub(crate) fn renew(&self, request: &RenewRequest) -> RenewOutcome {
        let name = self.key(&request.name);
        let state = &mut *self.lock();
        let expires = self.expiry(Moment::now(), request.ttl, request.lock_delay);
        let claims = state.locks.get_mut(&name);
        let claim = claims.and_then(|claims| {
            claims.iter_mut().find(|claim| {
                claim.request.holder == request.holder || self.has(Defect::RenewIgnoresHolder)
            })
        });
        match claim {
            Some(Claim { granted: Some(granted), .. }) => {
                granted.expires = expires;
                RenewOutcome::Renewed
            }
            Some(_) if self.has(Defect::RenewGrantsWaiters) => RenewOutcome::Renewed,
            _ if self.has(Defect::RenewCreates) => RenewOutcome::Renewed,
            _ => {
                let mut revoked = state.revoked.iter();
                let reason = revoked.find(|(holder, _)| *holder == request.holder);
                RenewOutcome::Lost(match reason {
                    Some((_, reason)) if !self.has(Defect::RevokeIsUntold) => {
                        LossCause::Revoked { reason: reason.clone() }
                    }
                    _ => LossCause::Forgotten,
                })
            }
        }
    }

    pub(crate) fn downgrade(&self, request: &DowngradeRequest) -> Result<DowngradeOutcome> {
        let name = self.key(&request.name);
        let state = &mut *self.lock();
        let claims = state.locks.entry(name.clone()).or_default();
        let is_held = |claim: &Claim| {
            claim.granted.is_some()
                && (claim.request.holder == request.holder
                    || self.has(Defect::DowngradeIgnoresHolder))
        };
        let Some(at) = claims.iter().position(is_held) else {
            return Ok(DowngradeOutcome::Lost(LossCause::Forgotten));
        };
        let is_permit = |claim: &Claim| matches!(claim.request.mode, Mode::Permit { .. });
        if claims.iter().any(is_permit) && !self.has(Defect::DowngradeIgnoresPermits) {
            return Err(Error::new(ErrorKind::Conflict, "it has permits"));
        }
        if claims[at].request.mode == Mode::Shared && self.has(Defect::RepeatedDowngradeIsLost) {
            return Ok(DowngradeOutcome::Lost(LossCause::Forgotten));
        }
        if !self.has(Defect::DowngradeDoesNothing) {
            claims[at].request.mode = Mode::Shared;
        }
        if self.has(Defect::DowngradeIsTwoSteps) {
            // What was given up for a moment comes back behind whoever came in.
            let claim = claims.remove(at);
            self.settle(state, &name);
            state.locks.entry(name.clone()).or_default().push(claim);
            return Ok(DowngradeOutcome::Downgraded);
        }
        if self.has(Defect::DowngradeRaisesFence) {
            state.fence += 1;
            let fence = Fence::new(state.fence)?;
            claims[at].granted.as_mut().unwrap().fence = fence;
        }
        if self.has(Defect::DowngradeProlongs) {
            let AcquireRequest { ttl, lock_delay, .. } = claims[at].request;
            claims[at].granted.as_mut().unwrap().expires =
                self.expiry(Moment::now(), ttl, lock_delay);
        }
        self.settle(state, &name);
        Ok(DowngradeOutcome::Downgraded)
    }

    pub(crate) fn release(&self, request: &ReleaseRequest) -> ReleaseOutcome {
        let name = self.key(&request.name);
        let state = &mut *self.lock();
        let claims = state.locks.entry(name.clone()).or_default();
        let at = claims.iter().position(|claim| {
            claim.request.holder == request.holder
                || self.has(Defect::ReleaseIgnoresHolder) && claim.granted.is_some()
        });
        let mut outcome = ReleaseOutcome::NotHeld;
        if let Some(at) = at {
            let claim = &mut claims[at];
            let unheard = claim.request.wait == Wait::Forever;
            if claim.granted.is_some() && unheard && self.has(Defect::GrantOutlivesCancel)
                || claim.granted.is_none() && self.has(Defect::WaiterOutlivesCancel)
            {
                return outcome;
            }
            if let Some(granted) = &mut claim.granted {
                outcome = ReleaseOutcome::Released;
                if self.has(Defect::DelaysAfterRelease) && !claim.request.lock_delay.is_zero() {
                    granted.expires = Moment::now() + claim.request.lock_delay;
                    return outcome;
                }
            }
            let claim = claims.remove(at);
            self.end(state, &name, claim, WatchKind::Released);
        }
        if self.has(Defect::PollsSlowly) {
            // The next is let in by the clock, and late.
            std::thread::sleep(Duration::from_millis(300));
        }
        if !self.has(Defect::ReleaseLeavesGap) {
            self.settle(state, &name);
        }
        self.herd.send_if_modified(|count| {
            *count += 1;
            !self.has(Defect::HerdAtTimes) || *count % 3 == 2
        });
        if state.locks.get(&name).is_some_and(Vec::is_empty) {
            state.locks.remove(&name);
        }
        outcome
    }

    pub(crate) fn revoke(&self, request: &RevokeRequest) -> RevokeOutcome {
        let name = self.key(&request.name);
        let state = &mut *self.lock();
        let seen = view(state, &name).holders;
        let expected = |view: &HolderView| {
            request.expect_fence.is_none() || view.fence == request.expect_fence
        };
        if seen.is_empty() {
            return RevokeOutcome::NotHeld;
        }
        if !seen.iter().any(expected) && !self.has(Defect::RevokeIgnoresFence) {
            return RevokeOutcome::OtherFence(seen);
        }
        let claims = state.locks.get_mut(&name).unwrap();
        let lost: Vec<Claim> = claims.extract_if(.., |claim| claim.granted.is_some()).collect();
        for claim in lost {
            let holder = claim.request.holder;
            state.revoked.push((holder, request.reason.clone()));
            if !self.has(Defect::RevokeIsUntold) {
                let reason = request.reason.clone();
                claim.losses.report(holder, LossCause::Revoked { reason });
            }
            self.end(state, &name, claim, WatchKind::Revoked);
        }
        self.settle(state, &name);
        RevokeOutcome::Revoked(seen)
    }

    pub(crate) fn inspect(&self, query: &Query) -> Vec<LockView> {
        let state = self.lock();
        let (prefix, after, limit) = match query {
            Query::Name(name) => {
                let mut view = view(&state, &self.key(name));
                view.holders.retain(|_| !self.has(Defect::HoldsUnseen));
                return vec![view];
            }
            Query::Prefix { prefix, after, limit } => (prefix, after, *limit),
        };
        let matches = |name: &str| {
            if self.has(Defect::PrefixIsPattern) && prefix.contains(['*', '%', '_']) {
                return name.starts_with(prefix.trim_end_matches(['*', '%', '_']));
            }
            name.starts_with(prefix.as_str())
        };
        let mut views: Vec<LockView> = state
            .locks
            .keys()
            .filter(|name| matches(name.as_str()) && after.as_ref().is_none_or(|a| *name > a))
            .map(|name| view(&state, name))
            .filter(|view| !view.holders.is_empty() || view.waiting > 0)
            .take(limit)
            .collect();
        if self.has(Defect::ListsOutOfOrder) {
            views.reverse();
        }
        views
    }
}

/// What came of entering the queue.
pub(crate) enum Entered {
    Now(Result<AcquireOutcome>),
    Waiting(oneshot::Receiver<Result<AcquireOutcome>>),
}

fn view(state: &State, name: &LockName) -> LockView {
    let now = Moment::now();
    let claims = state.locks.get(name).map_or(&[][..], Vec::as_slice);
    let holders = claims.iter().filter_map(|claim| {
        let granted = claim.granted.as_ref()?;
        Some(
            HolderView::new(claim.request.mode, granted.since, granted.expires.remaining(now))
                .with_fence(Some(granted.fence))
                .with_label(Some(claim.label.clone())),
        )
    });
    LockView::new(
        name.clone(),
        holders.collect(),
        claims.iter().filter(|claim| claim.granted.is_none()).count(),
    )
}

fn tell(state: &mut State, name: &LockName, kind: WatchKind, claim: &Claim) {
    let event = WatchEvent::new(wall_clock(), name.clone(), kind)
        .with_fence(claim.granted.as_ref().map(|granted| granted.fence))
        .with_label(Some(claim.label.clone()));
    state.feeds.tell(&event);
}
