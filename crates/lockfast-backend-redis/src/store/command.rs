//! Requests as the server reads them: calls of scripts, with the keys of their locks.

use std::sync::atomic::Ordering;

use lockfast_core::{HolderId, Moment};

use super::{
    CLIENT_MS, CLIENT_REFRESH, Enrolment, REPLICAS_MS_MAX, REPLICAS_PART_OF_TTL, Store, lock,
};
use crate::batch::{Batch, Give, Op, Renew, Take};
use crate::claim::whole_ms;
use crate::config::OnDataLoss;
use crate::record;
use crate::script::{self, Scripts};
use crate::wire::Pipeline;

impl Store {
    pub(super) fn write_preamble(&self, pipeline: &mut Pipeline) {
        if self.needs_scripts.swap(false, Ordering::AcqRel) {
            self.scripts().load_all(pipeline);
        }
        if self.needs_enrolment.swap(false, Ordering::AcqRel) {
            let rival = lock(&self.rival).clone();
            self.write_enrolment(pipeline, &lock(&self.enrolment), Some(&rival));
        }
        let now = Moment::now();
        // On a cluster the label is where no request need go.
        if self.cluster.is_none() && self.refresh_ns.load(Ordering::Relaxed) <= now.host_ns() {
            self.refresh_ns.store((now + CLIENT_REFRESH).host_ns(), Ordering::Relaxed);
            pipeline.all(&["PEXPIRE", &self.client_key, CLIENT_MS]);
        }
    }

    /// On a cluster, where pushes to those come who may have to wait.
    pub(super) fn push_channels(&self, takes: &[Take]) -> impl Iterator<Item = String> {
        let (client, prefix) = (record::write_client(self.client), &self.config().prefix);
        let waiting = takes.iter().filter(|take| take.may_wait());
        waiting.map(move |it| format!("lockfast:{{{prefix}{}}}:push:{client}", it.claim.name))
    }

    /// Writes what one round trip carries, after what was written to prepare it.
    pub(super) fn write_batch(&self, pipeline: &mut Pipeline, batch: &mut Batch) {
        batch.preamble = pipeline.commands();
        self.write_simple(pipeline, &batch.simple);
        for some in batch.renews.iter().flat_map(Renew::runs) {
            self.write_renew(pipeline, some);
        }
        for some in self.runs(&batch.takes, |take| take.claim.is_apart()) {
            batch.take_runs.push(some.len());
            self.write_takes(pipeline, some);
        }
        let replicas = self.config().min_replicas;
        if replicas > 0 && !batch.takes.is_empty() {
            pipeline.command(3);
            pipeline.part("WAIT");
            pipeline.part_number(u64::from(replicas));
            let shortest = whole_ms(batch.shortest_ttl()) / REPLICAS_PART_OF_TTL;
            // Zero would be for ever.
            pipeline.part_number(shortest.clamp(1, REPLICAS_MS_MAX));
            batch.counts_replicas = true;
        }
        for some in self.runs(&batch.gives, |give| give.is_apart) {
            batch.give_runs.push(some.len());
            self.write_gives(pipeline, some);
        }
        for (plain, replies) in &mut batch.plains {
            let before = pipeline.commands();
            (plain.write)(pipeline);
            *replies = pipeline.commands() - before;
        }
        self.write_simple_gives(pipeline, &batch.simple.gives);
    }

    pub(crate) fn write_client_key(&self, pipeline: &mut Pipeline) {
        pipeline.part(&self.client_key);
    }

    pub(crate) fn write_link(&self, pipeline: &mut Pipeline) {
        pipeline.part(&lock(&self.enrolment).link);
    }

    /// Writes one request alone, to a node of a cluster.
    pub(crate) fn write_one(&self, op: Op, pipeline: &mut Pipeline) -> Batch {
        let mut batch = Batch::default();
        batch.add(op);
        self.push_channels(&batch.takes).for_each(|it| pipeline.all(&["SSUBSCRIBE", &it]));
        self.write_batch(pipeline, &mut batch);
        batch
    }

    /// Registers the connection: a new one in the place of any other, one that is in use only in the
    /// place of the one that it was told of.
    pub(super) fn write_enrolment(
        &self,
        pipeline: &mut Pipeline,
        enrolment: &Enrolment,
        rival: Option<&str>,
    ) {
        script::SINGLE.enroll.call(pipeline, 2, 5 + usize::from(rival.is_some()));
        pipeline.part(&self.client_key);
        pipeline.part(record::GUARD_KEY);
        pipeline.part(&enrolment.link);
        pipeline.part(record::write_label(&self.label));
        pipeline.part(&enrolment.identity);
        pipeline.part_number(self.max_lease_ms());
        pipeline.part(CLIENT_MS);
        rival.into_iter().for_each(|rival| pipeline.part(rival));
    }

    fn max_lease_ms(&self) -> u64 {
        match self.config().on_data_loss {
            OnDataLoss::Warn => 0,
            OnDataLoss::Quarantine { max_ttl } => whole_ms(max_ttl),
        }
    }

    /// What all scripts that use the queue begin with.
    pub(crate) fn write_head(
        &self,
        pipeline: &mut Pipeline,
        lock: &lockfast_core::LockName,
        holder: Option<HolderId>,
    ) {
        if self.cluster.is_some() {
            let keys = self.keys(lock);
            keys.write_aside(pipeline, "fence");
            let holder = holder.map(record::write_holder).unwrap_or_default();
            keys.write_aside(pipeline, &format!("gone:{holder}"));
            keys.write_aside(pipeline, "watch");
            keys.write_aside(pipeline, "guard");
            keys.write_aside(pipeline, "crowd");
            return;
        }
        pipeline.part(record::FENCE_KEY);
        pipeline.part(&self.client_key);
        pipeline.part(record::WATCH_KEY);
        pipeline.part(record::GUARD_KEY);
        pipeline.part(record::CROWD_KEY);
    }

    /// The arguments that follow their keys.
    pub(crate) fn write_enrolled(&self, pipeline: &mut Pipeline) {
        let enrolment = lock(&self.enrolment);
        pipeline.part(&enrolment.link);
        pipeline.part(&enrolment.identity);
        match self.cluster {
            None => pipeline.part_number(self.max_lease_ms()),
            Some(_) => pipeline.part_number(u64::from(enrolment.is_rebuilt)),
        }
    }

    pub(crate) fn scripts(&self) -> &'static Scripts {
        if self.cluster.is_some() { &script::CLUSTER } else { &script::SINGLE }
    }

    pub(super) fn write_takes(&self, pipeline: &mut Pipeline, takes: &[Take]) {
        self.scripts().acquire.call(pipeline, 5 + 4 * takes.len(), 3 + 3 * takes.len());
        self.write_head(pipeline, &takes[0].claim.name, Some(takes[0].claim.holder));
        takes.iter().for_each(|take| self.keys(&take.claim.name).write_all(pipeline));
        self.write_enrolled(pipeline);
        for take in takes {
            let claim = &take.claim;
            pipeline.part(&claim.text);
            pipeline.part_number(claim.lease_ms());
            let waits = take.may_wait();
            let how = match (waits, claim.has_floor) {
                (false, false) => "0",
                (true, false) => "1",
                (false, true) => "2",
                (true, true) => "3",
            };
            match claim.has_waited() {
                true => pipeline.part_of(&[how, &claim.write_past()]),
                false => pipeline.part(how),
            }
        }
    }

    pub(super) fn write_gives(&self, pipeline: &mut Pipeline, gives: &[Give]) {
        self.scripts().release.call(pipeline, 5 + 4 * gives.len(), 3 + gives.len());
        self.write_head(pipeline, &gives[0].name, Some(gives[0].holder));
        gives.iter().for_each(|give| self.keys(&give.name).write_all(pipeline));
        self.write_enrolled(pipeline);
        for give in gives {
            match &give.claim {
                Some(claim) => pipeline.part(&claim.text),
                None => pipeline.part(record::write_holder(give.holder)),
            }
        }
    }

    pub(super) fn write_renew(
        &self,
        pipeline: &mut Pipeline,
        leases: &[lockfast_core::RenewRequest],
    ) {
        self.scripts().renew.call(pipeline, 2 + 4 * leases.len(), 2 + 3 * leases.len());
        if self.cluster.is_some() {
            // Without its fence, the lock was forgotten.
            self.keys(&leases[0].name).write_aside(pipeline, "fence");
            self.keys(&leases[0].name).write_aside(pipeline, "guard");
        } else {
            pipeline.part(&self.client_key);
            pipeline.part(record::GUARD_KEY);
        }
        leases.iter().for_each(|lease| self.keys(&lease.name).write_all(pipeline));
        {
            let enrolment = lock(&self.enrolment);
            pipeline.part(&enrolment.link);
            pipeline.part(&enrolment.identity);
        }
        let held = self.held.as_ref().map(lock);
        for lease in leases {
            pipeline.part(record::write_holder(lease.holder));
            pipeline.part_number(whole_ms(lease.ttl) + whole_ms(lease.lock_delay));
            match held.as_ref().and_then(|held| held.get(&lease.holder)) {
                Some((mode, fence)) => {
                    pipeline.part(format!("{}.{fence}", record::write_mode(*mode)));
                }
                None => pipeline.part(""),
            }
        }
    }
}
