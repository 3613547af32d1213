//! What the tests of this store share: a schema that an administrator has made, a role that owns
//! nothing and has the rights that the README names, and short ways to hold, lose and be refused a
//! lock. The servers are those of the conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::future::Future;
use std::time::Duration;

use lockfast::{
    Address, Attempt, Error, ErrorKind, Guard, Locker, LossCause, Migration, Options, Refusal,
    Result,
};

pub use lockfast_conformance::fault::pgbouncer::PgBouncer;
pub use lockfast_conformance::fault::postgres::{Postgres, Setup};
pub use lockfast_conformance::fault::url::encode;
pub use lockfast_conformance::fault::wait::{eventually, wait_until};

/// The role that the locks are taken with.
pub const ROLE: &str = "app";
/// The schema unless an address names another.
pub const SCHEMA: &str = "lockfast";
/// Nothing in these tests takes longer than this on a busy machine unless it hangs.
pub const TIME_MAX: Duration = Duration::from_secs(30);

/// Creates the role.
pub fn create_role(postgres: &Postgres) {
    postgres.sql(&format!("CREATE ROLE {ROLE} LOGIN"));
}

/// Makes a schema as the administrator and grants what the README says.
pub fn make_schema(postgres: &Postgres, schema: &str) {
    // By the socket, where the administrator needs no password.
    let directory = encode(&postgres.socket_directory().display().to_string());
    let port = postgres.port();
    migrate(&format!("postgres://postgres@{directory}:{port}/postgres?schema={schema}"))
        .expect("the administrator may migrate");
    postgres.sql(&format!(
        "GRANT USAGE ON SCHEMA {schema} TO {ROLE}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {ROLE}"
    ));
}

/// A server with the role and the schema.
pub fn start() -> Postgres {
    prepare(Setup::new())
}

/// The same, set up in some way.
pub fn prepare(setup: Setup) -> Postgres {
    let postgres = setup.start();
    create_role(&postgres);
    make_schema(&postgres, SCHEMA);
    postgres
}

/// Where the role takes its locks.
pub fn url(postgres: &Postgres) -> String {
    postgres.url_as(ROLE, None)
}

/// The same by another way.
pub fn url_at(address: std::net::SocketAddr) -> String {
    format!("postgres://{ROLE}@{address}/postgres")
}

/// Migrates, from wherever it is called.
pub fn migrate(url: &str) -> Result<Migration> {
    let address = Address::parse(url).unwrap();
    let work = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(lockfast_backend_postgres::migrate(address))
    });
    work.join().unwrap()
}

/// Connects to a store.
pub async fn connect(url: &str) -> Locker {
    try_connect(url).await.unwrap_or_else(|error| panic!("cannot connect: {error}"))
}

/// Connects to a store, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    let address = Address::parse(url)?;
    let connecting = Locker::builder()
        .connect_with(move |context| lockfast_backend_postgres::connect(address, context));
    bounded(connecting).await
}

/// A lease of this length, and one try.
pub fn ttl(ttl: Duration) -> Options {
    Options::default().ttl(ttl).no_wait()
}

/// Takes a lock.
pub async fn hold(locker: &Locker, name: &str, options: Options) -> Guard {
    let mutex = locker.mutex(name).unwrap().with(options).unwrap();
    bounded(mutex.acquire()).await.unwrap_or_else(|error| panic!("not granted: {error}"))
}

/// Begins to wait for a lock that is taken, and returns when it stands in line.
pub async fn queue_for(locker: &Locker, name: &str) -> tokio::task::JoinHandle<Guard> {
    let before = waiting(locker, name).await;
    let (waiter, lock) = (locker.clone(), name.to_owned());
    let task =
        tokio::spawn(async move { hold(&waiter, &lock, Options::default().wait(TIME_MAX)).await });
    eventually("one more waits", TIME_MAX, async || waiting(locker, name).await > before).await;
    task
}

async fn waiting(locker: &Locker, name: &str) -> usize {
    locker.inspect(&lockfast::LockName::new(name).unwrap()).await.unwrap().waiting
}

/// Who has a lock that is taken.
pub async fn refusal(locker: &Locker, name: &str) -> Refusal {
    let mutex = locker.mutex(name).unwrap();
    match bounded(mutex.try_acquire()).await.unwrap() {
        Attempt::Taken(refusal) => refusal,
        Attempt::Granted(guard) => panic!("granted with fence {}", guard.fence()),
    }
}

/// The error that a try to take a lock meets.
pub async fn failure(locker: &Locker, name: &str) -> Error {
    let mutex = locker.mutex(name).unwrap().with(ttl(Duration::from_secs(3))).unwrap();
    match bounded(mutex.try_acquire()).await {
        Err(error) => error,
        Ok(Attempt::Taken(refusal)) => panic!("taken instead of an error: {refusal}"),
        Ok(Attempt::Granted(guard)) => panic!("granted with fence {}", guard.fence()),
    }
}

/// Checks what the user sees: the kind of error, and that its message has these words.
pub fn check_error(error: &Error, kind: ErrorKind, words: &[&str]) {
    assert_eq!(error.kind(), kind, "{error}");
    let message = error.to_string();
    for word in words {
        assert!(message.to_lowercase().contains(&word.to_lowercase()), "no {word:?} in: {message}");
    }
}

/// How a lease was lost, which must happen within `bound`.
pub async fn loss(guard: &Guard, bound: Duration) -> LossCause {
    let lost = tokio::time::timeout(bound, guard.lost()).await;
    lost.unwrap_or_else(|_| panic!("not lost within {bound:?}, it is {:?}", guard.status()))
}

/// Waits for a renewal that was sent after now.
pub async fn wait_for_renewal(guard: &Guard, bound: Duration) {
    let seen = guard.deadline();
    eventually("a renewal", bound, async || {
        assert!(guard.check().is_ok(), "{:?}", guard.status());
        guard.deadline().since(seen) > Duration::ZERO
    })
    .await;
}

/// Waits for a future that must not hang.
pub async fn bounded<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TIME_MAX, future).await.expect("it takes too long")
}
