//! What the tests of this store share: a schema that an administrator has made, a role that owns
//! nothing and has the rights that the README names. The servers, and the short ways to hold, lose
//! and be refused a lock, are those of the conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lockfast::{Error, Expected, Guard, LockName, Locker, Migration, Options, Result, Version};
use lockfast_conformance::shorthand;
use lockfast_core::{Address, Backend, Change, WriteRequest};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, hold, loss, refusal, ttl, wait_for_renewal,
};
pub use lockfast_faults::pgbouncer::PgBouncer;
pub use lockfast_faults::postgres::{Postgres, Setup};
pub use lockfast_faults::url::encode;
pub use lockfast_faults::wait::{eventually, wait_until};

/// The role that the locks are taken with.
pub const ROLE: &str = "app";
/// The schema unless an address names another.
pub const SCHEMA: &str = "lockfast";

/// Creates the role.
pub fn create_role(postgres: &Postgres) {
    postgres.sql(&format!("CREATE ROLE {ROLE} LOGIN"));
}

/// Makes a schema as the administrator and grants what the README says.
pub fn make_schema(postgres: &Postgres, schema: &str) {
    make_schema_in(postgres, "postgres", schema);
}

/// The same in another database.
pub fn make_schema_in(postgres: &Postgres, database: &str, schema: &str) {
    // By the socket, where the administrator needs no password.
    let directory = encode(&postgres.socket_directory().display().to_string());
    let port = postgres.port();
    migrate(&format!("postgres://postgres@{directory}:{port}/{database}?schema={schema}"))
        .expect("the administrator may migrate");
    let grant = format!(
        "GRANT USAGE ON SCHEMA {schema} TO {ROLE}; \
         GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {ROLE}"
    );
    postgres.sql_on(database, &grant);
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
pub fn url_at(address: SocketAddr) -> String {
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
    shorthand::connect(url, lockfast_backend_postgres::connect).await
}

/// Connects to a store and keeps what the engine has under it too.
pub async fn connect_both(url: &str) -> (Locker, Arc<dyn Backend>) {
    let address = Address::parse(url).unwrap();
    let place = Arc::new(OnceLock::new());
    let kept = Arc::clone(&place);
    let connecting = Locker::builder().connect_with(move |context| {
        Box::pin(async move {
            let backend = lockfast_backend_postgres::connect(address, context).await?;
            kept.set(Arc::clone(&backend)).unwrap();
            Ok(backend)
        })
    });
    let locker = bounded(connecting).await.unwrap();
    let backend = place.get().unwrap();
    (locker, Arc::clone(backend))
}

/// A connection to the server by the bare driver.
pub async fn session(address: SocketAddr, role: &str) -> tokio_postgres::Client {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut login = tokio_postgres::Config::new();
    let login = login.user(role).dbname("postgres");
    let (session, connection) = login.connect_raw(stream, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    session
}

/// Connects to a store, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_postgres::connect).await
}

/// The version that the write of this id leaves.
pub fn version(id: u8) -> Version {
    Version::from_bytes([id; 16])
}

/// A write of a value, with the version that must be there.
pub fn write_request(of: &str, expected: Option<Version>, id: u8, change: Change) -> WriteRequest {
    let expected = expected.map_or(Expected::Nothing, Expected::Version);
    WriteRequest { name: name(of), expected, change, id: [id; 16] }
}

/// What puts a value there for good.
pub fn put(bytes: &[u8]) -> Change {
    Change::Put { bytes: bytes.to_vec(), keep: None }
}

pub fn name(of: &str) -> LockName {
    LockName::new(of).unwrap()
}

/// Begins to wait for a lock that is taken, and returns when it stands in line.
pub async fn queue_for(locker: &Locker, name: &str) -> JoinHandle<Guard> {
    shorthand::queue_for(locker, name, Options::default().wait(TIME_MAX)).await
}

/// The error that a try to take a lock meets.
pub async fn failure(locker: &Locker, name: &str) -> Error {
    shorthand::failure(locker, name, ttl(Duration::from_secs(3))).await
}
