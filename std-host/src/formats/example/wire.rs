//! Protobuf's wire format, read as TensorFlow's parser of Examples reads it.
//!
//! It is more patient than the format asks for: a message that claims more bytes than there are ends where they end, and a
//! length keeps its low 32 bits only. Strings and floats must be there as claimed.

/// The key of field `number` for what is led by its length: messages, strings, packed numbers.
pub(super) const fn delimited(number: u8) -> u8 {
    number << 3 | 2
}
/// The key of field 1 as a varint.
pub(super) const VARINT: u8 = 1 << 3;
/// The key of field 1 as four bytes.
pub(super) const FIXED32: u8 = 1 << 3 | 5;

/// What is left of a message.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    pub fn new(bytes: &'a [u8]) -> Wire<'a> {
        Wire(bytes)
    }

    pub fn at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next byte, which stays.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// True, and a byte further, if the next byte is `key`.
    #[inline]
    pub fn expect(&mut self, key: u8) -> bool {
        let found = self.peek() == Some(key);
        self.0 = &self.0[usize::from(found)..];
        found
    }

    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let &first = self.0.first()?;
        if first < 0x80 {
            self.0 = &self.0[1..];
            return Some(first.into());
        }
        let mut value = 0;
        for (at, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub fn length(&mut self) -> Option<usize> {
        self.varint().map(|length| length as u32 as usize)
    }

    /// The message that comes next, or what there is of it.
    #[inline]
    pub fn message(&mut self) -> Option<Wire<'a>> {
        let length = self.length()?;
        let (message, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        Some(Wire(message))
    }

    /// The string that comes next.
    #[inline]
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    #[inline]
    pub fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Passes a field that nobody asked for. Groups are not passed.
    pub fn skip(&mut self) -> Option<()> {
        match self.varint()? & 7 {
            0 => self.varint().map(drop),
            1 => self.take(8).map(drop),
            2 => self.message().map(drop),
            5 => self.take(4).map(drop),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints() {
        let read = |bytes: &[u8]| Wire::new(bytes).varint();
        assert_eq!(read(&[0x7f, 9]), Some(127));
        assert_eq!(read(&[0x80, 1]), Some(128));
        assert_eq!(read(&[0xff; 9].iter().copied().chain([1]).collect::<Vec<_>>()), Some(u64::MAX));
        assert_eq!(read(&[0xff; 11]), None);
        assert_eq!(read(&[0x80]), None);
        assert_eq!(read(&[]), None);
    }

    #[test]
    fn messages_end_with_the_bytes_but_strings_must_be_whole() {
        let bytes = [5, 1, 2];
        assert_eq!(Wire::new(&bytes).message().unwrap().0, [1, 2]);
        assert!(Wire::new(&bytes).string().is_none());
        assert_eq!(Wire::new(&[1, 7, 8]).string(), Some(&[7][..]));
    }
}
