//! Pages of the documentation with a part that a command writes, between marks that name it.

use anyhow::{Context as _, Result, bail};

use crate::step::Step;
use crate::tree;

/// Writes the part of a page that a command makes.
pub(crate) fn write(page: &str, command: &str, text: &str) -> Result<()> {
    let path = tree::root()?.join(page);
    let old = std::fs::read_to_string(&path).with_context(|| format!("{page} is not there"))?;
    let new = replaced(&old, command, text).with_context(|| format!("{page} cannot be written"))?;
    std::fs::write(&path, new)?;
    println!("written to {page}");
    Ok(())
}

/// What stands between the marks, if they are there.
pub(crate) fn section<'a>(page: &'a str, command: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("<!-- begin: {command} -->\n"))?;
    rest.split_once(&format!("<!-- end: {command} -->")).map(|(text, _)| text)
}

/// What stands in the place of figures until there is a quiet machine to make them on.
pub(crate) fn not_measured(command: &str) -> String {
    format!("Not measured yet: run `{command} --write` on a machine that does nothing else.\n")
}

/// With which command figures were made, and when.
pub(crate) fn measured(command: &str) -> Result<String> {
    let today = Step::program("date", &["-u", "+%Y-%m-%d"]).read()?;
    Ok(format!("{}{}.\n", measured_start(command), today.trim()))
}

/// Whether a text says with which command and when it was measured.
pub(crate) fn is_measured(text: &str, command: &str) -> bool {
    let date = text.strip_prefix(&measured_start(command)).and_then(|rest| rest.get(..10));
    date.is_some_and(|date| date.chars().all(|c| c.is_ascii_digit() || c == '-'))
}

fn measured_start(command: &str) -> String {
    format!("Measured with `{command} --write` on ")
}

/// The page with another text between the marks.
fn replaced(page: &str, command: &str, text: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- begin: {command} -->"), format!("<!-- end: {command} -->"));
    let (before, rest) = page.split_once(&begin).with_context(|| format!("it lacks {begin}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("it lacks {end}"))?;
    if before.contains(&end) {
        bail!("it has {end} before {begin}");
    }
    Ok(format!("{before}{begin}\n{text}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = "a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb";
        let expected = "a\n<!-- begin: x -->\nnew\n<!-- end: x -->\nb";
        assert_eq!(replaced(page, "x", "new\n").unwrap(), expected);
        assert!(replaced(page, "y", "new\n").is_err());
        assert_eq!(section(page, "x"), Some("old\n"));
        assert_eq!(section(page, "y"), None);
        assert!(replaced("<!-- end: x --><!-- begin: x --><!-- end: x -->", "x", "").is_err());
    }

    #[test]
    fn figures_say_when_they_were_made() {
        assert!(is_measured(&measured("cargo xtask x").unwrap(), "cargo xtask x"));
        assert!(!is_measured(&measured("cargo xtask y").unwrap(), "cargo xtask x"));
        assert!(!is_measured(&not_measured("cargo xtask x"), "cargo xtask x"));
    }
}
