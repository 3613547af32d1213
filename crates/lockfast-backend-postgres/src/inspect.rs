//! Locks as the server shows them: how many wait, then a line for each holder.

use std::time::{Duration, SystemTime};

use lockfast_core::{HolderView, Label, LockName, LockView};

use crate::batch::read_mode;
use crate::claim::read_fence;

/// Reads a lock.
pub(crate) fn read_view(name: &LockName, text: &str) -> Option<LockView> {
    let mut lines = text.split('\n');
    let waiting = lines.next()?.parse().ok()?;
    let holders = lines.map(read_holder).collect::<Option<Vec<_>>>()?;
    Some(LockView::new(name.clone(), holders, waiting))
}

fn read_holder(line: &str) -> Option<HolderView> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [mode, fence, since_us, left_us, label @ ..] = fields.as_slice() else { return None };
    let us = |text: &str| text.parse().ok().map(Duration::from_micros);
    Some(
        HolderView::new(
            read_mode(mode.parse().ok()?)?,
            SystemTime::UNIX_EPOCH + us(since_us)?,
            us(left_us)?,
        )
        .with_fence(read_fence(fence.parse().ok()).ok())
        .with_label(read_label(label)),
    )
}

/// Reads who it is; nobody knows when the process has not been heard of for long.
pub(crate) fn read_label(fields: &[&str]) -> Option<Label> {
    let [program, host, pid, text] = fields else { return None };
    if program.is_empty() && host.is_empty() {
        return None;
    }
    Some(
        Label::new((*program).to_owned(), (*host).to_owned(), pid.parse().ok()?)
            .with_stored_text(Some((*text).to_owned()).filter(|text| !text.is_empty())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_as_it_was_seen() {
        let name = LockName::new("a").unwrap();
        let view = read_view(&name, "3\n0\t42\t1000000\t5\tp\th\t7\tnight\n-1\t43\t1\t2\t\t\t0\t");
        let view = view.unwrap();
        assert_eq!((view.waiting, view.holders.len()), (3, 2));
        let label = view.holders[0].label.as_ref().unwrap();
        assert_eq!((label.pid, label.text.as_deref()), (7, Some("night")));
        assert_eq!(view.holders[0].remaining, Duration::from_micros(5));
        assert!(view.holders[1].label.is_none());
        assert!(read_view(&name, "0").unwrap().holders.is_empty());
        for nonsense in ["", "x", "1\n0\t1", "1\n9x\t1\t1\t1\t\t\t0\t"] {
            assert!(read_view(&name, nonsense).is_none(), "{nonsense}");
        }
    }
}
