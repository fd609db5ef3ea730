//! The parser of a routine's body.

use super::{
    lexer::Token,
    parser::Parser,
    syntax::{Item, Operand, Statement},
    types::Type,
};

impl<'t> Parser<'_, 't> {
    /// A body, after its opening brace.
    pub fn body(&mut self) -> Result<Vec<Item<'t>>, String> {
        let mut items = Vec::new();
        let mut depth = 1;
        while depth > 0 {
            match self.next()? {
                Token::Mark(b'{') => {
                    depth += 1;
                    items.push(Item::Open);
                }
                Token::Mark(b'}') => {
                    depth -= 1;
                    items.push(Item::Close);
                }
                Token::Mark(b';') => {}
                Token::Mark(b'@') => {
                    let negated = self.skips(b'!');
                    let predicate = self.word()?;
                    let opcode = self.word()?;
                    items.push(self.statement(Some((predicate, negated)), opcode)?);
                }
                Token::Word(word) if word.starts_with('.') => self.directive(word, &mut items)?,
                Token::Word(label) if self.skips(b':') => items.push(Item::Label(label, self.line())),
                Token::Word(opcode) => items.push(self.statement(None, opcode)?),
                found => return Err(format!("an instruction is missing before {found:?}")),
            }
        }
        items.pop();
        Ok(items)
    }

    fn directive(&mut self, word: &'t str, items: &mut Vec<Item<'t>>) -> Result<(), String> {
        match word {
            ".reg" => {
                let name = self.word()?;
                let kind = Type::named(&name[1..]).ok_or_else(|| format!("registers of type `{name}`"))?;
                loop {
                    let name = self.word()?;
                    let count = if self.skips(b'<') { Some(self.count()?) } else { None };
                    if count.is_some() {
                        self.expect(b'>')?;
                    }
                    items.push(Item::Registers(kind, name, count));
                    if !self.skips(b',') {
                        return self.expect(b';');
                    }
                }
            }
            ".shared" | ".local" | ".param" | ".global" | ".const" => {
                let mut list = Vec::new();
                self.variables(word, &mut list)?;
                items.extend(list.into_iter().map(Item::Variable));
            }
            ".branchtargets" => {
                let mut labels = vec![self.word()?];
                while self.skips(b',') {
                    labels.push(self.word()?);
                }
                items.push(Item::Targets(labels));
                self.expect(b';')?;
            }
            ".loc" | ".file" => self.skip_line(),
            ".pragma" => while self.next()? != Token::Mark(b';') {},
            other => return Err(format!("the directive `{other}` is not supported")),
        }
        Ok(())
    }

    /// An instruction, after its opcode.
    fn statement(&mut self, guard: Option<(&'t str, bool)>, opcode: &'t str) -> Result<Item<'t>, String> {
        let line = self.line();
        let mut operands = Vec::new();
        if !self.skips(b';') {
            loop {
                operands.push(self.operand()?);
                if !self.skips(b',') {
                    self.expect(b';')?;
                    break;
                }
            }
        }
        Ok(Item::Statement(Statement { line, guard, opcode, operands }))
    }

    fn operand(&mut self) -> Result<Operand<'t>, String> {
        match self.next()? {
            Token::Mark(b'{') => {
                let mut elements = Vec::new();
                loop {
                    elements.push(self.simple_operand()?);
                    if !self.skips(b',') {
                        self.expect(b'}')?;
                        return Ok(Operand::Vector(elements));
                    }
                }
            }
            Token::Mark(b'[') => {
                let base = match self.peek() {
                    Some(Token::Word(name)) => {
                        self.at += 1;
                        Some(name)
                    }
                    _ => None,
                };
                let offset = match base {
                    Some(_) if self.skips(b'+') || self.peek() == Some(Token::Mark(b'-')) => self.integer()?,
                    Some(_) => 0,
                    None => self.integer()?,
                };
                self.expect(b']')?;
                Ok(Operand::Address(base, offset))
            }
            Token::Mark(b'(') => {
                let mut names = Vec::new();
                while !self.skips(b')') {
                    names.push(self.word()?);
                    self.skips(b',');
                }
                Ok(Operand::List(names))
            }
            _ => {
                self.at -= 1;
                self.simple_operand()
            }
        }
    }

    fn simple_operand(&mut self) -> Result<Operand<'t>, String> {
        Ok(match self.next()? {
            Token::Mark(b'!') => Operand::Not(self.word()?),
            Token::Mark(b'-') => match self.next()? {
                Token::Integer(value) => Operand::Integer(value.wrapping_neg()),
                Token::Double(bits) => Operand::Double((-f64::from_bits(bits)).to_bits()),
                found => return Err(format!("a number is missing before {found:?}")),
            },
            Token::Integer(value) => Operand::Integer(value),
            Token::Single(bits) => Operand::Single(bits),
            Token::Double(bits) => Operand::Double(bits),
            Token::Word(name) if self.skips(b'|') => Operand::Pair(name, self.word()?),
            Token::Word(name) if self.skips(b'+') => Operand::Offset(name, self.integer()?),
            Token::Word(name) => Operand::Name(name),
            found => return Err(format!("an operand is missing before {found:?}")),
        })
    }
}
