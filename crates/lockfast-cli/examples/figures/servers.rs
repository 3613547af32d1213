//! The servers of the suite, one of each kind, as somebody would run them who relies on them: where
//! a store promises to keep data right, every commit is on disk before it is answered.

use std::any::Any;

use lockfast_faults::mysql::{self, Flavor};
use lockfast_faults::{etcd, postgres, redis, zookeeper};

/// A store that runs until this is dropped.
pub(crate) struct Started {
    pub(crate) url: String,
    _servers: Box<dyn Any>,
}

impl Started {
    fn new(url: String, servers: impl Any) -> Self {
        Self { url, _servers: Box::new(servers) }
    }
}

/// Starts the servers of the store of this name.
pub(crate) fn start(store: &str) -> Started {
    match store {
        "memory" => Started::new("memory:".into(), ()),
        "embedded" => {
            let directory = tempfile::tempdir().unwrap();
            Started::new(
                format!("embedded:{}", directory.path().join("store").display()),
                directory,
            )
        }
        "redis" => {
            let server = redis::Redis::start();
            Started::new(server.url(), server)
        }
        "redlock" => {
            let servers = [(); 3].map(|()| redis::Redis::start());
            let nodes = servers.each_ref().map(|server| server.address().to_string());
            Started::new(format!("redlock://{}", nodes.join(",")), servers)
        }
        "postgres" => start_postgres(""),
        "advisory" => start_postgres("?mode=advisory"),
        "mysql" => {
            let setup = mysql::Setup::new(Flavor::MariaDb).option("--max-connections=300");
            let server = setup.durable().start();
            Started::new(server.url(), server)
        }
        "etcd" => {
            let server = etcd::Setup::new().durable().start();
            Started::new(server.url(), server)
        }
        "zookeeper" => {
            let server = zookeeper::Setup::new().durable().optimized().start();
            Started::new(server.url(), server)
        }
        _ => panic!("there is no store {store:?}"),
    }
}

fn start_postgres(options: &str) -> Started {
    let server = postgres::Setup::new().set("max_connections", "300").durable().start();
    Started::new(server.url() + options, server)
}
