//! The rights that the README tells people to give, so that what it says is what is tested.

use super::Setup;

const README: &str = include_str!("../../README.md");

/// The rights of a user whose locks have names that match `names`, and what these rows of the
/// README's table add.
pub fn rights(names: &str, rows: &[&str]) -> String {
    let text = README.split_once("```text\nuser locks on >PASSWORD ").expect("the README's user").1;
    let (text, _) = text.split_once("```").expect("the end of the README's user");
    let mut rights = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(rights.contains(" ~NAMES* "), "where the names stand");
    rights = rights.replace("~NAMES*", names);
    for row in rows {
        rights += &format!(" {}", row_of(row));
    }
    rights
}

/// What a row of the README's table adds.
pub fn row_of(row: &str) -> String {
    let mark = format!("| {row} | `");
    let more = README.lines().find_map(|line| line.strip_prefix(&mark));
    let more = more.unwrap_or_else(|| panic!("the README has no rights for {row}"));
    // In a table a bar is written so.
    more.split('`').next().expect("rights").replace("\\|", "|")
}

/// A node of a cluster whose user `locks` with the password `word` may do what the README says to
/// locks of all names, and no more.
pub fn with_user(setup: Setup) -> Setup {
    let rights = rights("~*", &["`redis+cluster:`", "`min_replicas`"]);
    setup.line(format!("user locks on >word {rights}"))
}
