//! `eprintln!` and `eprint!` of this program: like the standard library's, but a closed standard error is
//! ignored.
//!
//! The standard macros panic then, and the rest of a verb's work, such as writing its report, would be lost.

macro_rules! eprint {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // A closed standard error cannot be reported anywhere.
        let _ = write!(std::io::stderr(), $($text)*);
    }};
}

macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // As above.
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}
