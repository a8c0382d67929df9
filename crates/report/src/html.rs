//! Text inside HTML and SVG.

/// Escapes text for an element or a quoted attribute. Replaces characters that XML does not allow: names of
/// processes and methods may contain any.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\t' | '\n' => safe.push(letter),
            none if none.is_control() || none == '\u{fffe}' || none == '\u{ffff}' => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_has_a_meaning_loses_it() {
        assert_eq!(escaped("<a b='\"&\u{1}'>\n"), "&lt;a b=&#39;&quot;&amp;\u{fffd}&#39;&gt;\n");
    }

    proptest! {
        #[test]
        fn text_comes_back_as_it_was(text in "\\PC{0,40}") {
            let safe = escaped(&text);
            prop_assert!(!safe.contains(['<', '>', '"', '\'']), "{}", safe);
            let names = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
            let read = names.iter().fold(safe, |text, (name, letter)| text.replace(name, letter));
            prop_assert_eq!(read, text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"));
        }
    }
}
