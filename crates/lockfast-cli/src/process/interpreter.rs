//! Which program the first line of a script names, as the kernel reads it. A file without such a line
//! has none: `exec` gives it to the kernel, or to `sh` when the kernel does not know it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// How much of a file the kernel looks at.
const LOOKED_AT: u64 = 256;

/// The interpreter of this file, if it is a script that names one. What cannot be read has none that
/// could be told: the kernel runs files that the user may only execute.
pub(super) fn of(path: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(path).ok()?.take(LOOKED_AT).read_to_end(&mut start).ok()?;
    named_in(&start).map(|name| PathBuf::from(OsStr::from_bytes(name)))
}

fn named_in(start: &[u8]) -> Option<&[u8]> {
    let rest = start.strip_prefix(b"#!")?;
    let line_end = rest.iter().position(|byte| *byte == b'\n');
    let line = line_end.map_or(rest, |end| &rest[..end]);
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = &line[line.iter().position(|byte| !is_gap(byte))?..];
    let name_end = line.iter().position(|byte| is_gap(byte) || *byte == 0);
    let is_cut = line_end.is_none() && name_end.is_none() && start.len() as u64 == LOOKED_AT;
    match name_end {
        _ if is_cut => None,
        Some(0) => None,
        Some(end) => Some(&line[..end]),
        None => Some(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_read_as_the_kernel_reads_it() {
        let long = format!("#!/{}\n", "x".repeat(300));
        let fits = format!("#!/bin/sh {}", "x".repeat(300));
        for (text, expected) in [
            ("#!/bin/sh\necho", Some("/bin/sh")),
            ("#!/bin/sh", Some("/bin/sh")),
            ("#! \t/usr/bin/env -S a b\n", Some("/usr/bin/env")),
            ("#!/bin/sh\r\n", Some("/bin/sh\r")),
            ("#!sh\n", Some("sh")),
            (&fits, Some("/bin/sh")),
            (&long, None),
            ("#!\n/bin/sh", None),
            ("#!  \n", None),
            ("#!\0/bin/sh\n", None),
            ("#!", None),
            ("# !/bin/sh\n", None),
            ("echo\n", None),
            ("", None),
        ] {
            let start = &text.as_bytes()[..text.len().min(256)];
            assert_eq!(named_in(start), expected.map(str::as_bytes), "{text:?}");
        }
    }
}
