//! Enums with named variants: one table defines the name, the parser, and both directions of JSON.

/// Declares an enum with the name of each variant in JSON, tables and pages.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum { $($(#[$doc])* $variant,)+ }

        impl $enum {
            /// All variants, in order.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// Name in JSON, tables and pages.
            pub const fn name(self) -> &'static str {
                match self { $($enum::$variant => $name,)+ }
            }

            /// The variant with this name.
            pub fn of_name(name: &str) -> Option<$enum> {
                $enum::ALL.into_iter().find(|one| one.name() == name)
            }
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl serde::Serialize for $enum {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $enum {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$enum, D::Error> {
                let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
                $enum::of_name(&name).ok_or_else(|| {
                    let names = [$($name),+].join(", ");
                    serde::de::Error::custom(format!("{name:?} names no {}: expected one of {names}", stringify!($enum)))
                })
            }
        }
    };
}

pub(crate) use named;
