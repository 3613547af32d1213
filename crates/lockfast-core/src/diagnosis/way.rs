//! Who else is on the way to a server.

use super::Finding;

/// A connection, as far as others can listen in.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Whether it never leaves this machine.
    pub is_local: bool,
    /// Whether what goes through it is encrypted.
    pub is_encrypted: bool,
    /// Whether it is known who is at the other end.
    pub is_checked: bool,
}

impl Way {
    /// What that means (`encryption`), with what to do where it is not encrypted or not checked.
    pub fn judge(self, encrypt: &str, verify: &str) -> Finding {
        const CHECK: &str = "encryption";
        match self {
            Self { is_encrypted: true, is_checked: true, .. } => {
                Finding::ok(CHECK, "encrypted, and the certificate is checked")
            }
            Self { is_local: true, is_encrypted: true, .. } => {
                Finding::ok(CHECK, "encrypted, and the server is on this machine")
            }
            Self { is_local: true, .. } => {
                Finding::ok(CHECK, "not encrypted, and the server is on this machine")
            }
            Self { is_encrypted: true, .. } => Finding::warn(
                CHECK,
                "the connection is encrypted, but the certificate is not checked",
                "whoever is on the way can pretend to be the server and grant every lock",
                verify,
            ),
            Self { .. } => Finding::warn(
                CHECK,
                "the connection is not encrypted",
                "whoever is on the way reads passwords and the ids of holders, and can release locks",
                encrypt,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Severity;

    #[test]
    fn ways_to_a_server() {
        let table = [
            ((true, false, false), Severity::Ok, ""),
            ((true, true, false), Severity::Ok, ""),
            ((false, false, false), Severity::Warn, "encrypt"),
            ((false, true, false), Severity::Warn, "verify"),
            ((false, true, true), Severity::Ok, ""),
        ];
        for ((is_local, is_encrypted, is_checked), severity, fix) in table {
            let way = Way { is_local, is_encrypted, is_checked };
            let finding = way.judge("encrypt", "verify");
            assert_eq!((finding.severity, finding.fix.as_str()), (severity, fix), "{way:?}");
        }
    }
}
