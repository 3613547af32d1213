//! etcd, through its JSON gateway.

use lockfast::fence::etcd::{Check, EtcdGate};
use lockfast::{ErrorKind, FencingToken, Result};
use lockfast_core::BoxFuture;
use lockfast_faults::etcd::Etcd as Server;
use serde_json::{Value, json};

use crate::account::{Account, LOCK, START, Site};
use crate::exchange::ask;
use crate::sql::Place;
use crate::story;

pub(crate) struct Etcd {
    server: String,
    gate: EtcdGate,
    appended: usize,
}

impl Etcd {
    pub(crate) fn at(server: &str) -> Self {
        Self { server: server.to_owned(), gate: EtcdGate::new(LOCK).unwrap(), appended: 0 }
    }

    fn post(&self, path: &str, body: &str) -> Value {
        let answer = ask(&self.server, "POST", path, &[], body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }

    fn run(&self, check: &Check) -> Result<()> {
        let answer = self.post("/v3/kv/txn", &check.to_json());
        let seen = &answer["responses"][0]["response_range"]["kvs"][0]["value"];
        let seen = seen.as_str().map(decode);
        check.admit(answer["succeeded"] == true, seen.as_deref())
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let answer = self.post("/v3/kv/range", &json!({ "key": encode(key) }).to_string());
        answer["kvs"][0]["value"].as_str().map(decode)
    }
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base 64, as the gateway has bytes.
fn encode(text: &str) -> String {
    let bits: Vec<u8> =
        text.bytes().flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1)).collect();
    let digits = bits.chunks(6).map(|chunk| {
        let value = (0..6).fold(0, |value, at| value << 1 | chunk.get(at).copied().unwrap_or(0));
        char::from(DIGITS[usize::from(value)])
    });
    let mut text: String = digits.collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

fn decode(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter(|byte| *byte != b'=');
    let bits: Vec<u8> = digits
        .map(|byte| DIGITS.iter().position(|digit| *digit == byte).unwrap())
        .flat_map(|value| (0..6).rev().map(move |at| (value >> at & 1) as u8))
        .collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |value, bit| value << 1 | bit)).collect()
}

impl Account for Etcd {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.write(None, START).await.unwrap() })
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            if let Some(token) = token {
                self.run(&self.gate.open(token)?)?;
            }
            let balance = String::from_utf8(self.get("balance").unwrap()).unwrap();
            Ok(balance.parse().unwrap())
        })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let balance = balance.to_string();
            let Some(token) = token else {
                let put = json!({ "key": encode("balance"), "value": encode(&balance) });
                self.post("/v3/kv/put", &put.to_string());
                return Ok(());
            };
            self.run(&self.gate.check(token)?.put("balance", balance))
        })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.appended += 1;
            let fence = token.fence;
            let key = format!("history/{fence}/{}", self.appended);
            self.run(&self.gate.check(token)?.put(key, fence.to_string()))
        })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        Box::pin(async {
            let range = json!({
                "key": encode("history/"), "range_end": encode("history0"),
                "sort_target": "MOD", "sort_order": "ASCEND",
            });
            let answer = self.post("/v3/kv/range", &range.to_string());
            let fences = answer["kvs"].as_array().unwrap().iter().map(|entry| {
                let fence = decode(entry["value"].as_str().unwrap());
                String::from_utf8(fence).unwrap().parse().unwrap()
            });
            fences.collect()
        })
    }
}

fn site(server: &Server) -> Site {
    Site::new("etcd", Place::Table, server.address().to_string())
}

#[tokio::test]
async fn a_stopped_holder_writes_late() {
    let server = Server::start();
    story::a_stopped_holder_writes_late(&site(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writers_pass_in_order() {
    let server = Server::start();
    story::racing_writers_pass_in_order(&site(&server)).await;
}

#[tokio::test]
async fn what_is_written_with_a_check_is_written_with_it_only() {
    let server = Server::start();
    let account = Etcd::at(&server.address().to_string());
    let check = |fence| account.gate.check(&story::token(fence)).unwrap();
    account.run(&check(5).put("a", "1").put("b", "\u{1}é")).unwrap();
    account.run(&check(5).delete("a")).unwrap();
    assert_eq!((account.get("a"), account.get("b")), (None, Some("\u{1}é".into())));
    let error = account.run(&check(4).put("a", "2").delete("b")).unwrap_err();
    assert_eq!(error.fence_seen().unwrap().get(), 5);
    assert_eq!((account.get("a"), account.get("b")), (None, Some("\u{1}é".into())));
    // What something else wrote over the fence lets nothing through.
    server.ctl(&["put", "--", "lockfast-fences/account/7/fence", "rubbish"]);
    let error = account.run(&check(6).put("a", "3")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CorruptRecord, "{error}");
    assert_eq!(account.get("a"), None);
}
