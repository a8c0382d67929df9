//! Messages between agent and actuator, each prefixed with its length, a 32-bit big-endian number.

use prost::Message;
use std::io::{self, Read, Write};

/// Maximum size of a message: sufficient for ten thousand connections.
const MAX_BYTES: u32 = 4 << 20;

/// Reads the next message; `None` if the other end has closed.
///
/// # Errors
/// When it cannot be read, is truncated, or is invalid.
pub fn read<M: Message + Default>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 4];
    // Zero bytes are an end, half a length is not.
    match from.read(&mut length[..1]) {
        Ok(0) => return Ok(None),
        Ok(_) => from.read_exact(&mut length[1..])?,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return read(from),
        Err(error) => return Err(error),
    }
    let length = u32::from_be_bytes(length);
    if length > MAX_BYTES {
        return Err(io::Error::other(format!("a message of {length} bytes: expected at most {MAX_BYTES}")));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    M::decode(&bytes[..]).map(Some).map_err(io::Error::other)
}

/// Writes a message.
///
/// # Errors
/// When it cannot be written.
pub fn write(to: &mut impl Write, message: &impl Message) -> io::Result<()> {
    let bytes = message.encode_to_vec();
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_BYTES);
    let length = length.ok_or_else(|| io::Error::other(format!("a message of {} bytes", bytes.len())))?;
    to.write_all(&[&length.to_be_bytes()[..], &bytes].concat())?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_fleet::v1::Undo;

    #[test]
    fn messages_survive_a_round_trip_and_truncated_ones_are_errors() {
        let mut bytes = Vec::new();
        for order in [0, 7] {
            write(&mut bytes, &Undo { order }).expect("there is room");
        }
        let mut from = &bytes[..];
        assert_eq!(read::<Undo>(&mut from).expect("whole").map(|undo| undo.order), Some(0));
        assert_eq!(read::<Undo>(&mut from).expect("whole").map(|undo| undo.order), Some(7));
        assert_eq!(read::<Undo>(&mut from).expect("the end"), None);
        for cut in 5..bytes.len() {
            let mut from = &bytes[4..cut];
            assert!(read::<Undo>(&mut from).is_err(), "{cut}");
        }
        assert!(read::<Undo>(&mut &[0xff_u8; 8][..]).is_err(), "too long");
    }
}
