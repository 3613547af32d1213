//! A gate before an HTTP service, as a layer of `tower`: requests carry their fence in the header
//! `Fencing-Token`, in decimal digits.
//!
//! | request | answer |
//! |---|---|
//! | with a fence that is not below the highest one seen | that of the service |
//! | with a stale fence | 409, with the fence that was seen |
//! | without the header, with two of them, or with what is no fence | 400 |
//!
//! Answers of the gate are `application/problem+json` (RFC 9457) with the members `code`, `lock`
//! and `seen`:
//!
//! ```text
//! {"type":"about:blank","title":"Conflict","status":409,"detail":"lock \"account/7\": fence 41 is …",
//!  "code":"stale_fence","lock":"account/7","seen":42}
//! ```
//!
//! The layer remembers fences in its process, for as long as that lives. A service that runs more
//! than once, or that keeps its data elsewhere, checks where its data is: [`FenceLayer::reading`]
//! only reads the header, the handler finds the token in the request's extensions, gives it to a
//! gate of its database, and answers a refusal by [`problem`].
//!
//! The header holds a number and no name, so that the fence of another lock is not noticed here. A
//! fence is no proof of identity; the service authenticates its callers by its own means, before
//! this layer, so that strangers cannot raise fences.

mod answer;
mod json;
mod layer;
mod turnstile;

pub use answer::problem;
pub use layer::{FenceLayer, FenceService};

use http::HeaderMap;
use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Fence, FencingToken, LockName, Result};

/// The header, in lower case as HTTP/2 has it.
///
/// ```
/// assert_eq!(lockfast_fence::http::HEADER, "fencing-token");
/// ```
pub const HEADER: &str = "fencing-token";

/// Reads the token of this lock from the headers of a request.
///
/// ```
/// use http::HeaderMap;
/// use lockfast_core::{ErrorKind, LockName};
/// use lockfast_fence::http::{HEADER, token};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let lock = LockName::new("account/7")?;
/// let mut headers = HeaderMap::new();
/// assert_eq!(token(&headers, &lock).unwrap_err().kind(), ErrorKind::InvalidToken);
/// headers.insert(HEADER, "41".parse()?);
/// assert_eq!(token(&headers, &lock)?.fence.get(), 41);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidToken`] when there is none, more than one, or one that is no fence.
pub fn token(headers: &HeaderMap, lock: &LockName) -> Result<FencingToken> {
    let mut given = headers.get_all(HEADER).iter();
    let (first, second) = (given.next(), given.next());
    let what = match (first, second) {
        (Some(value), None) => {
            let text = String::from_utf8_lossy(value.as_bytes());
            match Fence::parse(&text) {
                Ok(fence) => return Ok(FencingToken { lock: lock.clone(), fence }),
                Err(_) => format!("is {}", quote(&text)),
            }
        }
        (None, _) => "is missing".into(),
        (Some(_), Some(_)) => "is there more than once".into(),
    };
    let message = format!(
        "the header Fencing-Token {what}; send it once, with the fence of this lock in digits, from \
         1 to {}: the guard tells it, and a job of `lockfast run` finds it in $LOCKFAST_FENCE",
        Fence::LIMIT - 1
    );
    Err(Error::new(ErrorKind::InvalidToken, message).with_lock(lock))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_header_that_is_no_fence_is_told() {
        let lock = LockName::new("a").unwrap();
        let wrong: [(&[&[u8]], &str); 8] = [
            (&[], "is missing"),
            (&[b"1", b"1"], "more than once"),
            (&[b""], "is \"\""),
            (&[b"0"], "is \"0\""),
            (&[b"-1"], "is \"-1\""),
            (&[b"4 1"], "is \"4 1\""),
            (&[b"9007199254740992"], "is \"9007199254740992\""),
            (&[b"\xff"], "is \"\u{fffd}\""),
        ];
        for (values, part) in wrong {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
            }
            let error = token(&headers, &lock).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidToken);
            for part in [part, "lock \"a\"", "in digits, from 1 to 9007199254740991"] {
                assert!(error.to_string().contains(part), "{error}");
            }
        }
    }
}
