//! One counter or many, raised by several clients: by `SharedValue::update`, which begins again
//! when somebody else was there, and by the same reading and writing under a lock.

use std::sync::Arc;
use std::time::Duration;

use lockfast::optimistic::{Attempts, Update};
use lockfast::{
    ErrorKind, Expected, Locker, Moment, Mutex, SharedValue, VersionedValue, WriteOutcome,
};
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use crate::{connect_each, since};

const ROUNDS: usize = 3;
const SPAN: Duration = Duration::from_millis(700);
const CLIENTS: [usize; 3] = [1, 8, 64];
const VALUES: [usize; 2] = [1, 1000];

/// How a value is changed.
#[derive(Clone, Copy)]
enum Way {
    Optimistic,
    Locked,
}

/// A value, and the lock that stands for it.
struct Counter {
    value: SharedValue,
    mutex: Mutex,
}

/// What one client or all of them did.
#[derive(Default)]
struct Work {
    updates: u64,
    /// How often a new number was computed.
    tries: u64,
}

/// Measures everything on one store; or why it cannot be measured.
pub(crate) async fn measure(url: &str) -> Value {
    let lockers = connect_each(url, CLIENTS[CLIENTS.len() - 1]).await;
    if let Err(error) = lockers[0].value("optimistic") {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        return json!({ "refused": error.message() });
    }
    let mut figures: Map<String, Value> = Map::new();
    for values in VALUES {
        let sets: Vec<Arc<[Counter]>> =
            lockers.iter().map(|locker| counters(locker, values)).collect();
        let mut expected = begin(&sets).await;
        for _ in 0..ROUNDS {
            for clients in CLIENTS {
                for (name, way) in [("optimistic", Way::Optimistic), ("locked", Way::Locked)] {
                    let (work, elapsed) = work(&sets[..clients], way).await;
                    expected += work.updates;
                    let name = format!("{values}.{clients}.{name}");
                    let rate = work.updates as f64 / elapsed.as_secs_f64();
                    add(&mut figures, &format!("{name}.per_s"), rate);
                    let tries = work.tries as f64 / work.updates.max(1) as f64;
                    add(&mut figures, &format!("{name}.tries"), tries);
                }
            }
        }
        assert_eq!(sum(&sets[0]).await, expected, "no update is lost on {url}");
    }
    Value::Object(figures)
}

fn add(figures: &mut Map<String, Value>, name: &str, figure: f64) {
    let rounds = figures.entry(name).or_insert_with(|| json!([]));
    rounds.as_array_mut().unwrap().push(json!(figure));
}

fn counters(locker: &Locker, values: usize) -> Arc<[Counter]> {
    let counter = |number| {
        let name = format!("optimistic/{values}/{number}");
        // Somebody who competes with 63 others loses more often than the default bears.
        let attempts = Attempts::default().most(u32::MAX);
        let value = locker.value(&name).unwrap().attempts(attempts);
        Counter { value, mutex: locker.mutex(&name).unwrap() }
    };
    (0..values).map(counter).collect()
}

/// Writes all of them once; their sum.
async fn begin(sets: &[Arc<[Counter]>]) -> u64 {
    let mut running = JoinSet::new();
    let clients = sets.len().min(8);
    for (client, set) in sets[..clients].iter().cloned().enumerate() {
        running.spawn(async move {
            for counter in set.iter().skip(client).step_by(clients) {
                raise(counter, Way::Optimistic).await;
            }
        });
    }
    running.join_all().await;
    sets[0].len() as u64
}

/// Lets each client raise counters for a while.
async fn work(sets: &[Arc<[Counter]>], way: Way) -> (Work, Duration) {
    let start = Moment::now();
    let mut running = JoinSet::new();
    for (client, set) in sets.iter().cloned().enumerate() {
        running.spawn(async move {
            let mut done = Work::default();
            // Steps that have no divisor in common with 1000 reach all, in another order each.
            let odd = 2 * client + 1;
            let (mut at, step) = (client * 37, if odd % 5 == 0 { odd + 2 } else { odd });
            while since(start) < SPAN {
                done.tries += raise(&set[at % set.len()], way).await;
                done.updates += 1;
                at += step;
                tokio::task::yield_now().await;
            }
            done
        });
    }
    let mut all = Work::default();
    for done in running.join_all().await {
        all.updates += done.updates;
        all.tries += done.tries;
    }
    (all, since(start))
}

/// Adds one; how often that was computed.
async fn raise(counter: &Counter, way: Way) -> u64 {
    match way {
        Way::Optimistic => {
            let mut tries = 0;
            let raised = counter.value.update(|there| {
                tries += 1;
                async move { Ok(Update::Put(raised(there.as_ref()))) }
            });
            raised.await.unwrap();
            tries
        }
        Way::Locked => {
            let guard = counter.mutex.acquire().await.unwrap();
            let there = counter.value.read().await.unwrap();
            let expected =
                there.as_ref().map_or(Expected::Nothing, |value| Expected::Version(value.version));
            let outcome = counter.value.write(expected, raised(there.as_ref())).await.unwrap();
            assert!(matches!(outcome, WriteOutcome::Written(_)), "nobody else has the lock");
            guard.release().await.unwrap();
            1
        }
    }
}

fn number(there: Option<&VersionedValue>) -> u64 {
    there.map_or(0, |value| String::from_utf8_lossy(&value.bytes).parse().unwrap())
}

fn raised(there: Option<&VersionedValue>) -> Vec<u8> {
    (number(there) + 1).to_string().into_bytes()
}

async fn sum(set: &[Counter]) -> u64 {
    let mut sum = 0;
    for counter in set {
        sum += number(counter.value.read().await.unwrap().as_ref());
    }
    sum
}
