//! The embedded store in a directory of its own: no server, so nothing to break but its clients.

use std::io;

use super::host::unknown;
use super::{Planned, Rig, RigOptions, Row};

pub(super) const ROW: Row = Row {
    name: "embedded",
    about: "the embedded store in a directory of its own",
    schemes: &["embedded"],
    needs: &[],
    servers: 0,
    proxied: false,
    faults: &[],
    start,
};

#[derive(Debug)]
struct Embedded {
    url: String,
}

fn start(options: &RigOptions) -> io::Result<Box<dyn Rig>> {
    let store = options.directory.join("store");
    Ok(Box::new(Embedded { url: format!("embedded:{}", store.display()) }))
}

impl Rig for Embedded {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn begin(&mut self, planned: &Planned) -> io::Result<()> {
        Err(unknown(planned))
    }

    fn heal(&mut self, planned: &Planned) -> io::Result<()> {
        Err(unknown(planned))
    }
}
