//! All nodes together, and what this client has asked of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockfast_backend_redis::node::{write_client, write_holder};
use lockfast_core::observe::{label, metric};
use lockfast_core::time::wall_clock_us;
use lockfast_core::{
    ClientId, ConnectContext, Error, ErrorKind, Fence, HolderId, Label, LockName, LossCause,
    LossReporter, Moment, ReleaseOutcome, RenewRequest, Result, TtlLimits,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::batch::{Op, Tries};
use crate::claim::{Asker, Claim, Outcome, Phase, whole_ms};
use crate::clerk::{Clerk, Pending};
use crate::config::{Config, OnRestart};
use crate::giving::{Ending, Giving, Then};
use crate::inquiry::{Answer, Inquiry};
use crate::listing::Listing;
use crate::lobby::Lobby;
use crate::node::Node;
use crate::renewal::{Kept, Renewal};
use crate::roster::Roster;
use crate::wire::{Dialer, Failure, Pipeline};

/// Another's clock that is further ahead than this is no clock to go by.
const SKEW_US: u64 = 5_000_000;
/// A holder that is not known here may have been granted its lock for so long.
const LEASE_UNKNOWN: Duration = TtlLimits::LOCKFAST.max;
/// How often claims that ended without a release are looked for, and labels written again.
const SWEEP: Duration = Duration::from_secs(600);

/// The way by which a watcher hears what a node published.
type Heard = mpsc::UnboundedSender<(usize, Vec<u8>)>;

/// All nodes.
pub(crate) struct Store {
    pub(crate) config: Config,
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) client: ClientId,
    pub(crate) client_text: String,
    pub(crate) label: Label,
    pub(crate) losses: LossReporter,
    pub(crate) runtime: Handle,
    pub(crate) lobby: Lobby,
    pub(crate) clerk: Clerk,
    pub(crate) labels: Mutex<HashMap<ClientId, Label>>,
    pub(crate) listing: Mutex<Option<Listing>>,
    pub(crate) is_watching: AtomicBool,
    pub(crate) watchers: Mutex<Vec<Heard>>,
    /// Locked while renewals are handed to the nodes, so that all get them in one order.
    pub(crate) renewing: Mutex<()>,
    claims: Mutex<Roster>,
    /// The highest fence that was proposed or seen.
    highest: AtomicU64,
    /// Whether it was told that our clock is not the nodes'.
    is_clock_doubted: AtomicBool,
    /// Which server each node is.
    servers: Mutex<Vec<Server>>,
}

/// The server to which a node led.
#[derive(Clone, Default)]
struct Server {
    run_id: Option<String>,
    /// Whether it still does, and not only did.
    is_connected: bool,
}

impl Store {
    pub(crate) fn new(
        config: Config,
        dialers: Vec<Arc<Dialer>>,
        context: ConnectContext,
    ) -> Arc<Self> {
        // From the start, so that whoever watches the counters sees the first event as a rise.
        count_nodes(metric::NODE_RESTARTS, 0);
        count_nodes(metric::NODE_DATA_LOSSES, 0);
        Arc::new_cyclic(|me| {
            let nodes = dialers.into_iter().enumerate();
            let client = write_client(context.client);
            let who = (client.as_str(), &context.label);
            let node = |(at, dialer)| Arc::new(Node::new(at, dialer, who, me.clone()));
            Self {
                servers: Mutex::new(vec![Server::default(); config.nodes.len()]),
                nodes: nodes.map(node).collect(),
                config,
                client: context.client,
                client_text: client,
                label: context.label,
                losses: context.losses,
                runtime: context.runtime,
                lobby: Lobby::default(),
                clerk: Clerk::default(),
                labels: Mutex::default(),
                listing: Mutex::default(),
                is_watching: AtomicBool::new(false),
                watchers: Mutex::default(),
                renewing: Mutex::default(),
                claims: Mutex::default(),
                highest: AtomicU64::new(0),
                is_clock_doubted: AtomicBool::new(false),
            }
        })
    }

    /// A fence above all that were seen and above our clock; or by the nodes' clocks, if ours must be
    /// corrected.
    pub(crate) fn propose(
        &self,
        floor: Option<Fence>,
        above: u64,
        correction_us: i64,
    ) -> std::result::Result<u64, Failure> {
        let clock = wall_clock_us().saturating_add_signed(correction_us);
        let mut proposal = clock;
        if correction_us == 0 {
            let _ = self.highest.fetch_update(Ordering::AcqRel, Ordering::Acquire, |highest| {
                proposal = clock.max(highest + 1);
                Some(proposal)
            });
        }
        let floor = floor.map_or(0, Fence::get);
        let proposal = proposal.max(floor + 1).max(above + 1);
        if proposal >= Fence::LIMIT {
            return Err(Failure::new(
                ErrorKind::InvalidToken,
                format!("no fence can be above {}, which no node ever gave", proposal - 1),
            ));
        }
        Ok(proposal)
    }

    /// Takes note of a fence, so that the next proposal is above it.
    pub(crate) fn note_fence(&self, fence: u64) {
        if fence < wall_clock_us() + SKEW_US {
            self.highest.fetch_max(fence, Ordering::AcqRel);
        }
    }

    /// Our clock is too far ahead of the nodes'. Returns what to add to it in this try; the next one
    /// finds out anew, because one of them may be set right.
    pub(crate) fn doubt_clock(&self, node_us: u64) -> i64 {
        let correction_us = i64::try_from(node_us).unwrap_or(i64::MAX)
            - i64::try_from(wall_clock_us()).unwrap_or(i64::MAX);
        // What was proposed by a clock that was ahead must not outlive it.
        self.highest.store(0, Ordering::Release);
        if !self.is_clock_doubted.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                seconds = -correction_us / 1_000_000,
                "this machine's clock is ahead of the nodes' clocks; theirs is used for fences"
            );
        }
        correction_us
    }

    /// Takes note of which server a node is. Returns the other node that is the same server, if
    /// there is one: that is, if both are connected, because servers may change places.
    pub(crate) fn meet(&self, node: &Node, run_id: &str) -> Option<usize> {
        let mut servers = lock(&self.servers);
        servers.get_mut(node.index)?.is_connected = false;
        let is_it = |known: &Server| known.is_connected && known.run_id.as_deref() == Some(run_id);
        if let Some(other) = servers.iter().position(is_it) {
            return Some(other);
        }
        let server = servers.get_mut(node.index)?;
        server.is_connected = true;
        let before = server.run_id.replace(run_id.to_owned());
        if before.is_some_and(|before| before != run_id) {
            node.is_loss_told.store(false, Ordering::Release);
            count_nodes(metric::NODE_RESTARTS, 1);
            tracing::warn!(
                node = node.name,
                "a node was started anew; what it had not saved it has forgotten"
            );
        }
        None
    }

    /// A node leads nowhere at the moment.
    pub(crate) fn part_from(&self, node: &Node) {
        if let Some(server) = lock(&self.servers).get_mut(node.index) {
            server.is_connected = false;
        }
    }

    pub(crate) fn find(&self, holder: HolderId) -> Option<Arc<Claim>> {
        lock(&self.claims).get(holder).cloned()
    }

    /// The fence with which a holder has its lock, where that is known.
    pub(crate) fn fence_of(&self, holder: HolderId) -> Option<u64> {
        match self.find(holder)?.state().phase {
            Phase::Held(fence) => Some(fence.get()),
            _ => None,
        }
    }

    /// Takes a claim in. Returns what the same holder had asked for before.
    pub(crate) fn remember(&self, claim: &Arc<Claim>) -> Option<Arc<Claim>> {
        lock(&self.claims).insert(claim)
    }

    /// From now on nodes may call a claim.
    pub(crate) fn expect_calls(&self, claim: &Claim) {
        lock(&self.claims).expect_calls(claim);
    }

    pub(crate) fn forget(&self, holder: HolderId) {
        lock(&self.claims).remove(holder);
    }

    /// Forgets a claim, unless the holder has another by now.
    pub(crate) fn forget_claim(&self, claim: &Arc<Claim>) {
        let mut claims = lock(&self.claims);
        if claims.get(claim.holder).is_some_and(|known| Arc::ptr_eq(known, claim)) {
            claims.remove(claim.holder);
        }
    }

    /// Gives a lock back, or gives up wanting it.
    pub(crate) async fn give(
        &self,
        name: LockName,
        holder: HolderId,
    ) -> std::result::Result<ReleaseOutcome, Vec<crate::ballot::Said>> {
        let claim = lock(&self.claims).remove(holder).filter(|claim| claim.name == name);
        let ends = match &claim {
            Some(claim) => {
                let mut state = claim.state();
                state.phase = Phase::Over;
                // Whoever still waits for it is told that it is over.
                state.askers.clear();
                drop(state);
                self.lobby.take(holder);
                claim.ends()
            }
            None => Moment::now() + LEASE_UNKNOWN,
        };
        let (asker, answer) = oneshot::channel();
        let text = match &claim {
            Some(claim) => claim.text.clone(),
            None => write_holder(holder),
        };
        self.hand_back((name, text), claim, (Ending::Hold, ends), Then::Tell(asker));
        answer.await.unwrap_or(Err(Vec::new()))
    }

    /// Undoes what a claim may have got, and then tells its askers.
    pub(crate) fn undo(
        &self,
        claim: &Arc<Claim>,
        ending: Ending,
        then: Option<(Vec<Asker>, Outcome)>,
    ) {
        let then = match then {
            Some((askers, outcome)) => Then::Refuse(askers, outcome),
            None => Then::Nothing,
        };
        let what = (claim.name.clone(), claim.text.clone());
        let is_awaited = matches!(then, Then::Refuse(..));
        let giving = self.hand_back(what, Some(Arc::clone(claim)), (ending, claim.ends()), then);
        if is_awaited {
            let limit = self.config.node_limit(claim.ttl);
            self.clerk.watch(Pending::Undo(giving), Moment::now(), limit);
        }
    }

    fn hand_back(
        &self,
        what: (LockName, String),
        claim: Option<Arc<Claim>>,
        ending: (Ending, Moment),
        then: Then,
    ) -> Arc<Giving> {
        let top = claim.as_ref().map(|claim| claim.state().top);
        let counts = (self.nodes.len(), self.config.quorum);
        let giving = Arc::new(Giving::new(what, claim, top, ending, counts, then));
        self.nodes
            .iter()
            .for_each(|node| node.submit(Op::Give(Arc::clone(&giving), Tries::default())));
        giving
    }

    /// Undoes a try up to this proposal on these nodes only, as bits; the claim goes on.
    pub(crate) fn undo_at(&self, claim: &Arc<Claim>, nodes: u32, top: u64) {
        let what = (claim.name.clone(), claim.text.clone());
        let ending = (Ending::Try, claim.ends());
        let counts = (self.nodes.len(), self.config.quorum);
        let mine = Some(Arc::clone(claim));
        let giving = Arc::new(Giving::new(what, mine, Some(top), ending, counts, Then::Nothing));
        for node in self.nodes.iter().filter(|node| nodes & (1 << node.index) != 0) {
            node.submit(Op::Give(Arc::clone(&giving), Tries::default()));
        }
    }

    /// Listens to what a node pushed: `C` a call to try again, `R` a revocation, `E` events.
    pub(crate) fn hear(self: &Arc<Self>, node: usize, payload: &[u8]) {
        if payload.starts_with(b"E\n") {
            let mut watchers = lock(&self.watchers);
            watchers.retain(|watcher| watcher.send((node, payload.to_vec())).is_ok());
            return;
        }
        let Ok(payload) = std::str::from_utf8(payload) else { return };
        let mut fields = payload.splitn(3, '\t');
        let (Some(kind), Some(tag), Some(rest)) = (fields.next(), fields.next(), fields.next())
        else {
            return;
        };
        let Some(claim) = lock(&self.claims).find_tag(tag).cloned() else { return };
        match kind {
            "C" => self.call(node, &claim, rest == "0"),
            // It is lost when so many nodes say so that a quorum is gone; the first is enough to
            // find out, and the operator told all of them.
            "R" if !self.withdraw(node, &claim) => {
                self.forget(claim.holder);
                self.losses.report(claim.holder, LossCause::Revoked { reason: rest.into() });
            }
            _ => {}
        }
    }

    /// A node that forgot what it had granted is reported, and told again if that is wanted and a
    /// quorum of the others has it. Those that answer later decide that otherwise.
    pub(crate) fn notice(&self, node: &Node, renewal: &Renewal, kept: &[Kept]) {
        for (at, kept) in kept.iter().enumerate() {
            let lease = &renewal.leases[at];
            let Some((claim, fence)) = self.forgotten(node, lease.holder, kept) else {
                continue;
            };
            if !node.is_loss_told.swap(true, Ordering::AcqRel) {
                count_nodes(metric::NODE_DATA_LOSSES, 1);
                tracing::warn!(node = node.name, lock = %claim.name, "a node has lost its data");
            }
            if renewal.is_renewed(at) {
                self.relock(node, (claim, fence), lease);
            }
        }
    }

    /// A quorum has renewed a lease: nodes that had said before that they have forgotten it are told
    /// again.
    pub(crate) fn remind(&self, lease: &RenewRequest, ballot: &[Option<Kept>]) {
        for (node, kept) in self.nodes.iter().zip(ballot) {
            let forgotten = kept.as_ref().and_then(|kept| self.forgotten(node, lease.holder, kept));
            if let Some(what) = forgotten {
                self.relock(node, what, lease);
            }
        }
    }

    /// What a node had granted and does not know any more.
    fn forgotten(&self, node: &Node, holder: HolderId, kept: &Kept) -> Option<(Arc<Claim>, Fence)> {
        let Kept::Missing { fence_known: false } = kept else { return None };
        let claim = self.find(holder)?;
        let fence = {
            let state = claim.state();
            let had_it = state.granted & (1 << node.index) != 0;
            match state.phase {
                Phase::Held(fence) if had_it => fence,
                _ => return None,
            }
        };
        Some((claim, fence))
    }

    /// For as long as the others have it, which is not always what it was taken for.
    fn relock(&self, node: &Node, (claim, fence): (Arc<Claim>, Fence), lease: &RenewRequest) {
        if self.config.on_restart == OnRestart::Relock {
            let lease_ms = whole_ms(lease.ttl) + whole_ms(lease.lock_delay);
            node.submit(Op::Relock(claim, fence, lease_ms));
        }
    }

    /// Asks all nodes something and waits for what they answer in time.
    pub(crate) async fn ask_all(
        &self,
        write: impl Fn(&mut Pipeline) + Send + Sync + 'static,
    ) -> Vec<Answer> {
        let (inquiry, answers) = Inquiry::new(self.nodes.len(), self.config.inquiry_limit(), write);
        let inquiry = Arc::new(inquiry);
        self.clerk.watch(Pending::Inquiry(Arc::clone(&inquiry)), Moment::now(), inquiry.limit);
        self.nodes
            .iter()
            .for_each(|node| node.submit(Op::Ask(Arc::clone(&inquiry), Tries::default())));
        answers.await.unwrap_or_default()
    }

    /// Asks one node something.
    pub(crate) async fn ask_one(
        &self,
        node: &Node,
        write: impl Fn(&mut Pipeline) + Send + Sync + 'static,
    ) -> Answer {
        let (inquiry, answers) = Inquiry::new(self.nodes.len(), self.config.inquiry_limit(), write);
        let inquiry = Arc::new(inquiry);
        let silent = || Err(Failure::new(ErrorKind::Unreachable, "it was not asked"));
        for other in self.nodes.iter().filter(|other| other.index != node.index) {
            inquiry.answer(other.index, silent());
        }
        self.clerk.watch(Pending::Inquiry(Arc::clone(&inquiry)), Moment::now(), inquiry.limit);
        node.submit(Op::Ask(inquiry, Tries::default()));
        let mut answers = answers.await.unwrap_or_default();
        if node.index < answers.len() { answers.swap_remove(node.index) } else { silent() }
    }

    /// Forgets claims that ended without a release, and keeps us known to the nodes, for ever.
    pub(crate) async fn sweep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SWEEP).await;
            let now = Moment::now();
            lock(&self.claims).retain(|claim| {
                let is_held = matches!(claim.state().phase, Phase::Held(_));
                !(is_held && claim.has_ended(now))
            });
            self.nodes.iter().for_each(|node| node.refresh_enrolment());
        }
    }
}

/// Refuses a name that is one of our own keys.
pub(crate) fn check_name(prefix: &str, name: &LockName) -> Result<()> {
    let is_reserved = match prefix {
        "" => name.as_str().starts_with(crate::record::RESERVED),
        _ => format!("{prefix}{name}").starts_with(crate::record::RESERVED),
    };
    if !is_reserved {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidName,
        format!(
            "{} is not a lock name on Redis: keys that start with {} are Lockfast's own",
            lockfast_core::error::quote(name.as_str()),
            lockfast_core::error::quote(crate::record::RESERVED)
        ),
    )
    .with_backend("redlock"))
}

/// Counts something that was found out about nodes.
fn count_nodes(metric: &'static str, count: u64) {
    metrics::counter!(metric, label::BACKEND => "redlock").increment(count);
}

/// Locks a mutex; nothing that holds one of these can panic half-way.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
