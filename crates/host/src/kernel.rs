//! What this kernel and this user allow, and what is lost where they do not.
