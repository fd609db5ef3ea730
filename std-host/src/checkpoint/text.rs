//! Protobuf's text format, as its Python library reads and writes it. Supports the fields of a message with strings and numbers.

use std::ops::Range;

/// An error: the offset in the text, in bytes, and a message.
pub(super) type Problem = (usize, String);

/// The tokens of a text.
pub(super) struct Tokens<'a> {
    text: &'a str,
    /// Range of the current token in the text; empty at the end.
    token: Range<usize>,
}

impl<'a> Tokens<'a> {
    /// Starts at the first token.
    pub fn new(text: &'a str) -> Result<Tokens<'a>, Problem> {
        let mut tokens = Tokens { text, token: 0..0 };
        tokens.advance()?;
        Ok(tokens)
    }

    /// Returns the current token, or "" at the end.
    pub fn token(&self) -> &'a str {
        &self.text[self.token.clone()]
    }

    /// Returns the current token and moves to the next.
    pub fn next(&mut self) -> Result<&'a str, Problem> {
        let token = self.token();
        self.advance()?;
        Ok(token)
    }

    /// Skips `token` if it is the current one. Returns true if it was.
    pub fn take(&mut self, token: &str) -> Result<bool, Problem> {
        let there = self.token() == token;
        if there {
            self.advance()?;
        }
        Ok(there)
    }

    /// Skips `token`. Fails if it is not the current one.
    pub fn expect(&mut self, token: &str) -> Result<(), Problem> {
        if self.take(token)? { Ok(()) } else { Err(self.problem(&format!("expected {token:?}"))) }
    }

    /// Parses the values of a repeated field: one value, or a list in brackets. `value` is called to parse each of them.
    pub fn each(&mut self, mut value: impl FnMut(&mut Self) -> Result<(), Problem>) -> Result<(), Problem> {
        if !self.take("[")? {
            return value(self);
        }
        if self.take("]")? {
            return Ok(());
        }
        loop {
            value(self)?;
            if self.take("]")? {
                return Ok(());
            }
            self.expect(",")?;
        }
    }

    /// Parses a string. Adjacent literals form one string.
    pub fn string(&mut self) -> Result<String, Problem> {
        let begin = self.token.start;
        let mut bytes = Vec::new();
        loop {
            let literal = self.token();
            if !literal.starts_with(['"', '\'']) {
                return Err(self.problem("expected a string"));
            }
            unescape(&literal[1..literal.len() - 1], &mut bytes).map_err(|text| (self.token.start, text))?;
            self.advance()?;
            if !self.token().starts_with(['"', '\'']) {
                break;
            }
        }
        String::from_utf8(bytes).map_err(|_| (begin, "the string is not UTF-8".into()))
    }

    /// Parses a number.
    pub fn float(&mut self) -> Result<f64, Problem> {
        let number = float(self.token()).ok_or_else(|| self.problem("expected a number"))?;
        self.advance()?;
        Ok(number)
    }

    /// Returns an error about the current token.
    pub fn problem(&self, text: &str) -> Problem {
        let got = if self.token.is_empty() { "got the end of the file".into() } else { format!("got {:?}", self.token()) };
        (self.token.start, format!("{text}, {got}"))
    }

    fn advance(&mut self) -> Result<(), Problem> {
        let mut rest = &self.text[self.token.end..];
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c));
            if !rest.starts_with('#') {
                break;
            }
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        }
        let begin = self.text.len() - rest.len();
        let length = length(rest).map_err(|text| (begin, text))?;
        self.token = begin..begin + length;
        Ok(())
    }
}

/// Returns the length of the first token of a text.
fn length(text: &str) -> Result<usize, String> {
    let word = |more: &[char]| text.find(|c: char| !c.is_ascii_alphanumeric() && !more.contains(&c)).unwrap_or(text.len());
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (None, _) => Ok(0),
        (Some('a'..='z' | 'A'..='Z' | '_'), _) => Ok(word(&['_', '+', '-'])),
        (Some('0'..='9' | '+' | '-'), _) | (Some('.'), Some('0'..='9')) => Ok(word(&['_', '+', '-', '.'])),
        (Some(quote @ ('"' | '\'')), _) => literal(text, quote).ok_or_else(|| "the string does not end on its line".into()),
        (Some(other), _) => Ok(other.len_utf8()),
    }
}

/// Returns the length of the literal at the start of `text`, with its quotes. Returns `None` if it does not end on its line.
fn literal(text: &str, quote: char) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => return None,
            '\\' if chars.next()?.1 == '\n' => return None,
            c if c == quote => return Some(at + 1),
            _ => (),
        }
    }
    None
}

/// Decodes the escapes between the quotes of a literal. As in Python, a backslash in front of a letter that is no escape
/// stays a backslash.
fn unescape(text: &str, out: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend(before.as_bytes());
        let digits = |skip: usize, radix: u32, most: usize| {
            let digits = after[skip..].chars().take(most).take_while(|c| c.is_digit(radix)).count();
            (u32::from_str_radix(&after[skip..skip + digits], radix).ok(), digits)
        };
        let wrong = || format!("the string has an invalid escape: \\{}", after.chars().take(10).collect::<String>());
        let used = match after.chars().next() {
            Some('0'..='7') => {
                let (number, digits) = digits(0, 8, 3);
                out.push(number.and_then(|number| number.try_into().ok()).ok_or_else(wrong)?);
                digits
            }
            Some('x') => {
                let (number, digits) = digits(1, 16, 2);
                out.push(number.and_then(|number| number.try_into().ok()).ok_or_else(wrong)?);
                1 + digits
            }
            Some(letter @ ('u' | 'U')) => {
                let wanted = if letter == 'u' { 4 } else { 8 };
                let (number, digits) = digits(1, 16, wanted);
                let character = number.filter(|_| digits == wanted).and_then(char::from_u32).ok_or_else(wrong)?;
                out.extend(character.to_string().as_bytes());
                1 + digits
            }
            Some('N') | None => return Err(wrong()),
            Some(letter) => {
                match b"abfnrtv\\'\"".iter().position(|&known| char::from(known) == letter) {
                    Some(index) => out.push(b"\x07\x08\x0c\n\r\t\x0b\\'\""[index]),
                    None => out.extend(format!("\\{letter}").as_bytes()),
                }
                letter.len_utf8()
            }
        };
        rest = &after[used..];
    }
    out.extend(rest.as_bytes());
    Ok(())
}

/// Parses a number in Python's notation or in C's. Returns `None` if `text` is not a number.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text).as_bytes();
    if unsigned.first() == Some(&b'0') && unsigned.get(1).is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    let between = |at: usize| digit(at.checked_sub(1)) && digit(Some(at + 1));
    if !text.match_indices('_').all(|(at, _)| between(at)) {
        return None;
    }
    let text = text.replace('_', "");
    let once = text.strip_suffix(['f', 'F']).unwrap_or(&text);
    [&text, once, text.trim_end_matches(['f', 'F'])].iter().find_map(|text| text.parse().ok())
}

/// Escapes a string for a literal. The quotes are not included.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => out += "\\t",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '"' | '\'' | '\\' => out.extend(['\\', c]),
            c if c.is_ascii_control() => out += &format!("\\{:03o}", u32::from(c)),
            c => out.push(c),
        }
    }
    out
}
