//! `eprintln!` and `eprint!` of this program: as the standard library's, but whoever closed standard error is not told.
//!
//! The standard ones panic then, and what a verb was about to do next, such as writing its report, is lost.

macro_rules! eprint {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // Nobody reads: there is nobody to tell that either.
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
