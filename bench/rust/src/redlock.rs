//! Locks on several independent Redis servers: with all well, one dead, and one late.

use std::time::Duration;

use anyhow::Result;
use lockfast_faults::proxy::{Link, Proxy};
use lockfast_faults::redis::Redis;
use lockfast_faults::server::Server as _;
use serde_json::Value;

use crate::samples::{ROUNDS, Samples};

const LATE: Duration = Duration::from_millis(200);
const TASKS: usize = 64;

/// Measures everything, round by round.
pub(crate) fn measure() -> Result<Value> {
    let mut servers = [(); 5].map(|()| Redis::start());
    let network =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let proxy = network.block_on(Proxy::start(servers[4].address()))?;
    let mut samples = Samples::default();
    for _ in 0..ROUNDS {
        for server in &servers {
            server.cli(&["FLUSHALL"]);
        }
        let single = servers[0].url();
        samples.cycle("single_1", ("lockfast", &single, 1), 1, || {})?;
        for (count, tasks) in [(3, 1), (5, 1), (5, TASKS)] {
            let url = url_of(&servers[..count]);
            for peer in ["lockfast", "rslock"] {
                let name = format!("{peer}_{count}_{tasks}");
                samples.cycle(&name, (peer, &url, 1), tasks, || {})?;
            }
        }
        let late = format!("{},{}", url_of(&servers[..4]), proxy.address());
        for (name, link) in [("through_proxy", Link::Pass), ("late", Link::Delay(LATE))] {
            samples.cycle(name, ("lockfast", &late, 1), 1, || proxy.set(link))?;
            proxy.set(Link::Pass);
        }
        let url = url_of(&servers);
        for tasks in [1, TASKS] {
            let dies = || servers[4].kill();
            samples.cycle(&format!("dead_{tasks}"), ("lockfast", &url, 1), tasks, dies)?;
            servers[4].restart();
        }
    }
    Ok(samples.into_value())
}

fn url_of(servers: &[Redis]) -> String {
    let hosts: Vec<String> = servers.iter().map(|server| server.address().to_string()).collect();
    format!("redlock://{}", hosts.join(","))
}
