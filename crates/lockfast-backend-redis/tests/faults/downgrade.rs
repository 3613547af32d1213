//! A writer becomes a reader while something is wrong with its lease, with what is stored of it, or
//! with the server's data.

use lockfast::{ErrorKind, Mode, Options, Released, Result};
use lockfast_core::{
    DowngradeOutcome, DowngradeRequest, HolderId, LockName, LossCause, RenewOutcome, RenewRequest,
    RevokeRequest, Wait,
};

use crate::data::{QUARANTINE, with_quarantine};
use crate::kit::direct::{Direct, TTL};
use crate::kit::{Redis, bounded, check_error, connect, eventually, wait_for_renewal};

const NAME: &str = "nightly";
const SHARED: &str = "lockfast:{nightly}:shared";
const MARK: &str = "lockfast:shared";

fn name() -> LockName {
    LockName::new(NAME).unwrap()
}

async fn take(direct: &Direct) -> HolderId {
    direct.take(direct.request(NAME, Wait::No)).await
}

async fn downgrade(direct: &Direct, holder: HolderId) -> Result<DowngradeOutcome> {
    bounded(direct.backend.downgrade(DowngradeRequest { name: name(), holder })).await
}

/// What a renewal tells the holder of.
async fn find_loss(direct: &Direct, holder: HolderId) -> LossCause {
    let lease = RenewRequest { name: name(), holder, ttl: TTL, lock_delay: TTL / 60 };
    match bounded(direct.backend.renew(vec![lease])).await.unwrap().remove(0) {
        RenewOutcome::Lost(cause) => cause,
        other => panic!("it is lost: {other:?}"),
    }
}

/// P8, P15: whoever has lost the lock is told why as by a renewal, and nothing is changed.
/// The user sees: the loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lease_is_lost() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let lose = async |what: &str| {
        let holder = take(&direct).await;
        match what {
            "revoked" => {
                let reason = "it was ours".to_owned();
                let request = RevokeRequest { name: name(), expect_fence: None, reason };
                bounded(direct.backend.revoke(request)).await.unwrap();
            }
            "deleted" => drop(redis.cli(&["DEL", NAME])),
            "taken" => drop(redis.cli(&["SET", NAME, "another program", "PX", "60000"])),
            _ => drop(redis.cli(&["FLUSHALL"])),
        }
        let stored = || (redis.cli(&["GET", NAME]), redis.cli(&["EXISTS", SHARED]));
        let before = stored();
        let outcome = downgrade(&direct, holder).await.unwrap();
        assert_eq!(stored(), before, "{what}");
        let DowngradeOutcome::Lost(cause) = outcome else { panic!("{what}: {outcome:?}") };
        if what != "flushed" {
            assert_eq!(find_loss(&direct, holder).await, cause, "{what}");
        }
        redis.cli(&["DEL", NAME]);
        cause
    };
    assert_eq!(lose("revoked").await, LossCause::Revoked { reason: "it was ours".into() });
    assert_eq!(lose("deleted").await, LossCause::Forgotten);
    assert_eq!(lose("taken").await, LossCause::Taken { by: None });
    assert_eq!(lose("flushed").await, LossCause::DataLost);
    // The server knows us again.
    let holder = take(&direct).await;
    assert_eq!(downgrade(&direct, holder).await.unwrap(), DowngradeOutcome::Downgraded);
}

/// P1, P15: an operator has deleted the key of a lock that was shared, but not who shared it: they do
/// not come back with the next writer that becomes a reader. Other programs see one key all the time.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_readers() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    for _ in 0..2 {
        let mut request = direct.request(NAME, Wait::No);
        request.mode = Mode::Shared;
        direct.take(request).await;
    }
    redis.cli(&["DEL", NAME]);
    let holder = take(&direct).await;
    let fence = redis.cli(&["GET", NAME]).split_off(23);
    assert_eq!(downgrade(&direct, holder).await.unwrap(), DowngradeOutcome::Downgraded);
    assert_eq!(redis.cli(&["HLEN", SHARED]), "3", "the mode, the first end and one holder");
    let stored = redis.cli(&["HVALS", SHARED]);
    assert!(stored.lines().any(|it| it.ends_with(&format!(".{fence}"))), "{stored}");
    assert_eq!(redis.cli(&["GET", NAME]), MARK);
    assert_eq!(redis.cli(&["SET", NAME, "another program", "NX", "PX", "60000"]), "");
    direct.give(NAME, holder).await;
    assert_eq!(redis.cli(&["EXISTS", NAME, SHARED]), "0");
}

/// P11: what was done to the lock's key or queue is told, and the lock stays with its holder.
/// The user sees: `CorruptRecord` with the key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_beside_the_lock() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let holder = take(&direct).await;
    let held = redis.cli(&["GET", NAME]);
    redis.cli(&["PERSIST", NAME]);
    let error = downgrade(&direct, holder).await.unwrap_err();
    check_error(&error, ErrorKind::CorruptRecord, &[NAME]);
    redis.cli(&["PEXPIRE", NAME, "60000"]);
    redis.cli(&["SET", "lockfast:{nightly}:queue", "rubbish"]);
    let error = downgrade(&direct, holder).await.unwrap_err();
    check_error(&error, ErrorKind::CorruptRecord, &["lockfast:{nightly}:queue"]);
    assert_eq!(redis.cli(&["GET", NAME]), held);
}

/// P2, P15: a lock that was only handed over, and is not renewed yet, is downgraded for the moment that
/// it lasts; the renewal after that makes a full lease of it.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_is_not_confirmed() {
    let redis = Redis::start();
    let direct = Direct::connect(&redis.url()).await;
    let first = take(&direct).await;
    let waiter = direct.queue(NAME).await;
    direct.give(NAME, first).await;
    let (holder, _) = bounded(waiter).await.unwrap();
    let left = || redis.cli(&["PTTL", NAME]).parse::<i64>().unwrap();
    assert_eq!(downgrade(&direct, holder).await.unwrap(), DowngradeOutcome::Downgraded);
    assert!((1..=1500).contains(&left()), "{}", left());
    assert_eq!(redis.cli(&["GET", NAME]), MARK);
    let lease = RenewRequest { name: name(), holder, ttl: TTL, lock_delay: TTL / 60 };
    let renewed = bounded(direct.backend.renew(vec![lease])).await.unwrap();
    assert!(matches!(renewed[..], [RenewOutcome::Renewed]), "{renewed:?}");
    assert!(left() > 1500, "{}", left());
}

/// P1, P15: with the quarantine, a lease that was downgraded is written down again as shared when the
/// server has lost its data; until then a downgrade of it is not told as a loss.
/// The user sees: nothing, or `Unreachable` for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_is_lost_with_the_quarantine() {
    let redis = Redis::start();
    let locker = connect(&with_quarantine(&redis.url())).await;
    let options = Options::default().ttl(QUARANTINE).wait(QUARANTINE * 4).retries(20);
    let lock = locker.rwlock(NAME).unwrap().with_options(options);
    let guard = bounded(lock.write()).await.unwrap();
    redis.cli(&["FLUSHALL"]);
    bounded(lock.downgrade(&guard)).await.unwrap();
    assert_eq!(redis.cli(&["GET", NAME]), MARK);
    redis.cli(&["FLUSHALL"]);
    wait_for_renewal(&guard, QUARANTINE).await;
    eventually("it is written down", QUARANTINE, async || {
        redis.cli(&["HGET", SHARED, "m"]) == "s" && redis.cli(&["GET", NAME]) == MARK
    })
    .await;
    assert!(matches!(guard.release().await.unwrap(), Released::Released));
}
