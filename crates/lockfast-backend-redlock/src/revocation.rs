//! An operator takes a lock away: exactly the hold that a quorum has or may have, on all nodes.

use std::sync::Arc;

use lockfast_core::{Error, ErrorKind, HolderView, LockName, Result, RevokeOutcome, RevokeRequest};

use crate::inspect::{Sight, labels};
use crate::record::{Keys, Seen, WATCH_KEY};
use crate::script;
use crate::store::{Store, check_name};
use crate::wire::Reply;

impl Store {
    /// Takes a lock away from its holder.
    pub(crate) async fn revoke(self: &Arc<Self>, request: RevokeRequest) -> Result<RevokeOutcome> {
        let RevokeRequest { name, expect_fence, reason } = request;
        check_name(self.config.prefix(), &name)?;
        let quorum = self.config.quorum;
        let holds = self.look_at(&name).await.map_err(Error::without_effect)?.holds(quorum);
        let clients = holds.iter().filter_map(Seen::claim).map(|(client, _)| client).collect();
        let labels = labels(self, clients).await;
        let view = |seen: &Seen| seen.view(|client| labels.get(client).cloned());
        let (seen, holder) = match (expect_fence, holds.as_slice()) {
            (_, []) => return Ok(RevokeOutcome::NotHeld),
            (None, [seen]) => (seen.clone(), view(seen)),
            (None, _) => {
                let message = "too few nodes answered to tell who has it; say whose it is by its \
                               fence (expect_fence)";
                return Err(Error::new(ErrorKind::NoQuorum, message)
                    .with_backend("redlock")
                    .with_lock(&name)
                    .without_effect());
            }
            (Some(_), holds) => {
                let views: Vec<HolderView> = holds.iter().map(view).collect();
                match views.iter().position(|holder| holder.fence == expect_fence) {
                    Some(at) => (holds[at].clone(), views[at].clone()),
                    None => return Ok(RevokeOutcome::OtherFence(views)),
                }
            }
        };
        let (prefix, lock) = (self.config.prefix().to_owned(), name.clone());
        let value = seen.value.clone();
        let answers = self
            .ask_all(move |pipeline| {
                let keys = Keys { prefix: &prefix, name: lock.as_str() };
                script::REVOKE.call(pipeline, 4, 2);
                pipeline.part(WATCH_KEY);
                keys.write_lock(pipeline);
                keys.write_aside(pipeline, "callers");
                keys.write_aside(pipeline, "revoked");
                pipeline.part(&seen.value);
                pipeline.part(&reason);
            })
            .await;
        let answers = self.require_quorum(answers).await.map_err(|it| it.with_lock(&name))?;
        let is_gone = |replies: &&Vec<Reply>| replies.first().and_then(Reply::as_int) == Some(1);
        let gone = answers.iter().filter(is_gone).count();
        // What a node did whose answer is missing is not known.
        if gone == 0 && answers.len() == self.nodes.len() {
            return Ok(RevokeOutcome::NotHeld);
        }
        // With it go all quorums that the holder could still have, as far as can be told. A holder
        // that hears of it on the first node lets go of the others itself.
        if self.nodes.len() - gone < quorum || self.is_without_quorum(&name, &value).await? {
            return Ok(RevokeOutcome::Revoked(vec![holder]));
        }
        // Without the fence, another try would hit whoever has it by then.
        let again = match holder.fence {
            Some(fence) => format!("try again with its fence (expect_fence {fence})"),
            None => "look who has it before you try again".into(),
        };
        Err(Error::new(
            ErrorKind::NoQuorum,
            format!("it was taken away on too few nodes, so its holder may still have it; {again}"),
        )
        .with_backend("redlock")
        .with_lock(&name))
    }

    /// Whether too few nodes are left that can have this hold.
    async fn is_without_quorum(&self, name: &LockName, value: &[u8]) -> Result<bool> {
        Ok(!self.look_at(name).await?.may_be_held(value, self.config.quorum))
    }

    async fn look_at(&self, name: &LockName) -> Result<Sight> {
        let sights = self.look(vec![name.clone()]).await.map_err(|it| it.with_lock(name))?;
        Ok(sights.into_iter().next().unwrap_or_default())
    }
}
