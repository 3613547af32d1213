//! `lockfast completions`: scripts for shells. What only the store knows is asked of
//! [`complete`](super::complete).

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Outcome;
use crate::output::write_out;

const BASH: &str = include_str!("complete/lockfast.bash");
const FISH: &str = include_str!("complete/lockfast.fish");
const ZSH: &str = include_str!("complete/lockfast.zsh");

/// Prints the script.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn run(shell: Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "lockfast", &mut script);
    let script = String::from_utf8_lossy(&script);
    write_out(&match shell {
        Shell::Bash => of_bash(&script),
        Shell::Fish => format!("{script}\n{FISH}"),
        Shell::Zsh => of_zsh(&script),
        _ => script.into_owned(),
    })?;
    Ok(0)
}

/// Ours goes around the function that was generated.
fn of_bash(script: &str) -> String {
    format!("{BASH}\n{}", script.replace("complete -F _lockfast ", "complete -F _lockfast_ask "))
}

/// Ours takes the place of the files that are offered for the name of a lock and for a store. It is
/// given the words as they are before the function that was generated takes them apart.
fn of_zsh(script: &str) -> String {
    const START: &str = "_lockfast() {\n";
    let ours = "    local -a lockfast_typed\n    lockfast_typed=(\"${(@Q)words[2,CURRENT]}\")\n";
    let mut text = script.replacen(START, &format!("{ZSH}\n{START}{ours}"), 1);
    let lines = script.lines().filter(|line| {
        let is_name = line.starts_with("':name -- ") || line.starts_with("'::name -- ");
        is_name || line.starts_with("'--on=")
    });
    for line in lines {
        text = text.replace(line, &line.replace(":_default'", ":_lockfast_ask'"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_generated_has_the_form_that_is_changed() {
        for (shell, ours) in
            [(Shell::Bash, "complete -F _lockfast_ask "), (Shell::Zsh, "_lockfast_ask'")]
        {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "lockfast", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(!script.contains(ours), "{shell}");
            let script = if shell == Shell::Bash { of_bash(&script) } else { of_zsh(&script) };
            assert!(script.contains(ours), "{shell}");
            let name = ":name -- ";
            let names = script.lines().filter(|line| shell == Shell::Zsh && line.contains(name));
            for line in names {
                assert!(line.contains(ours), "{line}");
            }
            assert_eq!(script.contains("lockfast_typed=("), shell == Shell::Zsh, "{shell}");
        }
    }
}
