//! A writer that becomes a reader.

use std::sync::Arc;

use lockfast_core::{
    DowngradeOutcome, DowngradeRequest, Error, ErrorKind, HolderId, LockName, LossCause, Mode,
    RenewOutcome, Result,
};

use crate::backend::{Redis, check_slot};
use crate::batch::Renewal;
use crate::record;
use crate::slot;
use crate::wire::{Reply, failure};

impl Redis {
    /// Lets a holder have its lock shared from now on.
    pub(crate) async fn share(&self, request: DowngradeRequest) -> Result<DowngradeOutcome> {
        let DowngradeRequest { name, holder } = request;
        if check_slot(&self.store, &name).is_err() {
            return Ok(DowngradeOutcome::Lost(LossCause::Forgotten));
        }
        // The server may act although its answer is lost: what it forgets then is written down again
        // as shared, unless it was refused.
        let before = self.store.change_mode(holder, Mode::Shared);
        let outcome = self.ask_to_share(&name, holder).await;
        let is_refused =
            |error: &Error| [ErrorKind::Conflict, ErrorKind::Unsupported].contains(&error.kind());
        match &outcome {
            Ok(DowngradeOutcome::Downgraded) => {
                self.store.simplicity.note_grant(holder, Mode::Shared);
            }
            Ok(DowngradeOutcome::Lost(LossCause::DataLost)) => {
                tracing::warn!("the server has lost data");
                self.store.ask_for_enrolment(record::NO_LINK);
            }
            Err(error) if is_refused(error) => {
                let _ = before.and_then(|mode| self.store.change_mode(holder, mode));
            }
            _ => {}
        }
        outcome.map_err(|error| error.with_lock(&name))
    }

    async fn ask_to_share(&self, name: &LockName, holder: HolderId) -> Result<DowngradeOutcome> {
        let (store, lock) = (Arc::clone(&self.store), name.clone());
        let replies = self
            .ask(slot::of_lock(&store.config().prefix, name.as_str()), move |pipeline| {
                store.scripts().share.call(pipeline, 9, 4);
                store.write_head(pipeline, &lock, Some(holder));
                store.keys(&lock).write_all(pipeline);
                store.write_enrolled(pipeline);
                pipeline.part(record::write_holder(holder));
            })
            .await?;
        let nonsense = || failure::of_nonsense("a downgrade of another form").to_error();
        let fields = match replies.into_iter().next().map(Reply::into_list) {
            Some(Ok(fields)) => fields,
            Some(Err(reply)) if reply.as_int() == Some(1) => {
                return Ok(DowngradeOutcome::Downgraded);
            }
            _ => return Err(nonsense()),
        };
        if let Some(mode) = read_use(&fields) {
            return Err(Error::conflict(Mode::Shared, mode).with_backend("redis"));
        }
        let loss = Renewal::read_loss(&fields).ok_or_else(nonsense)?;
        match self.name_takers(vec![loss]).await.pop() {
            Some(RenewOutcome::Lost(cause)) => Ok(DowngradeOutcome::Lost(cause)),
            _ => Err(nonsense()),
        }
    }
}

/// How the name is used, if that does not go with readers.
fn read_use(fields: &[Reply]) -> Option<Mode> {
    match fields {
        [code, mode] if code.as_int() == Some(4) => mode.as_text().and_then(record::read_mode),
        _ => None,
    }
}
