//! The server's wall clock steps. Redis counts expiry by it, so a step forward ends leases early
//! and a step back keeps them longer; the fence and the holder's own deadline must not suffer.

use std::time::Duration;

use lockfast::{LossCause, Moment, Released, RevokeOutcome};
use lockfast_faults::server::Server as _;

use crate::kit::{Setup, connect, hold, hold_detached, loss, refusal, ttl, wait_for_renewal};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);
const STEP: Duration = Duration::from_secs(600);

/// P4, and P3 instead of P1: a step forward beyond the ttl ends the lease in the server at once
/// and the next gets in with a higher fence; the earlier holder is told at its next renewal.
/// The user sees: the loss `Taken` or `Forgotten`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_forward() {
    let redis = Setup::new().clock().start();
    let (first, second) = (connect(&redis.url()).await, connect(&redis.url()).await);
    let guard = hold(&first, NAME, ttl(TTL)).await;
    redis.clock().step_forward(STEP);
    let next = hold(&second, NAME, ttl(TTL).wait(TTL)).await;
    assert!(next.fence().get() > guard.fence().get());
    let cause = loss(&guard, TTL / 3 + Duration::from_secs(1)).await;
    assert!(matches!(cause, LossCause::Taken { .. } | LossCause::Forgotten), "{cause:?}");
    assert!(matches!(guard.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
    assert!(matches!(next.release().await.unwrap(), Released::Released));
}

/// P1, P3: a step forward does not move the holder's own deadline, which is its own clock's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_does_not_move_the_deadline() {
    let redis = Setup::new().clock().start();
    let locker = connect(&redis.url()).await;
    for back in [false, true] {
        let before = Moment::now();
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        if back {
            redis.clock().step_back(STEP);
        } else {
            redis.clock().step_forward(Duration::from_secs(1));
        }
        assert!(guard.remaining() <= TTL);
        wait_for_renewal(&guard, TTL).await;
        let elapsed = Moment::now().since(before);
        assert!(guard.deadline().since(before) <= elapsed + TTL);
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    }
}

/// P4: a step back does not take the fence back, because the stored one is higher.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_and_the_fence() {
    let redis = Setup::new().clock().start();
    let locker = connect(&redis.url()).await;
    let mut fence = 0;
    for round in 0..4 {
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        assert!(guard.fence().get() > fence, "round {round}");
        fence = guard.fence().get();
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
        redis.clock().step_back(STEP * (round + 1));
    }
}

/// P4 with the caller's floor: a step back together with the loss of all data is the one case in
/// which the stored fence cannot help. The floor, which the guarded thing tells, does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_with_loss_of_data_needs_the_floor() {
    let redis = Setup::new().clock().start();
    let locker = connect(&redis.url()).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let fence = guard.fence();
    assert!(guard.release().await.is_ok());
    redis.clock().step_back(Duration::from_secs(30));
    redis.cli(&["FLUSHALL"]);
    let healed = hold(&locker, NAME, ttl(TTL).floor(fence)).await;
    let above = healed.fence();
    assert!(above.get() > fence.get());
    assert!(healed.release().await.is_ok());
    let next = hold(&locker, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > above.get());
}

/// P1, P9 within what Redis can do: a step back keeps the lock of a dead holder for as long as
/// the step. Waiters are told how long; an operator can release it by force.
/// The user sees: `Taken`, with the time that the server will keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_keeps_a_dead_holder() {
    let redis = Setup::new().clock().start();
    let locker = connect(&redis.url()).await;
    let lease = hold_detached(&locker, NAME, Duration::from_secs(1)).await;
    redis.clock().step_back(STEP);
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let refused = refusal(&locker, NAME).await;
    let remaining = refused.lock.holders[0].remaining;
    assert!(remaining > STEP / 2 && remaining <= STEP + TTL, "{remaining:?}");
    let revoked = locker.revoke_fence(&lease.name, lease.fence, "the clock stepped").await;
    let outcome = revoked.unwrap();
    assert!(matches!(outcome, RevokeOutcome::Revoked(_)), "{outcome:?}");
    let next = hold(&locker, NAME, ttl(TTL)).await;
    assert!(next.fence().get() > lease.fence.get());
}
