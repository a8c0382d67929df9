//! Derives keys from secrets, and decrypts records (RFC 8446, 5 and 7; RFC 5246, 5 and 6; RFC 5288; RFC 7905).

use super::keys::Secret;
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use chacha20poly1305::ChaCha20Poly1305;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::{Sha256, Sha384};
use spangap_model::Side;

/// Size of an authentication tag, the same for every supported cipher.
pub const TAG_BYTES: usize = 16;

/// Encryption algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Aes128,
    Aes256,
    ChaCha20,
}

/// A supported cipher suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suite {
    algorithm: Algorithm,
    /// SHA-384 instead of SHA-256.
    sha384: bool,
    tls13: bool,
}

impl Suite {
    /// The suite for a number and protocol version; `None` if it is not supported.
    pub fn of(number: u16, version: u16) -> Option<Suite> {
        use Algorithm::{Aes128, Aes256, ChaCha20};
        let (algorithm, sha384, tls13) = match number {
            0x1301 => (Aes128, false, true),
            0x1302 => (Aes256, true, true),
            0x1303 => (ChaCha20, false, true),
            // RSA, DHE, ECDHE_ECDSA, ECDHE_RSA
            0x009c | 0x009e | 0xc02b | 0xc02f => (Aes128, false, false),
            0x009d | 0x009f | 0xc02c | 0xc030 => (Aes256, true, false),
            // ECDHE_RSA, ECDHE_ECDSA, DHE_RSA
            0xcca8..=0xccaa => (ChaCha20, false, false),
            _ => return None,
        };
        (tls13 == (version == 0x0304) && version >= 0x0303).then_some(Suite { algorithm, sha384, tls13 })
    }

    /// Size of a hash, and of a TLS 1.3 secret.
    pub fn hash_bytes(self) -> usize {
        if self.sha384 { 48 } else { 32 }
    }

    fn key_bytes(self) -> usize {
        if self.algorithm == Algorithm::Aes128 { 16 } else { 32 }
    }

    /// Size of the part before the ciphertext in a record's payload: the explicit nonce of TLS 1.2 with AES-GCM.
    pub fn explicit_bytes(self) -> usize {
        if self.tls13 || self.algorithm == Algorithm::ChaCha20 { 0 } else { 8 }
    }
}

impl Suite {
    /// Bytes of a record outside its content: header, nonce, content type, tag.
    pub fn overhead_bytes(self) -> u64 {
        (5 + self.explicit_bytes() + usize::from(self.tls13) + TAG_BYTES) as u64
    }
}

enum Aead {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
    ChaCha20(Box<ChaCha20Poly1305>),
}

/// Decrypts the records of one side, from one key change to the next.
pub struct Cipher {
    suite: Suite,
    aead: Aead,
    /// The fixed part of the nonce; only its first four bytes for AES-GCM in TLS 1.2.
    iv: [u8; 12],
    /// The secret that these keys derive from (TLS 1.3).
    secret: Option<Secret>,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher({:?})", self.suite)
    }
}

impl Cipher {
    fn new(suite: Suite, key: &[u8], iv: &[u8], secret: Option<Secret>) -> Option<Cipher> {
        let aead = match suite.algorithm {
            Algorithm::Aes128 => Aead::Aes128(Box::new(Aes128Gcm::new_from_slice(key).ok()?)),
            Algorithm::Aes256 => Aead::Aes256(Box::new(Aes256Gcm::new_from_slice(key).ok()?)),
            Algorithm::ChaCha20 => Aead::ChaCha20(Box::new(ChaCha20Poly1305::new_from_slice(key).ok()?)),
        };
        let mut whole = [0; 12];
        whole.get_mut(..iv.len())?.copy_from_slice(iv);
        Some(Cipher { suite, aead, iv: whole, secret })
    }

    /// Derives a cipher from a TLS 1.3 traffic secret (RFC 8446, 7.3).
    pub fn tls13(suite: Suite, secret: Secret) -> Option<Cipher> {
        let (mut key, mut iv) = ([0; 32], [0; 12]);
        let key = &mut key[..suite.key_bytes()];
        expand_label(suite, &secret, b"key", key)?;
        expand_label(suite, &secret, b"iv", &mut iv)?;
        Cipher::new(suite, key, &iv, Some(secret))
    }

    /// The next cipher after a KeyUpdate (RFC 8446, 7.2).
    pub fn next(&self) -> Option<Cipher> {
        let mut next = [0; 48];
        let next = &mut next[..self.suite.hash_bytes()];
        expand_label(self.suite, &self.secret?, b"traffic upd", next)?;
        Cipher::tls13(self.suite, Secret::new(next)?)
    }

    /// Derives a cipher from the master secret of TLS 1.2 (RFC 5246, 6.3).
    pub fn tls12(
        suite: Suite,
        from: Side,
        master: &Secret,
        client: &[u8; 32],
        server: &[u8; 32],
    ) -> Option<Cipher> {
        let iv_bytes = 12 - suite.explicit_bytes();
        let key_bytes = suite.key_bytes();
        let mut block = [0; 2 * (32 + 12)];
        let block = &mut block[..2 * (key_bytes + iv_bytes)];
        let seed = [b"key expansion", &server[..], &client[..]].concat();
        match suite.sha384 {
            true => p_hash::<Hmac<Sha384>>(master.bytes(), &seed, block)?,
            false => p_hash::<Hmac<Sha256>>(master.bytes(), &seed, block)?,
        }
        let (keys, ivs) = block.split_at(2 * key_bytes);
        let side = from.index();
        Cipher::new(
            suite,
            &keys[side * key_bytes..(side + 1) * key_bytes],
            &ivs[side * iv_bytes..(side + 1) * iv_bytes],
            None,
        )
    }

    /// Decrypts the record with this header and payload into `plain`; returns whether its tag is valid.
    pub fn open(&self, header: &[u8; 5], payload: &[u8], sequence: u64, plain: &mut Vec<u8>) -> bool {
        let explicit = self.suite.explicit_bytes();
        let Some((text, tag)) = payload.get(explicit..).and_then(|text| text.split_last_chunk::<TAG_BYTES>())
        else {
            return false;
        };
        let mut nonce = self.iv;
        if explicit > 0 {
            nonce[4..].copy_from_slice(&payload[..explicit]);
        } else {
            for (byte, part) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
                *byte ^= part;
            }
        }
        let mut data = [0; 13];
        let data = if self.suite.tls13 {
            &header[..]
        } else {
            data[..8].copy_from_slice(&sequence.to_be_bytes());
            data[8..11].copy_from_slice(&header[..3]);
            data[11..].copy_from_slice(&(text.len() as u16).to_be_bytes());
            &data[..]
        };
        plain.resize(text.len(), 0);
        let Ok(buffer) = InOutBuf::new(text, plain) else { return false };
        let (nonce, tag) = ((&nonce).into(), tag.into());
        match &self.aead {
            Aead::Aes128(aead) => aead.decrypt_inout_detached(nonce, data, buffer, tag).is_ok(),
            Aead::Aes256(aead) => aead.decrypt_inout_detached(nonce, data, buffer, tag).is_ok(),
            Aead::ChaCha20(aead) => aead.decrypt_inout_detached(nonce, data, buffer, tag).is_ok(),
        }
    }

    /// Its suite.
    pub fn suite(&self) -> Suite {
        self.suite
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
fn expand_label(suite: Suite, secret: &Secret, label: &[u8], into: &mut [u8]) -> Option<()> {
    let len = (into.len() as u16).to_be_bytes();
    let info = [&len[..], &[label.len() as u8 + 6], b"tls13 ", label, &[0]].concat();
    match suite.sha384 {
        true => Hkdf::<Sha384>::from_prk(secret.bytes()).ok()?.expand(&info, into).ok(),
        false => Hkdf::<Sha256>::from_prk(secret.bytes()).ok()?.expand(&info, into).ok(),
    }
}

/// The pseudorandom function of TLS 1.2, label and seed together (RFC 5246, 5).
fn p_hash<M: Mac + KeyInit>(secret: &[u8], seed: &[u8], into: &mut [u8]) -> Option<()> {
    let mac = |parts: &[&[u8]]| {
        let mut mac = <M as KeyInit>::new_from_slice(secret).ok()?;
        parts.iter().for_each(|part| mac.update(part));
        Some(mac.finalize().into_bytes())
    };
    let mut a = mac(&[seed])?;
    let size = a.len();
    for piece in into.chunks_mut(size) {
        piece.copy_from_slice(&mac(&[&a, seed])?[..piece.len()]);
        a = mac(&[&a])?;
    }
    Some(())
}
