//! ClickHouse's format RowBinary: values one after the other, without names or separators. No value can be mistaken for
//! a part of a statement.

/// Rows under construction.
#[derive(Debug, Default)]
pub struct Rows(Vec<u8>);

impl Rows {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Appends a `UInt8`.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Appends an `Int16`.
    pub fn i16(&mut self, value: i16) {
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a `UInt32`, or a `DateTime` in Unix seconds.
    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a `UInt64`.
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a `UInt128`.
    pub fn u128(&mut self, value: u128) {
        self.0.extend(value.to_le_bytes());
    }

    /// Appends a `FixedString`.
    pub fn fixed(&mut self, value: &[u8]) {
        self.0.extend(value);
    }

    /// Appends the length of a string or an array.
    pub fn length(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Appends a `String`.
    pub fn string(&mut self, value: &[u8]) {
        self.length(value.len());
        self.0.extend(value);
    }
}

/// An answer that is being read. Every value is `None` where the bytes end too soon.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a>(&'a [u8]);

impl<'a> Answer<'a> {
    /// The rows of these bytes.
    pub fn new(bytes: &'a [u8]) -> Answer<'a> {
        Answer(bytes)
    }

    /// Whether all rows were read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes.
    pub fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*value)
    }

    /// The next `UInt8`.
    pub fn u8(&mut self) -> Option<u8> {
        self.fixed().map(u8::from_le_bytes)
    }

    /// The next `Int16`.
    pub fn i16(&mut self) -> Option<i16> {
        self.fixed().map(i16::from_le_bytes)
    }

    /// The next `UInt32` or `DateTime`.
    pub fn u32(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    /// The next `UInt64`.
    pub fn u64(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    /// The next `UInt128`.
    pub fn u128(&mut self) -> Option<u128> {
        self.fixed().map(u128::from_le_bytes)
    }

    /// The next length of a string or an array.
    pub fn length(&mut self) -> Option<usize> {
        let mut value = 0usize;
        for shift in (0..usize::BITS).step_by(7) {
            let byte = self.u8()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// The next `String`.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        let (value, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(value)
    }

    /// The next `String` as text; other bytes are replaced.
    pub fn text(&mut self) -> Option<String> {
        self.string().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The next `Array`.
    pub fn array<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.length()?;
        // Every element takes a byte at least: a damaged length allocates nothing.
        if length > self.0.len() {
            return None;
        }
        (0..length).map(|_| one(self)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_what_is_cut_off_is_not() {
        let mut rows = Rows::default();
        rows.u8(7);
        rows.i16(-479);
        rows.u128(u128::MAX - 1);
        let long = vec![0xff; 300];
        rows.string(&long);
        rows.length(2);
        rows.u64(1);
        rows.u64(u64::MAX);
        let read = |bytes: &[u8]| {
            let mut answer = Answer::new(bytes);
            let values = (answer.u8()?, answer.i16()?, answer.u128()?, answer.string()?.to_vec());
            let array = answer.array(Answer::u64)?;
            Some((values, array, answer.is_empty()))
        };
        assert_eq!(read(rows.bytes()), Some(((7, -479, u128::MAX - 1, long), vec![1, u64::MAX], true)));
        assert!((0..rows.bytes().len()).all(|end| read(&rows.bytes()[..end]).is_none()));
    }
}
