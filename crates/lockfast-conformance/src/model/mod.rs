//! Scripts and procedures against the rule: random stories are played on a store, and each answer is
//! compared with that of a queue which is [`lockfast_core::queue`] and nothing else.
//!
//! A story follows from its seed. Its requests come one by one or several at once; then any order in
//! which they may have taken effect is allowed, but what was answered, who was let in and what can be
//! seen must all follow from one of them. A story that shows a difference is made as short as it can
//! be and told in words, with its seed, which [`SEED_VARIABLE`] plays again.

mod answer;
mod play;
mod send;
mod shrink;
mod step;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockfast_core::capability::Order;
use lockfast_core::{Feature, Moment};

use self::play::{Ending, Stage, play};
use self::step::{Step, invent};
use crate::arena::{Arena, PATIENCE};
use crate::{Harness, SEED_VARIABLE, Seed};

/// The seeds that are always played, beside a new one.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=48;
/// How many stories are played side by side, because most of them wait most of the time.
const AT_ONCE: usize = 4;
/// No story is begun after so long, so that a slow machine is not held up.
const TIME_MAX: Duration = Duration::from_secs(12);

/// What came of the stories.
#[derive(Debug, Default)]
pub struct Played {
    /// How many stories the store told like the rule.
    pub agreed: usize,
    /// How many say nothing, because this machine stopped the test for too long.
    pub void: usize,
    /// How many were not begun, because there was no time left.
    pub skipped: usize,
    /// The story that the store told otherwise, as short as it could be made.
    pub differed: Option<String>,
}

/// Plays the fixed seeds and a new one, or the one that [`SEED_VARIABLE`] asks for, and fails if the
/// store says anything that the rule does not.
///
/// # Panics
/// With the seed and the shortest story that shows the difference.
pub fn check(harness: impl Harness) {
    let asked = std::env::var(SEED_VARIABLE).is_ok();
    let new = Seed::of_run();
    let fixed = SEEDS.map(Seed).filter(|_| !asked);
    let name = harness.name();
    let seeds = std::iter::once(new).chain(fixed).collect();
    let played = play_all(harness, Reading::new(seeds, PATIENCE, true));
    say(&format!(
        "{name}: {} stories agree with the rule, {} say nothing, {} were left out; {SEED_VARIABLE}={} \
         was new",
        played.agreed, played.void, played.skipped, new.0
    ));
    if let Some(differed) = played.differed {
        panic!("{name}: {differed}");
    }
    assert!(played.agreed > 0, "no story could be played: {played:?}");
}

#[allow(clippy::print_stdout, reason = "test binaries print to stdout")]
fn say(text: &str) {
    println!("{text}");
}

/// Plays the stories of these seeds, on a store that is likely not to keep the rule: the first story
/// that differs is told as it is.
pub fn find(harness: impl Harness, seeds: Vec<Seed>) -> Played {
    play_all(harness, Reading::new(seeds, shrink::PATIENCE, false))
}

/// Plays stories on a new store until one of them differs.
fn play_all(harness: impl Harness, reading: Reading) -> Played {
    let runtime = |name: &str, threads| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name(name)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    // As in the lease engine, what a store does in the background has a runtime of its own.
    let (keeper, caller) = (runtime("keeper", 1), runtime("caller", 2));
    let handle = keeper.handle().clone();
    let played = caller.block_on(async move {
        let arena = Arena::open(Arc::new(harness), handle, Seed(0)).await;
        assert_eq!(arena.profile.order, Order::Fifo, "the rule is that of a line");
        arena.profile.require(Feature::Line).expect("a line");
        tell_all(arena, reading).await
    });
    caller.shutdown_background();
    keeper.shutdown_background();
    played
}

/// What those who tell the stories share.
struct Reading {
    seeds: Vec<Seed>,
    /// How long the store may take until what it says is what the rule says.
    patience: Duration,
    /// Whether the story that differs is made short.
    shortens: bool,
    start: Moment,
    next: AtomicUsize,
    names: AtomicUsize,
}

impl Reading {
    fn new(seeds: Vec<Seed>, patience: Duration, shortens: bool) -> Self {
        let (next, names) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { seeds, patience, shortens, start: Moment::now(), next, names }
    }
}

async fn tell_all(arena: Arena, reading: Reading) -> Played {
    // Without the time that the servers needed to start.
    let reading = Arc::new(Reading { start: Moment::now(), ..reading });
    let tellers: Vec<_> = (0..AT_ONCE)
        .map(|_| tokio::spawn(tell_some(arena.clone(), Arc::clone(&reading))))
        .collect();
    let mut all = Played::default();
    for teller in tellers {
        let played = teller.await.expect("no panic");
        all.agreed += played.agreed;
        all.void += played.void;
        all.differed = all.differed.or(played.differed);
    }
    let begun = reading.next.load(Ordering::Relaxed).min(reading.seeds.len());
    all.skipped = reading.seeds.len() - begun;
    all
}

/// Plays stories on connections of its own, as long as there are some that nobody has begun.
async fn tell_some(arena: Arena, reading: Arc<Reading>) -> Played {
    let clients = Arc::new(arena.clients().await);
    let stage = |patience| {
        let number = reading.names.fetch_add(1, Ordering::Relaxed);
        Stage { clients: Arc::clone(&clients), patience, prefix: format!("story-{number}") }
    };
    let mut played = Played::default();
    while Moment::now().since(reading.start) < TIME_MAX {
        let at = reading.next.fetch_add(1, Ordering::Relaxed);
        let Some(seed) = reading.seeds.get(at) else { break };
        let story = invent(*seed, &arena.profile);
        match play(stage(reading.patience), &story).await {
            Ending::Agreed => played.agreed += 1,
            Ending::Void => played.void += 1,
            Ending::Differed { step, how } => {
                // Nobody begins another story.
                reading.next.fetch_max(reading.seeds.len(), Ordering::Relaxed);
                let short = match reading.shortens {
                    true => shrink::shorten(&story[..=step], how.clone(), stage).await,
                    false => shrink::Short::whole(&story[..=step], how.clone()),
                };
                played.differed = Some(tell(*seed, step, &how, &short));
                break;
            }
        }
    }
    played
}

/// The seed, and the shortest story in words.
fn tell(seed: Seed, step: usize, how: &str, short: &shrink::Short) -> String {
    let mut text = format!(
        "the store does not say what the rule says in step {} of the story of {SEED_VARIABLE}={}",
        step + 1,
        seed.0
    );
    text += &format!("; {} steps show it after {} tries:", short.steps.len(), short.tries);
    for (number, step) in (1..).zip(&short.steps) {
        text += &format!("\n{number}. {step}");
    }
    text += &format!("\n{}", short.how);
    if short.how != how {
        text += &format!("\nIn the whole story:\n{how}");
    }
    text
}
