//! Two jobs and an operator on three terminals, as a picture of what the command really prints. Each
//! line is pale until it was printed; where pictures do not move, all of them are there.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::step::{Step, timed};
use crate::tree;

const PICTURE: &str = "docs/img/terminals.svg";

/// A line that somebody types.
struct Typed {
    terminal: usize,
    at: Duration,
    line: &'static str,
}

const RUN: &str = "lockfast run nightly-report ./report.sh";
const SCENE: [Typed; 4] = [
    typed(0, 500, RUN),
    typed(1, 2000, RUN),
    typed(2, 4000, "lockfast list"),
    typed(2, 9000, "lockfast force-release nightly-report --yes --reason \"wrong data\""),
];
const TERMINALS: usize = 3;
/// The job: long enough for everything that happens meanwhile.
const REPORT: &str = "#!/bin/sh\necho \"writing the report\"\nsleep 6\necho \"report written\"\n";
/// What must be seen, or the machine was too busy for a recording.
const SEEN: [(usize, &str); 5] = [
    (0, "report written"),
    (1, "next in the queue"),
    (1, "was lost"),
    (1, "120"),
    (2, "exclusive"),
];
/// The longest time without a new line.
const SILENCE: Duration = Duration::from_secs(30);

const fn typed(terminal: usize, at: u64, line: &'static str) -> Typed {
    Typed { terminal, at: Duration::from_millis(at), line }
}

/// A line on a terminal.
struct Shown {
    terminal: usize,
    at: Duration,
    text: String,
}

/// Records, and prints the picture or writes it beside the pages.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let writes = match arguments {
        [] => false,
        [argument] if argument == "--write" => true,
        _ => bail!("record takes --write and nothing else"),
    };
    timed("build", || Step::cargo(&["build", "--locked", "-p", "lockfast-cli"]).run())?;
    let picture = draw(&timed("record", record)?);
    if writes {
        std::fs::write(tree::root()?.join(PICTURE), picture)?;
        println!("written to {PICTURE}");
    } else {
        println!("{picture}");
    }
    Ok(())
}

/// Types the scene into shells, and answers all lines in the order of their times.
#[allow(clippy::disallowed_methods, reason = "when a line of a picture appears decides nothing")]
fn record() -> Result<Vec<Shown>> {
    let folder = tempfile::tempdir()?;
    // A shell writes it, so that no file that we have open is executed.
    let script = format!("cat > report.sh <<'END'\n{REPORT}END\nchmod +x report.sh");
    shell(folder.path(), &script)?.status()?;
    let (sender, lines) = channel();
    let start = Instant::now();
    for Typed { terminal, at, line } in SCENE {
        sleep(at.saturating_sub(start.elapsed()));
        let text = format!("$ {line}");
        sender.send(Shown { terminal, at: start.elapsed(), text })?;
        let command = shell(folder.path(), &format!("{line} 2>&1"))?;
        let sender = sender.clone();
        thread::spawn(move || watch(command, terminal, start, &sender));
    }
    drop(sender);
    let mut shown = Vec::new();
    while let Ok(line) = lines.recv_timeout(SILENCE) {
        shown.push(line);
    }
    for (terminal, text) in SEEN {
        if !shown.iter().any(|line| line.terminal == terminal && line.text.contains(text)) {
            bail!("terminal {} never shows {text:?}; is the machine busy?", terminal + 1);
        }
    }
    Ok(shown)
}

/// A line for the shell, with the command that was just built and a store of its own.
fn shell(folder: &Path, line: &str) -> Result<Command> {
    let path = std::env::var("PATH").context("there is no PATH")?;
    let built = tree::target()?.join("debug");
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).stdin(Stdio::null());
    for name in ["LOCKFAST_URL", "RUST_LOG"] {
        command.env_remove(name);
    }
    command.env("PATH", format!("{}:{path}", built.display())).env("LC_ALL", "C.UTF-8");
    command.env("XDG_STATE_HOME", folder).env("XDG_CONFIG_HOME", folder);
    Ok(command)
}

/// Sends each line when it comes, and the exit code of what fails.
fn watch(
    mut command: Command,
    terminal: usize,
    start: Instant,
    sender: &Sender<Shown>,
) -> Option<()> {
    let send = |text| sender.send(Shown { terminal, at: start.elapsed(), text }).ok();
    let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
    for line in BufReader::new(child.stdout.take()?).lines() {
        send(line.ok()?)?;
    }
    let code = child.wait().ok()?.code().filter(|code| *code != 0)?;
    send("$ echo $?".to_owned())?;
    send(code.to_string())
}

/// How many characters a terminal has across, and how many points a line has down.
const COLUMNS: usize = 94;
const LINE: usize = 18;
const WIDTH: usize = 760;

const STYLE: &str = "<style>
  text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; fill: #1f2328; }
  .title { font: 600 12px system-ui, -apple-system, \"Segoe UI\", Helvetica, Arial, sans-serif; fill: #57606a; }
  .typed { font-weight: 600; fill: #0550ae; }
  .pane { fill: #f6f8fa; stroke: #d0d7de; }
  .line { animation: appear 0.1s both; }
  @keyframes appear { from { opacity: 0.25; } }
  @media (prefers-reduced-motion: reduce) { .line { animation: none; } }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .title { fill: #8b949e; }
    .typed { fill: #79c0ff; }
    .pane { fill: #0d1117; stroke: #30363d; }
  }
</style>
";
const SHOWS: &str = "The first job runs. The second waits, and says who holds the lock. lockfast list shows \
                     both. The second runs when the first has ended; an operator takes the lock away, the \
                     command is stopped, and the exit code is 120.";

fn draw(shown: &[Shown]) -> String {
    let mut panes = String::new();
    let mut top = 0;
    for terminal in 0..TERMINALS {
        let lines: Vec<(&Shown, Vec<String>)> = shown
            .iter()
            .filter(|line| line.terminal == terminal)
            .map(|line| (line, wrapped(&line.text)))
            .collect();
        let rows: usize = lines.iter().map(|(_, rows)| rows.len()).sum();
        let height = 36 + LINE * rows;
        let _ = writeln!(
            panes,
            "<rect class=\"pane\" x=\"0.5\" y=\"{top}.5\" width=\"{}\" height=\"{height}\" rx=\"8\"/>\n\
             <text class=\"title\" x=\"16\" y=\"{}\">terminal {}</text>",
            WIDTH - 1,
            top + 20,
            terminal + 1,
        );
        let mut y = top + 20;
        for (line, rows) in lines {
            let class = if line.text.starts_with("$ ") { "line typed" } else { "line" };
            for row in rows {
                y += LINE;
                let _ = writeln!(
                    panes,
                    "<text class=\"{class}\" style=\"animation-delay: {:.1}s\" x=\"16\" \
                     y=\"{y}\">{}</text>",
                    line.at.as_secs_f64(),
                    escaped(&row),
                );
            }
        }
        top += height + 8;
    }
    let height = top - 7;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\">\n\
         <title>Two jobs and one lock</title>\n<desc>{SHOWS}</desc>\n{STYLE}{panes}</svg>\n"
    )
}

/// A line as a terminal folds it, but between words.
fn wrapped(text: &str) -> Vec<String> {
    let mut rows = Vec::new();
    let mut rest = text;
    while let Some((end, _)) = rest.char_indices().nth(COLUMNS) {
        let at = rest[..end].rfind(' ').filter(|at| *at > 0).unwrap_or(end);
        rows.push(rest[..at].to_owned());
        rest = rest[at..].trim_start();
    }
    rows.push(rest.to_owned());
    rows
}

/// As text of a picture, in which several spaces would become one.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace("  ", "\u{a0}\u{a0}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn lines_appear_on_their_terminal_when_they_were_printed() {
        let line = |terminal, at, text: &str| Shown {
            terminal,
            at: Duration::from_millis(at),
            text: text.to_owned(),
        };
        let svg = draw(&[line(0, 500, "$ a <b>"), line(1, 1250, "c  f"), line(0, 2000, "d & e")]);
        let expected = "<text class=\"line typed\" style=\"animation-delay: 0.5s\" x=\"16\" \
                        y=\"38\">$ a &lt;b&gt;</text>\n";
        assert!(svg.contains(expected), "{svg}");
        let places =
            ["a &lt;", "d &amp; e", ">terminal 2<", ">c\u{a0}\u{a0}f<"].map(|text| svg.find(text));
        assert!(places.is_sorted() && places[0].is_some(), "{places:?}: {svg}");
    }

    #[test]
    fn long_lines_are_folded_between_words() {
        assert_eq!(wrapped("short  line"), ["short  line"]);
        assert_eq!(wrapped(&"ä".repeat(COLUMNS + 1)), ["ä".repeat(COLUMNS), "ä".into()]);
        let rows = wrapped(&format!("{} {}", "a".repeat(COLUMNS - 2), "b".repeat(9)));
        assert_eq!(rows, ["a".repeat(COLUMNS - 2), "b".repeat(9)]);
    }

    #[test]
    fn the_picture_is_of_this_scene() {
        let tree = Tree::load().unwrap();
        let picture = &tree.file(PICTURE).expect("cargo xtask record --write makes it").text;
        for Typed { line, .. } in SCENE {
            assert!(picture.contains(&format!(">$ {}<", escaped(line))), "{line}");
        }
        for (_, text) in SEEN {
            assert!(picture.contains(text), "{text}");
        }
    }

    #[test]
    fn options_are_checked() {
        assert!(run(&["--wrtie".into()]).is_err());
    }
}
