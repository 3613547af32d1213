//! What a store answered, and whether that is what it had to say.

use std::collections::{BTreeMap, BTreeSet};

use lockfast_core::{ErrorKind, Fence, HolderView, LockView, LossCause, Mode};

use super::step::{LOCKS, Who};
use super::world::{Act, Missing, Said, Sight, World};

/// The answer to one act of a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// Nobody heard it.
    Unheard,
    /// Of somebody who waits: what it was told until now. It was not refused.
    Waits,
    Granted(Fence),
    /// By whom, unless that was seen later.
    Taken(Option<LockView>),
    Failed(ErrorKind),
    Released,
    NotHeld,
    Renewed,
    Downgraded,
    Lost(LossCause),
    Seen(LockView),
    Revoked(Vec<HolderView>),
    OtherFence(Vec<HolderView>),
    Expired,
}

/// What is known of the whole story beside the lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The fence of each grant that somebody heard of.
    pub(super) fences: BTreeMap<Who, Fence>,
    /// What each holder's fence has to be above.
    pub(super) floors: BTreeMap<Who, u64>,
    /// The highest fence of each lock before this step.
    pub(super) highest: [u64; LOCKS],
    /// Who was told of its loss by a push, and why.
    pub(super) told: BTreeMap<Who, LossCause>,
    /// Whose grant was heard of as one that waits, or the error instead, since the step began.
    pub(super) heard: BTreeMap<Who, Result<Fence, ErrorKind>>,
    /// Who waits for an answer, or did when the step began.
    pub(super) listening: BTreeSet<Who>,
}

impl Facts {
    /// An answer for people, with holders by their numbers where their fences are known.
    pub(super) fn in_words(&self, answer: &Answer) -> String {
        match answer {
            Answer::Seen(view) => format!("seen {}", self.view_in_words(view)),
            Answer::Taken(Some(view)) => format!("taken, {}", self.view_in_words(view)),
            Answer::Revoked(holders) => format!("revoked {}", self.holders_in_words(holders)),
            Answer::OtherFence(holders) => {
                format!("another fence, {}", self.holders_in_words(holders))
            }
            answer => format!("{answer:?}"),
        }
    }

    fn view_in_words(&self, view: &LockView) -> String {
        format!("{}, {} waiting", self.holders_in_words(&view.holders), view.waiting)
    }

    fn holders_in_words(&self, holders: &[HolderView]) -> String {
        let words = holders.iter().map(|HolderView { mode, fence, .. }| {
            let who = self.fences.iter().find(|(_, known)| Some(**known) == *fence);
            who.map_or_else(|| format!("{fence:?} ({mode})"), |(who, _)| format!("{who} ({mode})"))
        });
        format!("held by [{}]", words.collect::<Vec<_>>().join(", "))
    }
}

/// One request of a step: its acts in their order, each with its answer. The first may not have
/// happened at all if nobody heard its answer.
pub(super) type Thread = Vec<(Act, Answer)>;

/// Every world that these threads can lead to in some order, in which each answer is right.
pub(super) fn outcomes(worlds: &[World], threads: &[Thread], facts: &Facts) -> Vec<World> {
    let threads = as_sent(threads);
    let mut ends = Vec::new();
    let mut seen = Vec::new();
    for world in worlds {
        go_on(world.clone(), &threads, vec![0; threads.len()], facts, &mut seen, &mut ends);
    }
    ends
}

/// Releases of one holder that are asked for at once may be sent as one, with one answer for all.
fn as_sent(threads: &[Thread]) -> Vec<Thread> {
    let mut sent: Vec<Thread> = Vec::new();
    for thread in threads {
        let is_sent = matches!(thread[..], [(release @ Act::Leave(..), Answer::Released)]
            if sent.iter().any(|other| matches!(other[..], [(it, Answer::Released)] if it == release)));
        if !is_sent {
            sent.push(thread.clone());
        }
    }
    sent
}

fn go_on(
    world: World,
    threads: &[Thread],
    places: Vec<usize>,
    facts: &Facts,
    seen: &mut Vec<(World, Vec<usize>)>,
    ends: &mut Vec<World>,
) {
    let state = (world, places);
    if seen.contains(&state) {
        return;
    }
    let (world, places) = &state;
    let is_over = threads.iter().zip(places).all(|(thread, place)| *place == thread.len());
    if is_over && !ends.contains(world) {
        ends.push(world.clone());
    }
    for (at, thread) in threads.iter().enumerate() {
        let Some((act, answer)) = thread.get(places[at]) else { continue };
        let mut places = places.clone();
        places[at] += 1;
        if matches!(answer, Answer::Unheard) {
            go_on(world.clone(), threads, places.clone(), facts, seen, ends);
        }
        let mut next = world.clone();
        let said = next.act(*act);
        if is_right(*act, &said, answer, facts) {
            go_on(next, threads, places, facts, seen, ends);
        }
    }
    seen.push(state);
}

fn is_right(act: Act, said: &Said, answer: &Answer, facts: &Facts) -> bool {
    let who = match act {
        Act::Enter(_, who, _) | Act::Try(_, who, _) | Act::Overreach(_, who, _) => who,
        Act::Renew(_, who) | Act::Downgrade(_, who) => who,
        _ => return is_seen_right(said, answer, facts),
    };
    match (said, answer) {
        (_, Answer::Unheard) => true,
        (Said::Granted, Answer::Granted(fence)) => facts.fences.get(&who) == Some(fence),
        (Said::Granted | Said::Waits, Answer::Waits) => true,
        (Said::Conflict, Answer::Failed(kind)) => *kind == ErrorKind::Conflict,
        (Said::AlreadyHeld, Answer::Failed(kind)) => *kind == ErrorKind::AlreadyHeld,
        (Said::Taken(_), Answer::Taken(None)) => true,
        (Said::Taken(sight), Answer::Taken(Some(view))) => is_view(sight, view, facts),
        (Said::TooHigh(_), Answer::Failed(ErrorKind::InvalidToken | ErrorKind::TokenExhausted)) => {
            true
        }
        (Said::TooHigh(instead), answer) if **instead != Said::Granted => {
            is_right(act, instead, answer, facts)
        }
        (Said::Lost(missing), Answer::Lost(cause)) => is_cause(who, missing, cause, facts),
        (Said::Lost(_), Answer::Failed(ErrorKind::Lost)) => {
            matches!(act, Act::Enter(..) | Act::Try(..))
        }
        (Said::Renewed, Answer::Renewed) | (Said::Downgraded, Answer::Downgraded) => true,
        _ => false,
    }
}

fn is_seen_right(said: &Said, answer: &Answer, facts: &Facts) -> bool {
    match (said, answer) {
        (Said::Seen(sight), Answer::Seen(view)) => is_view(sight, view, facts),
        (Said::Revoked(sight), Answer::Revoked(holders))
        | (Said::OtherFence(sight), Answer::OtherFence(holders)) => {
            are_holders(&sight.holders, holders, facts)
        }
        (Said::Released, Answer::Released)
        | (Said::NotHeld, Answer::NotHeld)
        | (Said::Expired, Answer::Expired) => true,
        _ => false,
    }
}

/// Whether a lock looks as it has to.
pub(super) fn is_view(sight: &Sight, view: &LockView, facts: &Facts) -> bool {
    view.waiting == sight.waiting && are_holders(&sight.holders, &view.holders, facts)
}

/// The same holders, in any order. A fence that nobody heard of can be any.
fn are_holders(expected: &[(Who, Mode)], seen: &[HolderView], facts: &Facts) -> bool {
    let mut left: Vec<(Mode, Option<Fence>)> =
        seen.iter().map(|holder| (holder.mode, holder.fence)).collect();
    let mut unknown = Vec::new();
    for (who, mode) in expected {
        let Some(fence) = facts.fences.get(who) else {
            unknown.push(*mode);
            continue;
        };
        let Some(at) = left.iter().position(|found| *found == (*mode, Some(*fence))) else {
            return false;
        };
        left.remove(at);
    }
    for mode in unknown {
        let Some(at) = left.iter().position(|(found, _)| *found == mode) else { return false };
        left.remove(at);
    }
    left.is_empty()
}

/// Whether this is why the holder does not have the lock. One from which it was taken away is told
/// so by a push or now, with the reason.
fn is_cause(who: Who, missing: &Missing, cause: &LossCause, facts: &Facts) -> bool {
    let because = |by| LossCause::Revoked { reason: reason(by) };
    match (cause, missing.revoked) {
        (LossCause::Revoked { .. }, Some(revoked)) => *cause == because(revoked.by),
        (LossCause::Revoked { .. }, None) => false,
        (_, Some(revoked)) if !revoked.is_settled => {
            facts.told.get(&who) == Some(&because(revoked.by))
        }
        (LossCause::Taken { .. }, _) => missing.is_taken,
        _ => true,
    }
}

/// What the operator says at this revocation.
pub(super) fn reason(by: usize) -> String {
    format!("revocation {by}")
}

/// Whether everybody who waits has heard what happened, and nothing else, and the fences rise in the
/// order of the grants.
pub(super) fn is_heard(world: &World, facts: &Facts) -> bool {
    facts.listening.iter().all(|who| {
        let heard = facts.heard.get(who);
        match world.find(*who) {
            Some(claim) if claim.is_granted => match heard {
                Some(Ok(fence)) => facts.fences.get(who) == Some(fence),
                Some(Err(kind)) => *kind == ErrorKind::AlreadyHeld,
                None => false,
            },
            Some(_) => heard.is_none(),
            None if world.revoked(*who).is_some() => {
                matches!(heard, Some(Ok(_) | Err(ErrorKind::Lost)))
            }
            None => heard.is_some(),
        }
    }) && (0..LOCKS).all(|lock| {
        let known = world.granted(lock).iter().filter_map(|who| {
            facts.fences.get(who).map(|fence| (fence.get(), facts.floors.get(who).copied()))
        });
        let mut before = facts.highest[lock];
        known.into_iter().all(|(fence, floor)| {
            let rises = fence > before && floor.is_none_or(|floor| fence > floor);
            before = fence;
            rises
        })
    })
}

/// Whether nobody who holds its lock was told that it lost it.
pub(super) fn is_told_right(world: &World, facts: &Facts) -> bool {
    facts.told.keys().all(|who| !world.holds(*who))
}

/// The same answers, but of those who wait and were refused.
pub(super) fn with_refusals(threads: &[Thread], facts: &Facts) -> Vec<Thread> {
    let mut threads = threads.to_vec();
    for (act, answer) in threads.iter_mut().flatten() {
        if let (Act::Enter(_, who, _), Answer::Waits) = (&act, &answer)
            && let Some(Err(kind)) = facts.heard.get(who)
            && *kind != ErrorKind::Lost
        {
            *answer = Answer::Failed(*kind);
        }
    }
    threads
}
