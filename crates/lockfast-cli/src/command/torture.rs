//! `lockfast torture`: whether a store keeps its promises while processes die and connections
//! break.

use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lockfast_core::error::quote;
use lockfast_core::{ClientId, view};
use lockfast_torture::director::{self, Options, Progress, Told};
use lockfast_torture::fault::{self, Selection};
use lockfast_torture::judge::{self, Tally, Verdict};
use lockfast_torture::rig::{self, Row};
use lockfast_torture::route::Route;
use lockfast_torture::schedule::{self, Terms};
use lockfast_torture::{history, referee, summary};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Global, Torture};
use crate::exit::{CONFIG, FOUND_ALLOWED, FOUND_BROKEN, Failure, INTERNAL, Outcome, UNAVAILABLE};
use crate::output::Output;
use crate::plan::{self, Store};

const TTL_DEFAULT: Duration = Duration::from_secs(2);

/// More would only be a mistake.
const MINUTES_MAX: f64 = 7.0 * 24.0 * 60.0;

/// Between two lines of progress where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Tortures a store.
///
/// # Errors
/// For what was typed, and when the store or the servers cannot be used.
///
/// # Cancel safety
/// Not safe: the fleet ends by itself, but nobody waits for it.
pub(crate) async fn run(args: &Torture, global: &Global, output: &Output) -> Outcome {
    if let Some(recorded) = &args.judge {
        return judge_again(recorded, args.out.as_deref(), output);
    }
    let (store, row) = choose(args, global, output)?;
    let (terms, left_out) = terms(args, &store, row)?;
    for sentence in left_out {
        output.note(&sentence);
    }
    if args.plan {
        return show_plan(&terms, output);
    }
    if let Some(row) = row {
        row.check().map_err(|error| Failure::new(UNAVAILABLE, error.to_string()))?;
    }
    let directory = make_directory(args.out.as_deref(), terms.seed)?;
    output.note(&format!("seed {}; recorded in {}", terms.seed, directory.display()));
    let options = Options { store, terms, tasks: args.tasks, directory };
    let mut display = Display::new(&options, output);
    let ended = director::run(&options, interruption()?, &mut |told| display.show(told)).await;
    display.bar.finish_and_clear();
    let verdict = ended.map_err(|failure| match failure {
        director::Failure::Store(error) => error.into(),
        director::Failure::Unsuitable(message) => Failure::new(CONFIG, message),
        other => Failure::new(INTERNAL, other.to_string()),
    })?;
    show_verdict(&verdict, &options.directory, output)
}

/// Judges what an earlier run recorded.
fn judge_again(recorded: &Path, out: Option<&Path>, output: &Output) -> Outcome {
    let refuse = |path: &Path, error: std::io::Error| {
        Failure::new(CONFIG, format!("{} cannot be judged: {error}", path.display()))
    };
    let is_whole = recorded.file_name().is_some_and(|name| name == history::MERGED);
    let into = match (out, recorded.parent()) {
        (Some(out), _) => {
            std::fs::create_dir_all(out).map_err(|error| refuse(out, error))?;
            out
        }
        _ if recorded.is_dir() => recorded,
        (None, Some(parent)) if is_whole && parent.as_os_str().is_empty() => Path::new("."),
        (None, Some(parent)) if is_whole => parent,
        _ => {
            let name = quote(&recorded.display().to_string());
            let flaw = if recorded.exists() {
                "is not the directory of a run; say with --out where to put the report"
            } else {
                "does not exist; give the directory of a run or its history.jsonl"
            };
            return Err(Failure::usage(format!("--judge {name} {flaw}")));
        }
    };
    let verdict = referee::conclude(recorded, into).map_err(|error| refuse(recorded, error))?;
    show_verdict(&verdict, into, output)
}

fn show_verdict(verdict: &Verdict, directory: &Path, output: &Output) -> Outcome {
    if output.json() {
        let value = serde_json::to_value(verdict);
        output.value(&value.map_err(|error| Failure::internal("no verdict", error))?)?;
    } else {
        output.table(summary::text(verdict).trim_end())?;
    }
    output.note(&format!("report: {}", directory.join(referee::REPORT).display()));
    let is_found = |tally: &Tally| tally.allowed > 0;
    match verdict.outcome {
        judge::Outcome::Broken => Ok(FOUND_BROKEN),
        judge::Outcome::Kept if verdict.found.values().any(is_found) => Ok(FOUND_ALLOWED),
        judge::Outcome::Kept => Ok(0),
        judge::Outcome::Incomplete => {
            Err(Failure::new(INTERNAL, format!("not judged: {}", verdict.notes.join("; "))))
        }
    }
}

/// Where the locks are.
fn choose(
    args: &Torture,
    global: &Global,
    output: &Output,
) -> Result<(director::Store, Option<&'static Row>), Failure> {
    let Some(name) = &args.with else {
        let url = Store::choose(global, output)?.url().to_owned();
        return Ok((director::Store::Url(url), None));
    };
    if global.on.is_some() {
        return Err(Failure::usage("--on and --with are two stores; give one of them"));
    }
    let row = rig::row(name).ok_or_else(|| {
        let known: Vec<&str> = rig::ROWS.iter().map(|row| row.name).collect();
        let known = known.join(", ");
        Failure::usage(format!("--with {} is not known; there is {known}", quote(name)))
    })?;
    Ok((director::Store::Rig(row), Some(row)))
}

/// What the schedule follows from, and what is left out of it.
fn terms(
    args: &Torture,
    store: &director::Store,
    row: Option<&'static Row>,
) -> Result<(Terms, Vec<String>), Failure> {
    let no_proxy = match store {
        director::Store::Url(url) => Route::of(url).err(),
        director::Store::Rig(row) if row.proxied => None,
        director::Store::Rig(_) => Some("no proxy can stand before these servers"),
    };
    let selected = fault::select(&args.faults, row, no_proxy);
    let Selection { faults, left_out } =
        selected.map_err(|flaw| Failure::usage(format!("--faults: {flaw}")))?;
    let terms = Terms {
        seed: args.seed.map_or_else(random_seed, Ok)?,
        lasts: minutes(args.minutes)?,
        ttl: args.ttl.as_deref().map_or(Ok(TTL_DEFAULT), plan::ttl)?,
        processes: args.processes,
        servers: row.map_or(0, |row| row.servers),
        faults,
    };
    Ok((terms, left_out))
}

fn minutes(minutes: f64) -> Result<Duration, Failure> {
    if minutes > 0.0 && minutes <= MINUTES_MAX {
        return Ok(Duration::from_secs_f64(minutes * 60.0));
    }
    Err(Failure::usage(format!(
        "--minutes {minutes} is not possible; give more than 0 and at most {MINUTES_MAX}, for \
         example 10 or 0.5"
    )))
}

/// A seed that is easy to type.
fn random_seed() -> Result<u64, Failure> {
    let random = ClientId::random()?;
    Ok(random.as_bytes().iter().take(4).fold(0, |seed, byte| seed << 8 | u64::from(*byte)))
}

fn show_plan(terms: &Terms, output: &Output) -> Outcome {
    output.note(&format!("seed {}", terms.seed));
    for entry in schedule::make(terms) {
        if output.json() {
            output.value(&json!({
                "number": entry.number,
                "at_ms": entry.at.as_millis() as u64,
                "lasts_ms": entry.lasts.as_millis() as u64,
                "fault": entry.fault.name(),
                "target": entry.target(),
            }))?;
        } else {
            output.line(&entry.to_string())?;
        }
    }
    Ok(0)
}

/// The directory that was asked for, which holds nothing, or a new one beside what is there.
fn make_directory(asked: Option<&Path>, seed: u64) -> Result<PathBuf, Failure> {
    let create = |path: &Path| std::fs::create_dir(path);
    let refuse = |path: &Path, error: std::io::Error| {
        Failure::new(CONFIG, format!("{} cannot be used: {error}", path.display()))
    };
    if let Some(path) = asked {
        match create(path) {
            Ok(()) => return Ok(path.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(refuse(path, error)),
        }
        let mut entries = std::fs::read_dir(path).map_err(|error| refuse(path, error))?;
        return match entries.next() {
            None => Ok(path.to_owned()),
            Some(_) => Err(Failure::usage(format!(
                "--out {} is not empty; give a new directory",
                quote(&path.display().to_string())
            ))),
        };
    }
    let mut path = PathBuf::from(format!("lockfast-torture-{seed}"));
    let mut number = 1;
    loop {
        match create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                number += 1;
                path = PathBuf::from(format!("lockfast-torture-{seed}-{number}"));
            }
            Err(error) => return Err(refuse(&path, error)),
        }
    }
}

/// Ends when somebody wants the run to end.
fn interruption() -> Result<impl Future<Output = ()>, Failure> {
    let listen =
        |kind| signal(kind).map_err(|error| Failure::internal("no signal handlers", error));
    let mut signals = [
        listen(SignalKind::interrupt())?,
        listen(SignalKind::terminate())?,
        listen(SignalKind::hangup())?,
    ];
    Ok(poll_fn(move |context| {
        let came = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if came { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }))
}

/// Shows how far a run is.
struct Display<'a> {
    output: &'a Output,
    bar: ProgressBar,
    /// When the next line is due where there is no bar.
    line_due: Duration,
}

impl<'a> Display<'a> {
    fn new(options: &Options, output: &'a Output) -> Self {
        let bar = if output.is_terminal() {
            let bar = ProgressBar::new(options.terms.lasts.as_secs());
            if let Ok(style) = ProgressStyle::with_template("[{bar:20}] {eta} left, {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        } else {
            ProgressBar::hidden()
        };
        Self { output, bar, line_due: LINE_INTERVAL }
    }

    fn show(&mut self, told: Told) {
        match told {
            Told::Note(note) => self.bar.suspend(|| self.output.warn(&note)),
            Told::Progress(progress) => self.progress(&progress),
            Told::Judging => self.bar.set_message("judging"),
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let Progress { elapsed, lasts, begun, planned, counts } = progress;
        let mut message = format!("{begun} of {planned} faults");
        if let Some(counts) = counts {
            message.push_str(&format!(
                ", {} holds, {} lost, {} waiting, {} writes refused, {} overlaps, {} promises broken",
                counts.granted,
                counts.losses,
                counts.waiting,
                counts.writes_refused,
                counts.overlaps,
                counts.broken
            ));
        }
        if self.output.is_terminal() {
            self.bar.set_position(elapsed.as_secs());
            self.bar.set_message(message);
        } else if *elapsed >= self.line_due {
            self.line_due += LINE_INTERVAL;
            let (elapsed, lasts) = (view::brief(*elapsed), view::brief(*lasts));
            self.output.note(&format!("{elapsed} of {lasts}, {message}"));
        }
    }
}
