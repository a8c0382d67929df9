//! Huffman code of HPACK (RFC 7541, 5.2 and appendix B).
//!
//! The code is canonical: the lengths alone define it. One table lookup of twelve bits finds two symbols; longer
//! codes, which ordinary header fields do not have, are found by their length.

use std::fmt;

/// Length of each symbol's code in bits; the last one is that of EOS.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];
const EOS: u16 = 256;
const LONGEST: usize = 30;
/// Bits per lookup.
const LOOK: usize = 12;

/// The symbols in the order of their codes; for each length the first code, left-aligned in 32 bits, and the
/// index of its symbol.
struct Canonical {
    symbols: [u16; 257],
    first: [u32; LONGEST + 2],
    place: [u16; LONGEST + 2],
}

const fn canonical() -> Canonical {
    let mut result = Canonical { symbols: [0; 257], first: [0; LONGEST + 2], place: [0; LONGEST + 2] };
    let (mut code, mut place, mut length) = (0u64, 0, 1);
    while length <= LONGEST {
        result.first[length] = code as u32;
        result.place[length] = place as u16;
        let mut symbol = 0;
        while symbol < 257 {
            if LENGTHS[symbol] as usize == length {
                result.symbols[place] = symbol as u16;
                place += 1;
                code += 1 << (32 - length);
            }
            symbol += 1;
        }
        length += 1;
    }
    result
}

/// The symbols at the start of twelve bits.
#[derive(Clone, Copy)]
struct Look {
    first: u8,
    second: u8,
    /// Bits of the first symbol; zero if it is longer than twelve.
    first_bits: u8,
    /// Bits of both; equal to those of the first if the second does not fit.
    bits: u8,
}

const fn looks() -> [Look; 1 << LOOK] {
    let mut table = [Look { first: 0, second: 0, first_bits: 0, bits: 0 }; 1 << LOOK];
    let code = canonical();
    let mut at = 0;
    let mut place = 0;
    // Codes ascend with their index, so the table fills from the left.
    while place < 257 {
        let symbol = code.symbols[place];
        let bits = LENGTHS[symbol as usize];
        if bits as usize > LOOK {
            break;
        }
        let mut count = 1 << (LOOK - bits as usize);
        while count > 0 {
            table[at] = Look { first: symbol as u8, second: 0, first_bits: bits, bits };
            at += 1;
            count -= 1;
        }
        place += 1;
    }
    at = 0;
    while at < 1 << LOOK {
        let bits = table[at].first_bits;
        if bits != 0 {
            let next = table[(at << bits) & ((1 << LOOK) - 1)];
            if next.first_bits != 0 && (bits + next.first_bits) as usize <= LOOK {
                table[at].second = next.first;
                table[at].bits = bits + next.first_bits;
            }
        }
        at += 1;
    }
    table
}

static CODE: Canonical = canonical();
static LOOKS: [Look; 1 << LOOK] = looks();

/// Why bytes are not a Huffman code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// EOS occurs inside, which is not allowed.
    Eos,
    /// The bits after the last symbol are not a prefix of EOS, or are a whole byte.
    Padding,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Eos => "the end-of-string symbol",
            Fault::Padding => "padding that is not the beginning of the end-of-string symbol",
        })
    }
}

/// Appends the decoded `input`.
///
/// # Errors
/// If it is not a valid code; everything appended so far stays.
pub fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    let start = out.len();
    // No symbol is shorter than five bits; plus room for a second symbol that is written but not counted.
    out.resize(start + input.len() * 8 / 5 + 2, 0);
    let (result, length) = decode_into(input, &mut out[start..]);
    out.truncate(start + length);
    result
}

fn decode_into(mut input: &[u8], out: &mut [u8]) -> (Result<(), Fault>, usize) {
    let mut length = 0;
    // The next bits, left-aligned, and their number.
    let (mut bits, mut have) = (0u64, 0u32);
    loop {
        if let Some(word) = input.first_chunk::<8>() {
            // As many whole bytes as fit.
            bits |= u64::from_be_bytes(*word) >> have;
            let bytes = (63 - have) / 8;
            input = &input[bytes as usize..];
            have += bytes * 8;
            // The bits of a byte that fits only partly will be read again.
            bits &= !0u64 << (64 - have);
        } else {
            while let [byte, rest @ ..] = input {
                if have > 56 {
                    break;
                }
                bits |= u64::from(*byte) << (56 - have);
                have += 8;
                input = rest;
            }
        }
        // The fast path for ordinary header fields, except for their last bits: all codes are short and complete.
        while have >= LOOK as u32 {
            let look = LOOKS[(bits >> (64 - LOOK)) as usize];
            let Some([first, second, ..]) = out.get_mut(length..) else { break };
            if look.first_bits == 0 {
                break;
            }
            (*first, *second) = (look.first, look.second);
            length += 1 + usize::from(look.bits > look.first_bits);
            bits <<= look.bits;
            have -= u32::from(look.bits);
        }
        let more = !input.is_empty();
        while have >= LONGEST as u32 || (!more && have > 0) {
            // Ones follow the end: with them, the last bits are either a symbol or a prefix of EOS.
            let padded = if have < LONGEST as u32 { bits | (!0u64 >> have) } else { bits };
            let look = LOOKS[(padded >> (64 - LOOK)) as usize];
            let pair = look.bits > look.first_bits && u32::from(look.bits) <= have;
            let (symbol, used) = if look.first_bits != 0 {
                (u16::from(look.first), u32::from(if pair { look.bits } else { look.first_bits }))
            } else {
                long(padded)
            };
            if used > have {
                let padding = have < 8 && bits >> (64 - have) == (1 << have) - 1;
                return (if padding { Ok(()) } else { Err(Fault::Padding) }, length);
            }
            if symbol == EOS {
                return (Err(Fault::Eos), length);
            }
            let Some([first, second, ..]) = out.get_mut(length..) else {
                return (Err(Fault::Padding), length);
            };
            *first = symbol as u8;
            *second = look.second;
            length += 1 + usize::from(pair);
            bits <<= used;
            have -= used;
        }
        if !more && have == 0 {
            return (Ok(()), length);
        }
    }
}

/// Bits of a symbol's code.
pub fn bits(symbol: u8) -> usize {
    usize::from(LENGTHS[usize::from(symbol)])
}

/// The code of a text, padded with ones.
pub fn encode(text: &[u8]) -> Vec<u8> {
    let mut coded = Vec::with_capacity(text.len());
    let (mut held, mut have) = (0u64, 0);
    for symbol in text {
        let length = bits(*symbol);
        held = held << length | u64::from(CODES[usize::from(*symbol)]);
        have += length;
        while have >= 8 {
            have -= 8;
            coded.push((held >> have) as u8);
        }
    }
    if have > 0 {
        coded.push((held << (8 - have)) as u8 | 0xff >> have);
    }
    coded
}

/// The code of each symbol, right-aligned.
static CODES: [u32; 256] = {
    let code = canonical();
    let mut codes = [0; 256];
    let mut place = 0;
    while place < 257 {
        let symbol = code.symbols[place] as usize;
        if symbol < 256 {
            let length = LENGTHS[symbol] as usize;
            let within = (place - code.place[length] as usize) as u32;
            codes[symbol] = (code.first[length] >> (32 - length)) + within;
        }
        place += 1;
    }
    codes
};

/// The symbol, and its length in bits, if it is longer than one lookup.
#[cold]
fn long(bits: u64) -> (u16, u32) {
    let bits = (bits >> 32) as u32;
    let mut length = LOOK + 1;
    while length < LONGEST && CODE.first[length + 1] <= bits {
        length += 1;
    }
    let place = usize::from(CODE.place[length]) + ((bits - CODE.first[length]) >> (32 - length)) as usize;
    (CODE.symbols.get(place).copied().unwrap_or(EOS), length as u32)
}

#[cfg(test)]
/// The encoder, which other tests use, too.
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes with the code listed in appendix B: from lengths, bit by bit.
    pub fn encode(text: &[u8]) -> Vec<u8> {
        let mut bits = Vec::new();
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let place = CODE.symbols.iter().position(|symbol| *symbol == u16::from(*byte)).unwrap();
            let within = (place - usize::from(CODE.place[length])) as u32;
            let code = (CODE.first[length] >> (32 - length)) + within;
            bits.extend((0..length).rev().map(|bit| code >> bit & 1));
        }
        while bits.len() % 8 != 0 {
            bits.push(1);
        }
        bits.chunks(8).map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | *bit as u8)).collect()
    }

    #[test]
    fn the_encoder_agrees_with_the_appendix() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(super::encode(&all), encode(&all));
        for length in 0..40 {
            let text = &b"www.example.com/\xff and a little more of it"[..length];
            assert_eq!(super::encode(text), encode(text));
        }
    }

    fn decoded(input: &[u8]) -> Result<Vec<u8>, Fault> {
        let mut out = b"before".to_vec();
        decode(input, &mut out).map(|()| out.split_off(6))
    }

    #[test]
    fn examples_of_the_rfc() {
        // Appendix C.4.1, C.4.2, C.6.1.
        let cases: [(&[u8], &[u8]); 3] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], b"www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], b"no-cache"),
            (&[0x64, 0x02], b"302"),
        ];
        for (code, text) in cases {
            assert_eq!(decoded(code).as_deref(), Ok(text));
            assert_eq!(encode(text), code);
        }
    }

    #[test]
    fn codes_of_appendix_b() {
        // A few symbols of every kind of length: ' ', '!', 0, 255, 10.
        for (symbol, code, length) in
            [(32u8, 0x14, 6), (33, 0x3f8, 10), (0, 0x1ff8, 13), (255, 0x03ff_ffee, 26), (10, 0x3fff_fffc, 30)]
        {
            let mut bits = u64::from(u32::MAX) | (code << 32 << (32 - length));
            bits |= !0u64 >> length;
            let bytes = &bits.to_be_bytes()[..(length as usize).div_ceil(8)];
            assert_eq!(decoded(bytes).as_deref(), Ok(&[symbol][..]), "{symbol}");
        }
    }

    #[test]
    fn invalid_codes_are_rejected() {
        assert_eq!(decoded(&[0xff, 0xff, 0xff, 0xff]), Err(Fault::Eos));
        assert_eq!(decoded(&[0xff]), Err(Fault::Padding), "a byte of padding");
        assert_eq!(decoded(&[0x64, 0x02, 0x00]), Err(Fault::Padding), "zeros of padding");
        assert_eq!(decoded(&[]).as_deref(), Ok(&[][..]));
    }

    proptest! {
        #[test]
        fn any_text_round_trips(text in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decoded(&encode(&text)), Ok(text));
        }

        #[test]
        fn printable_text_round_trips(text in "[ -~]{0,200}") {
            prop_assert_eq!(decoded(&encode(text.as_bytes())), Ok(text.into_bytes()));
        }

        #[test]
        fn only_encodings_are_accepted(input in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decoded(&input) {
                prop_assert_eq!(encode(&text), input);
            }
        }
    }
}
