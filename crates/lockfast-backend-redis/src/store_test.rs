use super::*;
use crate::batch::{Give, Then};
use lockfast_core::lobby::{Place, Purpose, Take};
use lockfast_core::{AcquireRequest, Address, LockName, ReleaseOutcome, Wait};
use tokio::sync::oneshot;

/// A store that nobody is connected to: what is asked of it stays in its queue.
pub(crate) fn store() -> Arc<Store> {
    let address = Address::parse("redis://127.0.0.1:1").unwrap();
    let dialer = Dialer::new(Config::read(&address).unwrap()).unwrap();
    let context = ConnectContext {
        runtime: Handle::current(),
        client: ClientId::random().unwrap(),
        label: Label::of_this_process(),
        losses: LossReporter::new(|_| {}),
    };
    Store::new(Arc::new(dialer), context)
}

/// B8, P5: a claim that was about to look when it was released does not look afterwards, because it
/// would be granted what nobody knows of.
#[tokio::test]
async fn nobody_looks_after_a_release() {
    let store = store();
    let claim = Arc::new(Claim::new(AcquireRequest {
        name: LockName::new("nightly").unwrap(),
        mode: Mode::Exclusive,
        holder: HolderId::random(store.client).unwrap(),
        ttl: Duration::from_secs(30),
        lock_delay: Duration::ZERO,
        wait: Wait::Forever,
        detached: false,
        floor: None,
    }));
    let (asker, _told) = oneshot::channel();
    let place = Place { blocked: None, now_us: None };
    store.lobby.enter(Arc::clone(&claim), asker, place, Moment::now());
    let look = || {
        let claim = Arc::clone(&claim);
        store.submit(Op::Take(Take { claim, purpose: Purpose::Look, tries: 0 }));
    };
    look();
    assert_eq!(store.gather().unwrap().0.into_ops().count(), 1, "it looks while it waits");
    drop(store.lobby.take(claim.holder));
    store.submit(Op::Give(Give::of_claim(&claim, Then::Nothing)));
    look();
    let asked: Vec<Op> = store.gather().unwrap().0.into_ops().collect();
    assert!(matches!(asked.as_slice(), [Op::Give(_)]), "{} requests", asked.len());
}

/// B14, P1: releases of one holder that wait together are sent once, and all who asked are answered.
#[tokio::test]
async fn a_holder_is_released_once_in_a_batch() {
    let store = store();
    let name = |name: &str| LockName::new(name).unwrap();
    let holders = [(); 2].map(|()| HolderId::random(store.client).unwrap());
    let mut answers = Vec::new();
    for (lock, holder) in [("a", 0), ("a", 0), ("b", 0), ("a", 1), ("a", 0)] {
        let (asker, answer) = oneshot::channel();
        store.submit(Op::Give(Give::new(name(lock), holders[holder], Then::Tell(asker))));
        answers.push(answer);
    }
    let (batch, _) = store.gather().unwrap();
    assert_eq!((batch.len(), store.waiting.load(Ordering::Acquire)), (3, 0));
    for op in batch.into_ops() {
        let Op::Give(give) = op else { panic!("a release") };
        store.tell_given(give, ReleaseOutcome::Released);
    }
    for answer in answers {
        assert_eq!(answer.await.unwrap(), Ok(ReleaseOutcome::Released));
    }
}

/// B37: the server forgets a client after a day, so that one which lives for longer reminds it.
#[tokio::test]
async fn the_server_is_reminded_of_a_client() {
    let store = store();
    let load = || {
        let holder = HolderId::random(store.client).unwrap();
        store.submit(Op::Give(Give::new(LockName::new("a").unwrap(), holder, Then::Nothing)));
        let mut pipeline = Pipeline::default();
        let (batch, _) = store.load(&mut pipeline).unwrap();
        (batch.preamble, String::from_utf8(pipeline.as_bytes().to_vec()).unwrap())
    };
    assert_eq!(load().0, 0);
    store.refresh_ns.store(0, Ordering::Relaxed);
    let (before, sent) = load();
    assert_eq!(before, 1);
    assert!(sent.contains("PEXPIRE\r\n$24\r\nlockfast:client:"), "{sent}");
    assert!(sent.contains("86400000"), "{sent}");
    assert_eq!(load().0, 0, "not again for a while");
}
