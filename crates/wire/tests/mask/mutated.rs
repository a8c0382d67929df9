//! Damage, accidental or deliberate: conversations with planted secrets whose bytes are changed, removed,
//! repeated or moved, and captures of real traffic with the same treatment. No planted secret remains, and no
//! packet changes its length.

use super::*;

/// A local generator: a failure is reproducible.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % end.max(1) as u64) as usize
    }

    /// One to four changes that a parser may stumble over.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            if bytes.is_empty() {
                return;
            }
            let at = self.below(bytes.len());
            let len = self.below(24).min(bytes.len() - at);
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x0a, 0x0d, 0x20, 0x3a, 0x40, 0x7f, 0x80, 0xff][self.below(10)],
                2 => drop(bytes.drain(at..at + len)),
                3 => {
                    let copy = bytes[at..at + len].to_vec();
                    let to = self.below(bytes.len());
                    drop(bytes.splice(to..to, copy));
                }
                4 => bytes[at..at + len].reverse(),
                _ => drop(bytes.splice(at..at, std::iter::repeat_n(0, len))),
            }
        }
    }
}

fn payloads(packets: &Stored, side: u8) -> Vec<u8> {
    let of_side = packets.iter().filter(|packet| packet.3[12..16] == [10, 0, 0, 1 + side]);
    of_side.flat_map(|packet| packet.3[40..].to_vec()).collect()
}

/// Offset of eight consecutive letters of the secret, if present.
fn has_part(bytes: &[u8]) -> Option<usize> {
    bytes.windows(8).position(|window| SECRET.windows(8).any(|part| window == part))
}

/// Whether a secret may be shown at a place to which damage moved it: in a path that absorbed its query; in the
/// name of an HTTP/1 field; in the id of a request.
fn may_be_seen(bytes: &[u8], at: usize) -> bool {
    let line = bytes[..at].iter().rposition(|byte| *byte == b'\n' || *byte == 0).map_or(0, |at| at + 1);
    let before = &bytes[line..at];
    let end =
        bytes[at..].iter().position(|byte| !byte.is_ascii_graphic()).map_or(bytes.len(), |len| at + len);
    let is_name = line > 0 && bytes[line - 1] == b'\n' && bytes[at..end].contains(&b':');
    let is_path = before.contains(&b'/') && !before.contains(&b'?');
    is_name || is_path || before.ends_with(b"x-request-id\x14") || before.ends_with(b"x-request-id")
}

fn conversations() -> [[Vec<u8>; 2]; 3] {
    [http2_with_secrets(), http1_with_secrets(), grpc_with_secrets()]
}

/// gRPC as real stacks write it: static and dynamic names, blocks with continuations, several messages in a frame
/// and one message in several, trailers, a trailers-only response.
fn grpc_with_secrets() -> [Vec<u8>; 2] {
    let message = |text: &[u8]| [&[0][..], &(text.len() as u32).to_be_bytes(), text].concat();
    let indexed = |first: u8, value: &[u8], coded: bool| {
        let code = if coded { huffman::encode(value) } else { value.to_vec() };
        [vec![first, code.len() as u8 | u8::from(coded) << 7], code].concat()
    };
    let mut client = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    client.extend(frame(4, 0, 0, &[0, 4, 0, 1, 0, 0]));
    let mut server = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
    for call in 0..4u32 {
        let (stream, coded) = (2 * call + 1, call % 2 == 0);
        let block = [
            vec![0x83, 0x86],
            indexed(0x44, b"/shop.v1.Cart/Add", coded),
            // Names of the static table: :authority, authorization (twice), cookie, user-agent.
            indexed(0x41, SECRET, coded),
            [vec![0x1f, 0x08], indexed(0, SECRET, coded)[1..].to_vec()].concat(),
            indexed(0x57, SECRET, coded),
            indexed(0x60, SECRET, coded),
            [vec![0x1f, 0x2b], indexed(0, SECRET, coded)[1..].to_vec()].concat(),
            literal(0x40, b"te", b"trailers", coded),
            literal(0x40, b"content-type", b"application/grpc", coded),
            literal(0x10, b"x-key-bin", SECRET, coded),
        ]
        .concat();
        let third = block.len() / 3;
        client.extend(frame(1, 0, stream, &block[..third]));
        client.extend(frame(9, 0, stream, &block[third..2 * third]));
        client.extend(frame(9, 4, stream, &block[2 * third..]));
        let messages = [message(SECRET), message(&[SECRET, SECRET].concat())].concat();
        let (one, other) = messages.split_at(messages.len() / 2);
        client.extend(frame(0, 0, stream, one));
        client.extend(frame(8, 0, 0, &[0, 0, 1, 0]));
        client.extend(frame(0, 1, stream, other));
        let head = [vec![0x88], indexed(0x5f, b"application/grpc", coded), indexed(0x76, SECRET, coded)];
        if call < 3 {
            server.extend(frame(1, 4, stream, &head.concat()));
            server.extend(frame(0, 0, stream, &message(SECRET)));
        }
        let trailers = [
            literal(0x40, b"grpc-status", b"2", coded),
            literal(0x40, b"grpc-message", SECRET, coded),
            literal(0, b"grpc-status-details-bin", &[SECRET, SECRET].concat(), coded),
        ];
        server.extend(frame(1, 5, stream, &trailers.concat()));
    }
    [client, server]
}

#[test]
fn each_byte_of_http2_may_be_another_one() {
    let way = Way { lengths: vec![700], joined_at: 0, lost: 1000, twice: 1000 };
    let mut kept = Vec::new();
    for (which, both) in [http2_with_secrets(), grpc_with_secrets()].into_iter().enumerate() {
        for side in [0, 1] {
            for place in 0..both[side].len() {
                let mut changed = both.clone();
                changed[side][place] ^= [1, 2, 4, 8, 16, 32, 64, 128, 255][place % 9];
                let (after, _) = masked(&conversation(&changed, &way));
                for of in [0, 1] {
                    let payload = payloads(&after, of);
                    if let Some(at) = has_part(&payload)
                        && !may_be_seen(&payload, at)
                    {
                        let from = at.saturating_sub(30);
                        kept.push((
                            which,
                            side,
                            place,
                            of,
                            at,
                            String::from_utf8_lossy(&payload[from..(at + 24).min(payload.len())])
                                .into_owned(),
                        ));
                    }
                }
            }
        }
    }
    assert!(
        kept.is_empty(),
        "conversation, side and byte that was changed, side and place that is seen: {kept:#?}"
    );
}

/// Rounds of a loop of 40,000 in which something once remained. They exclude two in which the damage turns the
/// secret into the code of a request's id (27,903 and 30,456), which is shown.
const FOUND: [u64; 13] = [1696, 4064, 4184, 4277, 7884, 8774, 9764, 15626, 18893, 20048, 20570, 23939, 28936];

#[test]
fn nothing_planted_is_left_of_what_was_damaged() {
    let mut kept = Vec::new();
    let rounds: u64 =
        std::env::var("SPANGAP_MASK_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    for round in FOUND.into_iter().chain(0..rounds) {
        let mut dice = Dice(round);
        let all = conversations();
        let mut both = all[round as usize % all.len()].clone();
        let side = dice.below(2);
        dice.damage(&mut both[side]);
        let way = Way {
            lengths: (0..=dice.below(4)).map(|_| 1 + dice.below(700)).collect(),
            joined_at: dice.below(4) * dice.below(2),
            lost: 3 + dice.below(200),
            twice: 2 + dice.below(9),
        };
        let before = conversation(&both, &way);
        let (after, left_out) = masked(&before);
        assert_eq!((after.len(), left_out), (before.len(), 0), "round {round}");
        for (one, other) in before.iter().zip(&after) {
            assert_eq!((one.3.len(), &one.3[..40]), (other.3.len(), &other.3[..40]), "round {round}");
        }
        for side in [0, 1] {
            let payload = payloads(&after, side);
            if let Some(at) = has_part(&payload)
                && !may_be_seen(&payload, at)
            {
                let from = at.saturating_sub(40);
                let text = String::from_utf8_lossy(&payload[from..(at + 30).min(payload.len())]).into_owned();
                kept.push((round, side, text));
            }
        }
    }
    assert!(kept.is_empty(), "{} of {rounds} rounds: round, side, what is seen: {kept:#?}", kept.len());
}

/// Planting the same secret in every body of real traffic would not test what is shown. Instead, everything shown
/// of a damaged capture must be part of what is shown of the intact one, except for a few bytes around the
/// damage.
#[test]
fn damaged_real_captures_keep_their_lengths_and_headers() {
    let mut damaged = 0;
    for (name, ends) in fixtures() {
        let whole = packets(&ends[0]);
        if whole.len() > 4_000 || masked(&whole).0.is_empty() {
            continue;
        }
        for round in 0..4 {
            let mut dice = Dice(round ^ (whole.len() as u64) << 8);
            let mut changed = whole.clone();
            for _ in 0..1 + whole.len() / 20 {
                let packet = dice.below(changed.len());
                let data = &mut changed[packet].3;
                // Behind the headers, so that it is still a segment.
                if data.len() > 80 {
                    let at = 80 + dice.below(data.len() - 80);
                    data[at] ^= 1 << dice.below(8);
                }
            }
            let (after, left_out) = masked(&changed);
            assert_eq!(after.len() as u64 + left_out, changed.len() as u64, "{name}");
            let mut kept = after.iter();
            let mut next = kept.next();
            for before in &changed {
                if next.is_some_and(|after| after.0 == before.0 && after.3.len() == before.3.len()) {
                    damaged += 1;
                    next = kept.next();
                }
            }
            assert!(next.is_none(), "{name}: a packet that was not there");
        }
    }
    assert!(damaged > 1_000, "{damaged} packets");
}

/// Bytes after a segment without payload: networks pad frames with whatever was in someone's memory.
#[test]
fn what_stands_behind_a_segment_is_not_seen() {
    for payload in [&b""[..], b"x"] {
        let mut data = segment(false, 1000, 0x10, payload);
        data.extend_from_slice(SECRET);
        let len = data.len() as u32;
        let packets = vec![(1, spangap_wire::packet::LinkType::RAW, len, data)];
        let (after, _) = masked(&packets);
        assert_eq!(after[0].3.len(), packets[0].3.len());
        assert!(after[0].3[40..].iter().all(|byte| *byte == 0), "{:?}", after[0].3);
    }
}

/// A message that seems to contain frames: one with parameters that would be shown in full.
#[test]
fn unassigned_parameters_are_not_shown() {
    let way = Way { lengths: vec![1400], joined_at: 0, lost: 1000, twice: 1000 };
    let long = SECRET.repeat(6);
    let parameters = frame(4, 0, 0, &long[..long.len() / 6 * 6]);
    let known = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100, 0, 4, 0, 1, 0, 0]);
    let client =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &known, &parameters, &frame(6, 0, 0, &[1; 8])].concat();
    let (after, _) = masked(&conversation(&[client.clone(), known.clone()], &way));
    let seen = payloads(&after, 0);
    assert_eq!(has_part(&seen), None);
    assert_eq!(seen[..24 + known.len()], client[..24 + known.len()], "what has a number is there");
}
