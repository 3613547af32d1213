//! Licence expressions: `MIT OR (Apache-2.0 AND Zlib)`, also in the old form `MIT/Apache-2.0`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};

/// Whether the allowed licences are enough to use what has this expression.
pub(super) fn permits(expression: &str, allowed: &BTreeSet<&str>) -> Result<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut reader = Reader { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let answer = reader.any()?;
    match reader.next() {
        None => Ok(answer),
        Some(word) => bail!("{word} is not expected there"),
    }
}

struct Reader<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a BTreeSet<&'a str>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_next);
        is_next
    }

    fn any(&mut self) -> Result<bool> {
        let mut answer = self.all()?;
        while self.takes("OR") {
            answer |= self.all()?;
        }
        Ok(answer)
    }

    fn all(&mut self) -> Result<bool> {
        let mut answer = self.one()?;
        while self.takes("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    fn one(&mut self) -> Result<bool> {
        let word = self.next().context("it ends too early")?;
        if word == "(" {
            let answer = self.any()?;
            return match self.takes(")") {
                true => Ok(answer),
                false => bail!("a parenthesis is not closed"),
            };
        }
        if [")", "AND", "OR", "WITH"].contains(&word) {
            bail!("{word} is not a licence");
        }
        if self.takes("WITH") {
            let exception = self.next().context("it ends too early")?;
            return Ok(self.allowed.contains(format!("{word} WITH {exception}").as_str()));
        }
        Ok(self.allowed.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_weighed() {
        let allowed = BTreeSet::from(["MIT", "Zlib", "Apache-2.0 WITH LLVM-exception"]);
        let table = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("MIT AND Zlib", true),
            ("GPL-3.0 OR MIT AND Zlib", true),
            ("(GPL-3.0 OR MIT) AND BSD-2-Clause", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
        ];
        for (expression, expected) in table {
            assert_eq!(permits(expression, &allowed).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for expression in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT MIT", "MIT WITH"] {
            assert!(permits(expression, &BTreeSet::new()).is_err(), "{expression}");
        }
    }
}
