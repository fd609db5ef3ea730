//! Parser of the cases' functions. Their texts are Python expressions, such as `(a, b) -> a + b`, `{'v': x, 'sq': x*x}` or
//! `Dataset.from_tensors(x).repeat(3)`.

use anyhow::{Context, Result, bail, ensure};
use std::str::Chars;

/// A function of one or more values.
#[derive(Debug)]
pub struct Function {
    /// Names of the parameters.
    pub parameters: Vec<String>,
    /// Expression of the result.
    pub body: Expression,
}

/// An expression.
#[derive(Debug, PartialEq)]
pub enum Expression {
    /// A value, an element type, or `Dataset`.
    Name(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Text(String),
    Binary(&'static str, Box<[Expression; 2]>),
    Tuple(Vec<Expression>),
    List(Vec<Expression>),
    Dict(Vec<(String, Expression)>),
    /// `of['name']`.
    Index(Box<Expression>, String),
    /// `name(…)` or `of.name(…)`. The first argument of the latter is `of`.
    Call(String, Vec<Expression>),
}

use Expression::{Binary, Bool, Call, Dict, Float, Index, Integer, List, Name, Text, Tuple};

/// English phrases in the cases: the beginning of the phrase, and the name of its function.
const PHRASES: [(&str, &str); 2] = [("decimal string of ", "as_string"), ("length of ", "length")];

/// Binary operators. Each line binds more tightly than the previous one.
const OPERATORS: [&[&str]; 3] = [&["==", "!=", "<=", ">=", "<", ">"], &["+", "-"], &["//", "*", "/", "%"]];

impl Function {
    /// Parses a function. Fails if the syntax is unknown.
    pub fn parse(text: &str) -> Result<Function> {
        let (parameters, rest) = match text.split_once("->") {
            Some((names, rest)) => {
                let names = names.trim().trim_start_matches('(').trim_end_matches(')').split(',');
                (Some(names.map(|name| name.trim().to_string()).collect()), rest.trim())
            }
            None => (None, text.trim()),
        };
        let (rest, note) = noted(rest);
        let phrase = PHRASES.iter().find_map(|(phrase, name)| Some((rest.strip_prefix(phrase)?, *name)));
        let mut body = Parser::parse(phrase.map_or(rest, |(of, _)| of)).with_context(|| format!("the function {text:?}"))?;
        if let Some((_, name)) = phrase {
            body = Call(name.into(), vec![body]);
            if let Some(dtype) = note {
                body = Call("cast".into(), vec![body, Name(dtype.into())]);
            }
        }
        let parameters = parameters.unwrap_or_else(|| vec![body.value().unwrap_or("_").to_string()]);
        Ok(Function { parameters, body })
    }
}

/// Splits a note in parentheses, such as ` (int32)` or ` (integer division)`, from the end of a text. Returns the remaining text, and the
/// note if there is one.
fn noted(text: &str) -> (&str, Option<&str>) {
    let note = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
    match note.filter(|(_, note)| note.chars().all(|c| c.is_alphanumeric() || c == ' ')) {
        Some((text, note)) if !text.ends_with(|c: char| !c.is_alphanumeric() && c != ')') => (text, Some(note)),
        _ => (text, None),
    }
}

impl Expression {
    /// Returns the name of the first value that the expression uses, or `None` if it uses none.
    fn value(&self) -> Option<&str> {
        match self {
            Name(name) => Some(name).filter(|name| *name != "Dataset").map(String::as_str),
            Integer(_) | Float(_) | Bool(_) | Text(_) => None,
            Binary(_, parts) => parts.iter().find_map(Expression::value),
            Tuple(parts) | List(parts) => parts.iter().find_map(Expression::value),
            Call(name, parts) => parts.iter().take(if name == "cast" { 1 } else { parts.len() }).find_map(Expression::value),
            Dict(parts) => parts.iter().find_map(|(_, part)| part.value()),
            Index(of, _) => of.value(),
        }
    }
}

struct Parser<'t> {
    rest: Chars<'t>,
}

impl<'t> Parser<'t> {
    fn parse(text: &'t str) -> Result<Expression> {
        let mut parser = Parser { rest: text.chars() };
        let expression = parser.binary(0)?;
        ensure!(parser.text().is_empty(), "{:?} follows the expression", parser.text());
        Ok(expression)
    }

    /// Returns the remaining text without leading spaces.
    fn text(&self) -> &'t str {
        self.rest.as_str().trim_start()
    }

    /// Consumes `token` if the remaining text begins with it. Returns true if it does.
    fn take(&mut self, token: &str) -> bool {
        let rest = self.text().strip_prefix(token);
        rest.inspect(|rest| self.rest = rest.chars()).is_some()
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        ensure!(self.take(token), "expected {token:?} before {:?}", self.text());
        Ok(())
    }

    /// Consumes the leading characters for which `is` returns true, and returns them.
    fn while_(&mut self, is: impl Fn(char) -> bool) -> &'t str {
        let text = self.text();
        let (found, rest) = text.split_at(text.find(|c| !is(c)).unwrap_or(text.len()));
        self.rest = rest.chars();
        found
    }

    fn binary(&mut self, level: usize) -> Result<Expression> {
        let Some(operators) = OPERATORS.get(level) else { return self.postfix() };
        let mut left = self.binary(level + 1)?;
        while let Some(&operator) = operators.iter().find(|operator| self.take(operator)) {
            left = Binary(operator, Box::new([left, self.binary(level + 1)?]));
        }
        Ok(left)
    }

    fn postfix(&mut self) -> Result<Expression> {
        let mut of = self.primary()?;
        loop {
            if self.take(".") {
                let name = self.name()?.to_string();
                self.expect("(")?;
                let mut values = vec![of];
                values.extend(self.list(")")?);
                of = Call(name, values);
            } else if self.take("[") {
                let Text(name) = self.binary(0)? else { bail!("an index must be a text") };
                self.expect("]")?;
                of = Index(Box::new(of), name);
            } else {
                return Ok(of);
            }
        }
    }

    fn name(&mut self) -> Result<&'t str> {
        let name = self.while_(|c| c.is_alphanumeric() || c == '_');
        ensure!(!name.is_empty(), "expected a name before {:?}", self.text());
        Ok(name)
    }

    fn primary(&mut self) -> Result<Expression> {
        match self.text().chars().next().context("the text ends too early")? {
            '(' => {
                self.expect("(")?;
                let mut parts = self.list(")")?;
                Ok(if parts.len() == 1 { parts.remove(0) } else { Tuple(parts) })
            }
            '[' => {
                self.expect("[")?;
                Ok(List(self.list("]")?))
            }
            '{' => {
                self.expect("{")?;
                let mut parts = Vec::new();
                while !self.take("}") {
                    let Text(name) = self.primary()? else { bail!("a key of a map must be a text") };
                    self.expect(":")?;
                    parts.push((name, self.binary(0)?));
                    self.take(",");
                }
                Ok(Dict(parts))
            }
            '\'' => {
                self.expect("'")?;
                let (text, rest) = self.rest.as_str().split_once('\'').context("a text has no closing quote")?;
                self.rest = rest.chars();
                Ok(Text(text.into()))
            }
            '-' => {
                self.expect("-")?;
                match self.primary()? {
                    Integer(number) => Ok(Integer(-number)),
                    Float(number) => Ok(Float(-number)),
                    other => Ok(Binary("-", Box::new([Integer(0), other]))),
                }
            }
            '0'..='9' => {
                let digits = self.while_(|c| c.is_ascii_digit() || c == '.');
                Ok(if digits.contains('.') { Float(digits.parse()?) } else { Integer(digits.parse()?) })
            }
            _ => {
                let name = self.name()?;
                Ok(match name {
                    "True" | "False" => Bool(name == "True"),
                    name if self.take("(") => Call(name.into(), self.list(")")?),
                    name => Name(name.into()),
                })
            }
        }
    }

    /// Parses comma-separated expressions up to `end`.
    fn list(&mut self, end: &str) -> Result<Vec<Expression>> {
        let mut parts = Vec::new();
        while !self.take(end) {
            ensure!(parts.is_empty() || self.take(","), "expected a comma before {:?}", self.text());
            if self.take(end) {
                break;
            }
            parts.push(self.binary(0)?);
        }
        Ok(parts)
    }
}
