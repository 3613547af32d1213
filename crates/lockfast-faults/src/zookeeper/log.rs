//! The log in which a server keeps its changes, rewritten while the server is down.

use std::path::Path;

const FILE_HEADER_BYTES: usize = 16;
const CHECKSUM_BYTES: usize = 8;
/// Who asked, which of its requests, the transaction, the time and the kind.
const CHANGE_HEADER_BYTES: usize = 32;

/// Changes how many children the parent of `child` is said to have had when `child` was made.
/// Whether there is such a change.
pub(super) fn set_children_made(folder: &Path, child: &str, count: i32) -> bool {
    let mut is_found = false;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_log = |name: &str| name.starts_with("log.");
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_log) {
            let mut log = std::fs::read(&path).unwrap();
            is_found |= rewrite(&mut log, child, count);
            std::fs::write(&path, log).unwrap();
        }
    }
    is_found
}

fn rewrite(log: &mut [u8], child: &str, count: i32) -> bool {
    let mut is_found = false;
    let mut at = FILE_HEADER_BYTES;
    while let Some(length) = int(log, at + CHECKSUM_BYTES).filter(|length| *length > 0) {
        let start = at + CHECKSUM_BYTES + 4;
        let change = &mut log[start..start + length];
        if let Some(field) = find_count(change, child) {
            change[field..field + 4].copy_from_slice(&count.to_be_bytes());
            let sum = u64::from(checksum(change));
            log[at..at + CHECKSUM_BYTES].copy_from_slice(&sum.to_be_bytes());
            is_found = true;
        }
        // A byte marks the end.
        at = start + length + 1;
    }
    is_found
}

/// Where a change says how many children there were, if it makes this node.
fn find_count(change: &[u8], child: &str) -> Option<usize> {
    let path = CHANGE_HEADER_BYTES;
    let length = int(change, path)?;
    if change.get(path + 4..path + 4 + length)? != child.as_bytes() {
        return None;
    }
    let data = path + 4 + length;
    let mut at = data + 4 + int(change, data)?;
    let entries = int(change, at)?;
    at += 4;
    for _ in 0..entries {
        // Rights, scheme and id.
        at += 4;
        at += 4 + int(change, at)?;
        at += 4 + int(change, at)?;
    }
    // Whether it is ephemeral comes before it.
    change.get(at + 1..at + 5).map(|_| at + 1)
}

/// A length; that of what is absent is nothing.
fn int(bytes: &[u8], at: usize) -> Option<usize> {
    let value = i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
    Some(usize::try_from(value).unwrap_or(0))
}

/// Adler-32.
fn checksum(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (mut low, mut high) = (1, 0);
    for byte in bytes {
        low = (low + u32::from(*byte)) % MODULUS;
        high = (high + low) % MODULUS;
    }
    high << 16 | low
}
