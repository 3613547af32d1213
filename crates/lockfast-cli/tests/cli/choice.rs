//! Which store is used, and why.

use crate::sandbox::{Finished, Running, Sandbox};

const CONFIG: &str = "url = 'local'

[store.local]
url = 'embedded:local'

[store.prod]
url = 'postgres://me:geheim@db.internal/locks?password=geheim'
";

struct Home(Sandbox);

impl Home {
    fn new(config: &str) -> Self {
        let sandbox = Sandbox::new();
        std::fs::create_dir_all(sandbox.path(".config/lockfast")).unwrap();
        std::fs::write(sandbox.path(".config/lockfast/config.toml"), config).unwrap();
        Self(sandbox)
    }

    fn run(&self, line: &str, url: Option<&str>) -> Finished {
        let mut command = self.0.command(line.split(' '));
        match url {
            Some(url) => command.env("LOCKFAST_URL", url),
            None => command.env_remove("LOCKFAST_URL"),
        };
        let finished = Running::new(command).finish();
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(!said.contains("geheim"), "{line}: {said}");
        finished
    }
}

#[test]
fn env_tells_the_store_and_the_reason() {
    let home = Home::new(CONFIG);
    let none = Home::new("");
    let prod = "postgres://…@db.internal/locks";
    for (home, line, url, store, source, name, over) in [
        (&home, "env", None, "embedded:local", "file", Some("local"), vec![]),
        (&home, "env", Some("prod"), prod, "variable", Some("prod"), vec!["file"]),
        (&home, "env", Some("redis://u:geheim@h"), "redis://…@h", "variable", None, vec!["file"]),
        (&home, "env --on prod", None, prod, "option", Some("prod"), vec!["file"]),
        (
            &home,
            "env --on memory:",
            Some("x:"),
            "memory:",
            "option",
            None,
            vec!["variable", "file"],
        ),
        (&none, "env", None, "embedded:", "default", None, vec![]),
    ] {
        let value = home.run(&format!("{line} --json"), url).expect(0).json();
        assert_eq!(value["store"], store, "{line} {url:?}");
        assert_eq!(value["source"], source, "{line} {url:?}");
        assert_eq!(value["name"], serde_json::json!(name), "{line} {url:?}");
        assert_eq!(value["passed_over"], serde_json::json!(over), "{line} {url:?}");
        assert_eq!(value["config"]["found"], true);
        let text = home.run(line, url).expect(0).stdout;
        assert!(text.starts_with(&format!("store:   {store}\nbecause: ")), "{text}");
    }
    let value = home.run("env --json", None).expect(0).json();
    assert_eq!(value["stores"], serde_json::json!(["local", "prod"]));
    let path = home.0.path(".config/lockfast/config.toml");
    assert_eq!(value["config"]["path"], path.to_str().unwrap());
    // Nothing was asked, and nothing was made.
    assert!(!home.0.path("local").exists());
}

/// B275: a store that does not exist was shown as if jobs could lock there.
#[test]
fn env_knows_which_stores_there_are() {
    for (line, url) in [
        ("env --on foo://u:geheim@h", None),
        ("env", Some("foo:x")),
        ("env --json", Some("foo://h")),
        ("env --on odd", None),
    ] {
        let home = Home::new("[store.odd]\nurl = 'foo:y'");
        let refused = home.run(line, url).expect(78);
        assert_eq!(refused.stdout, "", "{line}");
        for words in ["no store is called", "foo", "memory:, embedded:", "zookeepers:"] {
            assert!(refused.stderr.contains(words), "{line}: {}", refused.stderr);
        }
        // Whoever connects says the same.
        let shown = home.run(&line.replace("env", "show x"), url).expect(78);
        let last = |text: &str| text.lines().last().map(str::to_owned);
        assert_eq!(last(&refused.stderr), last(&shown.stderr), "{line}");
    }
}

#[test]
fn a_store_of_the_config_file_is_used_by_its_name() {
    let home = Home::new(CONFIG);
    for (line, url) in [("run x true", None), ("run x --on local true", Some("embedded:other"))] {
        home.run(line, url).expect(0);
        assert!(home.0.path("local").exists(), "{line}");
        std::fs::remove_dir_all(home.0.path("local")).unwrap();
    }
    assert!(!home.0.path("other").exists());
    home.run("run x true", Some("local")).expect(0);
    assert!(home.0.path("local").exists());
    // A password that stands in the file is not in the arguments.
    let prod =
        CONFIG.replace("postgres://me:geheim@db.internal/locks", "redis://a:geheim@127.0.0.1:1");
    let home = Home::new(&prod.replace("?password=geheim", ""));
    let refused = home.run("show x --on prod", None).expect(69);
    assert!(!refused.stderr.contains("visible to everybody"), "{}", refused.stderr);
}

#[test]
fn a_name_that_is_not_there_lists_those_that_are() {
    let home = Home::new(CONFIG);
    for (line, url, code) in [
        ("show x --on prdo", None, 78),
        ("show x", Some("prdo"), 78),
        ("run x --on prdo true", None, 125),
        ("env --on prdo", None, 78),
    ] {
        let refused = home.run(line, url).expect(code);
        for words in ["\"prdo\"", "has local, prod", "[store.prdo]"] {
            assert!(refused.stderr.contains(words), "{line}: {}", refused.stderr);
        }
    }
    let none = Home::new("").run("show x --on prod", None).expect(78);
    assert!(none.stderr.contains("names none"), "{}", none.stderr);
    // What can be no name is a URL that is wrong, and may hold a password.
    home.run("show x --on redis//geheim@h", None).expect(78);
    home.run("show x", Some("geheim@h")).expect(78);
}

#[test]
fn keys_that_are_not_there_are_told_with_those_that_are() {
    for (text, words) in [
        ("ttl = '5s'", "there is no key \"ttl\"; there is `url` and `store`"),
        ("ulr = 'geheim'", "did you mean `url`?"),
        ("[store.a]\nttl = '5s'", "there is no key \"ttl\" in [store.a]"),
    ] {
        let refused = Home::new(text).run("show x", None).expect(78);
        assert!(refused.stderr.contains(words), "{text}: {}", refused.stderr);
    }
}

/// B241: a config file that was there and could not be reached counted as none, so that the job took its
/// lock in the default store, where nobody else does.
#[test]
fn a_config_file_that_cannot_be_reached_is_not_absent() {
    use std::os::unix::fs::symlink;
    let home = Home::new("");
    let path = home.0.path(".config/lockfast/config.toml");
    std::fs::remove_file(&path).unwrap();
    home.run("env", None).expect(0);
    for target in [home.0.path("not-mounted"), path.clone()] {
        symlink(&target, &path).unwrap();
        for (line, code) in [("env", 78), ("run x touch ran", 125)] {
            let refused = home.run(line, None).expect(code);
            assert!(refused.stderr.contains("cannot be read"), "{line}: {}", refused.stderr);
        }
        std::fs::remove_file(&path).unwrap();
    }
    assert!(!home.0.path("ran").exists());
    // Where no directory is, no file can be: services have /dev/null as their home.
    std::fs::remove_dir_all(home.0.path(".config")).unwrap();
    std::fs::write(home.0.path(".config"), "").unwrap();
    home.run("env", None).expect(0);
}

#[test]
fn a_store_of_the_config_file_has_a_url_and_not_another_name() {
    let text = "url = 'a'\n[store.a]\nurl = 'b'\n[store.b]\nurl = 'a'\n";
    let refused = Home::new(text).run("show x", None).expect(78);
    assert!(refused.stderr.contains("`url` in [store.a] is not a URL"), "{}", refused.stderr);
    // A URL that was pasted in the wrong place may hold a password.
    for text in ["'redis://u:geheim@h' = 1", "[store]\n'redis://u:geheim@h' = {}"] {
        Home::new(text).run("env", None).expect(78);
    }
}
