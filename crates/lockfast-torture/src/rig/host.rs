//! One server that can be broken, whatever it is: killed, ended, paused, and with a wall clock that
//! steps.

use std::io;
use std::thread;
use std::time::Duration;

use lockfast_core::Moment;
use lockfast_faults::server::Server;

use super::{Planned, Rig};

/// A server's clock is never further behind than this: Redlock refuses a node whose clock is a
/// minute away.
const BEHIND_MAX: Duration = Duration::from_secs(50);

/// A server and by how much its clock is behind.
#[derive(Debug)]
pub(super) struct Host<S> {
    pub(super) server: S,
    pub(super) behind: Duration,
    ttl: Duration,
    /// When its clock was stepped, and by how much.
    stepped: Option<(Moment, Duration)>,
}

impl<S: Server> Host<S> {
    pub(super) fn new(server: S, ttl: Duration) -> Self {
        Self { server, behind: Duration::ZERO, ttl, stepped: None }
    }

    /// Begins a fault that any server can have.
    pub(super) fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        match planned.fault.name {
            "server-kill" => self.server.kill(),
            "server-restart" => self.server.shut_down(),
            "server-pause" => self.server.pause(),
            "server-clock" => self.step_back(planned.chance),
            _ => return Err(unknown(planned)),
        }
        Ok(())
    }

    /// Ends it.
    pub(super) fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        match planned.fault.name {
            "server-kill" | "server-restart" => self.server.restart(),
            "server-pause" => self.server.resume(),
            "server-clock" => self.outwait_step(),
            _ => return Err(unknown(planned)),
        }
        Ok(())
    }

    /// Steps the clock back by something between a quarter of the ttl and one and a half. It never
    /// steps ahead again: leases would end before their holders know.
    fn step_back(&mut self, chance: u64) {
        let step = self.ttl.mul_f64(0.25 + 1.25 * (chance % 1_000) as f64 / 1_000.0);
        let step = step.min(BEHIND_MAX.saturating_sub(self.behind));
        self.behind += step;
        self.server.clock().step_back(self.behind);
        self.stepped = Some((Moment::now(), step));
    }

    /// Waits until the leases that last longer by the step would have ended without it.
    fn outwait_step(&mut self) {
        if let Some((at, step)) = self.stepped.take() {
            thread::sleep((at + step).remaining(Moment::now()));
        }
    }
}

/// A rig of one server, which clients reach at the same URL for as long as it runs.
#[derive(Debug)]
pub(super) struct Single<S> {
    host: Host<S>,
    url: String,
}

impl<S: Server> Single<S> {
    pub(super) fn new(server: S, url: String, ttl: Duration) -> Self {
        Self { host: Host::new(server, ttl), url }
    }
}

impl<S: Server> Rig for Single<S> {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        self.host.begin(planned)
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        self.host.heal(planned)
    }
}

/// A fault that is not of this rig.
pub(super) fn unknown(planned: &Planned) -> io::Error {
    let message = format!("{} cannot be done to these servers", planned.fault.name);
    io::Error::new(io::ErrorKind::Unsupported, message)
}
