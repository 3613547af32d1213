//! Files of one machine.

use std::fs;
use std::path::{Path, PathBuf};

use lockfast::fence::{FileGate, Passage};
use lockfast::{FencingToken, Result};
use lockfast_core::BoxFuture;

use crate::account::{Account, LOCK, START, Site};
use crate::sql::Place;
use crate::story;

pub(crate) struct Files {
    directory: PathBuf,
    gate: FileGate,
}

impl Files {
    pub(crate) fn in_directory(directory: &str) -> Self {
        let directory = Path::new(directory).to_owned();
        Self { gate: FileGate::new(LOCK, directory.join("fence")).unwrap(), directory }
    }

    fn pass(&self, token: Option<&FencingToken>) -> Result<Option<Passage<'_>>> {
        token.map(|token| self.gate.check(token)).transpose()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Account for Files {
    fn prepare(&mut self) -> BoxFuture<'_, ()> {
        fs::write(self.path("balance"), START.to_string()).unwrap();
        fs::write(self.path("history"), "").unwrap();
        Box::pin(async {})
    }

    fn read<'a>(&'a mut self, token: Option<&'a FencingToken>) -> BoxFuture<'a, Result<u64>> {
        let read = self
            .pass(token)
            .map(|_passage| fs::read_to_string(self.path("balance")).unwrap().parse().unwrap());
        Box::pin(async { read })
    }

    fn write<'a>(
        &'a mut self,
        token: Option<&'a FencingToken>,
        balance: u64,
    ) -> BoxFuture<'a, Result<()>> {
        let written = self.pass(token).map(|_passage| {
            fs::write(self.path("balance"), balance.to_string()).unwrap();
        });
        Box::pin(async { written })
    }

    fn append<'a>(&'a mut self, token: &'a FencingToken) -> BoxFuture<'a, Result<()>> {
        let appended = self.pass(Some(token)).map(|_passage| {
            // Two steps, which would lose a line if somebody else were inside.
            let history = fs::read_to_string(self.path("history")).unwrap();
            fs::write(self.path("history"), format!("{history}{}\n", token.fence)).unwrap();
        });
        Box::pin(async { appended })
    }

    fn history(&mut self) -> BoxFuture<'_, Vec<u64>> {
        let history = fs::read_to_string(self.path("history")).unwrap();
        Box::pin(async move { history.lines().map(|line| line.parse().unwrap()).collect() })
    }
}

fn site(directory: &Path) -> Site {
    Site::new("file", Place::Table, directory.display().to_string())
}

#[tokio::test]
async fn a_stopped_holder_writes_late() {
    let directory = tempfile::tempdir().unwrap();
    story::a_stopped_holder_writes_late(&site(directory.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn racing_writers_pass_in_order() {
    let directory = tempfile::tempdir().unwrap();
    story::racing_writers_pass_in_order(&site(directory.path())).await;
}
