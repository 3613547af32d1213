//! The server answers, but says no; or the schema is not there, or not ours.

use std::time::Duration;

use lockfast::{ErrorKind, Migration};
use lockfast_core::Address;

use crate::kit::{
    Flavor, Setup, check_error, connect, documented_rights, failure, hold, prepare, setup,
    start_server, try_connect, ttl,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

async fn migrate(url: &str) -> lockfast::Result<Migration> {
    lockfast_backend_mysql::migrate(Address::parse(url).unwrap()).await
}

/// Who may not come in is told so, without the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not() {
    let server = start_server();
    prepare(&server).await;
    server.sql("CREATE USER other IDENTIFIED BY 'word'");
    let address = server.address();
    for (login, database, kind, words) in [
        ("locks:secret", "lockfast", ErrorKind::Permission, "access denied"),
        ("nobody:secret", "lockfast", ErrorKind::Permission, "access denied"),
        ("other:word", "lockfast", ErrorKind::Permission, "access denied"),
        ("root", "nowhere", ErrorKind::InvalidConfig, "unknown database"),
    ] {
        let url = format!("mysql://{login}@{address}/{database}");
        let error = try_connect(&url).await.unwrap_err();
        check_error(&error, kind, &[words]);
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

/// B32: a node of a Galera cluster or of a replication group with several primaries, where several
/// decide at once, is refused at connect, and gets no schema (L57).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster() {
    // It says so without being joined to others.
    let (options, words) = match crate::FLAVOR {
        Flavor::MariaDb => (["--wsrep-on=ON", "--binlog-format=ROW"], "Galera"),
        Flavor::MySql => (
            [
                "--plugin-load-add=group_replication.so",
                "--loose-group-replication-single-primary-mode=OFF",
            ],
            "several primaries",
        ),
    };
    let node = options.into_iter().fold(setup(), Setup::option).start();
    for error in
        [try_connect(&node.url()).await.unwrap_err(), migrate(&node.url()).await.unwrap_err()]
    {
        check_error(&error, ErrorKind::Unsupported, &[words, "another store"]);
    }
    assert_eq!(node.sql("SHOW TABLES"), "");
}

/// The schema is made on first use where rights allow; elsewhere the error says what to run (L59,
/// C52).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_missing() {
    let server = start_server();
    server.sql("CREATE USER locks IDENTIFIED BY 'word'; GRANT EXECUTE ON lockfast.* TO locks");
    let url = server.url_as("locks", Some("word"));
    let error = try_connect(&url).await.unwrap_err();
    check_error(&error, ErrorKind::InvalidConfig, &["lockfast migrate", "may not create it"]);
    let error = migrate(&url).await.unwrap_err();
    check_error(&error, ErrorKind::Permission, &["CREATE ROUTINE"]);
    server.sql("SET GLOBAL read_only = 1");
    server.sql("CREATE USER maker IDENTIFIED BY 'word'; GRANT ALL ON lockfast.* TO maker");
    let maker = server.url_as("maker", Some("word"));
    check_error(&migrate(&maker).await.unwrap_err(), ErrorKind::WrongNode, &["read-only"]);
    server.sql("SET GLOBAL read_only = 0");
    // The rights that the README names for it.
    server
        .sql(&format!("REVOKE ALL ON lockfast.* FROM maker; {}", documented_rights("lockfast").1));
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Changed { from: None, to: 1 });
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Unchanged { version: 1 });
    let guard = hold(&connect(&url).await, NAME, ttl(TTL)).await;
    assert!(guard.check().is_ok());
}

/// First use by a user who may makes the schema; many at once do no harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_made_on_first_use() {
    let server = start_server();
    let url = server.url();
    let (first, second, third) = tokio::join!(connect(&url), connect(&url), connect(&url));
    let guard = hold(&first, NAME, ttl(TTL)).await;
    for locker in [second, third] {
        crate::kit::refusal(&locker, NAME).await;
    }
    guard.release().await.unwrap();
}

/// B265: something in the schema is gone, or was changed by hand (L59).
/// The user sees: what to run, which helps; nothing is granted until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_not_whole() {
    let server = start_server();
    let url = prepare(&server).await;
    let locker = connect(&url).await;
    for (break_it, kind) in [
        (
            "ALTER TABLE lockfast_locks CHANGE fence fenced BIGINT NOT NULL",
            ErrorKind::InvalidConfig,
        ),
        ("DROP TABLE lockfast_locks", ErrorKind::InvalidConfig),
        // The right to it goes with it.
        ("DROP PROCEDURE lockfast_take", ErrorKind::Permission),
    ] {
        server.sql(break_it);
        let error = failure(&locker, NAME, ttl(TTL).retries(0)).await;
        check_error(&error, kind, &["lockfast migrate"]);
    }
    let maker = server.url_as("maker", Some("word"));
    assert_eq!(migrate(&maker).await.unwrap(), Migration::Changed { from: None, to: 1 });
    server.sql(&documented_rights("lockfast").0);
    hold(&locker, NAME, ttl(TTL)).await.release().await.unwrap();
    server.sql("ALTER TABLE lockfast_claims DROP ticket");
    let words = ["lockfast_claims", "ticket", "drop lockfast_claims"];
    check_error(&migrate(&maker).await.unwrap_err(), ErrorKind::InvalidConfig, &words);
    server.sql("UPDATE lockfast_store SET version = 99, serves = 99");
    check_error(&try_connect(&url).await.unwrap_err(), ErrorKind::InvalidConfig, &["newer"]);
    check_error(&migrate(&server.url()).await.unwrap_err(), ErrorKind::InvalidConfig, &["newer"]);
}

/// A fence that cannot rise any more is not handed out; what is held can be released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_is_exhausted() {
    let server = start_server();
    let url = prepare(&server).await;
    let locker = connect(&url).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    server.sql("UPDATE lockfast_locks SET fence = 9007199254740991");
    guard.release().await.unwrap();
    let error = failure(&locker, NAME, ttl(TTL)).await;
    check_error(&error, ErrorKind::TokenExhausted, &["2^53"]);
    hold(&locker, "another", ttl(TTL)).await.release().await.unwrap();
    server.sql("UPDATE lockfast_store SET floor = 9007199254740991");
    check_error(
        &failure(&locker, "third", ttl(TTL)).await,
        ErrorKind::TokenExhausted,
        &["lockfast_store"],
    );
}

/// Names that SQL or JSON could misread are just names (L60), and so are those that differ by
/// case alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_only_names() {
    let server = start_server();
    let url = prepare(&server).await;
    let locker = connect(&url).await;
    let names = [
        "a",
        "A",
        "ä",
        "'; DROP TABLE lockfast_locks; --",
        "\"",
        "\\",
        "`",
        "%",
        "_",
        "a b",
        "日本",
        "\\\"],[\"b",
        "𝕏",
        "$[0]",
        "null",
    ];
    let mut guards = Vec::new();
    for name in names {
        guards.push(hold(&locker, name, ttl(TTL)).await);
    }
    let mut tasks = tokio::task::JoinSet::new();
    for guard in guards {
        // Many at once, so that they go as a list.
        tasks.spawn(async move { guard.release().await.unwrap() });
    }
    let released = tasks.join_all().await;
    assert!(released.iter().all(|it| matches!(it, lockfast::Released::Released)), "{released:?}");
}
