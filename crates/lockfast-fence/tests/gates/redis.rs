//! Redis, with the crate `redis`.

use lockfast::fence::redis::{Check, RedisGate};
use lockfast::{FencingToken, Result};
use lockfast_core::BoxFuture;
use lockfast_faults::redis::Redis as Server;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError};

use crate::account::{Account, LOCK, START, Site};
use crate::sql::Place;
use crate::story;

const BALANCE: &str = "balance:{account/7}";
const HISTORY: &str = "history:{account/7}";

pub(crate) struct Redis {
    connection: MultiplexedConnection,
    gate: RedisGate,
}

impl Redis {
    pub(crate) async fn connect(url: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let connection = client.get_multiplexed_async_connection().await.unwrap();
        Self { connection, gate: RedisGate::new(LOCK).unwrap() }
    }

    async fn run<T: FromRedisValue>(
        &mut self,
        check: &Check,
    ) -> std::result::Result<T, RedisError> {
        let mut command = redis::cmd("EVAL");
        command.arg(check.script()).arg(check.keys().len());
        command.arg(check.keys()).arg(check.arguments());
        command.query_async(&mut self.connection).await
    }
}

impl Account for Redis {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.write(None, START).await.unwrap() })
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            if let Some(token) = token {
                let open = self.gate.open(token)?;
                let (seen,): (u64,) = self.run(&open).await.unwrap();
                open.admit(seen)?;
            }
            let mut get = redis::cmd("GET");
            Ok(get.arg(BALANCE).query_async(&mut self.connection).await.unwrap())
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let Some(token) = token else {
                let mut set = redis::cmd("SET");
                set.arg(BALANCE).arg(balance);
                set.query_async::<()>(&mut self.connection).await.unwrap();
                return Ok(());
            };
            let check = self.gate.check(token)?.and("SET", BALANCE, [balance.to_string()]);
            let (seen, set): (u64, Option<String>) = self.run(&check).await.unwrap();
            let admitted = check.admit(seen);
            assert_eq!(set.is_some(), admitted.is_ok());
            admitted
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let fence = token.fence.to_string();
            let check = self.gate.check(token)?.and("RPUSH", HISTORY, [fence]);
            let (seen, _length): (u64, Option<u64>) = self.run(&check).await.unwrap();
            check.admit(seen)
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        Box::pin(async {
            let mut range = redis::cmd("LRANGE");
            range.arg(HISTORY).arg(0).arg(-1);
            range.query_async(&mut self.connection).await.unwrap()
        })
    }
}

fn site(server: &Server) -> Site {
    Site::new("redis", Place::Table, server.url())
}

#[tokio::test]
async fn a_stopped_holder_writes_late() {
    let server = Server::start();
    story::a_stopped_holder_writes_late(&site(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_writers_pass_in_order() {
    let server = Server::start();
    story::racing_writers_pass_in_order(&site(&server)).await;
}

#[tokio::test]
async fn a_check_with_its_writes_is_one_request() {
    let server = Server::start();
    let mut account = Redis::connect(&server.url()).await;
    account.prepare().await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    account.write(Some(&story::token(5)), 110).await.unwrap();
    account.write(Some(&story::token(4)), 120).await.unwrap_err();
    let stats = server.cli(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_eval:calls=2,"), "{stats}");
    assert_eq!(account.read(None).await.unwrap(), 110);
}

#[tokio::test]
async fn commands_run_in_order_and_fences_are_exact() {
    let server = Server::start();
    let mut account = Redis::connect(&server.url()).await;
    let highest = story::token((1 << 53) - 1);
    let check = account.gate.check(&highest).unwrap();
    let check = check
        .and("SET", "a", ["1"])
        .and("INCRBY", "a", ["41"])
        .and("GET", "a", [""; 0])
        .and("DEL", "missing", [""; 0]);
    let answer: (u64, String, u64, String, u64) = account.run(&check).await.unwrap();
    assert_eq!(answer, ((1 << 53) - 1, "OK".into(), 42, "42".into(), 0));
    let before = account.gate.check(&story::token((1 << 53) - 2)).unwrap().and("DEL", "a", [""; 0]);
    let answer: (u64, Option<u64>) = account.run(&before).await.unwrap();
    assert_eq!(answer, ((1 << 53) - 1, None));
    assert_eq!(before.admit(answer.0).unwrap_err().fence_seen(), Some(highest.fence));
    assert_eq!(server.cli(&["GET", "a"]), "42");
}

#[tokio::test]
async fn a_command_that_is_too_long_is_refused_before_anything_is_done() {
    let server = Server::start();
    let mut account = Redis::connect(&server.url()).await;
    let members = |count: usize| (0..count).map(|at| at.to_string()).collect::<Vec<_>>();
    let check = account.gate.check(&story::token(5)).unwrap();
    let check = check.and("SET", "first", ["x"]).and("SADD", "many", members(6999));
    let error = account.run::<(u64, Option<String>)>(&check).await.unwrap_err().to_string();
    assert!(error.contains("has 7001 words, at most 7000"), "{error}");
    assert_eq!(server.cli(&["EXISTS", "first", "many", "lockfast:gate:{account/7}"]), "0");
    let check = account.gate.check(&story::token(5)).unwrap().and("SADD", "many", members(6998));
    assert_eq!(account.run::<(u64, u64)>(&check).await.unwrap(), (5, 6998));
}

#[tokio::test]
async fn a_key_that_holds_no_fence_is_told() {
    let server = Server::start();
    let mut account = Redis::connect(&server.url()).await;
    let check = account.gate.check(&story::token(5)).unwrap().and("SET", BALANCE, ["1"]);
    for (set, part) in [
        (&["SET", "lockfast:gate:{account/7}", "5.5"][..], "holds something that is no fence"),
        (&["SET", "lockfast:gate:{account/7}", ""], "holds something that is no fence"),
        (&["LPUSH", "lockfast:gate:{account/7}", "5"], "WRONGTYPE"),
    ] {
        server.cli(&["DEL", "lockfast:gate:{account/7}"]);
        server.cli(set);
        let error = account.run::<(u64, Option<String>)>(&check).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(server.cli(&["EXISTS", BALANCE]), "0");
    }
}
