//! Programs that do not use Lockfast: sessions of a driver that call the procedures.

use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Opts};

/// Who the client of this number is: the client, which others may know, and its secret.
pub fn who(number: u8) -> String {
    format!("{}{}", client(number), "5EC2E7".repeat(4).get(..20).unwrap())
}

/// A client as others know it.
pub fn client(number: u8) -> String {
    format!("F0000000AA{number:02X}")
}

/// A holder of a client.
pub fn holder(number: u8, claim: u8) -> String {
    format!("{}{claim:020X}", client(number))
}

/// A session that has introduced itself. Nobody acts for it, so a client that waits with it and does
/// nothing is one that hangs.
#[derive(Debug)]
pub struct Session {
    pub conn: Conn,
    pub who: String,
    number: u8,
}

impl Session {
    /// Connects and introduces the client of this number.
    pub async fn open(url: &str, number: u8) -> Self {
        let mut conn = Conn::new(Opts::from_url(url).unwrap()).await.unwrap();
        let who = who(number);
        conn.query_drop(format!("CALL lockfast_enrol('{who}', 'script', 'h', 7, '')"))
            .await
            .unwrap();
        Self { conn, who, number }
    }

    /// Takes a lock as the client's first holder, and returns what was said without its number.
    pub async fn take(&mut self, name: &str, mode: i64, ttl: Duration, may_wait: bool) -> String {
        self.try_take(name, mode, ttl, may_wait).await.unwrap()
    }

    /// The same, which may fail.
    pub async fn try_take(
        &mut self,
        name: &str,
        mode: i64,
        ttl: Duration,
        may_wait: bool,
    ) -> mysql_async::Result<String> {
        self.try_take_as(holder(self.number, 1), name, mode, ttl, may_wait).await
    }

    /// The same as any holder.
    pub async fn take_as(
        &mut self,
        holder: String,
        name: &str,
        mode: i64,
        ttl: Duration,
        may_wait: bool,
    ) -> String {
        self.try_take_as(holder, name, mode, ttl, may_wait).await.unwrap()
    }

    async fn try_take_as(
        &mut self,
        holder: String,
        name: &str,
        mode: i64,
        ttl: Duration,
        may_wait: bool,
    ) -> mysql_async::Result<String> {
        let call = format!(
            "CALL lockfast_take('{}', '{name}', '{holder}', {mode}, {}, 0, 0, {})",
            self.who,
            ttl.as_micros(),
            u8::from(may_wait)
        );
        self.say(&call).await
    }

    /// Gives a lock back that the client's first holder has; whether it had it.
    pub async fn give(&mut self, name: &str) -> String {
        let holder = holder(self.number, 1);
        self.say(&format!("CALL lockfast_give('{}', '{name}', '{holder}')", self.who))
            .await
            .unwrap()
    }

    /// Asks to have a lock as a reader that the client's first holder has as a writer.
    pub async fn downgrade(&mut self, name: &str) -> String {
        let holder = holder(self.number, 1);
        self.say(&format!("CALL lockfast_downgrade('{}', '{name}', '{holder}')", self.who))
            .await
            .unwrap()
    }

    /// The second column of the answer, without its number.
    async fn say(&mut self, call: &str) -> mysql_async::Result<String> {
        let row: Option<(u64, String, String, u64)> = self.conn.query_first(call).await?;
        let said = row.unwrap().1;
        Ok(said.trim_end().split_once('\t').unwrap().1.to_owned())
    }
}
