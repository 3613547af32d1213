//! The check of a fence in a table of somebody's own.

use lockfast_core::{Address, GateAnswer, GateStatement, Result};

use crate::config::Config;
use crate::failure::Failure;
use crate::wire::Dialer;

/// Those that say how to connect; where the gate is, its own name says.
const OPTIONS: &[&str] = &["ca", "cert", "key", "request_timeout", "sslmode"];

/// See [`crate::raise`].
pub(crate) async fn raise(address: Address, statement: GateStatement) -> Result<GateAnswer> {
    address.allow_options(OPTIONS)?;
    let asking = async {
        let session = Dialer::new(Config::read(&address)?)?.dial().await?;
        session.raise(&statement).await
    };
    asking.await.map_err(|failure: Failure| failure.to_error())
}
