//! Which word of a command line is what, by the definition of the options alone: so that the command
//! of a job needs no `--` before it, and so that a shell can ask what may come next.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use crate::exit::Failure;

/// A command line, read word by word from the left.
pub(crate) struct Scan<'a> {
    command: &'a Command,
    /// How many positional words the command was given.
    positionals: usize,
    /// The option whose value is the next word.
    pending: Option<&'a Arg>,
    /// Whether `--` was read, after which nothing is an option.
    is_escaped: bool,
    /// The values of options, in the order in which they were read.
    values: Vec<(&'a Arg, OsString)>,
    /// Whether the last word was options that take no value.
    is_after_flag: bool,
}

/// A word that is no option that the command has, so that nothing is known about what follows it.
pub(crate) struct Unknown;

impl<'a> Scan<'a> {
    /// At the start of a line of this command, which was built.
    pub(crate) fn new(command: &'a Command) -> Self {
        Self {
            command,
            positionals: 0,
            pending: None,
            is_escaped: false,
            values: Vec::new(),
            is_after_flag: false,
        }
    }

    /// Reads the next word.
    ///
    /// # Errors
    /// When it looks like an option and is none of the command's.
    pub(crate) fn read(&mut self, word: &OsStr) -> Result<(), Unknown> {
        let values = self.values.len();
        let is_option = self.pending.is_none() && !self.is_plain(word) && word != "--";
        self.read_as_what_it_is(word)?;
        self.is_after_flag = is_option && self.pending.is_none() && self.values.len() == values;
        Ok(())
    }

    fn read_as_what_it_is(&mut self, word: &OsStr) -> Result<(), Unknown> {
        if let Some(option) = self.pending.take() {
            self.values.push((option, word.to_owned()));
        } else if word == "--" && !self.is_escaped {
            self.is_escaped = true;
        } else if self.is_plain(word) {
            self.read_plain(word);
        } else {
            self.read_option(word.to_str().ok_or(Unknown)?)?;
        }
        Ok(())
    }

    fn read_plain(&mut self, word: &OsStr) {
        let is_first = self.positionals == 0 && !self.is_escaped;
        match self.command.find_subcommand(word).filter(|_| is_first) {
            Some(command) => self.command = command,
            None => self.positionals += 1,
        }
    }

    fn read_option(&mut self, word: &str) -> Result<(), Unknown> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |it| (it.0, Some(it.1)));
            let option = self.find(|option| option.get_long() == Some(name))?;
            match value {
                Some(value) => self.values.push((option, value.into())),
                None => self.pending = Some(option).filter(|option| takes_value(option)),
            }
            return Ok(());
        }
        let mut letters = word.chars().skip(1);
        while let Some(letter) = letters.next() {
            let option = self.find(|option| option.get_short() == Some(letter))?;
            if takes_value(option) {
                match letters.collect::<String>() {
                    rest if rest.is_empty() => self.pending = Some(option),
                    rest => self.values.push((option, rest.into())),
                }
                break;
            }
        }
        Ok(())
    }

    fn find(&self, is_meant: impl Fn(&Arg) -> bool) -> Result<&'a Arg, Unknown> {
        self.command.get_arguments().find(|option| is_meant(option)).ok_or(Unknown)
    }

    /// Whether a word is no option here.
    fn is_plain(&self, word: &OsStr) -> bool {
        self.is_escaped || word == "-" || !word.as_encoded_bytes().starts_with(b"-")
    }

    /// Whether the next word, if it is this one, is the first of a command that is to be run.
    fn starts_job(&self, word: &OsStr) -> bool {
        let (last, others): (Vec<&Arg>, Vec<&Arg>) =
            self.command.get_positionals().partition(|arg| arg.is_last_set());
        let is_next = !last.is_empty() && self.positionals == others.len();
        is_next && self.pending.is_none() && self.is_plain(word)
    }

    /// The option or the positional that the next word is for, unless that is free to be an option.
    pub(crate) fn expects(&self, word: &OsStr) -> Option<&'a Arg> {
        if self.pending.is_some() {
            return self.pending;
        }
        if !self.is_plain(word) {
            return None;
        }
        self.command.get_positionals().nth(self.positionals).filter(|arg| !arg.is_last_set())
    }

    /// The option of `--OPTION=VALUE`, the start of such a word, and the value.
    pub(crate) fn split<'w>(&self, word: &'w OsStr) -> Option<(&'a Arg, &'w str, &'w str)> {
        let word = word.to_str().filter(|_| !self.is_escaped && self.pending.is_none())?;
        let at = word.strip_prefix("--")?.find('=')? + 3;
        let (start, value) = word.split_at(at);
        let name = start.trim_start_matches("--").trim_end_matches('=');
        let option = self.find(|option| option.get_long() == Some(name)).ok()?;
        takes_value(option).then_some((option, start, value))
    }

    /// Whether a word that starts with - is no option.
    pub(crate) fn is_escaped(&self) -> bool {
        self.is_escaped
    }

    /// The command whose words are read.
    pub(crate) fn command(&self) -> &str {
        self.command.get_name()
    }

    /// The last value that an option was given.
    pub(crate) fn value(&self, name: &str) -> Option<&OsStr> {
        let values = self.values.iter().rev();
        values.into_iter().find(|(option, _)| option.get_id() == name).map(|(_, value)| &**value)
    }
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// The same line with `--` before the command that is to be run, where it has none. Everything after
/// the first word of that command belongs to it.
///
/// # Errors
/// When the name of the lock may have been meant as a number for the option before it: with `consul
/// lock -n 3` three may have a lock, and here `-n` takes no value.
pub(crate) fn separated(
    command: &Command,
    mut words: Vec<OsString>,
) -> Result<Vec<OsString>, Failure> {
    let mut scan = Scan::new(command);
    let mut found = None;
    let mut doubtful = None;
    for (at, word) in words.iter().enumerate().skip(1) {
        if scan.is_escaped {
            break;
        }
        if scan.starts_job(word) {
            found = Some(at);
            break;
        }
        if scan.is_after_flag && is_number(word) {
            doubtful = Some(at);
        }
        // What is no option of ours is told to be none.
        if scan.read(word).is_err() {
            break;
        }
    }
    match (found, doubtful) {
        (Some(_), Some(at)) => Err(doubt(&scan, &words[at - 1], &words[at])),
        (Some(at), None) => {
            words.insert(at, "--".into());
            Ok(words)
        }
        (None, _) => Ok(words),
    }
}

/// Why a number after a flag is not taken for the name of a lock.
fn doubt(scan: &Scan<'_>, flag: &OsStr, number: &OsStr) -> Failure {
    let (flag, number) = (flag.to_string_lossy(), number.to_string_lossy());
    let permits = match scan.find(|option| option.get_id() == "permits") {
        Ok(_) => format!("write --permits {number} if so many may have it at once, or "),
        Err(Unknown) => "write ".to_owned(),
    };
    Failure::usage(format!(
        "{flag} takes no value, so {number} would be the name of the lock; {permits}-- before the \
         command if that is its name"
    ))
}

fn is_number(word: &OsStr) -> bool {
    !word.is_empty() && word.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

/// Whether the line asks for JSON, also where it is wrong otherwise.
pub(crate) fn asks_for_json(words: &[OsString]) -> bool {
    let ours = words.split(|word| word == "--").next().unwrap_or_default();
    ours.iter().any(|word| word == "--json" || word == "--format=json")
        || ours.windows(2).any(|pair| pair[0] == "--format" && pair[1] == "json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory as _;

    fn built() -> Command {
        let mut command = Args::command();
        command.build();
        command
    }

    fn split(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_first_word_after_the_name_starts_the_command() {
        for (line, at) in [
            ("lockfast run x ls -l --json", 3),
            ("lockfast run x ls -- -l", 3),
            ("lockfast --on embedded: run --ttl 5s x --try ls --try", 8),
            ("lockfast --on=embedded: -v run -nqE 0 x ls", 7),
            ("lockfast run -w5s x -E0 ls", 5),
            ("lockfast run -w 5s --label run x ls", 7),
            ("lockfast run x - -l", 3),
            ("lockfast once x --at-most 5m ls", 5),
            ("lockfast elect x ls", 3),
            ("lockfast refresh --for 5m x ls", 5),
            ("lockfast fence check --file gate ls", 5),
        ] {
            let words = separated(&built(), split(line)).unwrap();
            let mut expected = split(line);
            expected.insert(at, "--".into());
            assert_eq!(words, expected, "{line}");
        }
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "lockfast",
            "lockfast run x",
            "lockfast run x -- ls -l",
            "lockfast run -- x ls",
            "lockfast run x --tll 5s ls",
            "lockfast run -name ls",
            "lockfast run x -c ls",
            "lockfast show x y",
            "lockfast watch x y",
            "lockfast fence open --file gate ls",
            "lockfast runn x ls",
        ] {
            assert_eq!(separated(&built(), split(line)).unwrap(), split(line), "{line}");
        }
    }

    #[test]
    fn a_number_that_may_be_the_value_of_a_flag_is_no_name() {
        for (line, is_doubtful) in [
            ("lockfast run -n 3 x ls", true),
            ("lockfast run --try 3 ls", true),
            ("lockfast run -qn 3 ls", true),
            ("lockfast run -n 3 -- ls", false),
            ("lockfast run -n 3", false),
            ("lockfast run -n x 3", false),
            ("lockfast run -w 5s 3 ls", false),
            ("lockfast run -nw5s 3 ls", false),
            ("lockfast run -n -E 3 x ls", false),
            ("lockfast run --permits=3 3 ls", false),
            ("lockfast run 3 -n ls", false),
            ("lockfast -v 3 ls", false),
        ] {
            let refused = separated(&built(), split(line)).err();
            assert_eq!(refused.is_some(), is_doubtful, "{line}");
            let said = refused.as_ref().and_then(Failure::message).unwrap_or_default();
            assert!(!is_doubtful || said.contains("write --permits 3"), "{said}");
        }
    }

    #[test]
    fn json_is_asked_for_before_the_command_only() {
        for (line, asks) in [
            ("lockfast show --json", true),
            ("lockfast --format json show", true),
            ("lockfast --format=json show", true),
            ("lockfast show x", false),
            ("lockfast run x -- jq --json", false),
        ] {
            assert_eq!(asks_for_json(&split(line)), asks, "{line}");
        }
    }

    #[test]
    fn what_the_next_word_is_for() {
        let command = built();
        for (line, word, id) in [
            ("show", "", Some("name")),
            ("show", "-", Some("name")),
            ("show", "--", None),
            ("--on a show", "x", Some("name")),
            ("run --ttl", "5", Some("ttl")),
            ("run x", "l", None),
            ("run x --", "l", None),
            ("list", "x", None),
            ("show --on", "pr", Some("on")),
            ("watch", "", Some("name")),
        ] {
            let mut scan = Scan::new(&command);
            let words = line.split(' ').map(OsStr::new);
            assert!(words.into_iter().all(|word| scan.read(word).is_ok()), "{line}");
            let expected = scan.expects(OsStr::new(word)).map(|arg| arg.get_id().as_str());
            assert_eq!(expected, id, "{line} {word}");
        }
    }

    #[test]
    fn the_last_value_counts() {
        let command = built();
        let mut scan = Scan::new(&command);
        for word in ["--on", "a", "show", "--on=b", "-v"] {
            assert!(scan.read(OsStr::new(word)).is_ok());
        }
        assert_eq!(scan.value("on"), Some(OsStr::new("b")));
        assert_eq!(scan.value("config"), None);
    }
}
