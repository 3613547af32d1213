use super::*;
use crate::batch::Give;
use lockfast_core::lobby::{Place, Purpose, Take};
use lockfast_core::{AcquireRequest, Address, HolderId, LockName, Mode, Wait};
use tokio::sync::oneshot;

/// B8, P5: a claim that was about to look when it was released does not look afterwards, because it
/// would be granted what nobody knows of.
#[tokio::test]
async fn nobody_looks_after_a_release() {
    let client = ClientId::random().unwrap();
    let context = ConnectContext {
        runtime: Handle::current(),
        client,
        label: Label::of_this_process(),
        losses: LossReporter::new(|_| {}),
    };
    let address = Address::parse("postgres://locks@127.0.0.1:1/lockfast").unwrap();
    let dialer = Dialer::new(Config::read(&address).unwrap()).unwrap();
    let store = Store::new(Arc::new(dialer), context);
    let claim = Arc::new(Claim::new(
        AcquireRequest {
            name: LockName::new("nightly").unwrap(),
            mode: Mode::Exclusive,
            holder: HolderId::random(client).unwrap(),
            ttl: Duration::from_secs(30),
            lock_delay: Duration::ZERO,
            wait: Wait::Forever,
            detached: false,
            floor: None,
        },
        1,
    ));
    let (asker, _told) = oneshot::channel();
    let place = Place { blocked: None, now_us: None };
    store.lobby.enter(Arc::clone(&claim), asker, place, Moment::now());
    let look = || {
        let claim = Arc::clone(&claim);
        store.submit(Op::Take(Take { claim, purpose: Purpose::Look, tries: 0 }));
    };
    let asked = || match store.gather() {
        Some(Work::Batch(batch, _)) => batch.ops.into_iter().flatten().collect(),
        _ => Vec::new(),
    };
    look();
    assert_eq!(asked().len(), 1, "it looks while it waits");
    drop(store.lobby.take(claim.holder));
    let (name, holder) = (claim.name.clone(), claim.holder);
    store.submit(Op::Give(Give { name, holder, asker: None, doubtful: false, tries: 0 }));
    look();
    assert!(matches!(asked().as_slice(), [Op::Give(_)]));
}
