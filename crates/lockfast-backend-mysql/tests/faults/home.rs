//! The runtime on which the connection was made does not run any more, or never could.

use std::sync::mpsc;
use std::time::Duration;

use lockfast::Released;
use tokio::runtime::{Builder, Runtime};

use crate::kit::{MariaDb, bounded, connect, hold, prepare, refusal, ttl, wait_for_renewal};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(3);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// P3: a program that blocks the only thread on which it connected keeps its leases, and others
/// can use the connection: the keeper takes over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_blocked() {
    let mariadb = MariaDb::start();
    let url = prepare(&mariadb).await;
    let other = connect(&url).await;
    let (tell, told) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let blocked = std::thread::spawn(move || {
        let home = runtime();
        let (locker, guard) = home.block_on(async {
            let locker = connect(&url).await;
            let guard = hold(&locker, NAME, ttl(TTL)).await;
            (locker, guard)
        });
        tell.send((locker, guard)).unwrap();
        // Nothing runs there until the test is over.
        released.recv().unwrap_err();
        drop(home);
    });
    let (locker, guard) = told.recv().unwrap();
    for _ in 0..3 {
        wait_for_renewal(&guard, TTL).await;
        refusal(&other, NAME).await;
    }
    let another = hold(&locker, "another", ttl(TTL)).await;
    assert!(matches!(bounded(another.release()).await.unwrap(), Released::Released));
    assert!(matches!(bounded(guard.release()).await.unwrap(), Released::Released));
    drop(release);
    blocked.join().unwrap();
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// P5, P7: what the home has sent when it stops is neither lost nor done twice: an acquisition
/// whose answer nobody reads is asked again by the keeper for whoever waits elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_blocked_in_the_middle() {
    let mariadb = MariaDb::start();
    let url = prepare(&mariadb).await;
    let other = connect(&url).await;
    let home = runtime();
    let locker =
        std::thread::scope(|scope| scope.spawn(|| home.block_on(connect(&url))).join().unwrap());
    // The home is not driven: whatever is asked from here stays with it until the keeper sees.
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    refusal(&other, NAME).await;
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(bounded(guard.release()).await.unwrap(), Released::Released));
    hold(&other, NAME, ttl(TTL)).await.release().await.unwrap();
    std::thread::spawn(move || drop(home)).join().unwrap();
}

/// P3: a runtime that ends takes its tasks along, but not the leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_ends() {
    let mariadb = MariaDb::start();
    let url = prepare(&mariadb).await;
    let (locker, guard) = std::thread::spawn(move || {
        runtime().block_on(async {
            let locker = connect(&url).await;
            let guard = hold(&locker, NAME, ttl(TTL)).await;
            (locker, guard)
        })
    })
    .join()
    .unwrap();
    wait_for_renewal(&guard, TTL).await;
    assert!(matches!(bounded(guard.release()).await.unwrap(), Released::Released));
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// A runtime that cannot do I/O is no home: the keeper connects.
#[test]
fn it_cannot_connect() {
    let mariadb = MariaDb::start();
    let url = runtime().block_on(prepare(&mariadb));
    let home = Builder::new_current_thread().enable_time().build().unwrap();
    home.block_on(async {
        let locker = connect(&url).await;
        let guard = hold(&locker, NAME, ttl(TTL)).await;
        assert!(matches!(guard.release().await.unwrap(), Released::Released));
    });
}
