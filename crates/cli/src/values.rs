//! Values of arguments that several verbs take: durations, sizes; and what is said when they contradict each other.

/// A duration such as `250us`, `10ms`, `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration(pub u64);

impl std::str::FromStr for Duration {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        spangap_model::duration::parse_ns(text).map(Duration)
    }
}

impl<'de> serde::Deserialize<'de> for Duration {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Duration {
    pub fn ns(self) -> u64 {
        self.0
    }

    /// As the standard library's duration.
    pub fn std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }
}

/// A size such as `100KiB`, `1GiB`, `4096`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let factor = match unit.trim() {
            "" | "B" => 1.0,
            "KiB" | "K" => 1024.0,
            "MiB" | "M" => 1024.0 * 1024.0,
            "GiB" | "G" => 1024.0 * 1024.0 * 1024.0,
            "KB" | "kB" => 1e3,
            "MB" => 1e6,
            "GB" => 1e9,
            _ => {
                return Err(format!(
                    "{text:?} is not a size: expected a number and a unit, such as 100KiB, 1GiB"
                ));
            }
        };
        let number: f64 = number
            .parse()
            .map_err(|_| format!("{text:?} is not a size: expected a number, such as 100KiB"))?;
        Ok(Size((number * factor) as u64))
    }
}

impl<'de> serde::Deserialize<'de> for Size {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Size {
    pub fn bytes(self) -> u64 {
        self.0
    }
}

/// Arguments that contradict each other, or the environment.
pub fn wrong_usage(why: impl std::fmt::Display) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::ArgumentConflict, format!("{why}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!("100KiB".parse(), Ok(Size(102_400)));
        assert_eq!("1GiB".parse(), Ok(Size(1 << 30)));
        assert_eq!("1.5MB".parse(), Ok(Size(1_500_000)));
        assert!("1 parsec".parse::<Size>().unwrap_err().contains("expected"));
    }
}
