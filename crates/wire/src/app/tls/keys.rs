//! Secrets from a key-log file in the format of `SSLKEYLOGFILE` (RFC 9850): `label client-random secret` per
//! line.

use rustc_hash::FxHashMap;

/// Maximum connections with secrets; further lines are refused.
const MAX_CONNECTIONS: usize = 1 << 20;

/// Maximum invalid lines that are reported; more are skipped.
const MAX_REPORTED: usize = 100;

/// A secret: 32 or 48 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret {
    bytes: [u8; 48],
    len: u8,
}

impl Secret {
    /// From at most 48 bytes.
    pub fn new(secret: &[u8]) -> Option<Secret> {
        let mut bytes = [0; 48];
        bytes.get_mut(..secret.len())?.copy_from_slice(secret);
        Some(Secret { bytes, len: secret.len() as u8 })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.len)
    }
}

/// The secrets of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Secrets {
    /// `CLIENT_RANDOM`: the master secret of TLS 1.2 and earlier.
    pub master: Option<Secret>,
    /// `CLIENT_` and `SERVER_HANDSHAKE_TRAFFIC_SECRET`.
    pub handshake: [Option<Secret>; 2],
    /// `CLIENT_` and `SERVER_TRAFFIC_SECRET_0`.
    pub traffic: [Option<Secret>; 2],
}

/// Secrets from a key-log file (the format of `SSLKEYLOGFILE`).
#[derive(Debug, Default)]
pub struct Keys {
    secrets: FxHashMap<[u8; 32], Secrets>,
}

impl Keys {
    /// Adds lines of a key-log file; returns the first hundred invalid lines: their number from 1, and the
    /// problem. Secrets that are not needed here (early data, exporters, RSA) are skipped.
    pub fn add(&mut self, lines: &[u8]) -> Vec<(usize, String)> {
        let mut wrong = Vec::new();
        for (at, line) in lines.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            if let Err(why) = self.line(line)
                && wrong.len() < MAX_REPORTED
            {
                wrong.push((at + 1, why));
            }
        }
        wrong
    }

    /// The secrets of the connection with this random in its ClientHello.
    pub fn of(&self, client_random: &[u8; 32]) -> Option<&Secrets> {
        self.secrets.get(client_random)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (Some(label), Some(random), Some(secret), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err("expected a label, a client random and a secret".into());
        };
        let lengths: &[usize] = match label {
            b"CLIENT_RANDOM" => &[48],
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET"
            | b"SERVER_HANDSHAKE_TRAFFIC_SECRET"
            | b"CLIENT_TRAFFIC_SECRET_0"
            | b"SERVER_TRAFFIC_SECRET_0" => &[32, 48],
            b"RSA"
            | b"PMS_CLIENT_RANDOM"
            | b"CLIENT_EARLY_TRAFFIC_SECRET"
            | b"EARLY_EXPORTER_SECRET"
            | b"EARLY_EXPORTER_MASTER_SECRET"
            | b"EXPORTER_SECRET"
            | b"ECH_SECRET"
            | b"ECH_CONFIG" => return Ok(()),
            _ => {
                return Err(format!(
                    "unknown label {:?}",
                    String::from_utf8_lossy(&label[..label.len().min(40)])
                ));
            }
        };
        let random: [u8; 32] = hex(random)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or("the client random is not 64 hexadecimal digits")?;
        let secret = hex(secret)
            .filter(|bytes| lengths.contains(&bytes.len()))
            .and_then(|bytes| Secret::new(&bytes))
            .ok_or_else(|| {
                let lengths: Vec<String> = lengths.iter().map(usize::to_string).collect();
                format!("the secret is not {} bytes in hexadecimal digits", lengths.join(" or "))
            })?;
        if self.secrets.len() >= MAX_CONNECTIONS && !self.secrets.contains_key(&random) {
            return Err(format!("secrets of more than {MAX_CONNECTIONS} connections"));
        }
        let entry = self.secrets.entry(random).or_default();
        let place = match label {
            b"CLIENT_RANDOM" => &mut entry.master,
            b"CLIENT_HANDSHAKE_TRAFFIC_SECRET" => &mut entry.handshake[0],
            b"SERVER_HANDSHAKE_TRAFFIC_SECRET" => &mut entry.handshake[1],
            b"CLIENT_TRAFFIC_SECRET_0" => &mut entry.traffic[0],
            _ => &mut entry.traffic[1],
        };
        *place = Some(secret);
        Ok(())
    }
}

fn hex(digits: &[u8]) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || digits.len() > 128 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_secrets_and_invalid_ones_are_reported() {
        let random = "ab".repeat(32);
        let text = format!(
            "# comment\r\n\nCLIENT_RANDOM {random} {}\r\nSERVER_TRAFFIC_SECRET_0 {random} {}\n\
             EXPORTER_SECRET {random} 00\nCLIENT_RANDOM xyz 00\nCLIENT_RANDOM {random}\nWHAT {random} 00\n\
             CLIENT_TRAFFIC_SECRET_0 {random} 0011\nwhat",
            "01".repeat(48),
            "02".repeat(32),
        );
        let mut keys = Keys::default();
        let wrong = keys.add(text.as_bytes());
        assert_eq!(wrong.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [6, 7, 8, 9, 10]);
        let secrets = keys.of(&[0xab; 32]).unwrap();
        assert_eq!(secrets.master.unwrap().bytes(), [1; 48]);
        assert_eq!(secrets.traffic[1].unwrap().bytes(), [2; 32]);
        assert!(secrets.traffic[0].is_none() && keys.of(&[0; 32]).is_none());
        assert!(!format!("{secrets:?}").contains("1, 1"), "secrets are not printed");
    }
}
