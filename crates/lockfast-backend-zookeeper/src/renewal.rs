//! Renewing leases: one question to the servers confirms all leases of a session.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{LossCause, Moment, RenewOutcome, RenewRequest};
use tokio::time::timeout;

use crate::claim::{Claim, Gone, Phase};
use crate::failure::{self, Failure, Fate};
use crate::store::{Store, lock};
use crate::wire::Session;

/// Which part of the shortest ttl of a batch its answer may take. The engine gives up after a sixth,
/// and then knows nothing about any of them.
const PART: u32 = 7;

/// The question to the servers, asked before anything waits for its answer.
struct Question {
    from: Moment,
    answer: tokio::task::JoinHandle<Result<(), Failure>>,
}

type Answers = HashMap<i64, (Moment, Result<(), Failure>)>;

/// Renews leases; the answers are in their order.
pub(crate) async fn renew(store: Arc<Store>, batch: Vec<RenewRequest>) -> Vec<RenewOutcome> {
    let limit = |request: &RenewRequest| store.config().request_timeout.min(request.ttl / PART);
    let Some(limit) = batch.iter().map(limit).min() else { return Vec::new() };
    let end = Moment::now() + limit;
    let claims: Vec<Option<Arc<Claim>>> = {
        let claims = lock(&store.claims);
        let find = |request: &RenewRequest| {
            let claim = claims.get(&request.holder);
            claim.filter(|claim| claim.name == request.name).cloned()
        };
        batch.iter().map(find).collect()
    };
    let mut questions: HashMap<i64, Question> = HashMap::new();
    let mut ask = |session: Arc<Session>| {
        questions.entry(session.id).or_insert_with(|| ask(&store, session, end));
    };
    // All move at once, and are waited for one after the other.
    let mut moving = Vec::new();
    for (request, claim) in batch.iter().zip(&claims) {
        let Some(claim) = claim else { continue };
        let lasts = request.ttl + request.lock_delay;
        match claim.phase() {
            Phase::Held { session } if store.fits(&session, lasts) => ask(session),
            Phase::Held { .. } | Phase::Brief => {
                claim.want(request.ttl, request.lock_delay);
                moving.push((claim, lasts));
            }
            Phase::Asking | Phase::Gone(_) => {}
        }
    }
    for (claim, lasts) in moving {
        let left = end.remaining(Moment::now()).saturating_sub(limit / 2);
        if let Ok(Some(Phase::Held { session })) =
            timeout(left, claim.reach(|phase| is_settled(&store, phase, lasts))).await
        {
            ask(session);
        }
    }
    let mut answers = Answers::new();
    for (id, question) in questions {
        let answer = question.answer.await.unwrap_or_else(|_| Err(closed()));
        answers.insert(id, (question.from, answer));
    }
    let each = batch.iter().zip(claims).map(|(request, claim)| match claim {
        Some(claim) => renew_one(&store, request, &claim, &answers, limit),
        None => RenewOutcome::Lost(LossCause::Forgotten),
    });
    each.collect()
}

fn ask(store: &Store, session: Arc<Session>, end: Moment) -> Question {
    let from = Moment::now();
    let limit = end.remaining(from);
    let asking = session.confirm();
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

/// Whether a claim's node is one of a session that lasts so long, or it is over.
fn is_settled(store: &Store, phase: &Phase, lasts: Duration) -> bool {
    match phase {
        Phase::Held { session } => store.fits(session, lasts),
        Phase::Gone(_) => true,
        Phase::Brief | Phase::Asking => false,
    }
}

fn renew_one(
    store: &Store,
    request: &RenewRequest,
    claim: &Claim,
    answers: &Answers,
    limit: Duration,
) -> RenewOutcome {
    let lasts = request.ttl + request.lock_delay;
    let silence = || failure::of_silence(&store.config().endpoint(), limit);
    match claim.phase() {
        // A node that moved there after the question has what the session was found to have.
        Phase::Held { session } if store.fits(&session, lasts) => match answers.get(&session.id) {
            Some((from, Ok(()))) => match claim.prolong(*from, request.ttl, request.lock_delay) {
                true => RenewOutcome::Renewed,
                false => RenewOutcome::Lost(LossCause::Forgotten),
            },
            Some((_, Err(failure))) => unserved(failure, claim),
            None => unserved(&silence(), claim),
        },
        Phase::Held { .. } | Phase::Brief => unserved(&silence(), claim),
        Phase::Gone(Gone::Lost(cause)) => RenewOutcome::Lost(cause),
        Phase::Gone(_) | Phase::Asking => RenewOutcome::Lost(LossCause::Forgotten),
    }
}

fn unserved(failure: &Failure, claim: &Claim) -> RenewOutcome {
    match failure.handling {
        Fate::Ended => RenewOutcome::Lost(LossCause::SessionEnded),
        _ => RenewOutcome::Unanswered(failure.to_error().with_lock(&claim.name)),
    }
}
