//! What goes wrong on the way to a server: each case gets its code and a sentence that says where and
//! why, without a password.

use crate::sandbox::{Running, Sandbox};

/// What no message may show.
pub(crate) const SECRET: &str = "geheim";

pub(crate) struct Case {
    number: &'static str,
    url: String,
    code: i32,
    words: Vec<String>,
}

/// What `number` says of this URL.
pub(crate) fn case(number: &'static str, url: String, code: i32, words: &[&str]) -> Case {
    Case { number, url, code, words: words.iter().map(ToString::to_string).collect() }
}

/// Runs `show x` on each, with the URL where others cannot see it, and `run`, whose command must not
/// start.
pub(crate) fn check(cases: &[Case]) {
    let sandbox = Sandbox::new();
    for Case { number, url, code, words } in cases {
        for (arguments, code) in
            [(["show", "x"].as_slice(), *code), (&["run", "x", "--", "touch", "started"], 125)]
        {
            let mut command = sandbox.command(arguments);
            command.env("LOCKFAST_URL", url);
            let finished = Running::new(command).finish();
            let said = &finished.stderr;
            assert_eq!(finished.status.code(), Some(code), "{number}: {said}");
            for word in words {
                assert!(said.contains(word), "{number}: no {word:?} in {said}");
            }
            assert!(!said.contains(SECRET), "{number}: {said}");
            assert!(finished.stdout.is_empty(), "{number}: {}", finished.stdout);
        }
        assert!(!sandbox.path("started").exists(), "{number}: the command was started");
    }
}
