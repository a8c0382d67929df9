//! Frames and elements of pictures.

use crate::html::escaped;
use crate::palette;
use std::fmt::{self, Display, Formatter};

/// A coordinate or length: one decimal is finer than a pixel.
struct Figure(f64);

impl Display for Figure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rounded = (self.0 * 10.0).round() / 10.0;
        // Avoids `-0`.
        write!(f, "{}", if rounded == 0.0 { 0.0 } else { rounded })
    }
}

/// Alignment of text relative to its coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Starts there.
    Start,
    /// Centred there.
    Middle,
    /// Ends there.
    End,
}

fn class_attribute(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

/// Text at a point of its baseline.
pub fn text(class: &str, x: f64, y: f64, anchor: Anchor, words: &str) -> String {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    format!(
        "<text{} x=\"{}\" y=\"{}\"{anchor}>{}</text>\n",
        class_attribute(class),
        Figure(x),
        Figure(y),
        escaped(words)
    )
}

/// A rectangle.
#[derive(Clone, Copy, Debug)]
pub struct Rect {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub width: f64,
    /// Height.
    pub height: f64,
}

impl Rect {
    /// The rectangle as an element; `corner` is the radius of its corners.
    pub fn drawn(&self, class: &str, corner: f64) -> String {
        self.element(class, corner, "/>\n")
    }

    /// The same with a tooltip.
    pub fn told(&self, class: &str, corner: f64, words: &str) -> String {
        self.element(class, corner, &format!("><title>{}</title></rect>\n", escaped(words)))
    }

    fn element(&self, class: &str, corner: f64, end: &str) -> String {
        let corner = if corner > 0.0 { format!(" rx=\"{}\"", Figure(corner)) } else { String::new() };
        format!(
            "<rect{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{corner}{end}",
            class_attribute(class),
            Figure(self.x),
            Figure(self.y),
            Figure(self.width),
            Figure(self.height)
        )
    }
}

/// A picture: its size in its own units, and a description for screen readers.
#[derive(Clone, Copy, Debug)]
pub struct Picture<'a> {
    /// Class; empty for none.
    pub class: &'a str,
    /// Width in the units of what is drawn in it.
    pub width: f64,
    /// Height in the same units.
    pub height: f64,
    /// Description.
    pub label: &'a str,
}

impl Picture<'_> {
    /// A self-contained file for light and dark pages. The style names colours as `var(--name)`.
    pub fn file(&self, style: &str, content: &str) -> String {
        let (width, height) = (Figure(self.width), Figure(self.height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\"{}{} width=\"{width}\" height=\"{height}\">\n<style>{}</style>\n\
             <rect class=\"back\" width=\"{width}\" height=\"{height}\"/>\n{content}</svg>\n",
            class_attribute(self.class),
            self.attributes(),
            palette::literal(&format!(".back{{fill:var(--ground)}}{style}"))
        )
    }

    fn attributes(&self) -> String {
        format!(
            " viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\"",
            Figure(self.width),
            Figure(self.height),
            escaped(self.label)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: Picture<'_> = Picture { class: "map", width: 40.0, height: 12.34, label: "a <b>" };

    #[test]
    fn a_file_has_its_style() {
        let file = PICTURE.file("text{fill:var(--text)}", "<g/>");
        for needle in
            ["xmlns=", "viewBox=\"0 0 40 12.3\"", "a &lt;b&gt;", "fill:#1c2128", "fill:#e4e8ee", "<g/></svg>"]
        {
            assert!(file.contains(needle), "{needle} in {file}");
        }
        assert!(!file.contains("var(--"), "{file}");
        assert!(
            file.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"map\" viewBox="),
            "{file}"
        );
    }

    #[test]
    fn parts_are_escaped_and_rounded() {
        assert_eq!(text("", -0.01, 1.26, Anchor::Start, "<"), "<text x=\"0\" y=\"1.3\">&lt;</text>\n");
        assert_eq!(
            text("small", 1.0, 2.0, Anchor::End, "a"),
            "<text class=\"small\" x=\"1\" y=\"2\" text-anchor=\"end\">a</text>\n"
        );
        let rect = Rect { x: 0.04, y: 1.0, width: 2.55, height: 3.0 };
        assert_eq!(
            rect.drawn("a", 2.0),
            "<rect class=\"a\" x=\"0\" y=\"1\" width=\"2.6\" height=\"3\" rx=\"2\"/>\n"
        );
        assert!(rect.told("", 0.0, "a&b").ends_with("height=\"3\"><title>a&amp;b</title></rect>\n"));
    }
}
