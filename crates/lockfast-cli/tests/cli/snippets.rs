//! What the pages and `--help` tell people to type does what they say (B47). Every shell line of
//! theirs is found here, tried, and refused when nobody has said what it must do.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use lockfast::fence::sql::{Dialect, TableGate};
use rusqlite::Connection;

use crate::manual;
use crate::sandbox::{Finished, Running, Sandbox, eventually};

/// What a snippet claims.
struct Claim {
    /// The snippet: a line of a page, or all lines that belong together.
    snippet: &'static str,
    /// The lock that somebody else has meanwhile, if any.
    taken: &'static str,
    /// Its exit code. One that only ends when it is interrupted has 130, and one that depends on the
    /// machine has [`ANY`].
    code: i32,
    /// What it prints; `N` stands for a number.
    prints: &'static [&'static str],
    /// The program that it runs and its arguments, or that it runs none.
    calls: &'static str,
}

const fn claim(
    snippet: &'static str,
    taken: &'static str,
    code: i32,
    prints: &'static [&'static str],
    calls: &'static str,
) -> Claim {
    Claim { snippet, taken, code, prints, calls }
}

/// The exit code of what says how good this machine is.
const ANY: i32 = -1;

const PLAIN: &str = "lockfast run nightly-report ./report.sh";
const QUIET: &str = "lockfast run nightly-report -n -E 0 -q -- ./report.sh";
const LINE: &str = "lockfast run nightly-report -c './report.sh | gzip > report.gz'";
const REPORT: &str = "lockfast run nightly-report -- ./report.sh";
const TRY: &str = "lockfast run nightly-report --try -- ./report.sh";
const MAIL: &str = "lockfast run sync-mail -n -E 0 -q --ttl 1m -- /usr/local/bin/sync-mail";
const CRON: &str = "lockfast run nightly-report --wait 1h --label \"cron on $(hostname)\" -- \
                    /usr/local/bin/report";
const FORCE: &str = "lockfast force-release nightly-report --yes --reason \"host is gone\" \
                     --expect-fence 1794772800000000";
const FORCE_ANY: &str = "lockfast force-release nightly-report --yes --reason \"host is gone\"";
const FORCE_ONE: &str =
    "lockfast force-release backup --yes --reason \"host is gone\" --expect-fence 42";
const RENEW: &str = "out=$(lockfast acquire backup --ttl 10m) || exit
eval \"$out\"
echo \"$holder\" | lockfast renew backup --holder - --ttl 20m || exit
echo \"$holder\" | lockfast release backup --holder -";
const RELEASE: &str = "out=$(lockfast acquire backup --ttl 10m) || exit
eval \"$out\"
echo \"$holder\" | lockfast release backup --holder -";
const BASH: &str =
    "lockfast completions bash > ~/.local/share/bash-completion/completions/lockfast";
const ZSH: &str = "lockfast completions zsh > ~/.zfunc/_lockfast";
const FISH: &str = "lockfast completions fish > ~/.config/fish/completions/lockfast.fish";
const SCRIPT: &str = "out=$(lockfast acquire backup --ttl 10m --try) || exit
eval \"$out\"
do-something --fencing-token \"$fence\"
echo \"$holder\" | lockfast release backup --holder -";
const HELLO: &str = "cargo run --bin lockfast -- run hello -- sh -c 'echo \"fence $LOCKFAST_FENCE \
                     of lock $LOCKFAST_NAME\"'";
const ADD: &str = "cargo add lockfast --path crates/lockfast --features redis";
const CURL: &str = "lockfast run account/7 -- sh -c \\
  'curl --fail -H \"Fencing-Token: $LOCKFAST_FENCE\" -d @new-state https://accounts.internal/7'";
const ONCE: &str = "lockfast once nightly-report --at-most 10m -- ./report.sh";
const ONCE_KEPT: &str =
    "lockfast once nightly-report --at-most 10m --at-least 1m -E 0 -q -- ./report.sh";
const ONCE_CRON: &str =
    "lockfast once nightly-report --at-most 1h --at-least 5m -E 0 -q -- /usr/local/bin/report";
const ONCE_TIMER: &str =
    "lockfast once nightly-report --at-most 1h --at-least 5m -E 0 -- /usr/local/bin/report";
const ELECT: &str = "lockfast elect scheduler --ttl 10s -- ./scheduler.sh";
const ELECT_SERVICE: &str =
    "/usr/local/bin/lockfast elect importer --ttl 10s -- /usr/local/bin/importer";
const REFRESH: &str = "lockfast refresh exchange-rates --for 5m -- ./rates.sh";
const REFRESH_STALE: &str = "lockfast refresh exchange-rates --for 5m --stale-for 1m -- ./rates.sh";
const REFRESH_SCRIPT: &str =
    "rates=$(lockfast refresh exchange-rates --for 5m -- ./rates.sh) || exit\necho \"$rates\"";
const FENCE: &str =
    "lockfast run report -- lockfast fence check --file report.fence -- ./write-report.sh";
const FENCE_OPEN: &str = "lockfast fence open --file report.fence --lock report --fence 42";
const FENCE_SQL: &str = "lockfast fence open --sql sqlite:app.db --lock account/7 --fence 42";
const FENCE_SECRET: &str = "lockfast fence open --sql - --lock account/7 --fence 42 < database-url";
const LOOK: &str = "lockfast show nightly-report; lockfast list; lockfast watch";
const HELD: &str = "nightly-report: exclusive by ";
const HOLDER: &str = " (pid N on ";

const CLAIMS: &[Claim] = &[
    claim(HELLO, "", 0, &["fence N of lock hello"], ""),
    claim("cargo xtask test", "", 0, &[], "cargo xtask test"),
    claim("cargo install --path crates/lockfast-cli", "", 0, &[], "cargo install"),
    claim(ADD, "", 0, &[], "cargo add"),
    claim(REPORT, "", 0, &[], "report.sh"),
    claim("lockfast run nightly-report -- ./report.sh --full", "", 0, &[], "report.sh --full"),
    claim(TRY, "", 0, &[], "report.sh"),
    claim(TRY, "nightly-report", 75, &["is held by ", HOLDER, "since 20"], ""),
    claim(PLAIN, "", 0, &[], "report.sh"),
    claim(QUIET, "", 0, &[], "report.sh"),
    claim(QUIET, "nightly-report", 0, &[], ""),
    claim(LINE, "", 0, &[], "report.sh"),
    claim("lockfast run build --permits 4 -- make", "", 0, &[], "make"),
    claim("lockfast run build --permits 4 -w 10m make", "", 0, &[], "make"),
    claim("lockfast run deploy --wait 5m --ttl 1m -- make deploy", "", 0, &[], "make deploy"),
    claim("lockfast run api --permits 3 -- ./call-api", "", 0, &[], "call-api"),
    claim("lockfast show nightly-report", "", 0, &["nightly-report: free"], ""),
    claim("lockfast show nightly-report", "nightly-report", 0, &[HELD, HOLDER], ""),
    claim("lockfast show nightly-report --json", "", 0, &["\"held\":false"], ""),
    claim("lockfast list", "nightly-report", 0, &["NAME", "nightly-report"], ""),
    claim(
        "lockfast list --prefix night --json",
        "nightly-report",
        0,
        &["\"name\":\"nightly-report\""],
        "",
    ),
    claim("lockfast watch", "", 130, &[], ""),
    claim("lockfast watch nightly-report", "", 130, &[], ""),
    claim(LOOK, "nightly-report", 130, &[HELD, "NAME"], ""),
    claim(FORCE, "", 75, &["is not held; nothing was done"], ""),
    claim(FORCE, "nightly-report", 75, &["expected N; nothing was done"], ""),
    claim(FORCE_ANY, "", 75, &["is not held; nothing was done"], ""),
    claim(FORCE_ANY, "nightly-report", 0, &["nightly-report: taken from "], ""),
    claim(FORCE_ONE, "backup", 75, &["expected N; nothing was done"], ""),
    claim(MAIL, "", 0, &[], "sync-mail"),
    claim(MAIL, "sync-mail", 0, &[], ""),
    claim(CRON, "", 0, &[], "report"),
    claim(
        "/usr/local/bin/lockfast run importer -- /usr/local/bin/importer",
        "",
        0,
        &[],
        "importer",
    ),
    claim(CURL, "", 0, &[], "curl --fail -H Fencing-Token: N -d @new-state https:"),
    claim(SCRIPT, "", 0, &[], "do-something --fencing-token N"),
    claim(SCRIPT, "backup", 75, &["is held by"], ""),
    claim(ONCE, "", 0, &[], "report.sh"),
    claim(ONCE, "nightly-report", 75, &["skipped: lock", "is held by ", HOLDER], ""),
    claim(ONCE_KEPT, "", 0, &[], "report.sh"),
    claim(ONCE_KEPT, "nightly-report", 0, &[], ""),
    claim(ONCE_CRON, "", 0, &[], "report"),
    claim(ONCE_TIMER, "", 0, &[], "report"),
    claim(ONCE_TIMER, "nightly-report", 0, &["skipped: lock"], ""),
    claim(ELECT, "", 0, &["elected with term N"], "scheduler.sh"),
    claim(ELECT_SERVICE, "", 0, &["elected with term N"], "importer"),
    claim(REFRESH, "", 0, &[], "rates.sh"),
    claim(REFRESH_STALE, "", 0, &[], "rates.sh"),
    claim(REFRESH_SCRIPT, "", 0, &["\n"], "rates.sh"),
    claim(FENCE, "", 0, &[], "write-report.sh"),
    claim(FENCE_OPEN, "", 0, &[], ""),
    claim(FENCE_SQL, "", 0, &[], ""),
    claim(FENCE_SECRET, "", 0, &[], ""),
    claim("lockfast show scheduler", "scheduler", 0, &["scheduler: exclusive by"], ""),
    claim("lockfast watch scheduler", "", 130, &[], ""),
    claim(RENEW, "", 0, &["deadline=N-N-N"], ""),
    claim(RELEASE, "", 0, &[], ""),
    claim("lockfast migrate", "", 0, &["nothing to migrate"], ""),
    claim("lockfast migrate --json", "", 0, &["\"changed\":false"], ""),
    claim("lockfast doctor", "", ANY, &["guarantee: correctness"], ""),
    claim("lockfast doctor --quiet", "", ANY, &["guarantee: correctness"], ""),
    claim("lockfast env", "", 0, &["because: $LOCKFAST_URL gives it"], ""),
    claim("lockfast env --json", "", 0, &["\"source\":\"variable\""], ""),
    claim("lockfast bench cycle --tasks 4 --seconds 1", "", 0, &[], ""),
    claim("lockfast bench handover --waiters 4 --seconds 1", "", 0, &[], ""),
    claim("lockfast bench renew --leases 100 --seconds 1", "", 0, &[], ""),
    claim(BASH, "", 0, &[], ""),
    claim(ZSH, "", 0, &[], ""),
    claim(FISH, "", 0, &[], ""),
    claim("lockfast man > lockfast.1", "", 0, &[], ""),
    claim("lockfast man --dir ~/.local/share/man/man1", "", 0, &[], ""),
    claim("lockfast torture --on embedded: --seed 7 --plan", "", 0, &[], ""),
];

/// Programs that the snippets start, beside `cargo`.
const PROGRAMS: [&str; 6] = ["make", "curl", "do-something", "sync-mail", "report", "importer"];
const SCRIPTS: [&str; 5] = ["report.sh", "call-api", "scheduler.sh", "rates.sh", "write-report.sh"];

/// Folders that the snippets write into, at home.
const FOLDERS: [&str; 4] = [
    ".config/fish/completions",
    ".local/share/bash-completion/completions",
    ".local/share/man/man1",
    ".zfunc",
];

/// Notes its name and arguments.
const STUB: &str = "#!/bin/sh\necho \"${0##*/} $*\" >> calls\n";

/// Starts the command as `cargo run` would, and looks whether the rest could be done.
const CARGO: &str = "#!/bin/sh
case \"$*\" in
'run --bin lockfast -- '*) shift 4; exec lockfast \"$@\" ;;
'xtask test') grep -q 'xtask = ' ROOT/.cargo/config.toml && grep -q '\"test\"' ROOT/xtask/src/main.rs ;;
'install --path '*) grep -q 'name = \"lockfast\"' \"ROOT/$3/Cargo.toml\" ;;
'add lockfast --path '*' --features redis') grep -q 'name = \"lockfast\"' \"ROOT/$4/Cargo.toml\" && grep -q '^redis = ' \"ROOT/$4/Cargo.toml\" ;;
*) false ;;
esac && echo \"cargo $*\" >> calls
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page for users, from the root.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![PathBuf::from("README.md"), "crates/lockfast-cli/README.md".into()];
    for folder in ["docs/guides", "docs/migrate"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            pages.push(Path::new(folder).join(entry.unwrap().file_name()));
        }
    }
    pages
}

/// The blocks of a page that a shell, cron or systemd is to run, as scripts.
fn blocks_of(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```").filter(|kind| !kind.is_empty()) else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let commands: Vec<&str> = match kind {
            "sh" => block,
            // After five fields of time, and in one entry of a service.
            "cron" => block
                .into_iter()
                .filter(|line| !line.starts_with('#'))
                .map(|line| line.splitn(6, char::is_whitespace).nth(5).unwrap().trim_start())
                .map(|line| &line[line.find("lockfast").unwrap()..])
                .collect(),
            "ini" => block.iter().filter_map(|line| line.strip_prefix("ExecStart=")).collect(),
            _ => continue,
        };
        blocks.push(commands.join("\n"));
    }
    blocks
}

/// The examples of every command's help.
fn examples(sandbox: &Sandbox) -> Vec<String> {
    let helps = manual::commands(sandbox).into_iter().map(|path| manual::help(sandbox, &path));
    let block = |help: String| {
        let (_, examples) = help.split_once("Examples:\n")?;
        let lines = examples.lines().map_while(|line| line.strip_prefix("  "));
        Some(lines.collect::<Vec<_>>().join("\n"))
    };
    helps.filter_map(block).collect()
}

/// The snippets of a block: all of it when that is claimed, else each line without its comment.
fn snippets_of(block: &str) -> Vec<String> {
    if CLAIMS.iter().any(|claim| claim.snippet == block) {
        return vec![block.to_owned()];
    }
    let lines = block.lines().map(|line| line.split(" #").next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A directory with everything that the snippets start.
fn prepare() -> Sandbox {
    let sandbox = Sandbox::new();
    let place = |name: &str, text: &str| {
        std::fs::write(sandbox.path(name), text).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(sandbox.path(name), executable).unwrap();
    };
    std::fs::create_dir(sandbox.path("bin")).unwrap();
    FOLDERS.iter().for_each(|name| std::fs::create_dir_all(sandbox.path(name)).unwrap());
    symlink(env!("CARGO_BIN_EXE_lockfast"), sandbox.path("bin/lockfast")).unwrap();
    PROGRAMS.iter().for_each(|name| place(&format!("bin/{name}"), STUB));
    SCRIPTS.iter().for_each(|name| place(name, STUB));
    let gate = TableGate::new(Dialect::Sqlite, "account/7").unwrap();
    Connection::open(sandbox.path("app.db")).unwrap().execute(gate.setup(), []).unwrap();
    std::fs::write(sandbox.path("database-url"), "sqlite:app.db\n").unwrap();
    place("bin/cargo", &CARGO.replace("ROOT", &root().display().to_string()));
    sandbox
}

fn play(sandbox: &Sandbox, claim: &Claim) -> Finished {
    let bin = sandbox.path("bin").display().to_string();
    let snippet = claim.snippet.replace("/usr/local/bin", &bin);
    let script = match claim.code {
        130 => format!("timeout --preserve-status --signal=INT 1 sh -c '{snippet}'"),
        _ => snippet,
    };
    let mut command = sandbox.shell(&script);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{bin}:{path}"));
    Running::new(command).finish()
}

/// `N` for each number, so that a text can be compared.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        match character.is_ascii_digit() {
            true if shown.ends_with('N') => {}
            true => shown.push('N'),
            false => shown.push(character),
        }
    }
    shown
}

#[test]
fn every_snippet_does_what_its_page_says() {
    for claim in CLAIMS {
        let sandbox = prepare();
        if !claim.taken.is_empty() {
            sandbox.run(["acquire", claim.taken, "--ttl", "60s"]).expect(0);
        }
        let finished = match claim.code {
            ANY => play(&sandbox, claim),
            code => play(&sandbox, claim).expect(code),
        };
        let said = finished.stdout + &finished.stderr;
        assert!(said.is_empty() || !claim.snippet.contains(" -q "), "{}: {said}", claim.snippet);
        for words in claim.prints {
            let found = said.contains(words) || without_numbers(&said).contains(words);
            assert!(found, "{}: no {words:?} in {said}", claim.snippet);
        }
        let calls = sandbox.read("calls");
        let called = match claim.calls {
            "" => calls.is_empty(),
            expected => calls.contains(expected) || without_numbers(&calls).contains(expected),
        };
        assert!(called, "{}: {:?} and not {calls:?}", claim.snippet, claim.calls);
        if claim.snippet.contains("--at-least") {
            // It is kept although the command has ended.
            assert!(!sandbox.run(["list"]).expect(0).stdout.is_empty(), "{}", claim.snippet);
        } else if claim.taken.is_empty() {
            eventually("nothing to be held", || sandbox.run(["list"]).expect(0).stdout.is_empty());
        }
    }
}

#[test]
fn every_snippet_of_a_page_is_tried_and_every_claim_is_made() {
    let mut blocks = examples(&Sandbox::new());
    assert!(blocks.len() >= 2, "the help has examples");
    for page in pages() {
        blocks.extend(blocks_of(&std::fs::read_to_string(root().join(page)).unwrap()));
    }
    let told: BTreeSet<String> = blocks.iter().flat_map(|block| snippets_of(block)).collect();
    let tried: BTreeSet<String> = CLAIMS.iter().map(|claim| claim.snippet.to_owned()).collect();
    let untried: Vec<_> = told.difference(&tried).collect();
    assert!(untried.is_empty(), "nobody tries {untried:#?}");
    let untold: Vec<_> = tried.difference(&told).collect();
    assert!(untold.is_empty(), "no page has {untold:#?}");
}

/// B249: a script took the lock's name in its environment for the lock, and `at` and others keep an
/// environment for later.
#[test]
fn a_script_that_locks_itself_believes_no_environment() {
    let page = std::fs::read_to_string(root().join("docs/migrate/flock.md")).unwrap();
    let row = page.lines().find(|line| line.contains("FLOCKER")).unwrap();
    let idiom = row.split(" | ").nth(1).unwrap().trim_matches(['`', '|', ' ']).replace("\\|", "|");
    let sandbox = prepare();
    let script = format!("#!/bin/sh\n{idiom}\necho \"$LOCKFAST_NAME $*\" >> ran\n");
    std::fs::write(sandbox.path("bin/script"), script).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(sandbox.path("bin/script"), executable).unwrap();
    let holder = sandbox.hold(&["backup"], "touch started; while ! [ -e go ]; do sleep 0.01; done");
    let mut command = sandbox.shell("exec ./bin/script a b");
    command.env("LOCKFAST_NAME", "backup");
    let waiting = Running::new(command);
    eventually("the script to wait", || {
        sandbox.run(["show", "backup", "--json"]).expect(0).json()["waiting"] == 1
    });
    assert_eq!(sandbox.read("ran"), "");
    std::fs::write(sandbox.path("go"), "").unwrap();
    holder.finish().expect(0);
    waiting.finish().expect(0);
    assert_eq!(sandbox.read("ran"), "backup a b\n");
}
