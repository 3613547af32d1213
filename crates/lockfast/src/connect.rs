//! From a URL's scheme to the store that understands it; the only place that knows which stores
//! were compiled in.

use std::sync::Arc;

use lockfast_core::error::quote;
use lockfast_core::{Address, Backend, BoxFuture, ConnectContext, Error, ErrorKind, Result};

type Connect = fn(Address, ConnectContext) -> BoxFuture<'static, Result<Arc<dyn Backend>>>;

/// The schemes of each store that was compiled in.
const BACKENDS: &[(&[&str], Connect)] = &[
    #[cfg(feature = "embedded")]
    (lockfast_backend_embedded::SCHEMES, lockfast_backend_embedded::connect),
    #[cfg(feature = "redis")]
    (lockfast_backend_redis::SCHEMES, lockfast_backend_redis::connect),
];

/// The way to the store that `url` names, found before anything is touched.
pub(crate) fn resolve(url: &str) -> Result<(Address, Connect)> {
    let address = Address::parse(url)?;
    let found = BACKENDS.iter().find(|(schemes, _)| schemes.contains(&address.scheme()));
    match found {
        Some((_, connect)) => Ok((address, *connect)),
        None => Err(Error::new(
            ErrorKind::InvalidUrl,
            format!(
                "no store is called {}; there is {}",
                quote(address.scheme()),
                known_schemes().join(", ")
            ),
        )),
    }
}

/// The schemes of all stores that were compiled in, each with its colon.
pub(crate) fn known_schemes() -> Vec<String> {
    BACKENDS.iter().flat_map(|(schemes, _)| *schemes).map(|scheme| format!("{scheme}:")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_scheme_lists_the_known_ones() {
        let error = resolve("foo://user:secret@x").map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidUrl);
        for scheme in known_schemes() {
            assert!(error.to_string().contains(&scheme));
        }
        assert!(!error.to_string().contains("secret"));
    }
}
