//! Rust source without what is not code: just enough of a lexer for counting lines and looking
//! for words.

/// A Rust file, taken apart.
pub(crate) struct Source {
    /// The text with comments blanked and literals filled, line by line as it was.
    pub(crate) code: String,
    tests: Vec<(usize, usize)>,
    is_test: bool,
}

impl Source {
    /// Takes a file apart. The path tells whether all of it is a test.
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let code = blank(text);
        let is_test = path.ends_with("/tests.rs")
            || path.ends_with("_test.rs")
            || path.split('/').any(|part| part == "tests")
            || code.contains("#![cfg(test)]");
        let tests = test_regions(&code);
        Self { code, tests, is_test }
    }

    /// Lines that hold code, from 1, without tests.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..)
            .zip(self.code.lines())
            .filter(|(number, line)| !line.trim().is_empty() && !self.is_in_test(*number))
    }

    /// Whether a line belongs to a test.
    pub(crate) fn is_in_test(&self, line: usize) -> bool {
        let inside = |(first, last): &(usize, usize)| (*first..=*last).contains(&line);
        self.is_test || self.tests.iter().any(inside)
    }

    /// Every function with a body: its name, and its first and last line.
    pub(crate) fn functions(&self) -> Vec<(&str, usize, usize)> {
        let mut found = Vec::new();
        for (at, _) in self.code.match_indices("fn ") {
            let is_word = !self.code[..at].ends_with(is_identifier);
            let rest = &self.code[at + 3..];
            let name = rest.split(|c| !is_identifier(c)).next().unwrap_or_default();
            if is_word
                && !name.is_empty()
                && let Some((_, end)) = block(&self.code, at)
            {
                found.push((name, line_of(&self.code, at), line_of(&self.code, end)));
            }
        }
        found
    }
}

fn is_identifier(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The line of a byte, from 1.
fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn test_regions(code: &str) -> Vec<(usize, usize)> {
    code.match_indices("#[cfg(test)]")
        .filter_map(|(at, _)| {
            let (_, end) = block(code, at + "#[cfg(test)]".len())?;
            Some((line_of(code, at), line_of(code, end)))
        })
        .collect()
}

/// The first `{` after `from` and its `}`; nothing when a `;` ends the item before.
fn block(code: &str, from: usize) -> Option<(usize, usize)> {
    let mut nesting = 0_usize;
    let mut open = None;
    let mut braces = 0_usize;
    for (offset, byte) in code[from..].bytes().enumerate() {
        let at = from + offset;
        match (byte, open) {
            (b'(' | b'[', None) => nesting += 1,
            (b')' | b']', None) => nesting = nesting.saturating_sub(1),
            (b';', None) if nesting == 0 => return None,
            (b'{', None) if nesting == 0 => {
                open = Some(at);
                braces = 1;
            }
            (b'{', Some(_)) => braces += 1,
            (b'}', Some(start)) => {
                braces -= 1;
                if braces == 0 {
                    return Some((start, at));
                }
            }
            _ => {}
        }
    }
    None
}

/// Replaces comments by spaces and the inside of literals by `_`, keeping every line.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = Vec::with_capacity(bytes.len());
    while code.len() < bytes.len() {
        let at = code.len();
        let rest = &bytes[at..];
        let after_word = code.last().is_some_and(|b: &u8| is_identifier(char::from(*b)));
        if rest.starts_with(b"//") {
            let length = rest.iter().position(|b| *b == b'\n');
            fill(&mut code, &rest[..length.unwrap_or(rest.len())], b' ');
        } else if rest.starts_with(b"/*") {
            fill(&mut code, &rest[..block_comment(rest)], b' ');
        } else if let Some(hashes) = raw_string(rest).filter(|_| !after_word) {
            fill(&mut code, &rest[..raw_length(rest, hashes)], b'_');
        } else if rest[0] == b'"' {
            let length = quoted_length(rest, b'"');
            fill(&mut code, &rest[..length], b'_');
            code[at] = b'"';
            if let Some(last) = code.last_mut() {
                *last = b'"';
            }
        } else if rest[0] == b'\'' && is_character(&text[at..]) {
            fill(&mut code, &rest[..quoted_length(rest, b'\'')], b'_');
        } else {
            code.push(rest[0]);
        }
    }
    // What was filled was whole characters, what was copied too.
    String::from_utf8_lossy(&code).into_owned()
}

fn fill(code: &mut Vec<u8>, given: &[u8], with: u8) {
    code.extend(given.iter().map(|byte| match byte {
        b'\n' | b' ' => *byte,
        _ => with,
    }));
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The number of `#` when a raw string starts here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = [&b"r"[..], b"br", b"cr"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let rest = &rest[prefix.len()..];
    let hashes = rest.iter().take_while(|b| **b == b'#').count();
    (rest.get(hashes) == Some(&b'"')).then_some(hashes)
}

fn raw_length(rest: &[u8], hashes: usize) -> usize {
    let mut end = vec![b'"'];
    end.resize(hashes + 1, b'#');
    let start = rest.iter().position(|b| *b == b'"').unwrap_or(0) + 1;
    let inside = rest[start..].windows(end.len()).position(|w| w == end);
    inside.map_or(rest.len(), |inside| start + inside + end.len())
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Whether a quote starts a character and not a lifetime.
fn is_character(rest: &str) -> bool {
    let mut characters = rest.chars().skip(1);
    match characters.next() {
        Some('\\') => true,
        Some(_) => characters.next() == Some('\''),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let table = [
            ("a // {\nb", "a     \nb"),
            ("a /* { /* x */ } */ b", "a                   b"),
            (r#"let s = "a\"{"; x"#, r#"let s = "____"; x"#),
            ("r#\"{\"\n\"# y", "_____\n__ y"),
            (r"'{' '\'' &'a T", "___ ____ &'a T"),
            ("for'b'", "for___"),
            ("br\"{\" var\"x\"", "_____ var\"_\""),
        ];
        for (given, expected) in table {
            assert_eq!(blank(given), expected, "{given}");
        }
    }

    #[test]
    fn functions_are_found_with_their_ends() {
        let text = "trait T { fn none(&self); }\n\
                    fn array() -> [u8; 4] {\n    [0; 4]\n}\n\
                    type F = fn (u8);\n\
                    async fn long(\n    a: u8,\n) {\n    { }\n}\n";
        let source = Source::new("a.rs", text);
        assert_eq!(source.functions(), [("array", 2, 4), ("long", 6, 10)]);
    }

    #[test]
    fn tests_do_not_count() {
        let text = "fn a() {}\n// why\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::new("src/a.rs", text);
        let lines: Vec<usize> = source.lines().map(|(number, _)| number).collect();
        assert_eq!(lines, [1, 8]);
        assert_eq!(Source::new("tests/a.rs", text).lines().count(), 0);
        let apart = Source::new("src/a.rs", "#[cfg(test)]\nmod tests;\nfn a() {}\n");
        assert!(!apart.is_in_test(3));
    }
}
