//! A Java program, as the server sees it: the statements that ShedLock 7 sends, with the server's time
//! and with the time of its own machine. Its session is as its driver leaves it.

use std::time::Duration;

use lockfast_core::time::wall_clock_us;
use mysql_async::prelude::Queryable as _;

use crate::kit::Mysql;
use crate::stage::NAME;

/// Whose time the program goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// `usingDbTime()`.
    Server,
    /// Its own clock in UTC, so far ahead.
    Client(Duration),
}

pub(crate) const TIMES: [Time; 2] = [Time::Server, Time::Client(Duration::ZERO)];

/// A program that runs on a host.
pub(crate) struct Java {
    conn: mysql_async::Conn,
    time: Time,
    host: &'static str,
}

const SERVER_NOW: &str = "UTC_TIMESTAMP(3)";

impl Java {
    pub(crate) async fn start(server: &Mysql, time: Time, host: &'static str) -> Self {
        let url = format!("mysql://locks:word@{}/lockfast", server.address());
        let options = mysql_async::Opts::from_url(&url).unwrap();
        // As its driver does.
        let options = mysql_async::OptsBuilder::from_opts(options).client_found_rows(true);
        let conn = mysql_async::Conn::new(options).await.unwrap();
        Self { conn, time, host }
    }

    /// What stands for a moment so far ahead.
    fn moment(&self, ahead: Duration) -> String {
        match self.time {
            Time::Server => {
                format!("TIMESTAMPADD(MICROSECOND, {}, {SERVER_NOW})", ahead.as_micros())
            }
            Time::Client(fast) => {
                let ahead_us = u64::try_from((ahead + fast).as_micros()).unwrap();
                // As a driver sends a parameter of milliseconds.
                let ms = (wall_clock_us() + ahead_us) / 1000;
                format!("TIMESTAMPADD(MICROSECOND, {ms}000, '1970-01-01')")
            }
        }
    }

    fn now(&self) -> String {
        match self.time {
            Time::Server => SERVER_NOW.to_owned(),
            Time::Client(_) => self.moment(Duration::ZERO),
        }
    }

    /// Whether it has changed a row; what says that the row is there, or that another one is changing
    /// it, has not.
    async fn run(&mut self, statement: &str) -> bool {
        match self.conn.query_drop(statement).await {
            Ok(()) => self.conn.affected_rows() > 0,
            Err(mysql_async::Error::Server(error)) if matches!(error.code, 1062 | 1205 | 1213) => {
                false
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn insert(&mut self, at_most: Duration) -> bool {
        let (until, now, host) = (self.moment(at_most), self.now(), self.host);
        let ignore = if self.time == Time::Server { "IGNORE " } else { "" };
        self.run(&format!(
            "INSERT {ignore}INTO shedlock(name, lock_until, locked_at, locked_by) \
             VALUES('{NAME}', {until}, {now}, '{host}')"
        ))
        .await
    }

    pub(crate) async fn update(&mut self, at_most: Duration) -> bool {
        let (until, now, host) = (self.moment(at_most), self.now(), self.host);
        self.run(&format!(
            "UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = '{host}' \
             WHERE name = '{NAME}' AND lock_until <= {now}"
        ))
        .await
    }

    /// Both, as it begins.
    pub(crate) async fn lock(&mut self, at_most: Duration) -> bool {
        self.insert(at_most).await || self.update(at_most).await
    }

    pub(crate) async fn extend(&mut self, at_most: Duration) -> bool {
        let (until, now, host) = (self.moment(at_most), self.now(), self.host);
        self.run(&format!(
            "UPDATE shedlock SET lock_until = {until} WHERE name = '{NAME}' AND locked_by = '{host}' \
             AND lock_until > {now}"
        ))
        .await
    }

    /// Ends a job that began `elapsed` ago.
    pub(crate) async fn unlock(&mut self, at_least: Duration, elapsed: Duration) -> bool {
        let (now, host) = (self.now(), self.host);
        let until = match self.time {
            Time::Server => {
                let least =
                    format!("TIMESTAMPADD(MICROSECOND, {}, locked_at)", at_least.as_micros());
                format!("IF ({least} > {now} , {least}, {now})")
            }
            Time::Client(_) => self.moment(at_least.saturating_sub(elapsed)),
        };
        self.run(&format!(
            "UPDATE shedlock SET lock_until = {until} WHERE name = '{NAME}' AND locked_by = '{host}'"
        ))
        .await
    }
}
