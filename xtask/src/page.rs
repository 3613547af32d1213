//! Pages of the documentation with a part that a command writes, between marks that name it.

use anyhow::{Context as _, Result, bail};

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
}
