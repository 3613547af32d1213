//! The way to a member fails: the same stories as on one server.

use crate::kit::{Ensemble, stories};

/// P5, P6, P7, P8, P10: replies and watches are lost on the way to a follower. The user sees nothing but
/// the delay, and an operator that a lock may have been taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_and_watches_are_lost() {
    let _turn = crate::TURN.lock().await;
    let ensemble = Ensemble::start();
    let follower = &ensemble.members[ensemble.followers()[0]];
    let way = stories::way_to(follower).await;
    stories::lose_replies(follower, &way).await;
    stories::lose_a_watch(follower, &way).await;
    stories::lose_the_reply_to_a_revocation(&way).await;
}

/// P3, P5: sessions of a follower end, the last with 2 000 locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end() {
    const MANY: usize = 2_000;
    let _turn = crate::TURN.lock().await;
    let ensemble = Ensemble::start();
    let follower = &ensemble.members[ensemble.followers()[0]];
    stories::expire_a_session(follower).await;
    stories::lose_many(follower, MANY).await;
}
