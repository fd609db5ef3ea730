//! The parser of a file: variables, routines and their signatures.

use super::{
    lexer::{Token, tokens},
    syntax::{File, Initial, Routine, Variable},
    types::{Space, Type},
};

/// Reads a file.
pub fn parse(text: &str) -> Result<File<'_>, String> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0 };
    let mut file = File::default();
    while let Some(token) = parser.peek() {
        let line = parser.line();
        parser.declaration(token, &mut file).map_err(|what| format!("line {}: {what}", parser.line().max(line)))?;
    }
    Ok(file)
}

/// Tokens and the place in them.
pub struct Parser<'p, 't> {
    pub tokens: &'p [(Token<'t>, u32)],
    pub at: usize,
}

impl<'t> Parser<'_, 't> {
    pub fn peek(&self) -> Option<Token<'t>> {
        self.tokens.get(self.at).map(|t| t.0)
    }

    /// The line of the last token that was read, or of the first.
    pub fn line(&self) -> u32 {
        self.tokens.get(self.at.saturating_sub(1)).map_or(1, |t| t.1)
    }

    pub fn next(&mut self) -> Result<Token<'t>, String> {
        let token = self.peek().ok_or("the file ends too soon")?;
        self.at += 1;
        Ok(token)
    }

    /// Skips a mark, if it comes next.
    pub fn skips(&mut self, mark: u8) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    pub fn expect(&mut self, mark: u8) -> Result<(), String> {
        match self.next()? {
            Token::Mark(found) if found == mark => Ok(()),
            found => Err(format!("`{}` is missing before {found:?}", mark as char)),
        }
    }

    /// Skips a word, if it comes next.
    pub fn skips_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    pub fn word(&mut self) -> Result<&'t str, String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            found => Err(format!("a name is missing before {found:?}")),
        }
    }

    /// An integer, perhaps with a sign.
    pub fn integer(&mut self) -> Result<i64, String> {
        let negative = self.skips(b'-');
        match self.next()? {
            Token::Integer(value) => Ok(if negative { (value as i64).wrapping_neg() } else { value as i64 }),
            found => Err(format!("an integer is missing before {found:?}")),
        }
    }

    pub fn count(&mut self) -> Result<u32, String> {
        u32::try_from(self.integer()?).map_err(|_| "a size that is too large".to_string())
    }

    /// Skips the rest of a line.
    pub fn skip_line(&mut self) {
        let line = self.line();
        while self.tokens.get(self.at).is_some_and(|t| t.1 == line) {
            self.at += 1;
        }
    }

    fn declaration(&mut self, token: Token<'t>, file: &mut File<'t>) -> Result<(), String> {
        let Token::Word(word) = token else { return Err(format!("a declaration is missing before {token:?}")) };
        self.at += 1;
        match word {
            ".version" => match self.next()? {
                Token::Double(bits) => {
                    let tenths = (f64::from_bits(bits) * 10.0).round() as u32;
                    file.version = (tenths / 10, tenths % 10);
                }
                found => return Err(format!("a version is missing before {found:?}")),
            },
            ".target" => {
                let name = self.word()?;
                let digits = name.strip_prefix("sm_").ok_or_else(|| format!("the target `{name}`"))?;
                file.letter = digits.chars().last().filter(char::is_ascii_alphabetic);
                file.target = digits.trim_end_matches(char::is_alphabetic).parse().map_err(|_| format!("the target `{name}`"))?;
                while self.skips(b',') {
                    self.word()?;
                }
            }
            ".address_size" => {
                if self.integer()? != 64 {
                    return Err("only addresses of 64 bits are supported".into());
                }
            }
            ".file" => self.skip_line(),
            ".section" => while self.next()? != Token::Mark(b'}') {},
            ".pragma" => while self.next()? != Token::Mark(b';') {},
            ".visible" | ".weak" | ".common" => {}
            ".extern" if self.peek() != Some(Token::Word(".shared")) && self.peek() != Some(Token::Word(".func")) => {
                return Err("only shared arrays and functions may be external".into());
            }
            ".extern" => {}
            ".global" | ".const" | ".shared" => self.variables(word, &mut file.variables)?,
            ".entry" | ".func" => {
                let routine = self.routine(word == ".entry")?;
                file.routines.extend(routine);
            }
            other => return Err(format!("the directive `{other}` is not supported")),
        }
        Ok(())
    }

    /// A routine, or nothing for the declaration of one that stands elsewhere.
    fn routine(&mut self, kernel: bool) -> Result<Option<Routine<'t>>, String> {
        let results = if !kernel && self.peek() == Some(Token::Mark(b'(')) { self.parameters()? } else { Vec::new() };
        let name = self.word()?;
        let line = self.line();
        let parameters = if self.peek() == Some(Token::Mark(b'(')) { self.parameters()? } else { Vec::new() };
        let mut max_threads = None;
        loop {
            match self.next()? {
                Token::Mark(b';') => return Ok(None),
                Token::Mark(b'{') => break,
                Token::Word(".maxntid" | ".reqntid") => {
                    let mut threads = self.count()?;
                    while self.skips(b',') {
                        threads = threads.saturating_mul(self.count()?);
                    }
                    max_threads = Some(threads);
                }
                Token::Word(".minnctapersm" | ".maxnreg" | ".maxnctapersm") => {
                    self.count()?;
                }
                Token::Word(".noreturn") => {}
                found => return Err(format!("a body is missing before {found:?}")),
            }
        }
        Ok(Some(Routine { name, kernel, results, parameters, max_threads, body: self.body()?, line }))
    }

    fn parameters(&mut self) -> Result<Vec<Variable<'t>>, String> {
        let mut list = Vec::new();
        self.expect(b'(')?;
        while !self.skips(b')') {
            match self.word()? {
                ".param" => list.push(self.variable(Space::Parameter)?),
                other => return Err(format!("a parameter that is no `.param` but `{other}`")),
            }
            self.skips(b',');
        }
        Ok(list)
    }

    /// The variables of a declaration, after its space.
    pub fn variables(&mut self, space: &str, list: &mut Vec<Variable<'t>>) -> Result<(), String> {
        let space = Space::named(&space[1..]).ok_or_else(|| format!("the space `{space}`"))?;
        list.push(self.variable(space)?);
        self.expect(b';')
    }

    /// A variable, after its space.
    fn variable(&mut self, space: Space) -> Result<Variable<'t>, String> {
        let (mut align, mut lanes, mut element) = (None, 1, None);
        let name = loop {
            match self.word()? {
                ".align" => align = Some(self.count()?),
                ".ptr" => {}
                ".v2" => lanes = 2,
                ".v4" => lanes = 4,
                // The space and alignment of what a parameter points to.
                ".global" | ".const" | ".shared" | ".local" => {
                    self.skips_word(".align").then(|| self.count()).transpose()?;
                }
                word if word.starts_with('.') => {
                    element = Some(Type::named(&word[1..]).ok_or_else(|| format!("the type `{word}` of a variable"))?);
                }
                name => break name,
            }
        };
        let element = element.ok_or_else(|| format!("`{name}` has no type"))?.bytes() * lanes;
        let align = align.unwrap_or(element);
        if !align.is_power_of_two() {
            return Err(format!("`{name}` has the alignment {align}"));
        }
        let line = self.line();
        let mut size = Some(element);
        let (mut open, mut scalar) = (false, true);
        while self.skips(b'[') {
            scalar = false;
            if self.skips(b']') {
                open = true;
            } else {
                let count = self.count()?;
                size = size.and_then(|s| s.checked_mul(count));
                self.expect(b']')?;
            }
        }
        let mut size = size.filter(|s| *s < 1 << 30).ok_or_else(|| format!("`{name}` is too large"))?;
        let initial = if self.skips(b'=') { self.initial(element)? } else { Vec::new() };
        let given: u32 = initial.iter().map(Initial::size).sum();
        let dynamic = open && initial.is_empty();
        if dynamic && space != Space::Shared {
            return Err(format!("`{name}` has no size"));
        }
        if open {
            size = given;
        }
        if given > size {
            return Err(format!("`{name}` has more initial values than elements"));
        }
        Ok(Variable { space, name, align, size, scalar, dynamic, initial, line })
    }

    /// The initial values of elements of some bytes each.
    fn initial(&mut self, element: u32) -> Result<Vec<Initial<'t>>, String> {
        let mut values = Vec::new();
        let mut depth = 0;
        loop {
            match self.next()? {
                Token::Mark(b'{') => depth += 1,
                Token::Mark(b'}') => depth -= 1,
                Token::Mark(b',') => {}
                Token::Mark(b'-') => match self.next()? {
                    Token::Integer(value) => values.push(Initial::Bytes(value.wrapping_neg().to_le_bytes(), element as u8)),
                    found => return Err(format!("an integer is missing before {found:?}")),
                },
                Token::Integer(value) => values.push(Initial::Bytes(value.to_le_bytes(), element as u8)),
                Token::Single(bits) => values.push(Initial::Bytes(u64::from(bits).to_le_bytes(), 4)),
                Token::Double(bits) => values.push(Initial::Bytes(bits.to_le_bytes(), 8)),
                Token::Word("generic") => {
                    self.expect(b'(')?;
                    let name = self.word()?;
                    self.expect(b')')?;
                    values.push(self.address(name, element)?);
                }
                Token::Word(name) => values.push(self.address(name, element)?),
                found => return Err(format!("an initial value is missing before {found:?}")),
            }
            if depth == 0 {
                return Ok(values);
            }
        }
    }

    fn address(&mut self, name: &'t str, element: u32) -> Result<Initial<'t>, String> {
        if element != 8 {
            return Err(format!("the address of `{name}` in an element of {element} bytes"));
        }
        let offset = if self.skips(b'+') { self.integer()? } else { 0 };
        Ok(Initial::Address(name, offset))
    }
}

impl Initial<'_> {
    fn size(&self) -> u32 {
        match self {
            Initial::Bytes(_, size) => (*size).into(),
            Initial::Address(..) => 8,
        }
    }
}
