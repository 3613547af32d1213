//! Looking at locks: one by name, or all whose names start alike; and who their holders are.

use std::collections::{HashMap, HashSet};

use lockfast_core::{ClientId, Label, LockName, LockView};

use crate::batch::write_json;
use crate::claim::{Seen, read_client, write_client};
use crate::failure::{self, Failure};
use crate::store::{Store, lock};
use crate::wire::{self, Argument};

/// How many labels are remembered before all are asked for again.
const LABELS_MAX: usize = 4096;
/// How many locks one call looks at.
const NAMES_MAX: usize = 1000;

impl Store {
    /// The lock as people may see it.
    pub(crate) async fn name_holders(&self, name: &LockName, seen: &Seen) -> LockView {
        let clients = seen.holders.iter().map(|holder| holder.client);
        let labels = self.find_labels(clients.collect()).await;
        seen.view(name, |client| labels.get(client).cloned())
    }

    /// Looks at locks by their names; every name has an answer.
    pub(crate) async fn look(&self, names: &[LockName]) -> Result<Vec<Seen>, Failure> {
        let mut all = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_MAX) {
            let list = write_words(names.iter().map(LockName::as_str));
            let reply = self.ask("CALL lockfast_look(?)", vec![Argument::from(list)]).await?;
            let mut seen = vec![Seen::default(); names.len()];
            for row in &reply.rows {
                let at = row.number(0).and_then(|at| usize::try_from(at).ok());
                let place = at.and_then(|at| seen.get_mut(at));
                match (place, row.text(1).and_then(Seen::read)) {
                    (Some(place), Some(found)) => *place = found,
                    _ => return Err(failure::of_nonsense("a look of another form")),
                }
            }
            all.extend(seen);
        }
        Ok(all)
    }

    /// The same for people.
    pub(crate) async fn view(&self, names: Vec<LockName>) -> Result<Vec<LockView>, Failure> {
        let seen = self.look(&names).await?;
        let clients = seen.iter().flat_map(|seen| &seen.holders).map(|holder| holder.client);
        let labels = self.find_labels(clients.collect()).await;
        let view = |(name, seen): (&LockName, &Seen)| {
            seen.view(name, |client| labels.get(client).cloned())
        };
        Ok(names.iter().zip(&seen).map(view).collect())
    }

    /// The first names after `after` that are held or waited for.
    pub(crate) async fn find_names(
        &self,
        prefix: &str,
        after: Option<&LockName>,
        limit: usize,
    ) -> Result<Vec<LockName>, Failure> {
        // No name is so long.
        if prefix.len() > LockName::BYTES_MAX {
            return Ok(Vec::new());
        }
        let arguments = vec![
            Argument::from(prefix),
            Argument::from(after.map_or("", LockName::as_str)),
            Argument::from(i32::try_from(limit).unwrap_or(i32::MAX)),
        ];
        let reply = self.ask("CALL lockfast_list(?, ?, ?)", arguments).await?;
        let names = reply.rows.iter().map(|row| row.text(0).map(LockName::new));
        names
            .map(|name| match name {
                Some(Ok(name)) => Ok(name),
                _ => Err(failure::of_nonsense("a lock whose name is none")),
            })
            .collect()
    }

    /// Who these clients are. A label is for people only: without one the rest is still of use.
    pub(crate) async fn find_labels(&self, clients: HashSet<ClientId>) -> HashMap<ClientId, Label> {
        let mut found: HashMap<ClientId, Label> = {
            let known = lock(&self.labels);
            clients.iter().filter_map(|it| Some((*it, known.get(it)?.clone()))).collect()
        };
        let unknown: Vec<String> = clients
            .iter()
            .filter(|client| !found.contains_key(client))
            .map(|client| write_client(*client))
            .collect();
        if unknown.is_empty() {
            return found;
        }
        let list = write_words(unknown.iter().map(String::as_str));
        let reply = self.ask("CALL lockfast_labels(?)", vec![Argument::from(list)]).await;
        let rows = reply.map(|reply| reply.rows).unwrap_or_default();
        let mut known = lock(&self.labels);
        if known.len() > LABELS_MAX {
            known.clear();
        }
        for (client, label) in rows.iter().filter_map(read_label) {
            known.insert(client, label.clone());
            found.insert(client, label);
        }
        found
    }
}

fn read_label(row: &wire::Answer) -> Option<(ClientId, Label)> {
    let text = row.text(4).filter(|text| !text.is_empty());
    let label = Label::new(
        row.text(1)?.to_owned(),
        row.text(2)?.to_owned(),
        u32::try_from(row.number(3)?).ok()?,
    )
    .with_stored_text(text.map(str::to_owned));
    Some((read_client(row.text(0)?)?, label))
}

fn write_words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::from("[");
    for word in words {
        if text.len() > 1 {
            text.push(',');
        }
        write_json(&mut text, word);
    }
    text.push(']');
    text
}
