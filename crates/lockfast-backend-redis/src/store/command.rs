//! Requests as the server reads them: calls of scripts, with the keys of their locks.

use std::sync::atomic::Ordering;

use lockfast_core::HolderId;

use super::{CLIENT_MS, Enrolment, Store, lock};
use crate::batch::{Give, Take};
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
            self.write_enrolment(pipeline, &lock(&self.enrolment));
        }
    }

    pub(super) fn write_enrolment(&self, pipeline: &mut Pipeline, enrolment: &Enrolment) {
        script::SINGLE.enroll.call(pipeline, 2, 5);
        pipeline.part(&self.client_key);
        pipeline.part(record::GUARD_KEY);
        pipeline.part(&enrolment.link);
        pipeline.part(record::write_label(&self.label));
        pipeline.part(&enrolment.identity);
        pipeline.part_number(self.max_lease_ms());
        pipeline.part(CLIENT_MS);
    }

    fn max_lease_ms(&self) -> u64 {
        match self.config().on_data_loss {
            OnDataLoss::Warn => 0,
            OnDataLoss::Quarantine { max_ttl } => crate::claim::whole_ms(max_ttl),
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
        for Take { claim, purpose, .. } in takes {
            pipeline.part(&claim.text);
            pipeline.part_number(claim.lease_ms());
            let waits = purpose.may_wait(claim);
            pipeline.part(match (waits, claim.has_floor) {
                (false, false) => "0",
                (true, false) => "1",
                (false, true) => "2",
                (true, true) => "3",
            });
        }
    }

    pub(super) fn write_gives(&self, pipeline: &mut Pipeline, gives: &[Give]) {
        self.scripts().release.call(pipeline, 5 + 4 * gives.len(), 3 + gives.len());
        self.write_head(pipeline, &gives[0].name, Some(gives[0].holder));
        gives.iter().for_each(|give| self.keys(&give.name).write_all(pipeline));
        self.write_enrolled(pipeline);
        gives.iter().for_each(|give| pipeline.part(record::write_holder(give.holder)));
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
            let lease_ms =
                crate::claim::whole_ms(lease.ttl) + crate::claim::whole_ms(lease.lock_delay);
            pipeline.part_number(lease_ms);
            match held.as_ref().and_then(|held| held.get(&lease.holder)) {
                Some((mode, fence)) => {
                    pipeline.part(format!("{}.{fence}", record::write_mode(*mode)));
                }
                None => pipeline.part(""),
            }
        }
    }
}
