//! Reader for Protobuf's wire format, with the behaviour of TensorFlow's parser of Examples.
//!
//! It accepts more than the format allows. A message that claims more bytes than exist ends at the end of the bytes, and only the low 32
//! bits of a length count. Strings and floats must have their full length.

/// Key of a length-delimited field with this number: a message, a string or packed numbers.
pub(super) const fn delimited(number: u8) -> u8 {
    number << 3 | 2
}
/// Key of field 1 as a varint.
pub(super) const VARINT: u8 = 1 << 3;
/// Key of field 1 as four bytes.
pub(super) const FIXED32: u8 = 1 << 3 | 5;

/// Unread bytes of a message.
#[derive(Clone, Copy)]
pub(super) struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    pub fn new(bytes: &'a [u8]) -> Wire<'a> {
        Wire(bytes)
    }

    pub fn at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the next byte without consuming it, or `None` at the end.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Consumes the next byte and returns true, if it is `key`. Otherwise returns false.
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

    /// Reads a nested message. It may be shorter than its length claims. Returns `None` if the length is malformed.
    #[inline]
    pub fn message(&mut self) -> Option<Wire<'a>> {
        let length = self.length()?;
        let (message, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        Some(Wire(message))
    }

    /// Reads a string. Returns `None` if its length is malformed or exceeds the unread bytes.
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

    /// Skips an unknown field. Returns `None` if the field is malformed, or a group, which is not supported.
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
