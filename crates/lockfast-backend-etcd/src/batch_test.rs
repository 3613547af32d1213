use super::*;
use crate::key::Space;
use crate::wire::{KeyValue, ResponseOp};

type Told<T> = oneshot::Receiver<Result<T, Failure>>;

fn put(key: &str, lease: i64) -> PutRequest {
    PutRequest { key: key.as_bytes().to_vec(), lease, ..PutRequest::default() }
}

fn create(lock: &str, key: &str, lease: i64) -> Write {
    let name = LockName::new(lock).unwrap();
    let span = Some(Space::new("").span_of(&name));
    Write::Create { name, put: put(key, lease), span, asker: oneshot::channel().0 }
}

fn delete_of(key: &str) -> (Write, Told<bool>) {
    let (asker, told) = oneshot::channel();
    (Write::Delete { key: key.as_bytes().to_vec(), revision: 7, asker }, told)
}

fn move_of(key: &str, lease: i64) -> (Write, Told<Option<i64>>) {
    let (asker, told) = oneshot::channel();
    (Write::Move { put: put(key, lease), revision: 7, written: None, asker }, told)
}

fn plan(writes: Vec<Write>) -> Vec<Vec<String>> {
    let mut plan = Plan::default();
    writes.into_iter().for_each(|write| plan.add(write));
    let key = |write: &Write| String::from_utf8(write.key().to_vec()).unwrap();
    let mut batches: Vec<Vec<String>> =
        plan.into_batches().map(|batch| batch.writes.iter().map(key).collect()).collect();
    batches.sort();
    batches
}

#[test]
fn the_keys_of_a_lock_are_made_one_after_the_other() {
    let writes = vec![
        create("a", "a/1", 5),
        create("b", "b/1", 5),
        create("a", "a/2", 5),
        create("a", "a/3", 5),
        create("b", "b/2", 5),
    ];
    assert_eq!(plan(writes), [vec!["a/1", "b/1"], vec!["a/2", "b/2"], vec!["a/3"]]);
}

#[test]
fn a_lease_that_is_gone_harms_nobody_else() {
    let moves = [move_of("a/1", 5).0, move_of("b/1", 6).0, move_of("c/1", 5).0];
    assert_eq!(plan(moves.into()), [vec!["a/1", "c/1"], vec!["b/1"]]);
    let creates = vec![create("a", "a/1", 5), create("b", "b/1", 6)];
    assert_eq!(plan(creates), [vec!["a/1"], vec!["b/1"]]);
}

#[test]
fn a_key_is_written_once_in_a_transaction() {
    let moves = vec![move_of("a/1", 5).0, move_of("a/1", 5).0];
    assert_eq!(plan(moves), [vec!["a/1"], vec!["a/1"]]);
}

#[test]
fn no_transaction_is_too_long() {
    let writes = (0..OPS_MAX).map(|at| create(&format!("{at}"), &format!("{at}/1"), 5));
    let deletes = (0..OPS_MAX).map(|at| delete_of(&format!("{at}/2")).0);
    let mut plan = Plan::default();
    writes.chain(deletes).for_each(|write| plan.add(write));
    let batches: Vec<Batch> = plan.into_batches().collect();
    assert_eq!(batches.iter().map(|batch| batch.writes.len()).sum::<usize>(), 2 * OPS_MAX);
    for Batch { request, .. } in &batches {
        assert!(request.success.len() <= OPS_MAX && request.compare.len() <= OPS_MAX);
        assert!(request.failure.len() <= OPS_MAX);
    }
    assert!(batches.len() <= 4);
}

#[test]
fn only_what_is_not_as_expected_is_told() {
    let (gone, mut gone_told) = delete_of("a/1");
    let (there, mut there_told) = delete_of("b/1");
    let (other, mut other_told) = move_of("c/1", 5);
    let found = |kvs: Vec<KeyValue>| ResponseOp {
        response: Some(Done::Range(RangeResponse { kvs, ..RangeResponse::default() })),
    };
    let made_at = |create_revision| KeyValue { create_revision, ..KeyValue::default() };
    let answer = TxnResponse {
        responses: vec![found(vec![]), found(vec![made_at(7)]), found(vec![made_at(8)])],
        ..TxnResponse::default()
    };
    let again = read_refusal(vec![gone, create("d", "d/1", 5), there, other], answer);
    assert_eq!(again.iter().map(Write::key).collect::<Vec<_>>(), [b"d/1", b"b/1"]);
    assert!(matches!(gone_told.try_recv(), Ok(Ok(false))));
    assert!(there_told.try_recv().is_err(), "it is sent once more");
    assert!(matches!(other_told.try_recv(), Ok(Ok(None))));
}
