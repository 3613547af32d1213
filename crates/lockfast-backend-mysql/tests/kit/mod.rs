//! What the tests of this store share: a user with the rights that the README names, and a look at
//! the server. The servers, and the short ways to hold, lose and be refused a lock, are those of the
//! conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub mod foreign;
pub mod replica;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use lockfast::{Expected, LockName, Locker, Result, Version};
use lockfast_conformance::shorthand;
use lockfast_core::{Address, Backend, Change, WriteRequest};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};

pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, failure, hold, hold_detached, loss, refusal, request, ttl,
    wait_for_renewal,
};
pub use lockfast_faults::certificate;
pub use lockfast_faults::mysql::{Flavor, Mysql, Setup};
pub use lockfast_faults::wait::{eventually, wait_until};

/// A server of the kind that this binary tests.
pub fn setup() -> Setup {
    Setup::new(crate::FLAVOR)
}

/// One without anything special.
pub fn start_server() -> Mysql {
    setup().start()
}

/// The statements of the README that give rights, for this database: those of the user `app` who is
/// called `locks` here, and those of `maker`.
pub fn documented_rights(database: &str) -> (String, String) {
    let readme = include_str!("../../README.md");
    let blocks = readme.split("```sql\n").skip(1).filter_map(|block| block.split("```").next());
    let grants: Vec<String> = blocks
        .flat_map(|block| block.split_inclusive(';'))
        .filter(|statement| statement.contains("GRANT"))
        .map(|statement| statement.replace(" locks.", &format!(" `{database}`.")))
        .collect();
    let of = |user: &str| {
        let found = grants.iter().filter(|grant| grant.ends_with(&format!(" TO {user};")));
        found.cloned().collect::<String>().replace(" TO app;", " TO locks;")
    };
    (of("app"), of("maker"))
}

/// Makes the schema as a user who may only do that, and lets another only use it.
pub async fn make_schema(server: &Mysql, database: &str) {
    let (rights, maker_rights) = documented_rights(database);
    server.sql(&maker_rights);
    let url = format!("mysql://maker:word@{}/{database}", server.address());
    lockfast_backend_mysql::migrate(Address::parse(&url).unwrap()).await.unwrap();
    server.sql(&rights);
}

/// The URL of a user who may only use the schema, made by one who may only make it.
pub async fn prepare(server: &Mysql) -> String {
    server.sql("CREATE USER locks IDENTIFIED BY 'word'; CREATE USER maker IDENTIFIED BY 'word'");
    make_schema(server, "lockfast").await;
    url_at(server.address())
}

/// The same user's URL at another address.
pub fn url_at(address: SocketAddr) -> String {
    format!("mysql://locks:word@{address}/lockfast")
}

/// How many statements clients have sent so far.
pub fn statements(server: &Mysql) -> u64 {
    let said = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
    said.split_whitespace().last().unwrap().parse().unwrap()
}

/// The connections of the user `locks`, the one for commands and the one that listens.
pub fn connections(server: &Mysql) -> (u64, u64) {
    let id = |kind: &str| {
        let said = server.sql(&format!(
            "SELECT IS_USED_LOCK(CONCAT('lockfast:{kind}:', HEX(who))) FROM \
             lockfast.lockfast_clients ORDER BY seen_us DESC LIMIT 1"
        ));
        said.trim().parse().unwrap_or(0)
    };
    (id("a"), id("l"))
}

/// Connects to a store on the server.
pub async fn connect(url: &str) -> Locker {
    shorthand::connect(url, lockfast_backend_mysql::connect).await
}

/// Connects to a store and keeps what the engine has under it too.
pub async fn connect_both(url: &str) -> (Locker, Arc<dyn Backend>) {
    let address = Address::parse(url).unwrap();
    let place = Arc::new(OnceLock::new());
    let kept = Arc::clone(&place);
    let connecting = Locker::builder().connect_with(move |context| {
        Box::pin(async move {
            let backend = lockfast_backend_mysql::connect(address, context).await?;
            kept.set(Arc::clone(&backend)).unwrap();
            Ok(backend)
        })
    });
    let locker = bounded(connecting).await.unwrap();
    let backend = place.get().unwrap();
    (locker, Arc::clone(backend))
}

/// The same as [`prepare`], on a server that writes down which clients have tried whether they can be
/// woken.
pub async fn prepare_noting(server: &Mysql) -> String {
    let url = prepare(server).await;
    server.sql("CREATE TABLE trials (caller CHAR(32) PRIMARY KEY); DROP PROCEDURE lockfast_rouse");
    let mut root = Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap();
    let rouse = "CREATE PROCEDURE lockfast_rouse(IN it CHAR(32)) SQL SECURITY DEFINER \
        BEGIN INSERT IGNORE INTO trials VALUES (it); SELECT 0, 1; END";
    root.query_drop(rouse).await.unwrap();
    server.sql("GRANT EXECUTE ON PROCEDURE lockfast.lockfast_rouse TO locks");
    url
}

/// Connects and returns when nothing is asked any more but what the test asks: a new client tries
/// once whether it can be woken. The server has to [note](prepare_noting) that.
pub async fn connect_settled(server: &Mysql, url: &str) -> (Locker, Arc<dyn Backend>) {
    let trials = || server.sql("SELECT COUNT(*) FROM trials");
    let before = trials();
    let connected = connect_both(url).await;
    eventually("it was tried to wake it", TIME_MAX, async || trials() != before).await;
    // What was asked before this is answered when this is, and a statement is prepared when it is
    // first used.
    let write = write_request("settled", None, u8::MAX, put(b""));
    bounded(connected.1.write(write)).await.unwrap();
    connected
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

/// Connects to a store on the server, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_mysql::connect).await
}
