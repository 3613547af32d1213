//! Different names are different locks, whatever characters they are made of.

use std::collections::BTreeMap;

use lockfast_core::LockName;

use crate::arena::{Arena, name};
use crate::case::{Case, Group};

pub(super) const GROUP: Group = Group {
    name: "names",
    source: include_str!("names.rs"),
    cases: &[
        Case::new("are_different_locks", |arena| Box::pin(are_different_locks(arena))),
        Case::new("are_listed_to_the_letter", |arena| Box::pin(are_listed_to_the_letter(arena))),
    ],
};

/// Names that one store or the other might take for another name, a pattern, a path or a command.
#[rustfmt::skip]
const NASTY_NAMES: &[&str] = &[
    "a", "A", "a/b", "a/b/c", "a//b", "/a", "a/", "{a}", "a}{b", "{}", "{a", "a*", "*", "a?",
    "[a]", "[", "]", "a%", "%", "%41", "%00", "a_", "_", "__", "\\", "a\\", "\\*", "'", "''",
    "\"", "`", ";", "'; DROP TABLE locks; --", "$(reboot)", "${HOME}", "a b", "a  b", "a:b",
    "a,b", "a=b", "a&b", "a#b", "a.b", "...", "-", "--", "-rf", "~", "!", "@", "^a", "a$", "(",
    "|", "é", "è", "日本", "日", "Ä", "ß", "ss", "SS", "ı", "I", "i", "İ", "Σ", "ς", "σ", "🔒",
    "🔒🔒", "null", "NULL", "0", "00", "1e3", "0x10", "-1", "true", "nul", "con", "lock",
    "\u{1F469}", "\u{10FFFD}", "\u{FFFD}", "ﬁ", "fi", "Ａ",
];

fn nasty_names() -> Vec<LockName> {
    let mut names: Vec<String> = NASTY_NAMES.iter().map(|&text| text.to_owned()).collect();
    for length in [63, 64, 65, 127, 128, 191, 192, 193, 254, 255] {
        names.push("x".repeat(length));
    }
    // The longest names that differ only at their end.
    names.push(format!("{}y", "x".repeat(254)));
    names.push("é".repeat(127));
    names.iter().map(|text| name(text)).collect()
}

/// P1: every nasty name is a lock of its own: all are held at once, each is seen with its own
/// fence, and releasing one frees only that one.
async fn are_different_locks(arena: Arena) {
    let [first, second] = arena.clients().await;
    let mut held = BTreeMap::new();
    for lock in nasty_names() {
        let taken = first.take(first.request(&lock)).await;
        assert!(held.insert(lock, taken).is_none());
    }
    for (lock, taken) in &held {
        let view = second.view(lock).await;
        assert_eq!(view.holders.len(), 1, "{view:?}");
        assert_eq!(view.holders[0].fence, Some(taken.fence), "{view:?}");
    }
    let listed = second.list("", None, 1000).await;
    let listed: Vec<&LockName> = listed.iter().map(|view| &view.name).collect();
    assert_eq!(listed, held.keys().collect::<Vec<_>>(), "by name in byte order");
    while let Some((lock, taken)) = held.pop_first() {
        first.release(&taken).await;
        assert!(second.view(&lock).await.holders.is_empty());
        assert_eq!(second.list("", None, 1000).await.len(), held.len(), "{lock:?}");
    }
}

/// P11: the prefix of a listing means itself: no character in it is a pattern.
async fn are_listed_to_the_letter(arena: Arena) {
    let client = arena.client().await;
    let names = nasty_names();
    for lock in &names {
        client.take(client.request(lock)).await;
    }
    let prefixes = [
        "*",
        "a*",
        "[",
        "[a",
        "[a]",
        "%",
        "a%",
        "_",
        "a_",
        "__",
        "?",
        "a?",
        "\\",
        "a\\",
        "'",
        "\"",
        "{",
        "{a",
        "a/",
        "/",
        "A",
        "a",
        "é",
        "日",
        "🔒",
        "^",
        "$",
        "x",
        "\u{10FFFD}",
        "nothing",
        "",
    ];
    for prefix in prefixes {
        let listed: Vec<LockName> =
            client.list(prefix, None, 1000).await.into_iter().map(|view| view.name).collect();
        let mut expected: Vec<LockName> =
            names.iter().filter(|lock| lock.as_str().starts_with(prefix)).cloned().collect();
        expected.sort();
        assert_eq!(listed, expected, "prefix {prefix:?}");
    }
}
