//! Packets as bytes: HTTP/2 frames of a gRPC call inside TCP, IPv4 and Ethernet, in a pcap file.

use std::io::{self, Write};

/// HPACK: fields of RFC 7541's static table by index.
const METHOD_POST: u8 = 0x80 | 3;
const SCHEME_HTTP: u8 = 0x80 | 6;
const STATUS_200: u8 = 0x80 | 8;
/// Static names, in the form for a literal with incremental indexing.
const NAME_AUTHORITY: u8 = 0x40 | 1;
const NAME_PATH: u8 = 0x40 | 4;
const CONTENT_TYPE: u8 = 0x40 | 31;
const USER_AGENT_EXTENDED: [u8; 1] = [0x40 | 58];

/// Code and number of bits of the characters of a `traceparent` (RFC 7541, appendix B).
fn huffman(character: u8) -> (u32, u32) {
    match character {
        b'0'..=b'2' => ((character - b'0') as u32, 5),
        b'3'..=b'9' => (0x19 + (character - b'3') as u32, 6),
        b'a' => (0x03, 5),
        b'b' => (0x23, 6),
        b'c' => (0x04, 5),
        b'd' => (0x24, 6),
        b'e' => (0x05, 5),
        b'f' => (0x25, 6),
        b'-' => (0x16, 6),
        _ => unreachable!("only hexadecimal digits and hyphens are encoded"),
    }
}

fn huffman_string(text: &[u8], out: &mut Vec<u8>) {
    let at = out.len();
    out.push(0);
    let (mut bits, mut count) = (0u64, 0);
    for character in text {
        let (code, length) = huffman(*character);
        bits = bits << length | code as u64;
        count += length;
        while count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    if count > 0 {
        // Padded with ones, a prefix of the end-of-string code.
        out.push((bits << (8 - count)) as u8 | (0xff >> count));
    }
    let length = out.len() - at - 1;
    out[at] = 0x80 | u8::try_from(length).ok().filter(|length| *length < 127).expect("a short string");
}

fn plain_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(u8::try_from(text.len()).ok().filter(|length| *length < 127).expect("a short string"));
    out.extend_from_slice(text);
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// Maximum frame size (RFC 9113's default).
const MAX_FRAME: usize = 16_384;

/// First bytes of a client.
pub fn client_preface(out: &mut Vec<u8>) {
    out.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // Maximum INITIAL_WINDOW_SIZE: nobody waits for a window here.
    frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff], out);
}

/// First bytes of a server.
pub fn server_preface(out: &mut Vec<u8>) {
    frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff], out);
    frame(SETTINGS, ACK, 0, &[], out);
}

fn message(stream: u32, bytes: usize, last: bool, out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(bytes + 5);
    body.push(0);
    body.extend_from_slice(&(bytes as u32).to_be_bytes());
    // A protobuf message with one `bytes` field, if there is room for its length.
    if bytes >= 6 {
        let mut rest = bytes - 6;
        body.push(0x0a);
        for n in 0..5 {
            body.push((rest & 0x7f) as u8 | if n < 4 { 0x80 } else { 0 });
            rest >>= 7;
        }
    }
    body.resize(bytes + 5, 0);
    let mut pieces = body.chunks(MAX_FRAME).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if last && pieces.peek().is_none() { END_STREAM } else { 0 };
        frame(DATA, flags, stream, piece, out);
    }
}

/// Header compression of one direction of one connection. Every `traceparent` enters the dynamic table, as in the
/// usual libraries, so that the entries of the constant fields move and are eventually evicted.
#[derive(Default)]
pub struct Compressor {
    /// Fields since the constant ones were last inserted; zero if they are not in the table.
    age: usize,
}

/// Bytes of one `traceparent` entry in the dynamic table (RFC 7541, 4.1).
const TRACEPARENT_ENTRY: usize = 11 + 55 + 32;
/// Size of the table (RFC 9113, 6.5.2).
const TABLE: usize = 4096;
const CONSTANT_FIELDS: usize = 5;
/// Upper bound of the constant fields' size, including their overhead.
const CONSTANT_BYTES: usize = 400;

impl Compressor {
    /// A request's frames.
    pub fn request(&mut self, stream: u32, trace: &[u8; 55], bytes: usize, out: &mut Vec<u8>) {
        let mut block = vec![METHOD_POST, SCHEME_HTTP];
        let fits = (TABLE - CONSTANT_BYTES) / TRACEPARENT_ENTRY;
        if self.age == 0 || self.age >= fits {
            block.push(NAME_PATH);
            plain_string(b"/bench.Echo/Call", &mut block);
            block.push(NAME_AUTHORITY);
            plain_string(b"server.example:50051", &mut block);
            block.push(CONTENT_TYPE);
            plain_string(b"application/grpc", &mut block);
            block.extend_from_slice(&USER_AGENT_EXTENDED);
            plain_string(b"bench/1.0", &mut block);
            block.push(0x40);
            plain_string(b"te", &mut block);
            plain_string(b"trailers", &mut block);
            self.age = 0;
        } else {
            // Newest first: the traceparents since, then the constant fields in reverse.
            let newest = 62 + self.age;
            for index in (newest..newest + CONSTANT_FIELDS).rev() {
                indexed(index, &mut block);
            }
        }
        if self.age == 0 {
            block.push(0x40);
            plain_string(b"traceparent", &mut block);
        } else {
            integer(0x40, 6, 62, &mut block);
        }
        huffman_string(trace, &mut block);
        self.age += 1;
        frame(HEADERS, END_HEADERS, stream, &block, out);
        message(stream, bytes, true, out);
    }

    /// A response's frames.
    pub fn response(&mut self, stream: u32, bytes: usize, out: &mut Vec<u8>) {
        let mut block = vec![STATUS_200];
        let mut trailers = Vec::new();
        if self.age == 0 {
            block.push(CONTENT_TYPE);
            plain_string(b"application/grpc", &mut block);
            trailers.push(0x40);
            plain_string(b"grpc-status", &mut trailers);
            plain_string(b"0", &mut trailers);
            self.age = 1;
        } else {
            indexed(63, &mut block);
            indexed(62, &mut trailers);
        }
        frame(HEADERS, END_HEADERS, stream, &block, out);
        message(stream, bytes, false, out);
        frame(HEADERS, END_HEADERS | END_STREAM, stream, &trailers, out);
    }
}

fn indexed(index: usize, out: &mut Vec<u8>) {
    integer(0x80, 7, index, out);
}

/// RFC 7541, 5.1.
fn integer(pattern: u8, prefix: u32, value: usize, out: &mut Vec<u8>) {
    let most = (1usize << prefix) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push(rest as u8 | 0x80);
        rest -= 128;
    }
    out.push(rest as u8);
}

/// Flags of a TCP header.
pub mod flags {
    pub const SYN: u8 = 2;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// A segment to write.
#[derive(Clone, Debug)]
pub struct Segment {
    pub connection: usize,
    /// Whether the client sends it.
    pub from_client: bool,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    pub flags: u8,
    pub payload: Vec<u8>,
}

/// Bytes before the payload: Ethernet, IPv4, TCP with timestamps (or, in a SYN, with its options).
const HEADERS_LEN: usize = 14 + 20 + 32;

/// A pcap file with nanosecond timestamps.
pub struct Pcap<W> {
    out: W,
    /// Packets written.
    pub packets: u64,
    /// Bytes written.
    pub bytes: u64,
}

impl<W: Write> Pcap<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// Those of the file.
    pub fn create(mut out: W) -> io::Result<Self> {
        let mut header = Vec::new();
        header.extend_from_slice(&0xa1b2_3c4d_u32.to_le_bytes());
        header.extend_from_slice(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        header.extend_from_slice(&262_144_u32.to_le_bytes());
        header.extend_from_slice(&1_u32.to_le_bytes());
        out.write_all(&header)?;
        Ok(Pcap { out, packets: 0, bytes: header.len() as u64 })
    }

    /// Writes an arbitrary packet.
    ///
    /// # Errors
    /// Those of the file.
    pub fn raw(&mut self, time_ns: i64, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let mut head = [0; 16];
        head[..4].copy_from_slice(&(time_ns.div_euclid(1_000_000_000) as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(time_ns.rem_euclid(1_000_000_000) as u32).to_le_bytes());
        head[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
        head[12..].copy_from_slice(&wire_len.to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(data)?;
        self.packets += 1;
        self.bytes += (head.len() + data.len()) as u64;
        Ok(())
    }

    /// Writes a segment.
    ///
    /// # Errors
    /// Those of the file.
    pub fn segment(&mut self, time_ns: i64, segment: &Segment) -> io::Result<()> {
        let mut packet = Vec::with_capacity(HEADERS_LEN + segment.payload.len());
        packet.extend_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        let length = HEADERS_LEN - 14 + segment.payload.len();
        // The kernel writes zero, too, if a super-frame is too long for the field.
        let length = u16::try_from(length).unwrap_or(0);
        packet.extend_from_slice(&[0x45, 0]);
        packet.extend_from_slice(&length.to_be_bytes());
        packet.extend_from_slice(&(self.packets as u16).to_be_bytes());
        packet.extend_from_slice(&[0x40, 0, 64, 6, 0, 0]);
        let client = [10, 1, (segment.connection >> 8) as u8, segment.connection as u8];
        let server = [10, 2, 0, 1];
        let (source, target) = if segment.from_client { (client, server) } else { (server, client) };
        packet.extend_from_slice(&source);
        packet.extend_from_slice(&target);
        let (port, other) = if segment.from_client { (40_000u16, 50_051u16) } else { (50_051, 40_000) };
        packet.extend_from_slice(&port.to_be_bytes());
        packet.extend_from_slice(&other.to_be_bytes());
        packet.extend_from_slice(&segment.seq.to_be_bytes());
        packet.extend_from_slice(&segment.ack.to_be_bytes());
        packet.extend_from_slice(&[0x80, segment.flags]);
        packet.extend_from_slice(&[0xff, 0xff, 0, 0, 0, 0]);
        if segment.flags & flags::SYN != 0 {
            // MSS 1460, SACK permitted, no-op, window scale 7, end.
            packet.extend_from_slice(&[2, 4, 5, 0xb4, 4, 2, 1, 3, 3, 7, 0, 0]);
        } else {
            packet.extend_from_slice(&[1, 1, 8, 10]);
            packet.extend_from_slice(&((time_ns / 1_000_000) as u32).to_be_bytes());
            packet.extend_from_slice(&((time_ns / 1_000_000) as u32).to_be_bytes());
        }
        packet.extend_from_slice(&segment.payload);
        self.raw(time_ns, packet.len() as u32, &packet)
    }

    /// Flushes the file; returns the number of packets and bytes.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self) -> io::Result<(u64, u64)> {
        self.out.flush()?;
        Ok((self.packets, self.bytes))
    }
}
