//! Certificates for servers with TLS, made anew for every test.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::program;

/// When certificates are good, as `openssl ca` is told.
const PRESENT: &str = "-days 2";
const PAST: &str = "-startdate 20200101000000Z -enddate 20200102000000Z";

/// What is wrong with a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    None,
    /// Its time is over.
    Expired,
    /// It belongs to another host.
    WrongName,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The file of the certificate.
    pub certificate: PathBuf,
    /// The file of its key.
    pub key: PathBuf,
}

/// An authority that signs certificates, in a directory of its own.
#[derive(Debug)]
pub struct Authority {
    directory: TempDir,
    ca: Pair,
}

impl Authority {
    /// An authority that nobody has heard of yet.
    #[allow(clippy::new_without_default, reason = "it starts a program")]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = pair(directory.path(), "ca");
        // Two authorities of one name would be taken for one with a wrong key.
        let unique = directory.path().file_name().unwrap().display();
        openssl(&[
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2",
            &format!("-subj /CN=authority-{unique}"),
            "-addext basicConstraints=critical,CA:TRUE",
            "-addext keyUsage=critical,keyCertSign,cRLSign",
            &format!("-keyout {} -out {}", ca.key.display(), ca.certificate.display()),
        ]);
        Self { directory, ca }
    }

    /// The file that clients trust.
    pub fn certificate(&self) -> &Path {
        &self.ca.certificate
    }

    /// A certificate for a server on 127.0.0.1, with a flaw.
    pub fn sign_server(&self, flaw: Flaw) -> Pair {
        let names = match flaw {
            Flaw::WrongName => "DNS:elsewhere.invalid",
            Flaw::None | Flaw::Expired => "IP:127.0.0.1,DNS:localhost",
        };
        let times = if flaw == Flaw::Expired { PAST } else { PRESENT };
        self.sign(&format!("server-{flaw:?}"), names, "serverAuth,clientAuth", times)
    }

    /// A certificate that a client shows.
    pub fn sign_client(&self) -> Pair {
        self.sign("client", "DNS:client.invalid", "clientAuth", PRESENT)
    }

    fn sign(&self, name: &str, subject_names: &str, usage: &str, times: &str) -> Pair {
        let directory = self.directory.path();
        let signed = pair(directory, name);
        let request = directory.join(format!("{name}.csr"));
        let configuration = directory.join(format!("{name}.conf"));
        // Only `openssl ca` can sign for a time in the past, and it wants a database.
        let database = directory.join(format!("{name}.index"));
        let lines = format!(
            "[ca]\ndefault_ca=own\n[own]\ndatabase={database}\nnew_certs_dir={directory}\n\
             rand_serial=yes\ndefault_md=sha256\npolicy=any\nx509_extensions=leaf\n\
             [any]\ncommonName=supplied\n[leaf]\nbasicConstraints=critical,CA:FALSE\n\
             subjectAltName={subject_names}\nextendedKeyUsage={usage}\n",
            database = database.display(),
            directory = directory.display(),
        );
        std::fs::write(&configuration, lines).unwrap();
        std::fs::write(&database, "").unwrap();
        openssl(&[
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes",
            &format!("-subj /CN={name}"),
            &format!("-keyout {} -out {}", signed.key.display(), request.display()),
        ]);
        openssl(&[
            &format!("ca -batch -notext -config {} {times}", configuration.display()),
            &format!("-cert {} -keyfile {}", self.ca.certificate.display(), self.ca.key.display()),
            &format!("-in {} -out {}", request.display(), signed.certificate.display()),
        ]);
        signed
    }
}

fn pair(directory: &Path, name: &str) -> Pair {
    Pair {
        certificate: directory.join(format!("{name}.pem")),
        key: directory.join(format!("{name}.key")),
    }
}

/// Runs openssl; none of the arguments here has a space in it.
fn openssl(arguments: &[&str]) {
    let words = arguments.iter().flat_map(|part| part.split(' '));
    program::run_well(Command::new(program::find("openssl")).args(words));
}
