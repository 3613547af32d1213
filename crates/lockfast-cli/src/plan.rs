//! What was typed, checked and completed: the store, the lock's name, how it is asked for.
//! Nothing here does any I/O except reading the config file and the environment.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use lockfast::{HolderId, Label, LockName, Locker, LockerBuilder, Mode, Options};
use lockfast_core::Address;
use lockfast_core::address::percent_decode;
use lockfast_core::capability::{Expiry, Reach};
use lockfast_core::error::quote;

use crate::args::{Claim, Global};
use crate::choice::Choice;
use crate::duration;
use crate::exit::Failure;
use crate::output::Output;

/// The variable that names the store.
pub(crate) const URL_VARIABLE: &str = "LOCKFAST_URL";

/// The variable that a command under `run` has instead when that URL holds a password: the store's
/// fingerprint, so that nobody takes another store for it.
pub(crate) const WITHHELD_VARIABLE: &str = "LOCKFAST_URL_WITHHELD";

/// The shortest lease that can be asked for.
pub(crate) const TTL_MIN: Duration = Duration::from_millis(100);

/// Where the locks are.
pub(crate) struct Store {
    url: String,
    address: Address,
}

impl Store {
    /// The store of `--on`, the environment, the config file or the default, in this order.
    ///
    /// # Errors
    /// When the URL that counts cannot be read.
    pub(crate) fn choose(global: &Global, output: &Output) -> Result<Self, Failure> {
        let choice = Choice::make(global)?;
        let address = Address::parse(&choice.url)?;
        if choice.is_in_arguments() && holds_credentials(&choice.url) {
            output.warn(
                "the password in the store URL is visible to everybody who can list processes; \
                 put the URL into $LOCKFAST_URL or the config file",
            );
        }
        Ok(Self { url: choice.url, address })
    }

    /// The store at a URL that was checked before.
    pub(crate) fn at(url: String) -> Result<Self, Failure> {
        let address = Address::parse(&url)?;
        Ok(Self { url, address })
    }

    /// Where it is, without what could be a password.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The URL, which may hold a password.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Connects.
    ///
    /// # Errors
    /// When the store cannot be reached or does not understand its URL.
    ///
    /// # Cancel safety
    /// Safe: nothing is held yet.
    pub(crate) async fn connect(&self, builder: LockerBuilder) -> Result<Locker, Failure> {
        Ok(builder.connect(&self.url).await?)
    }

    /// Connects, and says so when the store reaches no other process.
    ///
    /// # Errors
    /// As [`Store::connect`].
    ///
    /// # Cancel safety
    /// Safe: nothing is held yet.
    pub(crate) async fn connect_for(
        &self,
        label: Label,
        output: &Output,
    ) -> Result<Locker, Failure> {
        let locker = self.connect(Locker::builder().label(label)).await?;
        if locker.profile().reach == Reach::Process {
            output.warn(&format!(
                "{} reaches this process only, so the lock keeps nobody else out",
                self.address
            ));
        }
        Ok(locker)
    }

    /// Connects in order to look, without making an embedded store that is not there: in one that is
    /// empty nothing is held, as in a new one of this process.
    ///
    /// # Errors
    /// As [`Store::connect`].
    ///
    /// # Cancel safety
    /// Safe: nothing is held yet.
    pub(crate) async fn connect_to_look(&self, output: &Output) -> Result<Locker, Failure> {
        if !self.is_missing() {
            return self.connect(Locker::builder()).await;
        }
        output.warn(&format!(
            "there is no store at {}; if the path is right, the first lock that is taken makes it",
            self.address
        ));
        Ok(Locker::connect("memory:").await?)
    }

    /// Whether this is an embedded store at a path where nothing is, and which is made on first use.
    pub(crate) fn is_missing(&self) -> bool {
        let path = percent_decode(self.address.body()).unwrap_or_default();
        // A path that is refused anyway is left to be refused, as is one that this user may not see.
        let is_odd = path.is_empty() || path.starts_with('~') || path.starts_with("//");
        let is_made_by_us =
            self.address.scheme() == "embedded" && self.address.option("group").is_none();
        let found = Path::new(&path).symlink_metadata();
        let is_absent = found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        is_made_by_us && !is_odd && is_absent
    }

    /// The same number for the same store, whatever way its URL is written; it tells nothing
    /// about credentials.
    pub(crate) fn fingerprint(&self, locker: &Locker) -> u64 {
        let directory = match &locker.profile().expiry {
            Expiry::ProcessDeath { witness } => {
                witness.parent().and_then(|directory| directory.canonicalize().ok())
            }
            _ => None,
        };
        match directory {
            Some(place) => fnv1a(&format!("{}:{}", self.address.scheme(), place.display())),
            None => fingerprint_of(&self.address),
        }
    }
}

/// The fingerprint of a store that is not a directory.
fn fingerprint_of(address: &Address) -> u64 {
    let body = address.body();
    let place = body.rsplit_once('@').map_or(body, |(_, host)| host).trim_start_matches('/');
    fnv1a(&format!("{}:{place}", address.scheme()))
}

/// The fingerprint of the store around us whose URL was kept from us, unless we were given another.
pub(crate) fn withheld(global: &Global) -> Option<u64> {
    let is_told = global.on.is_some() || global.config.is_some();
    if is_told || std::env::var_os(URL_VARIABLE).is_some() {
        return None;
    }
    let fingerprint = std::env::var_os(WITHHELD_VARIABLE)?;
    // One that cannot be read is that of no store, and still no leave to take another.
    Some(u64::from_str_radix(&fingerprint.to_string_lossy(), 16).unwrap_or(0))
}

/// What a command below us gets instead of a URL that holds a password, if ours does.
pub(crate) fn withhold() -> Option<(OsString, OsString)> {
    let url = std::env::var_os(URL_VARIABLE)?;
    let url = url.to_string_lossy();
    let fingerprint = || Address::parse(&url).map_or(0, |address| fingerprint_of(&address));
    holds_credentials(&url)
        .then(|| (WITHHELD_VARIABLE.into(), format!("{:016x}", fingerprint()).into()))
}

/// Whether a URL holds what could be a password.
pub(crate) fn holds_credentials(url: &str) -> bool {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let user = place.rsplit_once('@').is_some_and(|(before, _)| {
        before.split_once(':').is_some_and(|(_scheme, user)| user.contains(':'))
    });
    let option = query.split('&').filter_map(|pair| pair.split_once('=')).any(|(key, _)| {
        let key = key.to_ascii_lowercase();
        ["pass", "secret", "token", "credential"].iter().any(|word| key.contains(word))
    });
    user || option
}

/// FNV-1a: small, and the same in every build.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The lock's name.
///
/// # Errors
/// When it breaks a rule for names.
pub(crate) fn name(typed: &OsStr) -> Result<LockName, Failure> {
    Ok(LockName::new(text(typed, "the lock's name")?)?)
}

/// Text that was typed.
///
/// # Errors
/// When it is not UTF-8.
pub(crate) fn text<'a>(typed: &'a OsStr, what: &str) -> Result<&'a str, Failure> {
    std::str::from_utf8(typed.as_encoded_bytes()).map_err(|error| {
        Failure::usage(format!(
            "{what} {} is not valid UTF-8 at byte {}; use UTF-8 text",
            quote(&typed.to_string_lossy()),
            error.valid_up_to()
        ))
    })
}

/// A duration given for `flag`, not shorter than `least`.
///
/// # Errors
/// When it is not a duration.
pub(crate) fn span(flag: &str, typed: &OsStr, least: Duration) -> Result<Duration, Failure> {
    duration::parse(&typed.to_string_lossy(), least)
        .map_err(|flaw| Failure::usage(format!("{flag} {flaw}")))
}

/// A lease time.
///
/// # Errors
/// When it is not a duration, or too short.
pub(crate) fn ttl(typed: &OsStr) -> Result<Duration, Failure> {
    span("--ttl", typed, TTL_MIN)
}

/// How the lock is to be held.
///
/// # Errors
/// For zero permits.
pub(crate) fn mode(claim: &Claim) -> Result<Mode, Failure> {
    match claim.permits {
        Some(limit) => Ok(Mode::permit(limit)?),
        None if claim.shared => Ok(Mode::Shared),
        None => Ok(Mode::Exclusive),
    }
}

/// What people read about this process as a holder.
///
/// # Errors
/// When the text is too long or not printable.
pub(crate) fn label(claim: &Claim) -> Result<Label, Failure> {
    let label = Label::of_this_process();
    match &claim.label {
        Some(text) => Ok(label.with_os_text(text)?),
        None => Ok(label),
    }
}

/// How the lock is asked for and kept, without its times, which depend on the store.
///
/// # Errors
/// When a duration is not one.
pub(crate) fn options(claim: &Claim) -> Result<Options, Failure> {
    let mut options = Options::default();
    if claim.try_once {
        options = options.no_wait();
    } else if let Some(wait) = &claim.wait {
        if wait.as_encoded_bytes().starts_with(b"-") {
            return Err(Failure::usage(format!(
                "--wait {} is negative; use --try for no waiting, or for example --wait 5s",
                quote(&wait.to_string_lossy())
            )));
        }
        options = options.wait(span("--wait", wait, Duration::ZERO)?);
    }
    if let Some(delay) = &claim.lock_delay {
        options = options.lock_delay(span("--lock-delay", delay, Duration::ZERO)?);
    }
    Ok(options)
}

/// A variable for the command's environment.
///
/// # Errors
/// When it is not `NAME=VALUE`, or the name is not one.
pub(crate) fn variable(typed: &OsStr) -> Result<(OsString, OsString), Failure> {
    use std::os::unix::ffi::OsStrExt as _;
    let shown = || quote(&typed.to_string_lossy());
    let bytes = typed.as_bytes();
    let Some(at) = bytes.iter().position(|byte| *byte == b'=') else {
        return Err(Failure::usage(format!("--env {} has no =; write NAME=VALUE", shown())));
    };
    let (name, value) = (&bytes[..at], &bytes[at + 1..]);
    let well_formed = name.first().is_some_and(|byte| !byte.is_ascii_digit())
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if !well_formed {
        return Err(Failure::usage(format!(
            "--env {} has an invalid variable name; use letters, digits and _, not starting with \
             a digit",
            shown()
        )));
    }
    if name.starts_with(b"LOCKFAST_") {
        return Err(Failure::usage(format!(
            "--env {} would change a variable that Lockfast sets; use another name",
            shown()
        )));
    }
    Ok((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
}

/// A holder id that was typed, or with `-` stands on standard input.
///
/// # Errors
/// When it is not a holder id.
pub(crate) fn holder(typed: &OsStr) -> Result<HolderId, Failure> {
    Ok(HolderId::parse(&secret(typed, "holder id")?)?)
}

/// What was typed, or with `-` the first line of standard input, where no list of processes shows it.
///
/// # Errors
/// When it cannot be read there.
pub(crate) fn secret(typed: &OsStr, what: &str) -> Result<String, Failure> {
    const INPUT_MAX: u64 = 4096;
    if typed != "-" {
        return Ok(typed.to_string_lossy().into_owned());
    }
    let mut line = String::new();
    io::stdin()
        .take(INPUT_MAX)
        .read_to_string(&mut line)
        .map_err(|error| Failure::usage(format!("standard input has no {what}: {error}")))?;
    Ok(line.lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn names_that_are_not_text() {
        let failure = name(OsStr::from_bytes(b"abc\xff")).unwrap_err();
        assert!(failure.message().unwrap().contains("not valid UTF-8 at byte 3"));
        assert_eq!(failure.code(), 64);
    }

    #[test]
    fn variables() {
        for bad in ["1BAD=x", "=x", "A", "A-B=x", "LOCKFAST_FENCE=1", "é=1"] {
            assert_eq!(variable(OsStr::new(bad)).unwrap_err().code(), 64, "{bad}");
        }
        let (name, value) = variable(OsStr::from_bytes(b"_a1=\xff=y")).unwrap();
        assert_eq!((name.as_bytes(), value.as_bytes()), (&b"_a1"[..], &b"\xff=y"[..]));
    }

    #[test]
    fn credentials_are_seen() {
        for (url, holds) in [
            ("embedded:", false),
            ("embedded:/a@b", false),
            ("redis://h:6379", false),
            ("redis://user@h", false),
            ("redis://:pw@h", true),
            ("redis://u:p@w@h", true),
            ("postgres://h/db?password=x", true),
            ("etcd://h?auth_token=x", true),
        ] {
            assert_eq!(holds_credentials(url), holds, "{url}");
        }
    }
}
