//! How Lockfast's stores reach their servers. For the backends of this repository and nobody else:
//! it changes without notice.
//!
//! | looking for | it is in |
//! |---|---|
//! | TCP connections that notice a dead peer | [`tcp`] |
//! | who does the work of a connection: the asking runtime, or the keeper's | [`drive`] |
//! | the table of ShedLock as a store, on whichever SQL server | [`shedlock`] |
//! | the options of TLS, and encrypted connections | [`tls`] |

pub mod drive;
pub mod shedlock;
pub mod tcp;
pub mod tls;
