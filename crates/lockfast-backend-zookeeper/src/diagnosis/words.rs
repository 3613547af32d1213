//! What a server answers to its commands of four letters.

use crate::config::Host;
use crate::wire::Dialer;

/// What a server that takes no command of this name says.
const FORBIDDEN: &str = "is not executed because it is not in the whitelist";
/// What a server says that has no quorum.
const NOT_SERVING: &str = "not currently serving requests";

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Said(String),
    /// The server is set up not to answer.
    Forbidden,
    /// Nobody answered: why.
    Failed(String),
}

/// The answers of one server.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) srvr: Answer,
    pub(super) mntr: Answer,
    pub(super) conf: Answer,
}

impl Words {
    pub(super) async fn ask(dialer: &Dialer, host: &Host) -> Self {
        let mut answers = Vec::new();
        for word in ["srvr", "mntr", "conf"] {
            // Whoever is silent once is not waited for again.
            let answer = match answers.first() {
                Some(Answer::Failed(reason)) => Answer::Failed(reason.clone()),
                _ => Answer::read(
                    dialer.ask_word(host, word).await.map_err(|failure| failure.to_error()),
                ),
            };
            answers.push(answer);
        }
        let mut answers = answers.into_iter();
        let mut next = || answers.next().unwrap_or(Answer::Forbidden);
        Self { srvr: next(), mntr: next(), conf: next() }
    }

    /// Whether it serves, as far as it tells.
    pub(super) fn is_serving(&self) -> bool {
        match &self.srvr {
            Answer::Said(text) => !text.contains(NOT_SERVING),
            Answer::Forbidden => true,
            Answer::Failed(_) => false,
        }
    }
}

impl Answer {
    fn read(said: Result<String, lockfast_core::Error>) -> Self {
        match said {
            Ok(text) if text.contains(FORBIDDEN) => Self::Forbidden,
            Ok(text) if text.trim().is_empty() => Self::Failed("it says nothing".to_owned()),
            Ok(text) => Self::Said(text),
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    /// What follows this at the start of a line.
    pub(super) fn value(&self, name: &str, separator: &str) -> Option<&str> {
        let Self::Said(text) = self else { return None };
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(separator))?;
        Some(value.trim())
    }

    /// A number of `mntr`.
    pub(super) fn count(&self, name: &str) -> Option<f64> {
        self.value(name, "\t")?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_apart() {
        let said = |text: &str| Answer::read(Ok(text.to_owned()));
        let words = "mntr is not executed because it is not in the whitelist.\n";
        assert_eq!(said(words), Answer::Forbidden);
        assert!(matches!(said("\n"), Answer::Failed(_)));
        let answer =
            said("zk_version\t3.8.0-abc\nzk_cnt_fsynctime\t12\nMode: leader\ndataDir=/a\n");
        assert_eq!(answer.count("zk_cnt_fsynctime"), Some(12.0));
        assert_eq!(answer.count("zk_version"), None);
        assert_eq!(answer.value("Mode", ": "), Some("leader"));
        assert_eq!(answer.value("dataDir", "="), Some("/a"));
        assert_eq!(answer.value("data", "="), None);
    }

    #[test]
    fn a_server_without_a_quorum_does_not_serve() {
        let words = |srvr: Answer| Words { srvr, mntr: Answer::Forbidden, conf: Answer::Forbidden };
        let idle = "This ZooKeeper instance is not currently serving requests\n".to_owned();
        assert!(!words(Answer::Said(idle)).is_serving());
        assert!(!words(Answer::Failed("x".to_owned())).is_serving());
        assert!(words(Answer::Said("Mode: leader\n".to_owned())).is_serving());
        assert!(words(Answer::Forbidden).is_serving());
    }
}
