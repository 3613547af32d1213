use lockfast_core::{ClientId, Mode};
use tokio::sync::Notify;

use super::*;
use crate::record::State;
use crate::session::Class;

const SECOND: Duration = Duration::from_secs(1);

fn session(id: i64) -> Arc<Session> {
    Arc::new(Session::new(id, Class::Hold(9), 9 * SECOND, Moment::now()))
}

fn holder() -> HolderId {
    HolderId::random(ClientId::random().unwrap()).unwrap()
}

fn claim(key: &str, session: &Arc<Session>, stage: Stage) -> Claim {
    Claim {
        name: LockName::new("a").unwrap(),
        mode: Mode::Exclusive,
        key: key.as_bytes().to_vec(),
        revision: 7,
        written: 7,
        says: State::Waiting,
        session: Arc::clone(session),
        stage,
        is_detached: false,
        signal: Arc::new(Notify::new()),
    }
}

fn held(until: Moment) -> Stage {
    Stage::Held { until, since: until.before(9 * SECOND) }
}

fn of_session(table: &Table, id: i64) -> Vec<HolderId> {
    table.of_session(id).map(|(holder, _)| holder).collect()
}

#[test]
fn what_is_over_is_told_once() {
    let (mut table, now, session) = (Table::default(), Moment::now(), session(1));
    let [over, going, waiting] = [holder(), holder(), holder()];
    table.insert(over, claim("a/1", &session, held(now)));
    table.insert(going, claim("a/2", &session, held(now + SECOND)));
    table.insert(waiting, claim("a/3", &session, Stage::Waiting));
    let due = |table: &mut Table, at| -> Vec<HolderId> {
        table.take_due(at).into_iter().map(|(holder, _)| holder).collect()
    };
    assert_eq!(due(&mut table, now), [over]);
    assert_eq!(due(&mut table, now), []);
    table.look_again(over, 7, now + SECOND);
    table.look_again(waiting, 6, now);
    assert_eq!(due(&mut table, now), []);
    table.set_stage(going, held(now + 5 * SECOND));
    assert_eq!(due(&mut table, now + 2 * SECOND), [over]);
    table.remove(going);
    assert_eq!(due(&mut table, now + 9 * SECOND), []);
}

#[test]
fn what_may_hang_on_two_leases_is_found_under_both() {
    let (mut table, now) = (Table::default(), Moment::now());
    let [first, second, third] = [session(1), session(2), session(3)];
    let [sure, unsure] = [holder(), holder()];
    table.insert(sure, claim("a/1", &first, held(now)));
    table.insert(unsure, claim("a/2", &first, Stage::Waiting));
    table.may_be_under(unsure, second.id);
    assert_eq!(of_session(&table, second.id), [unsure]);
    assert_eq!(of_session(&table, first.id).len(), 2);
    let (gone, left) = table.end_session(first.id);
    assert_eq!((gone.len(), left.len()), (1, 1), "one of them may be under the second");
    assert_eq!(gone[0].key, b"a/1");
    // Whatever is known of it later, what is under way to the second is not answered by that.
    table.put_under(unsure, (9, State::Waiting), Arc::clone(&third));
    assert_eq!(of_session(&table, second.id), [unsure]);
    let (gone, left) = table.end_session(second.id);
    assert_eq!((gone.len(), left.len()), (0, 0), "it is under the third");
    assert_eq!(table.end_session(third.id).0.len(), 1);
    assert!(table.find(unsure).is_none() && table.of_session.is_empty() && table.maybe.is_empty());
}

#[test]
fn what_is_watched_is_told_when_it_is_gone() {
    let (mut table, now, session) = (Table::default(), Moment::now(), session(1));
    let [short, long] = [holder(), holder()];
    table.insert(short, claim("a/1", &session, held(now)));
    table.insert(long, claim("a/2", &session, held(now)));
    table.set_stage(long, held(now));
    table.remove(short);
    let keys =
        |claims: Vec<Claim>| -> Vec<Vec<u8>> { claims.into_iter().map(|it| it.key).collect() };
    assert_eq!(keys(table.take_settled(now, 10 * SECOND)), [""; 0].map(Vec::from));
    assert_eq!(keys(table.take_settled(now, SECOND)), [b"a/2".to_vec()]);
    assert_eq!(keys(table.take_settled(now, SECOND)), [""; 0].map(Vec::from), "it is told once");
    assert_eq!(table.take_gone(), [""; 0].map(Vec::from));
    table.remove(long);
    assert_eq!(table.take_gone(), [b"a/2".to_vec()]);
    assert!(table.holders.is_empty() && table.of_lock.is_empty() && table.due.is_empty());
}
