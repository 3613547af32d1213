//! Somebody who may call the procedures, all of them even, tries to get at what is not theirs.

use std::time::Duration;

use lockfast::LockName;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};

use crate::kit::foreign::{Session, holder};
use crate::kit::{Mysql, connect, hold, prepare, start_server, ttl, wait_for_renewal};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(6);

/// A server, and the URL of a user with the right to call every procedure and no other.
async fn start() -> (Mysql, String, String) {
    let server = start_server();
    let url = prepare(&server).await;
    server.sql("CREATE USER stranger IDENTIFIED BY 'word'");
    server.sql("GRANT EXECUTE ON lockfast.* TO stranger");
    let stranger = server.url_as("stranger", Some("word"));
    (server, url, stranger)
}

/// Every row of every table, but for when things were seen.
fn rows(server: &Mysql) -> String {
    let tables = [
        "locks ORDER BY name",
        "claims ORDER BY name, holder",
        "mail ORDER BY seq",
        "values ORDER BY name",
    ];
    let all = tables.map(|table| server.sql(&format!("SELECT * FROM lockfast_{table}")));
    all.join("\n---\n")
}

/// B26, P8: the inner procedures do nothing for whoever calls them alone, whatever the variables of
/// the session say: they show nobody's secret, change nothing and end no connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inner_procedures_do_nothing_alone() {
    let (server, url, stranger) = start().await;
    let locker = connect(&url).await;
    let guard = hold(&locker, NAME, ttl(Duration::from_secs(600))).await;
    let mut payroll = Conn::new(Opts::from_url(&server.url()).unwrap()).await.unwrap();
    payroll.query_drop("DO GET_LOCK('payroll', 0)").await.unwrap();
    payroll.query_drop("DO GET_LOCK('lockfast:p:payroll', 0)").await.unwrap();
    let before = rows(&server);
    let mut session = Session::open(&stranger, 1).await;
    let id = holder(1, 1);
    let forged = format!(
        "SET @lockfast_who = UNHEX(LEFT('{id}', 12)), @lockfast_self = UNHEX('{id}'), \
         @lockfast_floor = 0, @lockfast_answers = '', @lockfast_pushes = '', @lockfast_wakes = '', \
         @lockfast_now = 1, @lockfast_fence = 5, @lockfast_client = @lockfast_who, \
         @lockfast_is_asker = 1, @lockfast_until = 9e15, @lockfast_since = 1, @lockfast_offered = 0, \
         @lockfast_crowd = 0, @lockfast_waiting = 0, @lockfast_sharing = 0, @lockfast_asleep = 0, \
         @lockfast_ticket = 0, @lockfast_served = 0, @lockfast_watched = 0"
    );
    for call in [
        format!("lockfast_open('{NAME}', NULL)"),
        format!("lockfast_close('{NAME}', UNHEX('{id}'))"),
        format!("lockfast_settle('{NAME}', @heir)"),
        format!("lockfast_leave(1, '{NAME}', UNHEX('{id}'))"),
        format!("lockfast_enter(1, '{NAME}', UNHEX('{id}'), 0, 1000000, 0, 0, 0)"),
        format!("lockfast_first('new', UNHEX('{id}'), 0, 1000000, 0, 0, @mine)"),
        format!("lockfast_queue('{NAME}', UNHEX('{id}'), 0, 9, 0, 0, 0, 1, @heir, @answer)"),
        format!("lockfast_pass_over('{NAME}', UNHEX(LEFT('{id}', 12)))"),
        format!("lockfast_awaken('{NAME}')"),
        format!("lockfast_lead('{NAME}', '', 1)"),
        "lockfast_push(UNHEX('000000000001'), 'G', 1)".to_owned(),
        format!("lockfast_tell('g', '{NAME}', UNHEX('000000000001'), 1, 1)"),
        format!(r#"lockfast_take_all('[["{NAME}","{id}",0,1000000,0,0,0]]', 1)"#),
        format!(r#"lockfast_give_all('[["{NAME}","{id}"]]', 1)"#),
        format!(r#"lockfast_renew_all('[["{NAME}","{id}",1000000,0]]')"#),
        format!(r#"lockfast_why_lost('[["{NAME}","{id}"]]')"#),
        "lockfast_own('p', 'payroll')".to_owned(),
        "lockfast_wake('000000000001')".to_owned(),
        "lockfast_end()".to_owned(),
    ] {
        session.conn.query_drop(&forged).await.unwrap();
        // Some are refused, others find nothing that they may do.
        let _ = session.conn.query_drop(format!("CALL {call}")).await;
        let _ = session.conn.query_drop("ROLLBACK").await;
        assert_eq!(rows(&server), before, "{call}");
    }
    let payroll: Option<u64> = payroll.query_first("SELECT CONNECTION_ID()").await.unwrap();
    assert!(payroll.is_some(), "another program's connection was ended");
    assert!(guard.check().is_ok());
}

/// B26: nothing that a call leaves in the session tells who holds a lock, also not one that failed
/// half-way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_variable_holds_a_secret() {
    let (server, url, stranger) = start().await;
    let (first, second) = (connect(&url).await, connect(&url).await);
    let _guard = hold(&first, NAME, ttl(TTL)).await;
    let waiter = tokio::spawn(async move { hold(&second, NAME, ttl(TTL).wait_forever()).await });
    let name = LockName::new(NAME).unwrap();
    let waiting = async || first.inspect(&name).await.unwrap().waiting == 1;
    crate::kit::eventually("one waits", TTL, waiting).await;
    let mut session = Session::open(&stranger, 1).await;
    assert!(session.take(NAME, 0, TTL, true).await.starts_with("W\t"));
    assert_eq!(session.give(NAME).await, "0");
    let revoke = format!("CALL lockfast_revoke('{}', '{NAME}', 7, '')", session.who);
    session.conn.query_drop(revoke).await.unwrap();
    let secrets = server.sql(
        "SELECT HEX(holder) FROM lockfast_locks UNION SELECT HEX(holder) FROM lockfast_claims UNION \
         SELECT HEX(who) FROM lockfast_clients WHERE program <> 'script'",
    );
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sql");
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for variable in text.split('@').skip(1).filter(|word| word.starts_with("lockfast_")) {
            let end = variable.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap();
            let query = format!("SELECT CONCAT(HEX(@{0}), ' ', @{0})", &variable[..end]);
            let value: Option<Option<Vec<u8>>> = session.conn.query_first(query).await.unwrap();
            let value =
                String::from_utf8_lossy(&value.flatten().unwrap_or_default()).to_uppercase();
            for secret in secrets.lines() {
                assert!(!value.contains(secret.trim()), "@{} tells {secret}", &variable[..end]);
            }
        }
    }
    waiter.abort();
}

/// B26, P8: nobody acts for another client, although everybody knows which clients there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_another_client() {
    let (server, url, stranger) = start().await;
    let locker = connect(&url).await;
    let guard = hold(&locker, NAME, ttl(TTL)).await;
    let listens = async || crate::kit::connections(&server).1 != 0;
    crate::kit::eventually("it listens", TTL, listens).await;
    let connected = crate::kit::connections(&server);
    let client = server.sql("SELECT HEX(LEFT(holder, 6)) FROM lockfast_locks");
    let forged = format!("{client}{}", "0".repeat(20));
    let id = format!("{client}{}1", "0".repeat(19));
    let mut session = Conn::new(Opts::from_url(&stranger).unwrap()).await.unwrap();
    for kind in ["a", "l", "w"] {
        session.query_drop(format!("DO GET_LOCK('lockfast:{kind}:{forged}', 0)")).await.unwrap();
    }
    for call in [
        format!("lockfast_enrol('{forged}', 'p', 'h', 1, '')"),
        format!("lockfast_listen('{forged}', 0, 0)"),
        format!("lockfast_watch('{forged}', 1000000)"),
        format!("lockfast_take('{forged}', '{NAME}', '{id}', 0, 1000000, 0, 0, 1)"),
        format!("lockfast_give('{forged}', '{NAME}', '{id}')"),
        format!("lockfast_downgrade('{forged}', '{NAME}', '{id}')"),
        format!("lockfast_revoke('{forged}', '{NAME}', 0, '')"),
        format!("lockfast_write('{forged}', '{NAME}', '', '{id}', 'x', NULL)"),
        format!("lockfast_finish('{forged}')"),
        format!(r#"lockfast_work('{forged}', '[["{NAME}","{id}",9,0]]', '', 0, '', 0)"#),
    ] {
        let error = session.query_drop(format!("CALL {call}")).await.expect_err(&call);
        assert!(error.to_string().contains("lockfast: "), "{call}: {error}");
    }
    wait_for_renewal(&guard, TTL).await;
    assert_eq!(crate::kit::connections(&server), connected, "a connection was ended");
}

/// B26: whoever may call them cannot make the store forget: what is held and what was sent stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_forgets_nothing_of_use() {
    let (server, url, stranger) = start().await;
    let locker = connect(&url).await;
    let guard = hold(&locker, NAME, ttl(Duration::from_secs(600))).await;
    server.sql(
        "INSERT INTO lockfast_mail (client, sent_us, body) SELECT client, seen_us, 'X' FROM \
         lockfast_clients",
    );
    let mut session = Session::open(&stranger, 1).await;
    for _ in 0..3 {
        server.sql("UPDATE lockfast_store SET swept_us = 0, swept_name = ''");
        session.conn.query_drop("CALL lockfast_sweep()").await.unwrap();
    }
    assert_eq!(server.sql("SELECT COUNT(*) FROM lockfast_locks WHERE holder IS NOT NULL"), "1");
    assert!(guard.check().is_ok());
}
