//! Console lines of the form `key=value`, and the command line. Both go through semihosting to the debugging host.

use crate::semihost::{Operation, call};

/// Prints `key=value` with a number.
pub fn report(key: &str, value: u32) {
    let mut digits = [0u8; 10];
    let mut first = digits.len();
    let mut rest = value;
    loop {
        first -= 1;
        if let Some(digit) = digits.get_mut(first) {
            *digit = b'0' + (rest % 10) as u8;
        }
        rest /= 10;
        if rest == 0 || first == 0 {
            break;
        }
    }
    line(key, digits.get(first..).unwrap_or(&[]));
}

/// Prints `key=value` with a text.
pub fn text(key: &str, value: &str) {
    line(key, value.as_bytes());
}

fn line(key: &str, value: &[u8]) {
    for part in [key.as_bytes(), b"=", value, b"\n"] {
        part.iter().for_each(put);
    }
}

fn put(byte: &u8) {
    // SAFETY: SYS_WRITEC reads one byte at the address it is given.
    unsafe { call(Operation::WriteC, byte as *const u8 as usize) };
}

/// Words of a command line. Word 0 is the program's name.
pub struct Arguments {
    line: [u8; 256],
    length: usize,
}

impl Arguments {
    /// Reads the command line of this firmware. If the debugging host passes none, there are no words.
    pub fn new() -> Arguments {
        let mut arguments = Arguments { line: [0; 256], length: 0 };
        let mut block = [arguments.line.as_mut_ptr() as usize, arguments.line.len()];
        // SAFETY: the block names a buffer and its length; SYS_GET_CMDLINE stays within it and stores the length used.
        let failed = unsafe { call(Operation::CommandLine, block.as_mut_ptr() as usize) };
        // SAFETY: `block` is alive; the read is volatile because the compiler does not see the debugger's write.
        let length = unsafe { core::ptr::read_volatile(&block[1]) };
        arguments.length = if failed == 0 { length.min(arguments.line.len()) } else { 0 };
        arguments
    }

    /// Returns word `index`, or `None` if the command line has fewer words. Word 0 is the program's name.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let mut rest = self.line.get(..self.length)?;
        for _ in 0..index {
            let end = rest.iter().position(|&byte| byte == b' ')?;
            rest = rest.get(end + 1..)?;
        }
        let end = rest.iter().position(|&byte| byte == b' ' || byte == 0).unwrap_or(rest.len());
        rest.get(..end).filter(|word| !word.is_empty())
    }

    /// Returns word `index` as text. Returns `None` if there is no such word, or if it is not UTF-8.
    pub fn text(&self, index: usize) -> Option<&str> {
        core::str::from_utf8(self.get(index)?).ok()
    }

    /// Returns word `index` as a number. Returns `None` if there is no such word, or if it is not a decimal `u32`.
    pub fn number(&self, index: usize) -> Option<u32> {
        self.get(index)?.iter().try_fold(0u32, |number, byte| {
            let digit = byte.is_ascii_digit().then_some(u32::from(byte.wrapping_sub(b'0')))?;
            number.checked_mul(10)?.checked_add(digit)
        })
    }
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments::new()
    }
}
