//! Whether what was applied holds: by reading it back, and by what it does.
