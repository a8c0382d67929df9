//! `/proc/PID/net/tcp` and `tcp6`: the connections of a network namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const ESTABLISHED: &str = "01";

/// An established connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    pub local: SocketAddr,
    pub peer: SocketAddr,
    pub inode: u64,
}

/// A line that is not what the kernel is known to write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is {text:?}: expected the fields of a TCP connection")]
pub struct TableError {
    pub line: usize,
    pub text: String,
}

/// Reads a table, its heading included.
pub fn established(table: &str) -> Result<Vec<Established>, TableError> {
    let lines = table.lines().enumerate().skip(1);
    let parsed = lines.map(|(at, text)| {
        connection(text).ok_or_else(|| TableError { line: at + 1, text: text.trim().to_owned() })
    });
    parsed.filter_map(Result::transpose).collect()
}

/// `None` for a line that cannot be read, `Some(None)` for a connection in another state.
fn connection(line: &str) -> Option<Option<Established>> {
    let mut fields = line.split_ascii_whitespace();
    let local = address(fields.nth(1)?)?;
    let peer = address(fields.next()?)?;
    let state = fields.next()?;
    let inode = fields.nth(5)?.parse().ok()?;
    Some((state == ESTABLISHED).then_some(Established { local, peer, inode }))
}

/// `HEX:PORT`, the address as words of 32 bits in the machine's own order. IPv4 in IPv6 becomes IPv4.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hex(address: SocketAddr) -> String {
        let bytes = match address.ip() {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = bytes.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap()));
        let words: String = words.map(|word| format!("{word:08X}")).collect();
        format!("{words}:{:04X}", address.port())
    }

    fn table(rows: &[(SocketAddr, SocketAddr, u8, u64)]) -> String {
        let mut text = "  sl  local_address rem_address   st tx_queue rx_queue ...\n".to_owned();
        for (at, (local, peer, state, inode)) in rows.iter().enumerate() {
            text += &format!(
                "{at:4}: {} {} {state:02X} 00000000:00000000 00:00000000 00000000  1000        0 {inode} 1 0 20 4\n",
                hex(*local),
                hex(*peer)
            );
        }
        text
    }

    proptest! {
        #[test]
        fn what_the_kernel_writes_is_read(
            rows in prop::collection::vec(any::<(SocketAddr, SocketAddr, u8, u64)>(), 0..20),
        ) {
            let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
            let expected: Vec<_> = rows.iter().filter(|row| row.2 == 1).map(|row| Established {
                local: canonical(row.0), peer: canonical(row.1), inode: row.3,
            }).collect();
            prop_assert_eq!(established(&table(&rows)), Ok(expected));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = established(&text);
        }

        #[test]
        fn no_address_panics(text in "\\PC{0,8}[0-9A-F]{0,32}:[0-9A-Fa-f+]{0,5}") {
            let _ = address(&text);
        }
    }

    #[test]
    fn ipv4_in_ipv6_is_ipv4() {
        let mapped = "0000000000000000FFFF00000100007F:1F90";
        let expected: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        // As a little-endian machine writes it.
        if cfg!(target_endian = "little") {
            assert_eq!(address(mapped), Some(expected));
            assert_eq!(address("0100007F:1F90"), Some(expected));
        }
    }

    #[test]
    fn a_line_that_makes_no_sense_is_told() {
        let error = established("heading\n   0: 0100007F:1F90 nonsense 01\n").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("nonsense"), "{error}");
    }
}
