//! The programs that a rig starts, looked for before anything is touched.

use std::io;
use std::path::PathBuf;

use lockfast_faults::zookeeper::java;
use lockfast_faults::{mysql, program};

/// A program that must be there.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its name.
    pub program: &'static str,
    /// What brings it.
    pub from: From,
}

/// What brings a program, and where it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A package of this name on Debian; in `PATH`.
    Package(&'static str),
    /// PostgreSQL; also where Debian keeps its versions.
    Postgres,
    /// Oracle's MySQL, not MariaDB's programs of the same names.
    Mysql,
    /// An archive of Java's classes, which a package of this name brings on Debian.
    Java(&'static str),
}

impl Need {
    /// Whether it is there.
    pub fn is_met(&self) -> bool {
        self.path().is_some()
    }

    fn path(&self) -> Option<PathBuf> {
        match self.from {
            From::Package(_) => program::locate(self.program),
            From::Postgres => program::locate_postgres(self.program),
            From::Mysql => mysql::locate(self.program),
            From::Java(_) => java::locate(self.program),
        }
    }

    /// How to get it.
    fn advice(&self) -> String {
        match self.from {
            From::Package(package) | From::Java(package) => {
                format!("install it, on Debian: apt-get install {package}")
            }
            From::Postgres => "install it, on Debian: apt-get install postgresql".to_owned(),
            From::Mysql => {
                "install Oracle's MySQL server from https://dev.mysql.com/downloads/, or \
                            run this from a clone of Lockfast after: cargo xtask setup"
                    .to_owned()
            }
        }
    }
}

/// Finds out whether all that a rig needs is there.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when a program is missing, with what it is for and how to get it.
pub(super) fn check(rig: &str, needs: &[Need]) -> io::Result<()> {
    match needs.iter().find(|need| !need.is_met()) {
        None => Ok(()),
        Some(need) => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "{} is not installed, and --with {rig} starts it; {}",
                need.program,
                need.advice()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_the_command_that_installs_it() {
        let need = Need { program: "no-such-server", from: From::Package("no-such-package") };
        let error = check("redis", &[need]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(
            error.to_string(),
            "no-such-server is not installed, and --with redis starts it; install it, on Debian: \
             apt-get install no-such-package"
        );
        check("redis", &[]).unwrap();
    }
}
