//! Reading and decoding: compared with tshark, with the written content, and on damaged files.

mod cases;
mod damage;
mod decoding;
mod features;
mod files;
mod frames;
mod oracle;
