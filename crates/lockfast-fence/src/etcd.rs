//! A gate before keys of etcd: one transaction that checks the fence and writes.
//!
//! The fence is the value of a key, in sixteen digits, so that etcd's comparison of values, which
//! goes byte by byte, is that of the numbers. The transaction asks whether that value is *greater*
//! than the fence: etcd says no also when there is no key yet. So its `then` refuses, and its `else`
//! writes.

use lockfast_core::{Error, ErrorKind, Fence, FencingToken, LockName, Result};

use crate::base64;
use crate::rule::{check_lock, judge};

/// A gate whose fence is a key of etcd.
///
/// Over the JSON gateway that every server has:
///
/// ```
/// use lockfast_core::{Fence, FencingToken, LockName};
/// use lockfast_fence::etcd::EtcdGate;
///
/// # fn main() -> lockfast_core::Result<()> {
/// # let token = FencingToken { lock: LockName::new("account/7")?, fence: Fence::new(41)? };
/// let gate = EtcdGate::new("account/7")?;
/// let check = gate.check(&token)?.put("balance/7", "110"); // with `guard.token()`
/// let body = check.to_json(); // POST it to /v3/kv/txn
/// # assert!(body.contains("GREATER"));
/// // Its answer: `succeeded`, and the value that was read if it did.
/// check.admit(false, None)?; // written
/// let refused = check.admit(true, Some(b"0000000000000042")).unwrap_err();
/// assert_eq!(refused.fence_seen(), Some(Fence::new(42)?));
/// # Ok(())
/// # }
/// ```
///
/// With the crate `etcd-client`:
///
/// ```text
/// let transaction = Txn::new()
///     .when([Compare::value(check.key(), CompareOp::Greater, check.value())])
///     .and_then([TxnOp::get(check.key(), None)])
///     .or_else([
///         TxnOp::put(check.key(), check.value(), None),
///         TxnOp::put("balance/7", "110", None),
///     ]);
/// let answer = client.txn(transaction).await?;
/// let seen = match answer.op_responses().first() {
///     Some(TxnOpResponse::Get(get)) => get.kvs().first().map(|kv| kv.value().to_vec()),
///     _ => None,
/// };
/// check.admit(answer.succeeded(), seen.as_deref())?;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdGate {
    lock: LockName,
    key: Vec<u8>,
}

impl EtcdGate {
    /// The gate of what this lock guards. Its key is `lockfast-fences/NAME/fence`.
    ///
    /// ```
    /// assert!(lockfast_fence::etcd::EtcdGate::new("account/7").is_ok());
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn new(lock: impl AsRef<str>) -> Result<Self> {
        let lock = LockName::new(lock)?;
        // Not a name that a claim of the lock could have.
        Ok(Self { key: format!("lockfast-fences/{lock}/fence").into_bytes(), lock })
    }

    /// The same with the fence in another key, which nothing else may write.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let gate = EtcdGate::new("a")?.with_key("app/fence")?;
    /// assert_eq!(gate.check(&token)?.key(), b"app/fence");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for an empty key.
    pub fn with_key(self, key: impl Into<Vec<u8>>) -> Result<Self> {
        let key = key.into();
        if key.is_empty() {
            let message = "the key of a gate is empty; name one that nothing else writes";
            return Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&self.lock));
        }
        Ok(Self { key, ..self })
    }

    /// The open step of a new holder, before it reads: an [`EtcdGate::check`] that writes nothing
    /// else.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let open = EtcdGate::new("a")?.open(&token)?;
    /// assert_eq!(open.value(), b"0000000000000041");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn open(&self, token: &FencingToken) -> Result<Check> {
        self.check(token)
    }

    /// The check of a token; give it what is to be written by [`Check::put`] and [`Check::delete`].
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = EtcdGate::new("a")?.check(&token)?.put("b", "1");
    /// assert_eq!(check.key(), b"lockfast-fences/a/fence");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn check(&self, token: &FencingToken) -> Result<Check> {
        check_lock(&self.lock, token)?;
        let value = format!("{:0DIGITS$}", token.fence.get()).into_bytes();
        Ok(Check { token: token.clone(), key: self.key.clone(), value, writes: Vec::new() })
    }
}

/// As many as the highest fence has.
const DIGITS: usize = 16;

/// One check: a transaction as data, and how its answer is read.
///
/// ```
/// # use lockfast_core::{Fence, FencingToken, LockName};
/// # use lockfast_fence::etcd::EtcdGate;
/// # fn main() -> lockfast_core::Result<()> {
/// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
/// let check = EtcdGate::new("a")?.check(&token)?.put("b", "1").delete("c");
/// assert!(check.to_json().contains("request_delete_range"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fence that is not checked protects nothing"]
pub struct Check {
    token: FencingToken,
    key: Vec<u8>,
    value: Vec<u8>,
    writes: Vec<Write>,
}

#[derive(Clone, Debug)]
enum Write {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

impl Check {
    /// Also puts this key if the fence passes.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = EtcdGate::new("a")?.check(&token)?.put("balance/7", "110");
    /// assert!(check.to_json().contains("YmFsYW5jZS83")); // balance/7
    /// # Ok(())
    /// # }
    /// ```
    pub fn put(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Put(key.into(), value.into()));
        self
    }

    /// Also deletes this key if the fence passes.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = EtcdGate::new("a")?.check(&token)?.delete("draft");
    /// assert!(check.to_json().contains("request_delete_range"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.writes.push(Write::Delete(key.into()));
        self
    }

    /// The key of the fence: what is compared, read in `then`, and put in `else`.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(EtcdGate::new("a")?.check(&token)?.key(), b"lockfast-fences/a/fence");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The fence as the value with which the key is compared (`GREATER`) and that is put in `else`.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(EtcdGate::new("a")?.check(&token)?.value(), b"0000000000000041");
    /// # Ok(())
    /// # }
    /// ```
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The whole transaction, for `/v3/kv/txn` of the JSON gateway.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let body = EtcdGate::new("a")?.check(&token)?.to_json();
    /// assert!(body.starts_with("{\"compare\":[{\"target\":\"VALUE\",\"result\":\"GREATER\""));
    /// # Ok(())
    /// # }
    /// ```
    pub fn to_json(&self) -> String {
        let (key, value) = (base64::string(&self.key), base64::string(&self.value));
        let mut writes = format!("{{\"request_put\":{{\"key\":{key},\"value\":{value}}}}}");
        for write in &self.writes {
            writes.push(',');
            writes.push_str(&match write {
                Write::Put(key, value) => {
                    let (key, value) = (base64::string(key), base64::string(value));
                    format!("{{\"request_put\":{{\"key\":{key},\"value\":{value}}}}}")
                }
                Write::Delete(key) => {
                    format!("{{\"request_delete_range\":{{\"key\":{}}}}}", base64::string(key))
                }
            });
        }
        format!(
            "{{\"compare\":[{{\"target\":\"VALUE\",\"result\":\"GREATER\",\"key\":{key},\
             \"value\":{value}}}],\"success\":[{{\"request_range\":{{\"key\":{key}}}}}],\
             \"failure\":[{writes}]}}"
        )
    }

    /// Reads the answer: whether the transaction `succeeded`, which means that the fence is stale
    /// and nothing was written, and the value that it read then.
    ///
    /// ```
    /// # use lockfast_core::{ErrorKind, Fence, FencingToken, LockName};
    /// # use lockfast_fence::etcd::EtcdGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = EtcdGate::new("a")?.check(&token)?;
    /// check.admit(false, None)?;
    /// let refused = check.admit(true, Some(b"0000000000000042")).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::StaleFence);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::StaleFence`] with the fence that was seen, [`ErrorKind::CorruptRecord`] when the
    /// key holds something that is no fence, or when the answer is not that of the transaction.
    pub fn admit(&self, succeeded: bool, seen: Option<&[u8]>) -> Result<()> {
        if !succeeded {
            return Ok(());
        }
        let text = seen.and_then(|seen| std::str::from_utf8(seen).ok());
        let fence = text.filter(|text| text.len() == DIGITS).and_then(|it| Fence::parse(it).ok());
        // Whatever it is, nothing was written.
        let refused = fence.map(|seen| judge(&self.token, seen));
        if let Some(Err(stale)) = refused {
            return Err(stale);
        }
        let message = format!(
            "nothing was written: key {} is to hold a later fence in {DIGITS} digits, and does not; \
             let nothing but the gate write it",
            String::from_utf8_lossy(&self.key)
        );
        Err(Error::new(ErrorKind::CorruptRecord, message).with_lock(&self.token.lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::tests::token;

    #[test]
    fn values_are_ordered_as_their_fences() {
        let gate = EtcdGate::new("a").unwrap();
        let value = |fence| gate.check(&token("a", fence)).unwrap().value().to_vec();
        let fences = [1, 9, 10, 1_794_772_800_000_000, Fence::LIMIT - 1];
        assert!(fences.map(value).is_sorted());
        assert!(fences.map(value).iter().all(|value| value.len() == DIGITS));
    }

    #[test]
    fn the_transaction_is_json() {
        let check = EtcdGate::new("a\"b").unwrap().check(&token("a\"b", 7)).unwrap();
        let body: serde_json::Value =
            serde_json::from_str(&check.put("k", "v").delete("d").to_json()).unwrap();
        assert_eq!(body["compare"][0]["result"], "GREATER");
        assert_eq!(body["failure"].as_array().unwrap().len(), 3);
        assert_eq!(body["failure"][2]["request_delete_range"]["key"], "ZA==");
    }

    #[test]
    fn what_is_no_fence_is_told() {
        let gate = EtcdGate::new("a").unwrap();
        let check = gate.check(&token("a", 41)).unwrap();
        check.admit(false, Some(b"x")).unwrap();
        for seen in [None, Some(&b"42"[..]), Some(b"\xff"), Some(b"zzzzzzzzzzzzzzzz")] {
            assert_eq!(check.admit(true, seen).unwrap_err().kind(), ErrorKind::CorruptRecord);
        }
        assert_eq!(gate.check(&token("b", 1)).unwrap_err().kind(), ErrorKind::DifferentLock);
        assert_eq!(gate.with_key("").unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}
