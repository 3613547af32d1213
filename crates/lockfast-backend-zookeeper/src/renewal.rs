//! Renewing leases: one question to the leader confirms all leases of a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{LossCause, Moment, RenewOutcome, RenewRequest};
use tokio::time::timeout;

use crate::claim::{Claim, Gone, Phase};
use crate::failure::{self, Failure, Fate};
use crate::store::{Store, lock};
use crate::wire::Session;

/// The question to the leader, asked before anything waits for its answer.
struct Question {
    from: Moment,
    answer: tokio::task::JoinHandle<Result<(), Failure>>,
}

/// Renews leases; the answers are in their order.
pub(crate) async fn renew(store: Arc<Store>, batch: Vec<RenewRequest>) -> Vec<RenewOutcome> {
    let limit = |request: &RenewRequest| store.config().request_timeout.min(request.ttl / 3);
    let Some(limit) = batch.iter().map(limit).min() else { return Vec::new() };
    let claims: Vec<Option<Arc<Claim>>> = {
        let claims = lock(&store.claims);
        let find = |request: &RenewRequest| claims.get(&request.holder).cloned();
        batch.iter().map(find).collect()
    };
    let mut questions: HashMap<i64, Question> = HashMap::new();
    for claim in claims.iter().flatten() {
        if let Phase::Held { session } = claim.phase() {
            questions.entry(session.id).or_insert_with(|| ask(&store, session, limit));
        }
    }
    let mut answers = HashMap::new();
    for (id, question) in questions {
        let answer = question.answer.await.unwrap_or_else(|_| Err(closed()));
        answers.insert(id, (question.from, answer));
    }
    let mut outcomes = Vec::with_capacity(batch.len());
    for (request, claim) in batch.iter().zip(claims) {
        let outcome = match claim.filter(|claim| claim.name == request.name) {
            Some(claim) => renew_one(&store, request, &claim, &answers, limit).await,
            None => RenewOutcome::Lost(LossCause::Forgotten),
        };
        outcomes.push(outcome);
    }
    outcomes
}

fn ask(store: &Store, session: Arc<Session>, limit: Duration) -> Question {
    let from = Moment::now();
    let asking = session.sync();
    let endpoint = store.config().endpoint();
    let answer = store.context.runtime.spawn(async move {
        let silence = |_| Err(failure::of_silence(&endpoint, limit));
        let answer = timeout(limit, asking).await.unwrap_or_else(silence);
        drop(session);
        answer
    });
    Question { from, answer }
}

fn closed() -> Failure {
    failure::of_break("the connection was closed")
}

async fn renew_one(
    store: &Store,
    request: &RenewRequest,
    claim: &Claim,
    answers: &HashMap<i64, (Moment, Result<(), Failure>)>,
    limit: Duration,
) -> RenewOutcome {
    let lasts = request.ttl + request.lock_delay;
    match claim.phase() {
        Phase::Held { session } if store.fits(&session, lasts) => match answers.get(&session.id) {
            Some((from, Ok(()))) => match claim.prolong(*from, request.ttl, request.lock_delay) {
                true => RenewOutcome::Renewed,
                false => RenewOutcome::Lost(LossCause::Forgotten),
            },
            Some((_, Err(failure))) => unserved(failure, claim),
            None => confirm(store, request, claim, limit).await,
        },
        Phase::Held { .. } | Phase::Brief => confirm(store, request, claim, limit).await,
        Phase::Gone(Gone::Lost(cause)) => RenewOutcome::Lost(cause),
        Phase::Gone(_) | Phase::Asking => RenewOutcome::Lost(LossCause::Forgotten),
    }
}

/// Waits until the claim's node is one of a session that lasts so long.
async fn confirm(
    store: &Store,
    request: &RenewRequest,
    claim: &Claim,
    limit: Duration,
) -> RenewOutcome {
    let lasts = request.ttl + request.lock_delay;
    claim.want(request.ttl, request.lock_delay);
    let is_settled = |phase: &Phase| match phase {
        Phase::Held { session } => store.fits(session, lasts),
        Phase::Gone(_) => true,
        Phase::Brief | Phase::Asking => false,
    };
    let endpoint = store.config().endpoint();
    match timeout(limit, claim.reach(is_settled)).await {
        Err(_) => unserved(&failure::of_silence(&endpoint, limit), claim),
        Ok(Some(Phase::Held { session })) => {
            let from = Moment::now();
            match timeout(limit, session.sync()).await {
                Ok(Ok(())) if claim.prolong(from, request.ttl, request.lock_delay) => {
                    RenewOutcome::Renewed
                }
                Ok(Ok(())) => RenewOutcome::Lost(LossCause::Forgotten),
                Ok(Err(failure)) => unserved(&failure, claim),
                Err(_) => unserved(&failure::of_silence(&endpoint, limit), claim),
            }
        }
        Ok(Some(Phase::Gone(Gone::Lost(cause)))) => RenewOutcome::Lost(cause),
        Ok(_) => RenewOutcome::Lost(LossCause::Forgotten),
    }
}

fn unserved(failure: &Failure, claim: &Claim) -> RenewOutcome {
    match failure.handling {
        Fate::Ended => RenewOutcome::Lost(LossCause::SessionEnded),
        _ => RenewOutcome::Unanswered(failure.to_error().with_lock(&claim.name)),
    }
}
