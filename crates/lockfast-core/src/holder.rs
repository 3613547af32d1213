//! Who holds a lock: the secret id that the store compares, and the label that people read.

use std::fmt;

use crate::error::{Error, ErrorKind, Result, is_printable, printable, quote};

/// One connection to a store, as the store sees it: the first 48 bits of every holder id that it
/// makes, so that what belongs to the whole process (its label, its liveness) is stored once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId([u8; 6]);

impl ClientId {
    /// A new random client id.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the operating system has no random numbers.
    pub fn random() -> Result<Self> {
        Ok(Self(random_bytes()?))
    }

    /// The bytes that start every holder id of this client.
    pub fn as_bytes(&self) -> &[u8; 6] {
        &self.0
    }

    /// The client of stored bytes.
    pub fn from_bytes(bytes: [u8; 6]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// The identity of one acquisition: 128 bits, made anew for each. Whoever knows it can renew and
/// release the lock, so it is a secret: `Debug` shows only the client's part, and no listing
/// contains it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HolderId([u8; 16]);

impl HolderId {
    /// A new id of `client`, with 80 random bits of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] when the operating system has no random numbers.
    pub fn random(client: ClientId) -> Result<Self> {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&client.0);
        bytes[6..].copy_from_slice(&random_bytes::<10>()?);
        Ok(Self(bytes))
    }

    /// Reads the 32 hexadecimal digits that [`HolderId::to_hex`] wrote.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidHolder`] for anything else.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || {
            Error::new(
                ErrorKind::InvalidHolder,
                format!(
                    "a holder id is 32 hexadecimal digits as printed by acquire; given were {} \
                     characters",
                    text.chars().count()
                ),
            )
        };
        if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(invalid());
        }
        let mut bytes = [0; 16];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| invalid())?;
        }
        Ok(Self(bytes))
    }

    /// The whole secret in hexadecimal, for the store and for whoever asked to be told.
    pub fn to_hex(self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(32);
        for byte in self.0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// The client that made this id.
    pub fn client(&self) -> ClientId {
        let mut client = [0; 6];
        client.copy_from_slice(&self.0[..6]);
        ClientId(client)
    }

    /// The id as stored.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The id of stored bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HolderId({}…)", self.client())
    }
}

fn random_bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| {
        Error::new(ErrorKind::Internal, "the operating system gave no random numbers")
            .with_source(std::io::Error::other(error.to_string()))
    })?;
    Ok(bytes)
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// What people see of a holder: which program, on which host, with which pid, and free text.
///
/// ```
/// use lockfast_core::Label;
///
/// # fn main() -> lockfast_core::Result<()> {
/// let label = Label::of_this_process().with_text("nightly")?;
/// assert!(label.to_string().ends_with("“nightly”"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Label {
    /// The program's file name.
    pub program: String,
    /// The host's name.
    pub host: String,
    /// The process id.
    pub pid: u32,
    /// Whatever the caller wants people to read.
    pub text: Option<String>,
}

impl Label {
    /// The longest free text, in bytes.
    pub const TEXT_BYTES_MAX: usize = 128;

    /// The label of a program, as it is stored or sent.
    pub fn new(program: String, host: String, pid: u32) -> Self {
        Self { program, host, pid, text: None }
    }

    /// The same with the free text that was stored. It is shown escaped, so it need not be checked.
    #[must_use]
    pub fn with_stored_text(self, text: Option<String>) -> Self {
        Self { text, ..self }
    }

    /// The label of this process.
    pub fn of_this_process() -> Self {
        let program = std::env::args_os()
            .next()
            .as_deref()
            .and_then(|path| std::path::Path::new(path).file_name())
            .map_or_else(|| "unknown".into(), |name| name.to_string_lossy().into_owned());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self {
            program: printable(&cut(&program)).into_owned(),
            host: printable(&cut(&host)).into_owned(),
            pid: std::process::id(),
            text: None,
        }
    }

    /// Adds free text.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMetadata`] when it is longer than [`Label::TEXT_BYTES_MAX`] or holds
    /// control, bidirectional or invisible characters.
    pub fn with_text(mut self, text: &str) -> Result<Self> {
        let flaw = if text.len() > Self::TEXT_BYTES_MAX {
            format!("it has {} bytes, at most {}", text.len(), Self::TEXT_BYTES_MAX)
        } else if !is_printable(text) {
            "it holds control characters or invisible ones".into()
        } else {
            self.text = (!text.is_empty()).then(|| text.to_owned());
            return Ok(self);
        };
        Err(Error::new(
            ErrorKind::InvalidMetadata,
            format!("{} cannot be a label: {flaw}", quote(text)),
        ))
    }

    /// [`Label::with_text`] for text that may not be UTF-8.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMetadata`] also when it is not.
    pub fn with_os_text(self, text: &std::ffi::OsStr) -> Result<Self> {
        match text.to_str() {
            Some(text) => self.with_text(text),
            None => Err(Error::new(
                ErrorKind::InvalidMetadata,
                format!("{} cannot be a label: it is not UTF-8", quote(&text.to_string_lossy())),
            )),
        }
    }
}

impl fmt::Display for Label {
    /// Whatever a program has stored as its label, it is shown on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, host) = (printable(&self.program), printable(&self.host));
        write!(f, "{program} (pid {} on {host})", self.pid)?;
        match &self.text {
            Some(text) => write!(f, " “{}”", printable(text)),
            None => Ok(()),
        }
    }
}

/// Host and program names are as long as somebody else likes.
fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text_and_hides_in_debug() {
        let client = ClientId::random().unwrap();
        let id = HolderId::random(client).unwrap();
        assert_eq!(HolderId::parse(&id.to_hex()).unwrap(), id);
        assert_eq!(id.client(), client);
        assert!(!format!("{id:?}").contains(&id.to_hex()[12..]));
    }

    #[test]
    fn a_wrong_id_is_refused_without_being_echoed() {
        for text in ["", "zz", &"g".repeat(32), &"é".repeat(16), "0123456789abcdef0123456789abcde"]
        {
            let error = HolderId::parse(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidHolder);
            assert!(text.is_empty() || !error.to_string().contains(text));
        }
    }

    #[test]
    fn labels_have_limits() {
        let label = Label::of_this_process();
        assert!(label.clone().with_text(&"x".repeat(128)).is_ok());
        for text in [&"x".repeat(5 * 1024), "a\u{1b}[31m", "a\u{202e}b", "a\nb"] {
            let error = label.clone().with_text(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMetadata);
            assert!(is_printable(&error.to_string()), "{error}");
        }
        use std::os::unix::ffi::OsStrExt as _;
        let bytes = std::ffi::OsStr::from_bytes(b"a\xff");
        let error = label.clone().with_os_text(bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMetadata);
    }

    /// B31.
    #[test]
    fn a_foreign_label_is_shown_on_one_line() {
        let text = Some("a\nL: free\u{202e}".to_owned());
        let label = Label { program: "p\n".into(), host: "h\u{2067}".into(), pid: 7, text };
        assert_eq!(label.to_string(), "p\\n (pid 7 on h\\u{2067}) “a\\nL: free\\u{202e}”");
    }
}
