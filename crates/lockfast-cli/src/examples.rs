//! The examples that `--help` and the manual pages show. A test runs every line of them.

/// Of `lockfast` itself.
pub(crate) const MAIN: &str = "Examples:
  lockfast run nightly-report ./report.sh
  lockfast show nightly-report
  lockfast env";

pub(crate) const RUN: &str = "Examples:
  lockfast run nightly-report ./report.sh
  lockfast run nightly-report -n -E 0 -q -- ./report.sh
  lockfast run build --permits 4 -w 10m make
  lockfast run nightly-report -c './report.sh | gzip > report.gz'";

pub(crate) const ONCE: &str = "Examples:
  lockfast once nightly-report --at-most 10m -- ./report.sh
  lockfast once nightly-report --at-most 10m --at-least 1m -E 0 -q -- ./report.sh";

pub(crate) const ELECT: &str = "Examples:
  lockfast elect scheduler --ttl 10s -- ./scheduler.sh";

pub(crate) const REFRESH: &str = "Examples:
  lockfast refresh exchange-rates --for 5m -- ./rates.sh
  lockfast refresh exchange-rates --for 5m --stale-for 1m -- ./rates.sh";

pub(crate) const FENCE: &str = "Examples:
  lockfast run report -- lockfast fence check --file report.fence -- ./write-report.sh
  lockfast fence open --file report.fence --lock report --fence 42";

pub(crate) const FENCE_CHECK: &str = "Examples:
  lockfast run report -- lockfast fence check --file report.fence -- ./write-report.sh";

pub(crate) const FENCE_OPEN: &str = "Examples:
  lockfast fence open --file report.fence --lock report --fence 42
  lockfast fence open --sql sqlite:app.db --lock account/7 --fence 42
  lockfast fence open --sql - --lock account/7 --fence 42 < database-url";

pub(crate) const ACQUIRE: &str = "Examples:
  out=$(lockfast acquire backup --ttl 10m --try) || exit
  eval \"$out\"
  do-something --fencing-token \"$fence\"
  echo \"$holder\" | lockfast release backup --holder -";

pub(crate) const RENEW: &str = "Examples:
  out=$(lockfast acquire backup --ttl 10m) || exit
  eval \"$out\"
  echo \"$holder\" | lockfast renew backup --holder - --ttl 20m || exit
  echo \"$holder\" | lockfast release backup --holder -";

pub(crate) const RELEASE: &str = "Examples:
  out=$(lockfast acquire backup --ttl 10m) || exit
  eval \"$out\"
  echo \"$holder\" | lockfast release backup --holder -";

pub(crate) const SHOW: &str = "Examples:
  lockfast show nightly-report
  lockfast show nightly-report --json";

pub(crate) const LIST: &str = "Examples:
  lockfast list
  lockfast list --prefix night --json";

pub(crate) const WATCH: &str = "Examples:
  lockfast watch
  lockfast watch nightly-report";

pub(crate) const FORCE_RELEASE: &str = "Examples:
  lockfast force-release nightly-report --yes --reason \"host is gone\"
  lockfast force-release backup --yes --reason \"host is gone\" --expect-fence 42";

pub(crate) const MIGRATE: &str = "Examples:
  lockfast migrate
  lockfast migrate --json";

pub(crate) const DOCTOR: &str = "Examples:
  lockfast doctor
  lockfast doctor --quiet";

pub(crate) const ENV: &str = "Examples:
  lockfast env
  lockfast env --json";

pub(crate) const BENCH: &str = "Examples:
  lockfast bench cycle --tasks 4 --seconds 1
  lockfast bench handover --waiters 4 --seconds 1";

pub(crate) const BENCH_CYCLE: &str = "Examples:
  lockfast bench cycle --tasks 4 --seconds 1";

pub(crate) const BENCH_HANDOVER: &str = "Examples:
  lockfast bench handover --waiters 4 --seconds 1";

pub(crate) const BENCH_RENEW: &str = "Examples:
  lockfast bench renew --leases 100 --seconds 1";

pub(crate) const TORTURE: &str = "Examples:
  lockfast torture --on embedded: --seed 7 --plan";

pub(crate) const COMPLETIONS: &str = "Examples:
  lockfast completions bash > ~/.local/share/bash-completion/completions/lockfast
  lockfast completions zsh > ~/.zfunc/_lockfast
  lockfast completions fish > ~/.config/fish/completions/lockfast.fish";

pub(crate) const MAN: &str = "Examples:
  lockfast man > lockfast.1
  lockfast man --dir ~/.local/share/man/man1";
