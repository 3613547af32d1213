use super::*;
use crate::holder::ClientId;

/// So long that no machine is slow enough to matter.
const POLL: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

struct Call {
    holder: HolderId,
    name: LockName,
    number: u32,
    wait: Wait,
}

impl Claim for Call {
    type Told = ();
    type Call = u32;
    type Offer = &'static str;
    const POLL: Duration = POLL;

    fn holder(&self) -> HolderId {
        self.holder
    }

    fn name(&self) -> &LockName {
        &self.name
    }

    fn call(&self) -> u32 {
        self.number
    }

    fn wait(&self) -> Wait {
        self.wait
    }
}

type Told = oneshot::Receiver<()>;

fn call(number: u32, wait: Wait) -> Arc<Call> {
    let holder = HolderId::random(ClientId::random().unwrap()).unwrap();
    Arc::new(Call { holder, name: LockName::new("a").unwrap(), number, wait })
}

/// The second claim of a holder.
fn again(holder: HolderId) -> Arc<Call> {
    let name = LockName::new("a").unwrap();
    Arc::new(Call { holder, name, number: 2, wait: Wait::Forever })
}

/// Lets a claim wait of which nothing more is known.
fn enter(lobby: &Lobby<Call>, claim: &Arc<Call>) -> (Told, Option<&'static str>) {
    let (asker, told) = oneshot::channel();
    let place = Place { blocked: None, now_us: None };
    (told, lobby.enter(Arc::clone(claim), asker, place, Moment::now()))
}

fn wait(lobby: &Lobby<Call>, number: u32, wait: Wait) -> (HolderId, Told) {
    let claim = call(number, wait);
    (claim.holder, enter(lobby, &claim).0)
}

/// In how long somebody looks.
#[track_caller]
fn next_look(lobby: &Lobby<Call>) -> Duration {
    let now = Moment::now();
    let (due, next) = lobby.take_due(now);
    assert!(due.is_empty(), "somebody looks now");
    next.unwrap().since(now)
}

fn after(span: Duration) -> Moment {
    Moment::now() + span
}

#[test]
fn a_waiter_looks_when_it_should_and_once_in_a_while() {
    let lobby = Lobby::default();
    let (holder, _told) = wait(&lobby, 1, Wait::Forever);
    let poll = next_look(&lobby);
    assert!(poll > POLL / 2 && poll <= POLL.mul_f64(1.2), "{poll:?}");
    lobby.hasten(1, MINUTE * 2);
    assert!(next_look(&lobby) <= MINUTE * 2);
    lobby.hasten(1, MINUTE * 4);
    assert!(next_look(&lobby) <= MINUTE * 2, "it looks no later");
    let (due, next) = lobby.take_due(after(MINUTE * 3));
    assert!(matches!(due.as_slice(), [take] if take.claim.holder == holder && take.may_wait()));
    assert!(next.is_some(), "it is planned again in case no answer comes");
    lobby.stay(holder, Place { blocked: Some(MINUTE), now_us: None }, Moment::now());
    assert!(next_look(&lobby) <= MINUTE + TICK);
    lobby.set_poll(MINUTE / 2);
    assert_eq!(lobby.take_due(Moment::now()).0.len(), 1);
    assert!(next_look(&lobby) <= MINUTE);
}

/// B19, B22: of those who wait for one lock here the first looks when what is in its way ends, and
/// the others cost next to nothing however many they are.
#[test]
fn the_first_of_a_lock_looks_for_all_behind_it() {
    let lobby = Lobby::default();
    lobby.set_poll(MINUTE);
    let waiters: Vec<_> = (0..6000).map(|n| wait(&lobby, n, Wait::Forever)).collect();
    for (holder, _) in &waiters {
        let place = Place { blocked: Some(MINUTE / 3), now_us: None };
        lobby.stay(*holder, place, Moment::now());
    }
    let first_due = || lobby.take_due(after(MINUTE / 2)).0;
    assert!(matches!(first_due().as_slice(), [take] if take.claim.number == 0));
    let later = lobby.take_due(after(MINUTE * 7 / 4)).0;
    assert_eq!(later.len(), 1, "the others share one look in 20 ms");
    assert!(lobby.take_called(0, "its turn").is_some());
    let next = next_look(&lobby);
    assert!(next <= PROMOTED, "the next one learns what is in its way: {next:?}");
    assert!(lobby.take_called(3000, "not the first").is_some());
    assert!(matches!(first_due().as_slice(), [take] if take.claim.number == 1));
}

#[test]
fn a_wait_ends_with_one_last_look() {
    let lobby = Lobby::default();
    let (_, _told) = wait(&lobby, 1, Wait::Until(after(POLL / 5)));
    assert!(next_look(&lobby) <= POLL / 5);
    assert!(matches!(
        lobby.take_due(after(POLL / 4)).0.as_slice(),
        [Take { purpose: Purpose::Last, .. }]
    ));
    assert!(lobby.take_due(after(POLL / 4)).0.is_empty(), "it is the last");
}

/// P10: whose time is up does not join the queue again, also when everybody is to look.
#[test]
fn who_leaves_does_not_come_back() {
    let lobby = Lobby::default();
    let (_, _told) = wait(&lobby, 1, Wait::Until(Moment::now()));
    for _ in 0..2 {
        assert!(matches!(
            lobby.take_due(Moment::now()).0.as_slice(),
            [Take { purpose: Purpose::Last, .. }]
        ));
        lobby.rouse();
    }
}

#[test]
fn whoever_is_not_asked_for_any_more_is_gone() {
    let lobby = Lobby::default();
    let (holder, told) = wait(&lobby, 1, Wait::Forever);
    drop(told);
    lobby.rouse();
    assert!(lobby.take_due(Moment::now()).0.is_empty());
    assert!(lobby.is_empty() && lobby.find(holder).is_none());
    assert!(lobby.take_called(1, "late").is_none());
}

/// P7: what a holder asks again it waits for once, under the name that the server knows last.
#[test]
fn a_claim_that_waits_is_joined() {
    let lobby = Lobby::default();
    let first = call(1, Wait::Until(Moment::now()));
    let again = again(first.holder);
    let (_told, _) = enter(&lobby, &first);
    let (_told_too, _) = enter(&lobby, &again);
    lobby.rouse();
    assert!(matches!(
        lobby.take_due(Moment::now()).0.as_slice(),
        [Take { purpose: Purpose::Look, .. }]
    ));
    assert!(lobby.take_called(1, "an old one").is_none());
    assert_eq!(lobby.take_called(2, "a new one").unwrap().askers.len(), 2);
    assert!(lobby.is_empty() && lobby.take_due(after(POLL * 2)).0.is_empty());
}

#[test]
fn a_look_without_an_answer_is_repeated_for_a_while() {
    let lobby = Lobby::default();
    let (holder, _told) = wait(&lobby, 1, Wait::Forever);
    let look = |holder| {
        let claim = lobby.find(holder).unwrap();
        Take { claim, purpose: Purpose::Look, tries: 0 }
    };
    assert!(lobby.miss(look(holder), true).is_empty());
    assert!(next_look(&lobby) > POLL / 2);
    lobby.lock().waiters.get_mut(&holder).unwrap().failing_since =
        Some(Moment::now().before(PATIENCE * 2));
    assert_eq!(lobby.miss(look(holder), true).len(), 1, "it was for long");
    let (holder, _told) = wait(&lobby, 1, Wait::Forever);
    let looks = [look(holder), look(holder)];
    assert_eq!(looks.map(|look| lobby.miss(look, false).len()), [1, 0], "it is for good");
    assert!(lobby.is_empty());
}

/// B8, P5: whoever looks when it does not wait any more would take, after its release, what nobody
/// knows of.
#[test]
fn nobody_looks_after_a_release() {
    let lobby = Lobby::default();
    let (holder, _told) = wait(&lobby, 1, Wait::Forever);
    lobby.rouse();
    let (due, _) = lobby.take_due(Moment::now());
    let [look] = due.as_slice() else { panic!("nobody looks") };
    assert!(!look.is_moot(&lobby));
    drop(lobby.take(holder));
    assert!(look.is_moot(&lobby));
    let again = again(holder);
    let (_told, _) = enter(&lobby, &again);
    assert!(look.is_moot(&lobby), "it looks for itself");
}

/// B238, P10: what was on its way when pushes were lost is answered with what was before.
#[test]
fn who_was_on_the_way_looks_too() {
    let lobby = Lobby::default();
    let claim = call(1, Wait::Forever);
    let (before, place) = (Moment::now(), Place { blocked: None, now_us: None });
    lobby.rouse();
    let (asker, _told) = oneshot::channel();
    lobby.enter(Arc::clone(&claim), asker, place, before);
    let looks = || lobby.take_due(Moment::now()).0.len();
    assert_eq!(looks(), 1, "it began to wait by an answer from before");
    lobby.stay(claim.holder, place, before);
    assert_eq!(looks(), 1, "so did it go on");
    lobby.stay(claim.holder, place, Moment::now());
    assert_eq!(looks(), 0, "now it knows");
}

/// P10: an offer that comes before the answer that lets its claim wait is not lost, but neither is
/// it kept for ever.
#[test]
fn an_offer_may_come_before_its_claim() {
    let lobby = Lobby::default();
    assert!(lobby.take_called(1, "early").is_none());
    let claim = call(1, Wait::Forever);
    let (_told, offer) = enter(&lobby, &claim);
    assert_eq!(offer, Some("early"));
    assert!(enter(&lobby, &claim).1.is_none(), "it is given once");
    assert_eq!(lobby.take_called(1, "in time").unwrap().claim.holder, claim.holder);

    let long_ago = Moment::now().before(EARLY_AGE_MAX * 2);
    let old = || Early { offer: Some("old"), look_at: None, came: long_ago };
    lobby.lock().early.extend((2..9000).map(|call| (call, old())));
    assert!(enter(&lobby, &call(2, Wait::Forever)).1.is_none());
    (9000..9010 + EARLY_MAX as u32).for_each(|call| drop(lobby.take_called(call, "new")));
    assert_eq!(lobby.lock().early.len(), EARLY_MAX);
}

/// P9 (B155): that it is the first in line may be told to a claim before the answer that lets it wait,
/// or while a look is under way that does not know of it yet.
#[test]
fn what_a_claim_is_told_to_look_at_is_not_lost() {
    let lobby = Lobby::default();
    lobby.hasten(1, MINUTE);
    let (holder, _told) = wait(&lobby, 1, Wait::Forever);
    assert!(next_look(&lobby) <= MINUTE);
    let later = after(MINUTE * 2);
    assert_eq!(lobby.take_due(later).0.len(), 1);
    assert!(lobby.take_due(later).1.unwrap().since(later) > POLL / 2, "it has looked");
    lobby.hasten(1, MINUTE);
    lobby.stay(holder, Place { blocked: None, now_us: None }, Moment::now());
    assert!(next_look(&lobby) <= MINUTE, "the answer to an earlier look puts it off");
}

#[tokio::test]
async fn whoever_tends_is_woken_by_what_is_due_earlier() {
    let lobby = Arc::new(Lobby::default());
    let (looked, mut looks) = tokio::sync::mpsc::unbounded_channel();
    let tended = Arc::clone(&lobby);
    let tending = tokio::spawn(async move {
        tended.tend(|due| looked.send(due.len()).unwrap()).await;
    });
    let (_, _told) = wait(&lobby, 1, Wait::Forever);
    tokio::task::yield_now().await;
    lobby.hasten(1, Duration::ZERO);
    tokio::time::timeout(MINUTE, looks.recv()).await.unwrap();
    tending.abort();
}
