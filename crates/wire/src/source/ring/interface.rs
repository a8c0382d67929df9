//! The interface to listen on, by its name.

use crate::packet::LinkType;
use crate::source::filter::LoopbackOnce;
use std::io;

/// Hardware types (include/uapi/linux/if_arp.h).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
const ARPHRD_WITHOUT_HEADER: [u16; 6] = [512, 768, 769, 776, 778, 65534];

/// The ring cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The kernel refused.
    #[error("cannot {doing} {interface}: {error}{hint}")]
    Refused {
        /// The attempted operation, as a verb.
        doing: &'static str,
        /// On which interface.
        interface: String,
        /// Why not.
        error: io::Error,
        /// A possible remedy, with a separator before it; empty if there is none.
        hint: &'static str,
    },
    /// Interfaces of this kind have headers this does not know.
    #[error(
        "{interface}: interfaces of hardware type {hardware} are not understood; expected Ethernet, loopback or a tunnel without link header"
    )]
    Hardware {
        /// Its name.
        interface: String,
        /// ARPHRD_* of it.
        hardware: u16,
    },
}

/// An interface to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name; `any` for all.
    pub name: String,
    /// Its index; zero for all.
    pub index: u32,
    /// How its packets begin.
    pub link: LinkType,
    /// How to treat packets that pass the tap twice.
    pub once: LoopbackOnce,
}

impl Interface {
    /// Looks an interface up by its name; `any` listens on all.
    ///
    /// # Errors
    /// When there is none, or its packets begin in a way this does not understand.
    pub fn find(name: &str) -> Result<Interface, RingError> {
        let refused = |error| RingError::Refused {
            doing: "find the interface",
            interface: name.into(),
            error,
            hint: "; `ip link` lists them, and `any` is all of them",
        };
        let number = |name: &str, file: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/{name}/{file}"))?;
            text.trim().parse::<u32>().map_err(io::Error::other)
        };
        if name == "any" {
            let once = number("lo", "ifindex").map(LoopbackOnce::Index).unwrap_or(LoopbackOnce::No);
            return Ok(Interface { name: name.into(), index: 0, link: LinkType::LINUX_SLL2, once });
        }
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(refused(io::Error::from(io::ErrorKind::NotFound)));
        }
        let index = number(name, "ifindex").map_err(refused)?;
        let hardware = number(name, "type").map_err(refused)? as u16;
        let (link, once) = match hardware {
            ARPHRD_ETHER => (LinkType::ETHERNET, LoopbackOnce::No),
            ARPHRD_LOOPBACK => (LinkType::ETHERNET, LoopbackOnce::All),
            other if ARPHRD_WITHOUT_HEADER.contains(&other) => (LinkType::RAW, LoopbackOnce::No),
            hardware => return Err(RingError::Hardware { interface: name.into(), hardware }),
        };
        Ok(Interface { name: name.into(), index, link, once })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_are_not_there() {
        let error = Interface::find("no-such-if").unwrap_err().to_string();
        assert!(error.starts_with("cannot find the interface no-such-if: "), "{error}");
        assert!(Interface::find("../net/lo").is_err());
    }
}
