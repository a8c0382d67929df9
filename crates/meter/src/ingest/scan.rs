//! Incremental JSON from a [`Source`]: objects and arrays are entered, values below them are returned as raw
//! bytes. A document of any size therefore needs no more memory than its largest span, an invalid value is
//! skipped without losing the next one, and a truncated document retains the part before the cut.

use super::source::{Place, Source};
use memchr::memchr3;
use std::fmt;

/// Maximum size of a single value.
const MAX_VALUE_BYTES: usize = 256 << 20;

/// The text is not JSON from this place on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// Place of the error.
    pub place: Place,
    /// Expected content.
    pub expected: &'static str,
    /// Content found instead.
    pub found: Found,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

/// What was found instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An unexpected byte.
    Byte(u8),
    /// The end of the line, in input with one document per line.
    EndOfLine,
    /// The end of the input.
    End,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Byte(byte) if byte.is_ascii_graphic() => write!(f, "{:?}", *byte as char),
            Found::Byte(byte) => write!(f, "byte 0x{byte:02x}"),
            Found::EndOfLine => f.write_str("the end of the line"),
            Found::End => f.write_str("the end of the input"),
        }
    }
}

/// The raw text of a value.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'s> {
    /// Its bytes.
    pub json: &'s [u8],
    /// Its start.
    pub place: Place,
}

/// JSON scanner.
pub struct Scanner<'a> {
    source: Source<'a>,
    /// Whether a newline always ends a document.
    by_line: bool,
}

const ORDINARY: u8 = 0;
const QUOTE: u8 = 1;
const OPEN: u8 = 2;
const CLOSE: u8 = 3;
const NEWLINE: u8 = 4;
const ESCAPE: u8 = 5;

const CLASS: [u8; 256] = {
    let mut class = [ORDINARY; 256];
    class[b'"' as usize] = QUOTE;
    class[b'{' as usize] = OPEN;
    class[b'[' as usize] = OPEN;
    class[b'}' as usize] = CLOSE;
    class[b']' as usize] = CLOSE;
    class[b'\n' as usize] = NEWLINE;
    class[b'\\' as usize] = ESCAPE;
    class
};

impl<'a> Scanner<'a> {
    /// A scanner; inspects the first lines to determine whether every line is a document.
    pub fn new(mut source: Source<'a>) -> Self {
        if source.fill(3) && source.rest().starts_with(b"\xef\xbb\xbf") {
            source.consume(3);
        }
        let mut scanner = Scanner { source, by_line: false };
        scanner.next_document();
        while !scanner.source.rest().contains(&b'\n') && scanner.source.rest().len() < 4 * MAX_FIRST_LINE {
            if !scanner.source.more() {
                break;
            }
        }
        scanner.by_line = one_document_a_line(scanner.source.rest());
        scanner
    }

    /// The underlying source, at the current position.
    pub fn into_source(self) -> Source<'a> {
        self.source
    }

    /// Whether every line is a document.
    pub fn by_line(&self) -> bool {
        self.by_line
    }

    /// Place of the next byte.
    pub fn place(&self) -> Place {
        self.source.place()
    }

    /// Advances to the next document and returns its first byte; `None` at the end of the input.
    pub fn next_document(&mut self) -> Option<u8> {
        loop {
            let blank = self.source.rest().iter().take_while(|b| b.is_ascii_whitespace()).count();
            self.source.consume(blank);
            match self.source.rest().first().copied() {
                Some(byte) => return Some(byte),
                None if self.source.more() => {}
                None => return None,
            }
        }
    }

    /// Skips the rest of the line, including the newline.
    pub fn skip_line(&mut self) {
        loop {
            let rest = self.source.rest();
            match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => {
                    self.source.consume(at + 1);
                    return;
                }
                None => {
                    self.source.consume(self.source.rest().len());
                    if !self.source.more() {
                        return;
                    }
                }
            }
        }
    }

    /// An error at the current place.
    fn broken(&mut self, expected: &'static str) -> Broken {
        let found = match self.source.fill(1) {
            false => Found::End,
            true => match self.source.rest()[0] {
                b'\n' if self.by_line => Found::EndOfLine,
                byte => Found::Byte(byte),
            },
        };
        Broken { place: self.place(), expected, found }
    }

    /// The next non-blank byte; `None` at the end of the document.
    pub fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = self.source.rest();
            let blank = |b: &u8| matches!(b, b' ' | b'\t' | b'\r') || (*b == b'\n' && !self.by_line);
            let blanks = rest.iter().take_while(|b| blank(b)).count();
            if blanks > 0 {
                self.source.consume(blanks);
            }
            match self.source.rest().first().copied() {
                // Other newlines are already skipped.
                Some(b'\n') => return None,
                Some(byte) => return Some(byte),
                None if self.source.more() => {}
                None => return None,
            }
        }
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Result<(), Broken> {
        if self.peek() == Some(byte) {
            self.source.consume(1);
            Ok(())
        } else {
            Err(self.broken(expected))
        }
    }

    /// Enters an object.
    pub fn enter_object(&mut self) -> Result<(), Broken> {
        self.expect(b'{', "an object")
    }

    /// Enters an array.
    pub fn enter_array(&mut self) -> Result<(), Broken> {
        self.expect(b'[', "an array")
    }

    /// Whether the next value is `null`, which is then skipped.
    pub fn null(&mut self) -> Result<bool, Broken> {
        if self.peek() != Some(b'n') {
            return Ok(false);
        }
        match self.value()?.json {
            b"null" => Ok(true),
            _ => Err(self.broken("a value before this")),
        }
    }

    /// The next key of the object, past its colon; `None` at the end of the object. `first` starts as true.
    pub fn key(&mut self, first: &mut bool) -> Result<Option<String>, Broken> {
        if self.item(first, b'}', "a comma or the end of the object")? {
            return Ok(None);
        }
        if self.peek() != Some(b'"') {
            return Err(self.broken("a key in quotes"));
        }
        let place = self.place();
        let key = serde_json::from_slice(self.value()?.json);
        let key =
            key.map_err(|_| Broken { place, expected: "a key of valid text", found: Found::Byte(b'"') })?;
        self.expect(b':', "a colon")?;
        Ok(Some(key))
    }

    /// Whether the array has a next element. `first` starts as true.
    pub fn element(&mut self, first: &mut bool) -> Result<bool, Broken> {
        Ok(!self.item(first, b']', "a comma or the end of the array")?)
    }

    /// Skips the comma before an item; true at the closing bracket, which is skipped too.
    fn item(&mut self, first: &mut bool, close: u8, expected: &'static str) -> Result<bool, Broken> {
        match self.peek() {
            Some(byte) if byte == close => {
                self.source.consume(1);
                return Ok(true);
            }
            Some(b',') if !*first => {
                self.source.consume(1);
                if self.peek() == Some(close) {
                    return Err(self.broken("a value after the comma"));
                }
            }
            Some(_) if *first => {}
            _ => return Err(self.broken(expected)),
        }
        *first = false;
        Ok(false)
    }

    /// The next value, complete.
    pub fn value(&mut self) -> Result<Raw<'_>, Broken> {
        let next = self.peek();
        let place = self.place();
        match next {
            Some(b'}' | b']' | b',' | b':') | None => return Err(self.broken("a value")),
            Some(_) => {}
        }
        let len = self.scan(true)?;
        Ok(Raw { json: self.source.consume(len), place })
    }

    /// Skips the next value. Its content is not checked, except for brackets and quotes.
    pub fn skip(&mut self) -> Result<(), Broken> {
        match self.peek() {
            Some(b'}' | b']' | b',' | b':') | None => return Err(self.broken("a value")),
            Some(_) => {}
        }
        let len = self.scan(false)?;
        self.source.consume(len);
        Ok(())
    }

    /// Finds the end of the value that starts at the window's first byte. Unless `keep` is set, scanned bytes
    /// are consumed whenever the window is exhausted, and the remaining length is returned.
    fn scan(&mut self, keep: bool) -> Result<usize, Broken> {
        let (mut at, mut depth, mut in_string) = (0usize, 0usize, false);
        loop {
            let rest = self.source.rest();
            loop {
                if in_string {
                    // Most bytes are those of strings.
                    at += memchr3(b'"', b'\\', b'\n', &rest[at..]).unwrap_or(rest.len() - at);
                }
                let Some(byte) = rest.get(at) else { break };
                let class = CLASS[*byte as usize];
                if in_string {
                    match class {
                        QUOTE => {
                            in_string = false;
                            if depth == 0 {
                                return Ok(at + 1);
                            }
                        }
                        ESCAPE if at + 1 < rest.len() => at += 1,
                        ESCAPE => break,
                        NEWLINE => {
                            self.source.consume(at);
                            return Err(self.broken("the end of a string"));
                        }
                        _ => {}
                    }
                } else {
                    match class {
                        QUOTE => in_string = true,
                        OPEN => depth += 1,
                        CLOSE if depth == 0 => return Ok(at),
                        CLOSE => {
                            depth -= 1;
                            if depth == 0 {
                                return Ok(at + 1);
                            }
                        }
                        NEWLINE if self.by_line && depth > 0 => {
                            self.source.consume(at);
                            return Err(self.broken("the end of a value"));
                        }
                        _ if depth == 0 && (*byte == b',' || byte.is_ascii_whitespace()) => return Ok(at),
                        _ => {}
                    }
                }
                at += 1;
            }
            if at > MAX_VALUE_BYTES {
                self.source.consume(at.min(self.source.rest().len()));
                return Err(self.broken("a value of at most 256 MiB"));
            }
            if !keep {
                self.source.consume(at);
                at = 0;
            }
            if !self.source.more() {
                // Only a number or a word can end with the input.
                if depth == 0 && !in_string {
                    return Ok(at);
                }
                self.source.consume(self.source.rest().len());
                return Err(self.broken(if in_string {
                    "the end of a string"
                } else {
                    "the end of a value"
                }));
            }
        }
    }
}

/// Maximum part of the first line that is inspected.
const MAX_FIRST_LINE: usize = 256 << 10;

/// Whether every line is a document: the first line is one, or it is broken and the second starts a new one.
/// A first line beyond the inspected length is assumed to be a document: no writer wraps lines that long.
fn one_document_a_line(text: &[u8]) -> bool {
    let mut lines = text.splitn(3, |byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default().trim_ascii();
    let Some(second) = lines.next() else { return true };
    let (mut depth, mut in_string, mut escaped) = (0i64, false, false);
    for byte in first {
        match CLASS[*byte as usize] {
            _ if escaped => escaped = false,
            ESCAPE if in_string => escaped = true,
            QUOTE => in_string = !in_string,
            OPEN if !in_string => depth += 1,
            CLOSE if !in_string => depth -= 1,
            _ => {}
        }
    }
    let complete = depth <= 0 && !in_string;
    let starts_anew = [&b"{\"resourceSpans\""[..], b"{\"resource_spans\"", b"[{\""];
    complete || (first.len() > 1 && starts_anew.iter().any(|start| second.starts_with(start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::ops::ControlFlow;

    /// Returns one byte per read, so that every value crosses the window's end.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            buf[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn with<T>(text: &str, work: impl FnOnce(&mut Scanner<'_>) -> T) -> T {
        let mut go_on = || ControlFlow::Continue(());
        work(&mut Scanner::new(Source::new(Box::new(Dribble(text.as_bytes())), &mut go_on)))
    }

    #[test]
    fn values_are_returned_verbatim() {
        let text = r#" [ {"a": "}\"]\\", "b": [1, {"c": null}]}, "x,y", -1.5e3 ,true, [] ]"#;
        let values = with(text, |scanner| {
            scanner.enter_array().unwrap();
            let (mut first, mut values) = (true, Vec::new());
            while scanner.element(&mut first).unwrap() {
                values.push(String::from_utf8(scanner.value().unwrap().json.to_vec()).unwrap());
            }
            values
        });
        let expected = [r#"{"a": "}\"]\\", "b": [1, {"c": null}]}"#, r#""x,y""#, "-1.5e3", "true", "[]"];
        assert_eq!(values, expected);
    }

    #[test]
    fn skipping_a_value_stops_at_its_end() {
        with(r#"{"a": {"x": "}}"}, "b": 7, "c" : "d"} "#, |scanner| {
            scanner.enter_object().unwrap();
            let (mut first, mut keys) = (true, Vec::new());
            while let Some(key) = scanner.key(&mut first).unwrap() {
                scanner.skip().unwrap();
                keys.push(key);
            }
            assert_eq!(keys, ["a", "b", "c"]);
            assert_eq!(scanner.peek(), None);
        });
    }

    #[test]
    fn errors_state_their_place() {
        let broken = with("[1, 2\n,, 3]", |scanner| {
            scanner.enter_array().unwrap();
            let mut first = true;
            loop {
                match scanner.element(&mut first) {
                    Ok(_) => match scanner.value() {
                        Ok(_) => {}
                        Err(broken) => return broken,
                    },
                    Err(broken) => return broken,
                }
            }
        });
        assert_eq!(broken.place, Place { offset: 7, line: Some(2) });
        assert_eq!(broken.to_string(), "expected a value, found ','");
    }

    #[test]
    fn one_document_per_line_is_detected() {
        assert!(one_document_a_line(b"{\"a\": [1]}\n{\"a\": 2}\n"));
        assert!(one_document_a_line(b"{\"resourceSpans\":[]}"));
        assert!(one_document_a_line(b"{\"resourceSpans\":[{\"re\n{\"resourceSpans\":[]}\n"));
        assert!(!one_document_a_line(b"{\n  \"resourceSpans\": []\n}"));
        assert!(!one_document_a_line(b"[\n{\"traceId\":\"1\"},\n{\"traceId\":\"2\"}\n]"));
        assert!(!one_document_a_line(b"{\"resourceSpans\":[\n{\"resource\":{}}]}"));
    }

    #[test]
    fn a_newline_ends_a_broken_document() {
        with("{\"a\": [1, \"x\n{\"b\": 2}\n", |scanner| {
            scanner.by_line = true;
            scanner.enter_object().unwrap();
            let mut first = true;
            assert_eq!(scanner.key(&mut first).unwrap().as_deref(), Some("a"));
            let broken = scanner.value().unwrap_err();
            assert_eq!(broken.to_string(), "expected the end of a string, found the end of the line");
            scanner.skip_line();
            assert_eq!(scanner.next_document(), Some(b'{'));
            scanner.enter_object().unwrap();
            assert_eq!(scanner.key(&mut true).unwrap().as_deref(), Some("b"));
        });
    }
}
