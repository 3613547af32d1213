//! The manual pages, and what `--help` shows of each command.

use std::collections::BTreeSet;

use crate::sandbox::Sandbox;

/// Every command and those below it, as they are typed.
pub(crate) fn commands(sandbox: &Sandbox) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = vec![Vec::new()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let help = help(sandbox, &path);
        let Some((_, list)) = help.split_once("\nCommands:\n") else { continue };
        let list = list.split("\n\n").next().unwrap_or_default();
        let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
        for name in names.filter(|name| !name.is_empty() && *name != "help") {
            found.push(path.iter().cloned().chain([name.to_owned()]).collect());
        }
    }
    found
}

/// What `--help` of a command prints.
pub(crate) fn help(sandbox: &Sandbox, path: &[String]) -> String {
    let words = path.iter().map(String::as_str).chain(["--help"]);
    sandbox.run(words).expect(0).stdout
}

#[test]
fn every_help_has_examples() {
    let sandbox = Sandbox::new();
    let commands = commands(&sandbox);
    assert!(commands.len() > 20, "{commands:?}");
    for path in commands {
        let help = help(&sandbox, &path);
        assert!(help.contains("\nExamples:\n  "), "{path:?}: {help}");
    }
}

/// A page for each command, none for `help`, each with what people look for in a manual.
#[test]
fn every_command_has_a_page_with_all_sections() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("man")).unwrap();
    sandbox.run(["man", "--dir", "man"]).expect(0);
    let written: BTreeSet<String> = std::fs::read_dir(sandbox.path("man"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let name = |path: &Vec<String>| format!("lockfast-{}.1", path.join("-")).replace("-.", ".");
    let expected: BTreeSet<String> = commands(&sandbox).iter().map(name).collect();
    assert_eq!(written, expected);
    for page in &written {
        let text = sandbox.read(&format!("man/{page}"));
        assert!(text.contains(&format!(".TH {} 1", page.trim_end_matches(".1"))), "{page}");
        let sections =
            ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"];
        for section in sections {
            let heading = |line: &str| line.replace('"', "") == format!(".SH {section}");
            assert_eq!(text.lines().filter(|line| heading(line)).count(), 1, "{page}: {section}");
        }
        for heading in ["Exit status", "Examples:", ".SH EXTRA"] {
            assert!(!text.contains(heading), "{page}: {heading}");
        }
        assert!(text.contains("LOCKFAST_URL") && text.contains("config.toml"), "{page}");
        assert!(text.contains("\nlockfast ") || text.contains("$(lockfast "), "{page}: examples");
    }
    let run = sandbox.read("man/lockfast-run.1");
    assert!(run.contains(".TP\n\\fB120\\fR\nthe lease was lost\n"), "{run}");
    assert!(run.contains("\nThe command\\*(Aqs own.\n"), "{run}");
    assert!(run.contains("\"lockfast 0."), "the page names the version: {run}");
    let check = sandbox.read("man/lockfast-fence-check.1");
    assert!(check.contains("\\fB75\\fR\nit is stale"), "those of fence: {check}");
    sandbox.run(["man", "--dir", "nowhere"]).expect(74);
    assert!(sandbox.run(["man"]).expect(0).stdout.contains(".TH lockfast 1"));
}
