//! Content of the two hellos of a handshake (RFC 8446, 4.1; RFC 5246, 7.4.1).

/// The relevant parts of a ClientHello or ServerHello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    /// Its random.
    pub random: [u8; 32],
    /// The cipher suite that the server chose; zero in a ClientHello.
    pub suite: u16,
    /// Version from `supported_versions` if the server sent that, else from the fixed field.
    pub version: u16,
    /// Whether the extension `encrypt_then_mac` was present.
    pub encrypt_then_mac: bool,
}

/// Random of a ServerHello that is a HelloRetryRequest (RFC 8446, 4.1.3).
const RETRY: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

const SUPPORTED_VERSIONS: u16 = 43;
const ENCRYPT_THEN_MAC: u16 = 22;

impl Hello {
    /// Whether it only requests another hello from the client.
    pub fn is_retry(&self) -> bool {
        self.random == RETRY
    }

    /// Parses the body of a ClientHello; everything after the random is irrelevant.
    pub fn client(body: &[u8]) -> Option<Hello> {
        let (version, rest) = body.split_first_chunk::<2>()?;
        Some(Hello {
            random: *rest.first_chunk()?,
            version: u16::from_be_bytes(*version),
            ..Hello::default()
        })
    }

    /// Parses the body of a ServerHello.
    pub fn server(body: &[u8]) -> Option<Hello> {
        let (version, rest) = body.split_first_chunk::<2>()?;
        let (random, rest) = rest.split_first_chunk::<32>()?;
        let (session, rest) = rest.split_first()?;
        let rest = rest.get(usize::from(*session)..)?;
        let (suite, rest) = rest.split_first_chunk::<2>()?;
        let mut hello = Hello {
            random: *random,
            suite: u16::from_be_bytes(*suite),
            version: u16::from_be_bytes(*version),
            encrypt_then_mac: false,
        };
        // One byte of compression method, two of the extensions' length.
        let mut extensions = rest.get(3..).unwrap_or_default();
        while let Some((head, after)) = extensions.split_first_chunk::<4>() {
            let (kind, len) =
                (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
            let (content, after) = after.split_at_checked(usize::from(len))?;
            match (kind, content) {
                (SUPPORTED_VERSIONS, [high, low]) => hello.version = u16::from_be_bytes([*high, *low]),
                (ENCRYPT_THEN_MAC, []) => hello.encrypt_then_mac = true,
                _ => {}
            }
            extensions = after;
        }
        Some(hello)
    }
}

/// The first handshake message of a record's payload: its type and the available part of its body. A hello may
/// continue in further records; the relevant part comes first.
pub fn message(payload: &[u8]) -> Option<(u8, &[u8])> {
    let ([kind, a, b, c], body) = payload.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    Some((*kind, &body[..len.min(body.len())]))
}
