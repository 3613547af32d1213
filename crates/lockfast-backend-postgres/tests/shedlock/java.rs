//! A Java program, as the server sees it.

use std::time::Duration;

use lockfast_core::time::wall_clock_us;

use crate::NAME;
use crate::kit::{Postgres, ROLE, session};

/// Whose time the program goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// `usingDbTime()`.
    Server,
    /// Its own clock in UTC, so far ahead.
    Client(Duration),
}

pub const TIMES: [Time; 2] = [Time::Server, Time::Client(Duration::ZERO)];

/// A program that runs on a host.
pub struct Java {
    client: tokio_postgres::Client,
    time: Time,
    host: &'static str,
}

const SERVER_NOW: &str = "timezone('utc', CURRENT_TIMESTAMP)";

impl Java {
    pub async fn start(postgres: &Postgres, time: Time, host: &'static str) -> Self {
        let client = session(postgres.address(), ROLE).await;
        Self { client, time, host }
    }

    /// What stands for a moment so far ahead.
    fn moment(&self, ahead: Duration) -> String {
        match self.time {
            Time::Server => {
                format!("{SERVER_NOW} + make_interval(secs => {})", ahead.as_secs_f64())
            }
            Time::Client(fast) => {
                let ahead_us = u64::try_from((ahead + fast).as_micros()).unwrap();
                // As a driver sends a parameter of milliseconds.
                let ms = (wall_clock_us() + ahead_us) / 1000;
                format!("timezone('utc', to_timestamp({ms} / 1000.0))")
            }
        }
    }

    fn now(&self) -> String {
        match self.time {
            Time::Server => SERVER_NOW.to_owned(),
            Time::Client(_) => self.moment(Duration::ZERO),
        }
    }

    async fn run(&self, statement: &str) -> bool {
        self.client.execute(statement, &[]).await.unwrap() > 0
    }

    /// Its insert, which also updates a row that is free.
    pub async fn insert(&self, at_most: Duration) -> bool {
        let (until, now, host) = (self.moment(at_most), self.now(), self.host);
        self.run(&format!(
            "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) \
             VALUES('{NAME}', {until}, {now}, '{host}') ON CONFLICT (name) DO UPDATE SET \
             lock_until = {until}, locked_at = {now}, locked_by = '{host}' \
             WHERE shedlock.name = '{NAME}' AND shedlock.lock_until <= {now}"
        ))
        .await
    }

    /// Its update, which it sends alone when it knows that there is a row.
    pub async fn update(&self, at_most: Duration) -> bool {
        let (until, now, host) = (self.moment(at_most), self.now(), self.host);
        self.run(&format!(
            "UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = '{host}' \
             WHERE name = '{NAME}' AND lock_until <= {now}"
        ))
        .await
    }

    /// Both, as it begins.
    pub async fn lock(&self, at_most: Duration) -> bool {
        self.insert(at_most).await || self.update(at_most).await
    }

    pub async fn extend(&self, at_most: Duration) -> bool {
        let (until, now, host) = (self.moment(at_most), self.now(), self.host);
        self.run(&format!(
            "UPDATE shedlock SET lock_until = {until} WHERE name = '{NAME}' AND locked_by = '{host}' \
             AND lock_until > {now}"
        ))
        .await
    }

    /// Ends a job that began `elapsed` ago.
    pub async fn unlock(&self, at_least: Duration, elapsed: Duration) -> bool {
        let (now, host) = (self.now(), self.host);
        let until = match self.time {
            Time::Server => {
                let least =
                    format!("locked_at + make_interval(secs => {})", at_least.as_secs_f64());
                format!("CASE WHEN {least} > {now} THEN {least} ELSE {now} END")
            }
            Time::Client(_) => self.moment(at_least.saturating_sub(elapsed)),
        };
        self.run(&format!(
            "UPDATE shedlock SET lock_until = {until} WHERE name = '{NAME}' AND locked_by = '{host}'"
        ))
        .await
    }
}
