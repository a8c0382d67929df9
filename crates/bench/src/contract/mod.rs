//! The protocol between tank or target and the programs that they start: `clients/CONTRACT.md` as types.

pub mod call_file;
mod flags;
pub mod message;
pub mod record;
pub mod settings;

pub use flags::FlagError;
pub use message::{ClientMessage, Histogram, Interval, Phase, TargetMessage};
pub use record::CallRecord;
pub use settings::{
    Call, Channels, ClientSettings, Nodelay, Pace, Records, ServeSettings, Stack, TargetStack,
};
