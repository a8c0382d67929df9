//! The simulated clock of a host, and this machine's.

use serde::{Deserialize, Serialize};
use spangap_model::clock::MAX_SKEW_PPM;
use spangap_model::duration::parse_ns;
use spangap_model::{Clock, Side};
use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

/// Maximum offset: a wrong time zone is plausible, more is not.
const MAX_OFFSET_NS: u64 = 24 * 3_600_000_000_000;

/// The clock of one host relative to this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostClock {
    #[serde(with = "side")]
    pub side: Side,
    /// Offset to this machine's clock at the start of the run; negative if it is behind.
    pub offset_ns: i64,
    /// Drift from then on, in parts per million.
    pub skew_ppm: f64,
}

impl HostClock {
    /// This clock, for a run that began at this time.
    pub(crate) fn since(&self, began_unix_ns: u64) -> Clock {
        let since_unix_ns = began_unix_ns.cast_signed();
        Clock { offset_ns: self.offset_ns, skew_ppm: self.skew_ppm, since_unix_ns }
    }
}

/// `server=+30ms,50ppm`
impl fmt::Display for HostClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.offset_ns < 0 { '-' } else { '+' };
        let offset = crate::scenario::Value::Duration(self.offset_ns.unsigned_abs());
        write!(f, "{}={sign}{offset}", self.side.name())?;
        if self.skew_ppm == 0.0 { Ok(()) } else { write!(f, ",{}ppm", self.skew_ppm) }
    }
}

impl FromStr for HostClock {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is not a clock: expected SIDE=OFFSET[,SKEW] such as server=+30ms or client=-250us,50ppm"
            )
        };
        let (side, rest) = text.split_once('=').ok_or_else(wrong)?;
        let side = side::named(side).ok_or_else(wrong)?;
        let (offset, skew) = rest.split_once(',').map_or((rest, None), |(offset, skew)| (offset, Some(skew)));
        let (negative, offset) = match offset.strip_prefix('-') {
            Some(offset) => (true, offset),
            None => (false, offset.strip_prefix('+').unwrap_or(offset)),
        };
        let offset_ns = parse_ns(offset)?;
        if offset_ns > MAX_OFFSET_NS {
            return Err(format!("{text:?}: expected an offset of a day at most"));
        }
        let offset_ns = offset_ns.cast_signed() * if negative { -1 } else { 1 };
        let skew_ppm = match skew {
            Some(skew) => skew.strip_suffix("ppm").and_then(|ppm| ppm.parse().ok()).ok_or_else(wrong)?,
            None => 0.0,
        };
        // Also rejects NaN.
        if !(-MAX_SKEW_PPM..=MAX_SKEW_PPM).contains(&skew_ppm) {
            return Err(format!("{text:?}: expected a skew of {MAX_SKEW_PPM} ppm at most"));
        }
        Ok(HostClock { side, offset_ns, skew_ppm })
    }
}

/// A side by its name.
mod side {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use spangap_model::Side;

    pub fn named(name: &str) -> Option<Side> {
        [Side::Client, Side::Server].into_iter().find(|side| side.name() == name)
    }

    pub fn serialize<S: Serializer>(side: &Side, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(side.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Side, D::Error> {
        let name = String::deserialize(from)?;
        named(&name).ok_or_else(|| D::Error::custom(format!("{name:?}: expected client or server")))
    }
}

pub fn now_unix_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clocks_as_they_are_typed() {
        let clock = |side, offset_ns, skew_ppm| Ok(HostClock { side, offset_ns, skew_ppm });
        assert_eq!("server=+30ms,50ppm".parse(), clock(Side::Server, 30_000_000, 50.0));
        assert_eq!("client=-250us,-12.5ppm".parse(), clock(Side::Client, -250_000, -12.5));
        assert_eq!("server=1s".parse(), clock(Side::Server, 1_000_000_000, 0.0));
        for (text, expected) in [
            ("server", "expected SIDE=OFFSET"),
            ("network=3ms", "expected SIDE=OFFSET"),
            ("server=3", "unit"),
            ("server=3ms,5", "expected SIDE=OFFSET"),
            ("server=3ms,NaNppm", "1000 ppm at most"),
            ("server=3ms,2000ppm", "1000 ppm at most"),
            ("server=2d", "a day at most"),
        ] {
            let error = text.parse::<HostClock>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_intervals_are_parsed(server in any::<bool>(), offset_ns in -86_400_000_000_000_i64..86_400_000_000_000, skew in -10_000..10_000_i32) {
            let side = if server { Side::Server } else { Side::Client };
            let clock = HostClock { side, offset_ns, skew_ppm: f64::from(skew) / 10.0 };
            prop_assert_eq!(clock.to_string().parse(), Ok(clock));
            let json = serde_json::to_string(&clock).expect("plain data");
            prop_assert_eq!(serde_json::from_str::<HostClock>(&json).expect("its own"), clock);
        }
    }
}
