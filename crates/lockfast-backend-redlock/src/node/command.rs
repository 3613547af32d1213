//! Requests as a node reads them: calls of scripts, with the keys of their locks.

use std::sync::atomic::Ordering;

use super::{CLIENT_MS, Node};
use crate::batch::{Batch, LOCKS_MAX, Sent};
use crate::claim::whole_ms;
use crate::record::{self, Keys};
use crate::script;
use crate::store::lock;
use crate::wire::Pipeline;

impl Node {
    /// Writes down a batch.
    pub(super) fn write(&self, batch: &mut Batch, prefix: &str, pipeline: &mut Pipeline) {
        if self.needs_scripts.swap(false, Ordering::AcqRel) {
            script::load_all(pipeline);
        }
        let link = lock(&self.link).clone();
        let link = link.as_str();
        if self.needs_enrolment.swap(false, Ordering::AcqRel) {
            self.write_enrolment(pipeline, link);
        }
        batch.preamble = pipeline.commands();
        for (renewal, _, calls) in &mut batch.renewals {
            let leases: Vec<_> = renewal.leases.iter().zip(&renewal.texts).collect();
            for some in leases.chunks(LOCKS_MAX) {
                *calls += 1;
                script::RENEW.call(pipeline, 1 + 4 * some.len(), 1 + 2 * some.len());
                pipeline.part(&self.client_key);
                for (lease, _) in some {
                    let keys = Keys { prefix, name: lease.name.as_str() };
                    keys.write_lock(pipeline);
                    keys.write_aside(pipeline, "fence");
                    keys.write_aside(pipeline, "callers");
                    keys.write_aside(pipeline, "revoked");
                }
                pipeline.part(link);
                for (lease, text) in some {
                    pipeline.part(text);
                    pipeline.part_number(whole_ms(lease.ttl) + whole_ms(lease.lock_delay));
                }
            }
        }
        if !batch.gives.is_empty() {
            let count = batch.gives.len();
            script::RELEASE.call(pipeline, 3 + count, 1 + 3 * count);
            self.write_head(pipeline);
            for (giving, _) in &batch.gives {
                Keys { prefix, name: giving.name.as_str() }.write_lock(pipeline);
            }
            pipeline.part(link);
            for (giving, _) in &batch.gives {
                pipeline.part(&giving.text);
                match giving.proposal {
                    Some(proposal) => pipeline.part_number(proposal),
                    None => pipeline.part(""),
                }
                pipeline.part(giving.ending.as_str());
            }
        }
        if !batch.takes.is_empty() {
            let count = batch.takes.len();
            script::ACQUIRE.call(pipeline, 3 + 2 * count, 1 + 4 * count);
            self.write_head(pipeline);
            for Sent { take, .. } in &batch.takes {
                let keys = Keys { prefix, name: take.claim.name.as_str() };
                keys.write_lock(pipeline);
                keys.write_aside(pipeline, "fence");
            }
            pipeline.part(link);
            for Sent { take, ticket, .. } in &batch.takes {
                pipeline.part(&take.claim.text);
                pipeline.part_number(ticket.proposal);
                pipeline.part_number(take.claim.lease_ms);
                pipeline.part([b'0' + ticket.how]);
            }
        }
        for (inquiry, _, replies) in &mut batch.inquiries {
            let before = pipeline.commands();
            (inquiry.write)(pipeline);
            *replies = pipeline.commands() - before;
        }
    }

    /// The keys that serve all locks.
    fn write_head(&self, pipeline: &mut Pipeline) {
        pipeline.part(record::WATCH_KEY);
        pipeline.part(&self.client_key);
        pipeline.part(record::CROWD_KEY);
    }

    /// Tells the node who we are, and that only this connection speaks for us.
    pub(super) fn write_enrolment(&self, pipeline: &mut Pipeline, link: &str) {
        pipeline.command(5);
        pipeline.part("SET");
        pipeline.part(&self.client_key);
        pipeline.part_of(&[link, &self.label]);
        pipeline.part("PX");
        pipeline.part(CLIENT_MS);
    }
}
