//! Lines of a report as text: a name in its column, then text that is wrapped or listed; figures that may be unknown.

use spangap_model::duration::format_ns;
use spangap_report::wrap::{wrap, wrap_list};
use std::fmt::{self, Formatter};

/// Maximum width of the output.
pub(super) const WIDTH: usize = 120;

/// A duration, or `n/a`.
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "n/a".to_owned(), format_ns)
}

/// A count, or that it is unknown.
pub(super) fn or_unknown(count: Option<u64>) -> String {
    count.map_or_else(|| "an unknown number".to_owned(), |count| count.to_string())
}

/// A total per call; `None` without calls.
pub(super) fn per_call(total: f64, calls: u64) -> Option<f64> {
    (calls > 0).then(|| total / calls as f64)
}

/// `name` in its column, then the text.
pub(super) fn write_text(f: &mut Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    let mut lines = String::new();
    wrap(&mut lines, &format!("{name:<10} "), text, WIDTH);
    f.write_str(&lines)
}

/// The same for parts that are not wrapped.
pub(super) fn write_list(f: &mut Formatter<'_>, name: &str, parts: &[String]) -> fmt::Result {
    let mut lines = String::new();
    wrap_list(&mut lines, &format!("{name:<10} "), parts, WIDTH);
    f.write_str(&lines)
}
