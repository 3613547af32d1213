//! Requests as a node reads them: calls of scripts, with the keys of their locks.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CLIENT_MS, Node};
use crate::batch::{Batch, LOCKS_MAX, Sent, Tries};
use crate::claim::whole_ms;
use crate::giving::Giving;
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
        for (renewal, tries, calls) in &mut batch.renewals {
            let leases: Vec<_> = renewal.leases.iter().zip(&renewal.texts).collect();
            for some in leases.chunks(if tries.is_apart { 1 } else { LOCKS_MAX }) {
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
        let mut text = String::new();
        for gives in batch.give_runs() {
            self.write_release(gives, link, prefix, &mut text, pipeline);
        }
        for takes in batch.take_runs() {
            let count = takes.len();
            script::ACQUIRE.call(pipeline, 2 + count, 1 + 2 * count);
            pipeline.part(record::WATCH_KEY);
            pipeline.part(&self.client_key);
            for Sent { take, .. } in takes {
                Keys { prefix, name: take.claim.name.as_str() }.write_lock(pipeline);
            }
            pipeline.part(link);
            for Sent { take, ticket, .. } in takes {
                put(&mut text, format_args!("{}.{}", take.claim.text, ticket.proposal));
                pipeline.part(&text);
                put(&mut text, format_args!("{}{}", ticket.how, ticket.lease_ms));
                pipeline.part(&text);
            }
        }
        for (inquiry, _, replies) in &mut batch.inquiries {
            let before = pipeline.commands();
            (inquiry.write)(pipeline);
            *replies = pipeline.commands() - before;
        }
    }

    /// Gives back what ends in one way.
    fn write_release(
        &self,
        gives: &[(Arc<Giving>, Tries)],
        link: &str,
        prefix: &str,
        text: &mut String,
        pipeline: &mut Pipeline,
    ) {
        let Some((first, _)) = gives.first() else { return };
        script::RELEASE.call(pipeline, 3 + gives.len(), 2 + gives.len());
        pipeline.part(record::WATCH_KEY);
        pipeline.part(&self.client_key);
        pipeline.part(record::CROWD_KEY);
        for (giving, _) in gives {
            Keys { prefix, name: giving.name.as_str() }.write_lock(pipeline);
        }
        pipeline.part(link);
        pipeline.part(first.ending.as_str());
        for (giving, _) in gives {
            match giving.proposal {
                Some(proposal) => {
                    put(text, format_args!("{}.{proposal}", giving.text));
                    pipeline.part(&*text);
                }
                None => pipeline.part(&giving.text),
            }
        }
    }

    /// Tells the node again who we are. A batch that was held up does not: by then there is a new
    /// connection that speaks for us.
    fn write_enrolment(&self, pipeline: &mut Pipeline, link: &str) {
        script::ENROLL.call(pipeline, 1, 4);
        pipeline.part(&self.client_key);
        pipeline.part(&*lock(&self.rival));
        pipeline.part(link);
        pipeline.part(&self.label);
        pipeline.part(CLIENT_MS);
    }
}

/// Writes into a text whose room is used again.
fn put(text: &mut String, what: fmt::Arguments<'_>) {
    text.clear();
    // A text always takes it.
    let _ = text.write_fmt(what);
}
