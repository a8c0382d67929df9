//! Settings of a client or target program, as flags and as values.

use super::flags::{FlagError, Flags};
use crate::schedule::Schedule;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// An enum whose variants have one spelling each: on the command line, in flags, in JSON. Spellings after `|`
/// are accepted too, but never written.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident, $what:literal {
        $($(#[$doc:meta])* $variant:ident = $text:literal $(| $also:literal)*),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $text $(, alias = $also)*)] $variant),+ }

        impl $name {
            /// All variants, in their listed order.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// Spelling.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text $(| $also)* => Ok($name::$variant),)+
                    _ => Err(format!(
                        concat!("{:?} is not a ", $what, ": expected {}"), text, [$($text),+].join(", ")
                    )),
                }
            }
        }
    };
}

named!(
    /// The client's RPC stack.
    Stack, "stack" {
    /// Length-prefixed frames over TCP: the floor.
    Raw = "raw",
    /// tonic.
    Rust = "rust",
    /// gRPC C++, a thread per call in flight.
    CppSync = "cpp-sync",
    /// gRPC C++, completion queues.
    CppAsync = "cpp-async",
    /// gRPC C++, callbacks.
    CppCallback = "cpp-callback",
    /// grpc-go.
    Go = "go",
});

named!(
    /// The target's RPC stack.
    TargetStack, "target stack" {
    /// tonic.
    Rust = "rust",
    /// Length-prefixed frames over TCP.
    Raw = "raw",
    /// gRPC C++.
    Cpp = "cpp",
    /// grpc-go.
    Go = "go",
});

named!(
    /// Kind of call.
    Call, "kind of call" {
    /// A request and a response.
    Unary = "unary",
    /// A ping and a pong inside a bidirectional stream.
    Stream = "stream",
});

named!(
    /// Setting of `TCP_NODELAY`.
    Nodelay, "setting" {
    /// Enabled: does not wait for ACKs.
    On = "on",
    /// Disabled: Nagle's algorithm.
    Off = "off",
    /// The library's default.
    Default = "default" | "stack",
});

named!(
    /// Which calls are recorded.
    Records, "choice of records" {
    /// None.
    None = "none",
    /// Measured calls above the slow threshold.
    Slow = "slow",
    /// All.
    All = "all",
});

/// How workers share channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channels {
    /// One for all workers.
    Shared,
    /// One per worker, created with equal arguments.
    PerWorker,
    /// One per worker, created with different arguments.
    Distinct,
    /// One per worker, with a subchannel pool of its own.
    LocalPool,
    /// This many, assigned round-robin.
    Pool(u32),
    /// No persistent channel: each call creates one, opens its connection, and closes it afterwards.
    PerCall,
}

impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Channels::Shared => f.pad("shared"),
            Channels::PerWorker => f.pad("per-worker"),
            Channels::Distinct => f.pad("distinct"),
            Channels::LocalPool => f.pad("local-pool"),
            Channels::Pool(n) => f.pad(&format!("pool:{n}")),
            Channels::PerCall => f.pad("per-call"),
        }
    }
}

impl FromStr for Channels {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!(
                "{text:?} is not a way to share channels: expected shared, per-worker, distinct, local-pool, pool:N, \
                 per-call"
            )
        };
        match text {
            "shared" => Ok(Channels::Shared),
            "per-worker" => Ok(Channels::PerWorker),
            "distinct" => Ok(Channels::Distinct),
            "local-pool" => Ok(Channels::LocalPool),
            "per-call" => Ok(Channels::PerCall),
            _ => match text.strip_prefix("pool:").map(str::parse) {
                Some(Ok(n @ 1..=1024)) => Ok(Channels::Pool(n)),
                Some(_) => Err(format!("{text:?}: expected pool:N with N from 1 to 1024")),
                None => Err(refused()),
            },
        }
    }
}

impl Serialize for Channels {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Channels {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Channels {
    /// Number of channels created for this many workers before the first call.
    pub fn count(self, workers: u32) -> u32 {
        match self {
            Channels::Shared => 1,
            Channels::PerWorker | Channels::Distinct | Channels::LocalPool => workers,
            Channels::Pool(n) => n,
            Channels::PerCall => 0,
        }
    }
}

/// What triggers a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The end of the previous call.
    Closed,
    /// A schedule, whatever became of earlier calls.
    Open(Schedule),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pace::Closed => f.write_str("closed"),
            Pace::Open(schedule) => write!(f, "{}/{}", schedule.calls(), schedule.per_ns()),
        }
    }
}

impl FromStr for Pace {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().ok();
        match (text, text.split_once('/').map(|(calls, ns)| (number(calls), number(ns)))) {
            ("closed", _) => Ok(Pace::Closed),
            (_, Some((Some(calls), Some(ns)))) => {
                Schedule::new(calls, ns).map(Pace::Open).map_err(|error| error.to_string())
            }
            _ => Err("expected closed, or CALLS/NANOSECONDS".into()),
        }
    }
}

/// Settings of a client program. `clients/CONTRACT.md` defines their exact meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSettings {
    pub stack: Stack,
    pub target: String,
    pub call: Call,
    pub channels: Channels,
    pub pace: Pace,
    pub in_flight: u32,
    pub threads: u32,
    pub request_bytes: u64,
    pub response_bytes: Option<u64>,
    pub think_ns: Option<u64>,
    pub nodelay: Nodelay,
    pub split_writes: bool,
    pub timeout: Duration,
    pub warmup_ns: u64,
    /// 0: until stopped.
    pub duration_ns: u64,
    /// 0: no limit.
    pub calls: u64,
    pub trace: bool,
    pub records: Records,
    pub slow_ns: u64,
    pub record_file: PathBuf,
    /// Maximum attempts per call; only `rust` supports more than one.
    pub attempts: u32,
    /// The call to make instead of a ping; only `rust` supports it.
    pub call_file: Option<PathBuf>,
}

fn switch(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn or_target(value: Option<u64>) -> String {
    value.map_or_else(|| "target".into(), |value| value.to_string())
}

impl ClientSettings {
    /// Encodes them as arguments of a program.
    pub fn to_flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--stack={}", self.stack),
            format!("--target={}", self.target),
            format!("--call={}", self.call),
            format!("--channels={}", self.channels),
            format!("--schedule={}", self.pace),
            format!("--in-flight={}", self.in_flight),
            format!("--threads={}", self.threads),
            format!("--request-bytes={}", self.request_bytes),
            format!("--response-bytes={}", or_target(self.response_bytes)),
            format!("--think-ns={}", or_target(self.think_ns)),
            format!("--nodelay={}", self.nodelay),
            format!("--split-writes={}", switch(self.split_writes)),
            format!("--timeout-ns={}", self.timeout.as_nanos()),
            format!("--warmup-ns={}", self.warmup_ns),
            format!("--duration-ns={}", self.duration_ns),
            format!("--calls={}", self.calls),
            format!("--trace={}", switch(self.trace)),
            format!("--records={}", self.records),
            format!("--slow-ns={}", self.slow_ns),
            format!("--record-file={}", self.record_file.display()),
        ];
        flags.extend(self.call_file.as_ref().map(|file| format!("--call-file={}", file.display())));
        flags.extend((self.attempts > 1).then(|| format!("--attempts={}", self.attempts)));
        flags
    }

    /// Decodes the arguments of a program.
    ///
    /// # Errors
    /// A flag is missing, unknown, duplicate or unreadable.
    pub fn from_flags(arguments: &[String]) -> Result<Self, FlagError> {
        let mut flags = Flags::parse(arguments)?;
        let settings = ClientSettings {
            stack: flags.take("stack")?,
            target: flags.text("target")?,
            call: flags.take("call")?,
            channels: flags.take("channels")?,
            pace: flags.take("schedule")?,
            in_flight: flags.take::<std::num::NonZeroU32>("in-flight")?.get(),
            threads: flags.take::<std::num::NonZeroU32>("threads")?.get(),
            request_bytes: flags.take("request-bytes")?,
            response_bytes: flags.number_or_target("response-bytes")?,
            think_ns: flags.number_or_target("think-ns")?,
            nodelay: flags.take("nodelay")?,
            split_writes: flags.switch("split-writes")?,
            timeout: Duration::from_nanos(flags.take("timeout-ns")?),
            warmup_ns: flags.take("warmup-ns")?,
            duration_ns: flags.take("duration-ns")?,
            calls: flags.take("calls")?,
            trace: flags.switch("trace")?,
            records: flags.take("records")?,
            slow_ns: flags.take("slow-ns")?,
            record_file: flags.text("record-file")?.into(),
            attempts: flags.optional::<std::num::NonZeroU32>("attempts")?.map_or(1, u32::from),
            call_file: flags.optional::<PathBuf>("call-file")?,
        };
        flags.finish()?;
        Ok(settings)
    }
}

/// Settings of a target program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServeSettings {
    pub stack: TargetStack,
    pub listen: String,
    pub response_bytes: u64,
    pub think_ns: u64,
    /// 0: the library's default.
    pub max_streams: u32,
    pub threads: u32,
    pub nodelay: Nodelay,
    /// `None` or `All`.
    pub records: Records,
    pub record_file: PathBuf,
}

impl ServeSettings {
    /// Encodes them as arguments of a program.
    pub fn to_flags(&self) -> Vec<String> {
        vec![
            format!("--stack={}", self.stack),
            format!("--listen={}", self.listen),
            format!("--response-bytes={}", self.response_bytes),
            format!("--think-ns={}", self.think_ns),
            format!("--max-streams={}", self.max_streams),
            format!("--threads={}", self.threads),
            format!("--nodelay={}", self.nodelay),
            format!("--records={}", self.records),
            format!("--record-file={}", self.record_file.display()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one_of<T: Copy + fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
        proptest::sample::select(all)
    }

    prop_compose! {
        fn any_settings()(
            stack in one_of(Stack::ALL), call in one_of(Call::ALL), nodelay in one_of(Nodelay::ALL),
            records in one_of(Records::ALL), pool in 1u32..=1024, way in 0usize..6,
            schedule in prop::option::of((1u64..1 << 32, 1u64..1 << 40)),
            in_flight in 1u32.., threads in 1u32.., sizes in any::<[Option<u64>; 2]>(), numbers in any::<[u64; 6]>(),
            switches in any::<[bool; 2]>(), target in "[a-z0-9.:=-]{1,20}", file in "[a-z/=. -]{0,20}",
            attempts in 1u32..4, call_file in prop::option::of("[a-z/=. -]{1,20}"),
        ) -> ClientSettings {
            let ways = [Channels::Shared, Channels::PerWorker, Channels::Distinct, Channels::LocalPool, Channels::Pool(pool), Channels::PerCall];
            ClientSettings {
                stack, target, call, channels: ways[way],
                pace: schedule.map_or(Pace::Closed, |(calls, ns)| Pace::Open(Schedule::new(calls, ns).unwrap())),
                in_flight, threads, request_bytes: numbers[0], response_bytes: sizes[0], think_ns: sizes[1], nodelay,
                split_writes: switches[0], timeout: Duration::from_nanos(numbers[1]), warmup_ns: numbers[2],
                duration_ns: numbers[3], calls: numbers[4], trace: switches[1], records, slow_ns: numbers[5],
                record_file: file.into(), attempts, call_file: call_file.map(PathBuf::from),
            }
        }
    }

    proptest! {
        #[test]
        fn flags_say_all(settings in any_settings()) {
            prop_assert_eq!(ClientSettings::from_flags(&settings.to_flags()), Ok(settings));
        }

        #[test]
        fn every_flag_is_needed_and_none_more(settings in any_settings(), at in 0usize..20) {
            let mut flags = settings.to_flags();
            let doubled = [flags.clone(), vec![flags[at].clone()]].concat();
            prop_assert!(matches!(ClientSettings::from_flags(&doubled), Err(FlagError::Twice(_))));
            let more = [flags.clone(), vec!["--colour=red".into()]].concat();
            prop_assert_eq!(ClientSettings::from_flags(&more), Err(FlagError::Unknown("colour".into())));
            flags.remove(at);
            prop_assert!(matches!(ClientSettings::from_flags(&flags), Err(FlagError::Missing(_))));
        }
    }

    #[test]
    fn the_older_spelling_of_default_is_read_and_not_written() {
        assert_eq!("stack".parse(), Ok(Nodelay::Default));
        assert_eq!(serde_json::from_str::<Nodelay>("\"stack\"").unwrap(), Nodelay::Default);
        assert_eq!(serde_json::to_string(&Nodelay::Default).unwrap(), "\"default\"");
        assert_eq!(
            "maybe".parse::<Nodelay>(),
            Err("\"maybe\" is not a setting: expected on, off, default".into())
        );
    }

    #[test]
    fn wrong_values_say_what_was_expected() {
        for (text, expected) in [("pool:0", "1 to 1024"), ("pool:x", "1 to 1024"), ("own", "per-worker")] {
            assert!(text.parse::<Channels>().unwrap_err().contains(expected), "{text}");
        }
        assert!("tonic".parse::<Stack>().unwrap_err().contains("cpp-async"));
        assert!(
            "0/5".parse::<Pace>().is_err()
                && "5/0".parse::<Pace>().is_err()
                && "often".parse::<Pace>().is_err()
        );
    }
}
