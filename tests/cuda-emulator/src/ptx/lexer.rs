//! Tokens of PTX.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'t> {
    /// A name, a register, a directive or an opcode with its modifiers.
    Word(&'t str),
    /// An integer.
    Integer(u64),
    /// The bits of an f32: `0f3F800000`.
    Single(u32),
    /// The bits of an f64: `0d…`, or a decimal number.
    Double(u64),
    /// A text in quotes.
    Text(&'t str),
    /// Anything else.
    Mark(u8),
}

/// Splits a file into tokens with their lines, counted from 1.
pub fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>, String> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut tokens = Vec::with_capacity(text.len() / 5);
    while lexer.skip_blanks()? {
        let line = lexer.line;
        tokens.push((lexer.token().map_err(|what| format!("line {line}: {what}"))?, line));
    }
    Ok(tokens)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl<'t> Lexer<'t> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips blanks and comments. False at the end of the file.
    fn skip_blanks(&mut self) -> Result<bool, String> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => self.at += self.text[self.at..].find('\n').unwrap_or(self.text.len() - self.at),
                (b'/', b'*') => {
                    let length = self.text[self.at..].find("*/").ok_or_else(|| format!("line {}: a comment without an end", self.line))?;
                    self.line += self.text[self.at..self.at + length].bytes().filter(|b| *b == b'\n').count() as u32;
                    self.at += length + 2;
                }
                // A trailing zero byte belongs to the C string that the file came in.
                (0, _) => return Ok(false),
                _ => return Ok(true),
            }
        }
    }

    fn token(&mut self) -> Result<Token<'t>, String> {
        match self.byte(0) {
            b'0'..=b'9' => self.number(),
            b'"' => {
                let rest = &self.text[self.at + 1..];
                let length = rest.find('"').ok_or("a text without an end")?;
                self.at += length + 2;
                Ok(Token::Text(&rest[..length]))
            }
            b'.' | b'%' | b'$' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => Ok(Token::Word(self.word())),
            mark if mark.is_ascii_graphic() => {
                self.at += 1;
                Ok(Token::Mark(mark))
            }
            other => Err(format!("an unexpected byte {other:#04x}")),
        }
    }

    fn word(&mut self) -> &'t str {
        let start = self.at;
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'.' | b'%' | b'$' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z', _) => self.at += 1,
                (b':', b':') => self.at += 2,
                _ => return &self.text[start..self.at],
            }
        }
    }

    fn number(&mut self) -> Result<Token<'t>, String> {
        let word = self.word();
        let wrong = || format!("`{word}` is no number");
        let hexadecimal = |digits| u64::from_str_radix(digits, 16).map_err(|_| wrong());
        Ok(match word.get(..2) {
            Some("0f" | "0F") => Token::Single(u32::try_from(hexadecimal(&word[2..])?).map_err(|_| wrong())?),
            Some("0d" | "0D") => Token::Double(hexadecimal(&word[2..])?),
            Some("0x" | "0X") => Token::Integer(hexadecimal(word[2..].trim_end_matches('U'))?),
            Some("0b" | "0B") => Token::Integer(u64::from_str_radix(word[2..].trim_end_matches('U'), 2).map_err(|_| wrong())?),
            _ if word.contains('.') => Token::Double(word.parse::<f64>().map_err(|_| wrong())?.to_bits()),
            _ => {
                let digits = word.trim_end_matches('U');
                let octal = digits.len() > 1 && digits.starts_with('0');
                Token::Integer(u64::from_str_radix(digits, if octal { 8 } else { 10 }).map_err(|_| wrong())?)
            }
        })
    }
}
