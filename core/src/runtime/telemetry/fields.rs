//! Reads the fields of a frame. They have postcard's encoding, which `SPEC.md` specifies.

/// The bytes of the fields that are not read yet. Each method returns `None` if the field is incomplete or invalid.
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// Reads a u32 varint: seven bits in each byte, lowest first. All bytes but the last have their highest bit set.
    pub fn number(&mut self) -> Option<u32> {
        let mut number = 0u64;
        for place in 0..5 {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return number.try_into().ok();
            }
        }
        None
    }

    pub fn float(&mut self) -> Option<f32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(f32::from_le_bytes(*bytes))
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        let (bytes, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(bytes)
    }

    pub fn text(&mut self) -> Option<&'a str> {
        core::str::from_utf8(self.bytes()?).ok()
    }

    /// Reads the flag before an optional value. It is true if the value follows.
    pub fn present(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}
