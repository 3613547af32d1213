//! The lease engine: everything between "I want this lock" and "it is released or lost".
//!
//! ```text
//!            granted              renewal failed
//!  acquire ──────────▶ Held ◀──────────────────────▶ Jeopardy
//!     │                 │  renewed                      │
//!     │ cancelled,      │ released                      │ deadline, or the store says so
//!     ▼ failed          ▼                               ▼
//!   undone           Released                          Lost
//! ```
//!
//! `state` decides, `driver` carries out, `cell` is what a guard and the driver share; `acquire`
//! leads to a lease, `registry` finds the lease of a holder and `sessions` those of a session, `undo`
//! takes back what must not stay, `downgrade` makes a reader of a writer, `holder` counts those who take a
//! lock again that they have, `lookout` looks after leases that nobody renews, `keeper` is the thread and
//! the runtime that it all rests on.

pub(crate) mod acquire;
pub(crate) mod cell;
pub(crate) mod deadline;
pub(crate) mod downgrade;
pub(crate) mod driver;
pub(crate) mod handle;
pub(crate) mod holder;
pub(crate) mod keeper;
pub(crate) mod lookout;
pub(crate) mod policy;
pub(crate) mod registry;
mod sessions;
pub(crate) mod state;
pub(crate) mod undo;
