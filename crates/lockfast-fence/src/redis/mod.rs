//! A gate before keys of Redis: one script that checks the fence and writes.
//!
//! A check alone would leave a gap before the write. So the commands that write are given to the
//! check, and the server runs them in the same step, or none of them.
//!
//! The gate forgets with the server: when it restarts without its data, or when the key is evicted.
//! On a Cluster all keys of a check must be in one slot, by a hash tag.

use lockfast_core::{Error, ErrorKind, FencingToken, LockName, Result};

use crate::rule::{check_lock, judge_raised};

/// A gate whose fence is a key of Redis.
///
/// ```no_run
/// use lockfast::Guard;
/// use lockfast::fence::redis::RedisGate;
///
/// async fn set_balance(
///     connection: &mut impl redis::aio::ConnectionLike,
///     guard: &Guard,
/// ) -> Result<(), Box<dyn std::error::Error>> {
///     let gate = RedisGate::new("account/7")?;
///     let check = gate.check(&guard.token())?.and("SET", "balance:{account/7}", ["110"]);
///     let (seen, _set): (u64, Option<String>) = redis::cmd("EVAL")
///         .arg(check.script())
///         .arg(check.keys().len())
///         .arg(check.keys())
///         .arg(check.arguments())
///         .query_async(connection)
///         .await?;
///     Ok(check.admit(seen)?) // refused: nothing was written
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisGate {
    lock: LockName,
    key: String,
}

impl RedisGate {
    /// The gate of what this lock guards. Its key is `lockfast:gate:{NAME}`, so that keys with the
    /// hash tag `{NAME}` are in the same slot of a Cluster.
    ///
    /// ```
    /// # use lockfast_fence::redis::RedisGate;
    /// assert!(RedisGate::new("account/7").is_ok());
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`].
    pub fn new(lock: impl AsRef<str>) -> Result<Self> {
        let lock = LockName::new(lock)?;
        Ok(Self { key: format!("lockfast:gate:{{{lock}}}"), lock })
    }

    /// The same with the fence in another key, which nothing else may write.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let gate = RedisGate::new("a")?.with_key("fence:{account}")?;
    /// assert_eq!(gate.check(&token)?.keys(), ["fence:{account}"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidConfig`] for an empty key.
    pub fn with_key(self, key: impl Into<String>) -> Result<Self> {
        let key = key.into();
        if key.is_empty() {
            let message = "the key of a gate is empty; name one that nothing else writes";
            return Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&self.lock));
        }
        Ok(Self { key, ..self })
    }

    /// The open step of a new holder, before it reads: a [`RedisGate::check`] without commands.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let open = RedisGate::new("a")?.open(&token)?;
    /// assert_eq!(open.arguments(), [b"41".to_vec()]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn open(&self, token: &FencingToken) -> Result<Check> {
        self.check(token)
    }

    /// The check of a token; give it the commands that write by [`Check::and`].
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = RedisGate::new("a")?.check(&token)?.and("DEL", "{a}:draft", [""; 0]);
    /// assert_eq!(check.keys(), ["lockfast:gate:{a}", "{a}:draft"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::DifferentLock`] for the fence of another lock.
    pub fn check(&self, token: &FencingToken) -> Result<Check> {
        check_lock(&self.lock, token)?;
        Ok(Check {
            keys: vec![self.key.clone()],
            arguments: vec![token.fence.to_string().into_bytes()],
            token: token.clone(),
        })
    }
}

/// One check: a script, its keys and arguments, and how its answer is read.
///
/// ```
/// # use lockfast_core::{Fence, FencingToken, LockName};
/// # use lockfast_fence::redis::RedisGate;
/// # fn main() -> lockfast_core::Result<()> {
/// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
/// let check = RedisGate::new("a")?.check(&token)?;
/// check.admit(41)?;
/// assert_eq!(check.admit(42).unwrap_err().fence_seen(), Some(Fence::new(42)?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a fence that is not checked protects nothing"]
pub struct Check {
    token: FencingToken,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Check {
    /// Adds a command that the server runs if the fence passes: its name, its key, and what follows
    /// the key. A command that fails ends the script; those before it stay done, as always in Redis.
    /// One of more than 7000 words is refused by the script before anything is done.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let gate = RedisGate::new("a")?;
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = gate
    ///     .check(&token)?
    ///     .and("HSET", "{a}:account", ["balance", "110"])
    ///     .and("INCR", "{a}:writes", [""; 0]);
    /// assert_eq!(check.keys().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn and<A: AsRef<[u8]>>(
        mut self,
        command: &str,
        key: impl Into<String>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let key = key.into();
        let mut words = vec![command.as_bytes().to_vec(), key.clone().into_bytes()];
        words.extend(arguments.into_iter().map(|argument| argument.as_ref().to_vec()));
        self.arguments.push(words.len().to_string().into_bytes());
        self.arguments.extend(words);
        self.keys.push(key);
        self
    }

    /// The script, for EVAL, or for SCRIPT LOAD and EVALSHA. It is the same for every check.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let script = RedisGate::new("a")?.check(&token)?.script();
    /// assert!(script.contains("redis.call('GET', KEYS[1])"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn script(&self) -> &'static str {
        include_str!("check.lua")
    }

    /// Its keys: the gate's, and that of each command.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// assert_eq!(RedisGate::new("a")?.check(&token)?.keys(), ["lockfast:gate:{a}"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Its arguments: the fence, and the words of each command after their number.
    ///
    /// ```
    /// # use lockfast_core::{Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let check = RedisGate::new("a")?.check(&token)?.and("DEL", "b", [""; 0]);
    /// let words: Vec<&[u8]> = check.arguments().iter().map(|word| word.as_slice()).collect();
    /// assert_eq!(words, [&b"41"[..], b"2", b"DEL", b"b"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn arguments(&self) -> &[Vec<u8>] {
        &self.arguments
    }

    /// Reads the first element of the answer; the others are what the commands answered, or nil
    /// when the fence is stale.
    ///
    /// ```
    /// # use lockfast_core::{ErrorKind, Fence, FencingToken, LockName};
    /// # use lockfast_fence::redis::RedisGate;
    /// # fn main() -> lockfast_core::Result<()> {
    /// # let token = FencingToken { lock: LockName::new("a")?, fence: Fence::new(41)? };
    /// let refused = RedisGate::new("a")?.check(&token)?.admit(42).unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::StaleFence);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::StaleFence`] with the fence that was seen: no command was run.
    /// [`ErrorKind::CorruptRecord`] for an answer that the script does not give.
    pub fn admit(&self, seen: u64) -> Result<()> {
        judge_raised(&self.token, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::tests::token;

    #[test]
    fn mistakes_are_told_before_anything_is_sent() {
        let gate = RedisGate::new("a").unwrap();
        assert_eq!(gate.check(&token("b", 1)).unwrap_err().kind(), ErrorKind::DifferentLock);
        assert_eq!(gate.with_key("").unwrap_err().kind(), ErrorKind::InvalidConfig);
        assert_eq!(RedisGate::new("a\nb").unwrap_err().kind(), ErrorKind::InvalidName);
    }
}
