//! Text inside of HTML and SVG, and pages that need no other file.

use crate::palette;

const BASE: &str = include_str!("base.css");

/// Text as it stands in an element or in a quoted attribute. Characters that XML does not have are replaced: names of
/// processes and methods may have any.
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

/// Text in an element, with a class unless that is empty.
pub fn element(tag: &str, class: &str, text: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<{tag}{class}>{}</{tag}>\n", escaped(text))
}

/// A paragraph of words, in which `these` are code.
pub fn prose(class: &str, text: &str) -> String {
    let mut html = format!("<p class=\"{class}\">");
    let pieces: Vec<&str> = text.split('`').collect();
    let paired = pieces.len() % 2 == 1;
    for (place, piece) in pieces.iter().enumerate() {
        match place % 2 {
            1 if paired => html += &format!("<code>{}</code>", escaped(piece)),
            1 => html += &format!("`{}", escaped(piece)),
            _ if place > 0 && !paired => html += &format!("`{}", escaped(piece)),
            _ => html += &escaped(piece),
        }
    }
    html + "</p>\n"
}

/// A row of a table, its cells in elements of `tag`; those of which `is_figure` says so stand to the right.
pub fn row<Cell: AsRef<str>>(tag: &str, cells: &[Cell], is_figure: impl Fn(usize) -> bool) -> String {
    let mut html = String::from("<tr>");
    for (column, cell) in cells.iter().enumerate() {
        let class = if is_figure(column) { " class=\"figure\"" } else { "" };
        html += &format!("<{tag}{class}>{}</{tag}>", escaped(cell.as_ref()));
    }
    html + "</tr>\n"
}

/// A page without a script, which is not allowed to fetch anything. The title is text; style and content are as they are.
pub fn page(title: &str, style: &str, content: &str) -> String {
    framed(title, style, content, "")
}

/// A page whose content has a script inside. It may not fetch anything either.
pub fn page_with_script(title: &str, style: &str, content: &str) -> String {
    framed(title, style, content, "; script-src 'unsafe-inline'")
}

fn framed(title: &str, style: &str, content: &str, policy: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'unsafe-inline'{policy}\">\n<title>{}</title>\n<style>\n{}{BASE}{style}</style>\n</head>\n<body>\n<main>\n{content}</main>\n</body>\n</html>\n",
        escaped(title),
        palette::variables()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_has_a_meaning_loses_it() {
        assert_eq!(escaped("<a b='\"&\u{1}'>\n"), "&lt;a b=&#39;&quot;&amp;\u{fffd}&#39;&gt;\n");
    }

    #[test]
    fn a_title_cannot_end_itself() {
        let page = page("</title><script>", "p{}", "<p>x</p>\n");
        assert!(page.contains("<title>&lt;/title&gt;&lt;script&gt;</title>") && page.contains("<p>x</p>"));
    }

    #[test]
    fn a_page_fetches_nothing_and_has_a_script_only_when_told() {
        for (page, scripts) in [(page("t", "", ""), false), (page_with_script("t", "", ""), true)] {
            assert!(page.contains("default-src 'none'"), "{page}");
            assert_eq!(page.contains("script-src"), scripts, "{page}");
            assert!(!page.contains("http:") && !page.contains("https:"));
        }
    }

    #[test]
    fn elements_hold_text() {
        assert_eq!(element("p", "", "a<b"), "<p>a&lt;b</p>\n");
        assert_eq!(element("h1", "big", "a"), "<h1 class=\"big\">a</h1>\n");
        assert_eq!(prose("also", "run `a<b` now"), "<p class=\"also\">run <code>a&lt;b</code> now</p>\n");
        assert_eq!(prose("also", "one ` is none"), "<p class=\"also\">one ` is none</p>\n");
        assert_eq!(
            row("td", &["a", "<1"], |column| column == 1),
            "<tr><td>a</td><td class=\"figure\">&lt;1</td></tr>\n"
        );
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
