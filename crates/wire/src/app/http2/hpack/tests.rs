//! The examples of RFC 7541, appendix C; any list of fields through an encoder of its own; tables that are unknown.

use super::super::huffman::tests::encode;
use super::*;
use crate::exchange::TextId;
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<(Vec<Text>, u32), Fault> {
    let mut fields = Vec::new();
    let head = decoder.decode(block, &mut Texts::default(), Some(&mut fields))?;
    Ok((fields, head.unknown))
}

fn text(fields: &[Text]) -> String {
    let line = |(name, value): &Text| {
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    fields.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn requests_of_appendix_c() {
    let first = ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com";
    let second = format!("{first}\ncache-control: no-cache");
    let third = ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value";
    // C.3 plain, C.4 with Huffman coding: the same fields, the same table.
    for blocks in [
        [
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ],
        [
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ],
    ] {
        let mut decoder = Decoder::new(true);
        for ((block, fields), size) in blocks.iter().zip([first, &second, third]).zip([57, 110, 164]) {
            let (decoded, unknown) = decode(&mut decoder, &bytes(block)).unwrap();
            assert_eq!((text(&decoded).as_str(), unknown), (fields, 0));
            assert_eq!(decoder.table().size_bytes(), size);
        }
        let newest = decoder.table().entries().next().unwrap().text.as_deref().unwrap();
        assert_eq!(newest, &(b"custom-key".to_vec(), b"custom-value".to_vec()));
    }
}

#[test]
fn responses_of_appendix_c_evict_entries() {
    let date = "date: Mon, 21 Oct 2013 20:13:2";
    let place = "location: https://www.example.com";
    let first = format!(":status: 302\ncache-control: private\n{date}1 GMT\n{place}");
    let second = first.replace("302", "307");
    let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    let third = format!(
        ":status: 200\ncache-control: private\n{date}2 GMT\n{place}\ncontent-encoding: gzip\n{cookie}"
    );
    for blocks in [
        [
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b48514b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
        ],
        [
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ],
    ] {
        let mut decoder = Decoder::new(true);
        decoder.table.resize(256);
        for ((block, fields), size) in blocks.iter().zip([&first, &second, &third]).zip([222, 222, 215]) {
            let (decoded, unknown) = decode(&mut decoder, &bytes(block)).unwrap();
            assert_eq!((text(&decoded), unknown), (fields.clone(), 0));
            assert_eq!(decoder.table().size_bytes(), size);
        }
    }
}

#[test]
fn integers_of_appendix_c() {
    let integer = |bytes: &[u8], prefix| Cursor { block: bytes, at: 0 }.integer(prefix);
    assert_eq!(integer(&[0b1110_1010], 5), Ok(10));
    assert_eq!(integer(&[0b0001_1111, 0b1001_1010, 0b0000_1010], 5), Ok(1337));
    assert_eq!(integer(&[42], 8), Ok(42));
    assert_eq!(integer(&[31, 0xe0, 0xff, 0xff, 0xff, 0x0f], 5), Ok(u32::MAX));
    assert_eq!(integer(&[31, 0xe1, 0xff, 0xff, 0xff, 0x0f], 5), Err(Fault::Integer(0)));
    assert_eq!(integer(&[31, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 5), Err(Fault::Integer(0)));
    assert_eq!(integer(&[31, 0x80], 5), Err(Fault::Truncated(0)));
}

#[test]
fn an_invalid_block_is_an_error_and_makes_the_table_unknown() {
    for (block, fault) in [
        ("80", Fault::Index(0)),
        ("be", Fault::Index(0)),
        ("82 20", Fault::Resize(1)),
        ("40 01", Fault::Truncated(1)),
        ("41 81 ff", Fault::Huffman(1, huffman::Fault::Padding)),
    ] {
        let mut decoder = Decoder::new(true);
        assert_eq!(decode(&mut decoder, &bytes(block)), Err(fault), "{block}");
        assert_eq!(
            decode(&mut decoder, &bytes("be")),
            Ok((vec![], 1)),
            "what the table holds is unknown now"
        );
    }
}

/// An encoder that makes its choices by chance; the simplest table there can be.
#[derive(Default)]
struct Encoder {
    table: Vec<Text>,
}

impl Encoder {
    fn integer(out: &mut Vec<u8>, first: u8, prefix: u32, value: usize) {
        let mask = (1 << prefix) - 1;
        if value < mask {
            return out.push(first | value as u8);
        }
        out.push(first | mask as u8);
        let mut rest = value - mask;
        while rest >= 128 {
            out.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        out.push(rest as u8);
    }

    fn string(out: &mut Vec<u8>, text: &[u8], coded: bool) {
        let coded_text = if coded { encode(text) } else { text.to_vec() };
        Encoder::integer(out, if coded { 0x80 } else { 0 }, 7, coded_text.len());
        out.extend(coded_text);
    }

    fn all(&self) -> impl Iterator<Item = Text> {
        let fixed = STATIC.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        fixed.chain(self.table.iter().cloned())
    }

    fn field(&mut self, out: &mut Vec<u8>, field: &Text, choice: u8) {
        let whole = self.all().position(|entry| entry == *field);
        if let Some(place) = whole.filter(|_| choice & 3 != 0) {
            return Encoder::integer(out, 0x80, 7, place + 1);
        }
        let insert = choice & 4 != 0;
        let (first, prefix) = if insert { (0x40, 6) } else { (choice << 1 & 0x10, 4) };
        let named = self.all().position(|entry| entry.0 == field.0).filter(|_| choice & 16 == 0);
        Encoder::integer(out, first, prefix, named.map_or(0, |place| place + 1));
        if named.is_none() {
            Encoder::string(out, &field.0, choice & 32 != 0);
        }
        Encoder::string(out, &field.1, choice & 64 != 0);
        if insert {
            self.table.insert(0, field.clone());
            let size = |table: &[Text]| table.iter().map(|(a, b)| a.len() + b.len() + 32).sum::<usize>();
            while size(&self.table) > 4096 {
                self.table.pop();
            }
        }
    }
}

fn fields() -> impl Strategy<Value = Vec<Vec<(Text, u8)>>> {
    let name = prop_oneof![
        Just(":path".to_string()),
        Just(":status".to_string()),
        Just("grpc-status".to_string()),
        Just("traceparent".to_string()),
        "[a-c]{1,3}",
        "[a-z-]{1,20}",
    ];
    let value = prop_oneof![
        prop::sample::select(vec![b"0".to_vec(), b"200".to_vec(), b"/a".to_vec()]),
        prop::collection::vec(any::<u8>(), 0..300),
    ];
    let field = (name.prop_map(String::into_bytes), value);
    prop::collection::vec(prop::collection::vec((field, any::<u8>()), 1..12), 1..12)
}

proptest! {
    #[test]
    fn any_fields_round_trip(blocks in fields()) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(true));
        for block in blocks {
            let mut bytes = Vec::new();
            block.iter().for_each(|(field, choice)| encoder.field(&mut bytes, field, *choice));
            prop_assert!(plausible(&bytes) || block.iter().any(|((name, _), _)| !is_name(name)));
            let expected: Vec<Text> = block.into_iter().map(|(field, _)| field).collect();
            prop_assert_eq!(decode(&mut decoder, &bytes), Ok((expected, 0)));
        }
    }

    #[test]
    fn fields_of_a_joined_connection_are_correct_or_unknown(blocks in fields(), lost in any::<prop::sample::Index>(), from in 0usize..6) {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::new(false));
        let mut joined = false;
        let lost = lost.index(blocks.len());
        for (number, block) in blocks.into_iter().enumerate() {
            let mut bytes = Vec::new();
            block.iter().for_each(|(field, choice)| encoder.field(&mut bytes, field, *choice));
            if number < from {
                continue;
            }
            if number == lost && joined {
                decoder.forget();
                continue;
            }
            joined = true;
            let (decoded, unknown) = decode(&mut decoder, &bytes).unwrap();
            prop_assert_eq!(decoded.len() + unknown as usize, block.len());
            // What is known is there in the order in which it was sent.
            let mut expected = block.iter().map(|(field, _)| field);
            prop_assert!(decoded.iter().all(|field| expected.any(|other| other == field)));
        }
    }

    #[test]
    fn an_observer_does_not_change_the_meaning(blocks in fields()) {
        let (mut encoder, mut watched, mut plain) = (Encoder::default(), Decoder::new(false), Decoder::new(false));
        let mut texts = Texts::default();
        for block in blocks.iter().skip(1) {
            let mut bytes = Vec::new();
            block.iter().for_each(|(field, choice)| encoder.field(&mut bytes, field, *choice));
            let head = watched.decode(&bytes, &mut texts, Some(&mut Vec::new()));
            prop_assert_eq!(head, plain.decode(&bytes, &mut texts, None));
        }
    }

    #[test]
    fn any_bytes_are_decoded_to_an_end(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..8)) {
        let mut decoder = Decoder::new(true);
        for block in blocks {
            let _ = decode(&mut decoder, &block);
            plausible(&block);
            prop_assert!(decoder.memory_bytes() < 1 << 20);
        }
    }
}

#[test]
fn the_meaning_of_fields_is_remembered() {
    let mut decoder = Decoder::new(true);
    let mut texts = Texts::default();
    let mut out = Vec::new();
    let mut encoder = Encoder::default();
    let fields: [(&str, &str); 4] = [
        (":path", "/a.B/C"),
        ("content-type", "application/grpc+proto"),
        ("grpc-timeout", "5m"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ];
    for _ in 0..2 {
        out.clear();
        for (name, value) in fields {
            encoder.field(&mut out, &(name.into(), value.into()), 0x67);
        }
        let head = decoder.decode(&out, &mut texts, None).unwrap();
        assert_eq!(head.path, Some(TextId(1)));
        assert_eq!((head.grpc, head.timeout_ns, head.request), (Some(true), Some(5_000_000), true));
        assert_eq!(head.trace().unwrap().span_id[0], 0xb7);
    }
    assert_eq!(out.len(), 4, "the second time all of them are indices");
}
