//! A Rust file as a compiler sees it: without comments and string contents, and with test code marked.

/// A Rust file, lexed as far as the checks need it.
pub struct RustSource {
    /// The text with comments and the contents of literals blanked; same lines, same columns.
    pub code: String,
    /// String literals as written, without quotes, with the line of their start, counted from 1.
    pub literals: Vec<(usize, String)>,
    /// For each line, from 0, whether it belongs to an item under `#[cfg(test)]`.
    test_lines: Vec<bool>,
}

impl RustSource {
    /// Lexes the text of a file.
    pub fn new(text: &str) -> RustSource {
        let (code, literals) = blank(text);
        let test_lines = test_lines(&code);
        RustSource { code, literals, test_lines }
    }

    /// Whether the line, counted from 1, is under `#[cfg(test)]`.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Every path in the code with its line, counted from 1; groups in `use` are expanded: `use std::{fs,
    /// io::Read}` contains `std::fs` and `std::io::Read`.
    pub fn paths(&self) -> Vec<(usize, String)> {
        let tokens = tokens(&self.code);
        let mut found = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            if matches!(tokens[at].1, Token::Word(_)) {
                at = path(&tokens, at, "", &mut found);
            } else {
                at += 1;
            }
        }
        found
    }

    /// Lines, counted from 1, that contain `word` as a whole word.
    pub fn lines_with<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let numbered = self.code.lines().enumerate();
        numbered.filter(move |(_, line)| has_word(line, word)).map(|(at, _)| at + 1)
    }
}

/// Whether `path` contains the consecutive parts of `wanted`: `a::Instant::now` contains `Instant::now`.
pub fn has_path(path: &str, wanted: &str) -> bool {
    let parts: Vec<&str> = path.split("::").collect();
    let wanted: Vec<&str> = wanted.split("::").collect();
    // A single part names a crate, which only comes first.
    match wanted.len() {
        1 => parts.len() > 1 && parts[0] == wanted[0],
        n => parts.windows(n).any(|some| some == wanted),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.as_bytes()[..at].last().is_some_and(|b| is_word(*b));
        let after = line.as_bytes().get(at + word.len()).is_some_and(|b| is_word(*b));
        !before && !after
    })
}

enum Token<'a> {
    Word(&'a str),
    PathSeparator,
    Other(u8),
}

fn tokens(code: &str) -> Vec<(usize, Token<'_>)> {
    let bytes = code.as_bytes();
    let (mut tokens, mut line, mut at) = (Vec::new(), 1, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\n' => line += 1,
            b if b.is_ascii_whitespace() => {}
            b if is_word(b) => {
                let end = at + bytes[at..].iter().take_while(|b| is_word(**b)).count();
                tokens.push((line, Token::Word(&code[at..end])));
                at = end;
                continue;
            }
            b':' if bytes.get(at + 1) == Some(&b':') => {
                tokens.push((line, Token::PathSeparator));
                at += 1;
            }
            b => tokens.push((line, Token::Other(b))),
        }
        at += 1;
    }
    tokens
}

/// Parses one path at `at`, which is a word, with everything in its groups; returns the index after it.
fn path(
    tokens: &[(usize, Token<'_>)],
    mut at: usize,
    prefix: &str,
    found: &mut Vec<(usize, String)>,
) -> usize {
    let mut whole = prefix.to_string();
    while let Some((line, Token::Word(word))) = tokens.get(at) {
        if !whole.is_empty() {
            whole.push_str("::");
        }
        whole.push_str(word);
        at += 1;
        if !matches!(tokens.get(at), Some((_, Token::PathSeparator))) {
            found.push((*line, whole));
            return at;
        }
        at += 1;
        if matches!(tokens.get(at), Some((_, Token::Other(b'{')))) {
            at += 1;
            while let Some((_, token)) = tokens.get(at) {
                match token {
                    Token::Word(_) => at = path(tokens, at, &whole, found),
                    Token::Other(b'}') => return at + 1,
                    _ => at += 1,
                }
            }
            return at;
        }
        if !matches!(tokens.get(at), Some((_, Token::Word(_)))) {
            // A glob or a turbofish.
            found.push((*line, whole + "::*"));
            return at;
        }
    }
    at
}

/// Blanks comments and the contents of string and character literals; returns the strings separately.
fn blank(text: &str) -> (String, Vec<(usize, String)>) {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut literals = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let after_word = out.last().is_some_and(|b| is_word(*b));
        let end = match rest {
            [b'/', b'/', ..] => at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', ..] => at + block_comment(rest),
            [b'"', ..] | [b'b' | b'c', b'"', ..] if rest[0] == b'"' || !after_word => {
                let open = rest.iter().position(|b| *b == b'"').unwrap_or(0) + 1;
                at + open + quoted(&rest[open..])
            }
            [b'r' | b'b' | b'c', ..] if !after_word && raw_string(rest).is_some() => {
                at + raw_string(rest).unwrap_or(1)
            }
            [b'\'', ..] => at + character(rest).unwrap_or(1),
            _ => at + 1,
        };
        if let ([b'"' | b'b' | b'c' | b'r', ..], true) = (rest, end > at + 1) {
            let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
            let literal = String::from_utf8_lossy(&bytes[at..end]);
            let inside = literal.trim_start_matches(['b', 'c', 'r']).trim_matches('#').trim_matches('"');
            literals.push((line, inside.to_owned()));
        }
        if end == at + 1 {
            out.push(bytes[at]);
        } else {
            out.extend(bytes[at..end].iter().map(|b| if *b == b'\n' { b'\n' } else { b' ' }));
        }
        at = end;
    }
    // Bytes of a non-ASCII character are blanked together or kept together.
    (String::from_utf8_lossy(&out).into_owned(), literals)
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    at
}

/// Length of the rest of a quoted literal, including its closing quote.
fn quoted(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of `r"…"`, `r#"…"#`, `br"…"`, if there is one here.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let marker = rest.iter().position(|b| *b == b'r').filter(|at| *at <= 1)? + 1;
    let hashes = rest[marker..].iter().take_while(|b| **b == b'#').count();
    let open = marker + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let length = rest[open + 1..].windows(close.len()).position(|w| w == close);
    Some(length.map_or(rest.len(), |n| open + 1 + n + close.len()))
}

/// Length of a character literal; `None` for a lifetime.
fn character(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return rest[3..].iter().position(|b| *b == b'\'').map(|n| n + 4);
    }
    let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
        .map_or_else(|e| std::str::from_utf8(&rest[1..1 + e.valid_up_to()]).ok(), Some)?
        .chars()
        .next()?
        .len_utf8();
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Marks the lines of every item under `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn test_lines(code: &str) -> Vec<bool> {
    let mut marked = vec![false; code.lines().count()];
    for attribute in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(attribute) {
            let mut depth = 0;
            let mut end = code.len();
            for (at, byte) in code.bytes().enumerate().skip(start + attribute.len()) {
                match byte {
                    b'{' | b'[' | b'(' => depth += 1,
                    b'}' | b']' | b')' => depth -= 1,
                    _ => {}
                }
                if depth == 0 && matches!(byte, b'}' | b';') {
                    end = at;
                    break;
                }
            }
            let line_of = |at: usize| code[..at].bytes().filter(|b| *b == b'\n').count();
            let last = line_of(end).min(marked.len().saturating_sub(1));
            marked[line_of(start)..=last].fill(true);
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blank() {
        let source = RustSource::new(
            "let a = \"tokio::x \\\" y\"; // std::fs\nlet b = r#\"std::net \" q\"#; /* a /* b */ Instant::now */\n\
             let c = ('\"', '\\'', b'x', \"unsafe\"); fn f<'a>(x: &'a str) { std::fs::read(x) }\n",
        );
        let paths: Vec<String> =
            source.paths().into_iter().map(|(_, p)| p).filter(|p| p.contains("::")).collect();
        assert_eq!(paths, ["std::fs::read"]);
        assert_eq!(source.code.lines().count(), 3);
        assert_eq!(source.lines_with("unsafe").count(), 0);
    }

    #[test]
    fn groups_of_use_are_spelled_out() {
        let source =
            RustSource::new("use std::{fs, io::{self, Read}};\nuse tokio::*;\nlet x = a::b::<u8>();");
        let paths = source.paths();
        for wanted in ["std::fs", "std::io::Read", "tokio::*", "a::b::*"] {
            assert!(paths.iter().any(|(_, path)| path == wanted), "{wanted} in {paths:?}");
        }
        assert!(has_path("std::time::Instant::now", "Instant::now"));
        assert!(has_path("tokio::net::TcpStream", "tokio"));
        assert!(!has_path("my::tokio", "tokio"));
    }

    #[test]
    fn test_items_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { if x { } }\n}\nfn c() {}\n#[cfg(test)]\nuse d;\nfn e() {}";
        let source = RustSource::new(text);
        let test: Vec<usize> = (1..=9).filter(|line| source.is_test_line(*line)).collect();
        assert_eq!(test, [2, 3, 4, 5, 7, 8]);
    }
}
