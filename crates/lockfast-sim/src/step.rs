//! What can happen next. Everything that can, may: the search tries all orders.

use crate::setup::{Expiry, Flaw, Gate, Setup};
use crate::state::{Client, Phase, Stage, State};

/// One thing that happens. Clients, nodes and sends are given by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the same everywhere and said above")]
pub enum Step {
    /// A client proposes a fence to all nodes: for the first time, because a node has seen more, or
    /// because it tries again.
    Propose { client: usize, fence: u8 },
    /// A client that does not know what became of its last proposal begins anew: it proposes a
    /// fence, and where it has the lock already it asks with which fence and raises nothing.
    Adopt { client: usize, fence: u8 },
    /// A client's proposal arrives at a node: in time, late, or once more.
    Arrive { client: usize, send: u8, node: usize },
    /// A client gives its proposal up and tells all nodes to undo it.
    GiveUp { client: usize },
    /// A client has a quorum that granted this fence and becomes holder.
    Hold { client: usize, fence: u8 },
    /// A holder tells all nodes that it is done.
    Release { client: usize },
    /// An undo or a release arrives at a node.
    Undo { client: usize, send: u8, node: usize },
    /// A holder asks all nodes to let its time begin anew.
    Renew { client: usize },
    /// A renewal arrives at a node.
    ArriveRenewal { client: usize, send: u8, node: usize },
    /// A holder has a quorum of answers to its renewal.
    Renewed { client: usize },
    /// A client's clock ends the validity of its oldest send that is still valid.
    End { client: usize },
    /// A node lets its grant go.
    Expire { node: usize },
    /// A node restarts empty.
    Forget { node: usize },
    /// A holder raises the fence at the gate.
    Open { client: usize },
    /// A holder reads, and sends its write.
    Read { client: usize },
    /// A write arrives at the gate: in time, late, or once more.
    Write { client: usize },
}

/// Collects what can happen in a state.
pub fn collect(setup: &Setup, state: &State, steps: &mut Vec<Step>) {
    for client in 0..setup.clients {
        collect_choices(setup, state, client, steps);
        collect_arrivals(setup, &state.clients[client], client, steps);
        if setup.gate != Gate::Absent {
            collect_accesses(setup, &state.clients[client], client, steps);
        }
    }
    for (node, seen) in state.nodes.iter().enumerate().take(setup.nodes) {
        if may_expire(setup, state, node) {
            steps.push(Step::Expire { node });
        }
        let forgetful = state.nodes.iter().filter(|node| node.forgot).count();
        if seen.forgot || forgetful < setup.forgetful {
            steps.push(Step::Forget { node });
        }
    }
}

/// What a client decides.
fn collect_choices(setup: &Setup, state: &State, client: usize, steps: &mut Vec<Step>) {
    let own = &state.clients[client];
    let timed = setup.expiry == Expiry::AfterValidity;
    let renewals = own.renewals.count_ones() as usize;
    let may_propose = usize::from(own.sends) - renewals < setup.proposals;
    let may_renew = renewals < setup.renewals && (!timed || own.is_alive());
    let has_quorum = |fence: u8| state.count_answers(client, fence) >= setup.quorum;
    match own.phase {
        Phase::Idle | Phase::Trying | Phase::GaveUp if may_propose => {
            let fences = own.fence_of(own.sends) + 1..=setup.fence_max;
            let may_adopt = setup.adopt && (own.undone == 0 || setup.flaw == Flaw::UndoneAdopted);
            if may_adopt && own.phase != Phase::Idle {
                steps.extend(fences.clone().map(|fence| Step::Adopt { client, fence }));
            }
            steps.extend(fences.map(|fence| Step::Propose { client, fence }));
        }
        Phase::Holding if may_renew => {
            steps.push(Step::Renew { client });
        }
        _ => {}
    }
    if own.phase == Phase::Trying {
        if own.sends > own.ended {
            let granted = (1..=setup.fence_max).filter(|fence| has_quorum(*fence));
            steps.extend(granted.map(|fence| Step::Hold { client, fence }));
        }
        if setup.undo {
            steps.push(Step::GiveUp { client });
        }
    }
    if own.phase == Phase::Holding {
        let is_asked = own.is_renewal(own.sends) && own.valid < own.sends;
        if is_asked && has_quorum(own.held) && own.is_alive() {
            steps.push(Step::Renewed { client });
        }
        if setup.undo {
            steps.push(Step::Release { client });
        }
    }
    if timed && own.ended < own.sends {
        steps.push(Step::End { client });
    }
}

/// What a client has sent, and what may therefore arrive.
fn collect_arrivals(setup: &Setup, own: &Client, client: usize, steps: &mut Vec<Step>) {
    for send in 1..=own.sends {
        for node in 0..setup.nodes {
            steps.push(if own.is_renewal(send) {
                Step::ArriveRenewal { client, send, node }
            } else {
                Step::Arrive { client, send, node }
            });
            if own.undone & (1 << send) != 0 {
                steps.push(Step::Undo { client, send, node });
            }
        }
    }
}

/// What a holder does with the data. It may be paused for as long as it likes, and may have lost
/// the lock long ago without knowing.
fn collect_accesses(setup: &Setup, own: &Client, client: usize, steps: &mut Vec<Step>) {
    if own.held == 0 {
        return;
    }
    match own.stage {
        Stage::Fresh if setup.gate == Gate::Opened => steps.push(Step::Open { client }),
        Stage::Fresh | Stage::Opened => steps.push(Step::Read { client }),
        Stage::Writing => steps.push(Step::Write { client }),
        Stage::Refused => {}
    }
}

/// Whether a node may let its grant go now.
fn may_expire(setup: &Setup, state: &State, node: usize) -> bool {
    let node = &state.nodes[node];
    match node.lock.holder {
        None => false,
        Some(_) if setup.expiry == Expiry::Anytime => true,
        Some(holder) => node.since <= state.clients[usize::from(holder)].ended,
    }
}
