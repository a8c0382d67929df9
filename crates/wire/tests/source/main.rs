//! Reading and decoding: against tshark, against what was written, and on damaged files.

mod cases;
mod damage;
mod decoding;
mod features;
mod files;
mod frames;
mod oracle;
