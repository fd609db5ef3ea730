//! An opcode and its modifiers.

use super::builder::Result;
use crate::{
    machine::{arithmetic::rounding::Rounding, code::Space},
    ptx::types::Type,
};

/// An opcode. What is not taken from it in the end is not supported.
pub struct Opcode<'t> {
    pub text: &'t str,
    pub base: &'t str,
    modifiers: Vec<&'t str>,
}

impl<'t> Opcode<'t> {
    pub fn new(text: &'t str) -> Self {
        let mut parts = text.split('.');
        Self { text, base: parts.next().unwrap_or_default(), modifiers: parts.collect() }
    }

    /// Takes a modifier.
    pub fn take(&mut self, name: &str) -> bool {
        self.first(|modifier| (modifier == name).then_some(())).is_some()
    }

    /// Takes the first modifier with a meaning.
    pub fn first<T>(&mut self, f: impl Fn(&'t str) -> Option<T>) -> Option<T> {
        let (index, found) = self.modifiers.iter().enumerate().find_map(|(i, m)| Some((i, f(m)?)))?;
        self.modifiers.remove(index);
        Some(found)
    }

    /// Takes the first type.
    pub fn kind(&mut self) -> Result<Type> {
        self.first(Type::named).ok_or_else(|| format!("`{}` has no type", self.text))
    }

    /// Takes a rounding of floating-point results.
    pub fn rounding(&mut self) -> Option<Rounding> {
        self.first(|modifier| {
            Some(match modifier {
                "rn" => Rounding::Nearest,
                "rz" => Rounding::Zero,
                "rm" => Rounding::Down,
                "rp" => Rounding::Up,
                _ => return None,
            })
        })
    }

    /// Takes the space, if one is given.
    pub fn space(&mut self) -> Space {
        self.first(Space::named).unwrap_or(Space::Generic)
    }

    /// Takes what orders memory and chooses caches: the machine is sequential and has no caches. Whether the access is a strong one.
    pub fn take_ordering(&mut self) -> bool {
        const STRONG: [&str; 6] = ["volatile", "relaxed", "acquire", "release", "acq_rel", "sc"];
        const OTHERS: [&str; 12] = ["weak", "cta", "gpu", "sys", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "cluster"];
        let strong = self.first(|m| STRONG.contains(&m).then_some(())).is_some();
        while self.first(|m| (OTHERS.contains(&m) || m.starts_with("L1::") || m.starts_with("L2::")).then_some(())).is_some() {}
        strong
    }

    /// Operations on floating-point numbers that it stands for.
    pub fn flops(&self) -> u16 {
        let kind = self.modifiers.iter().filter_map(|modifier| Type::named(modifier)).next_back();
        let numbers = match kind {
            Some(Type::F16x2 | Type::BF16x2) => 2,
            Some(kind) if kind.is_float() => 1,
            _ => return 0,
        };
        match self.base {
            "add" | "sub" | "mul" | "div" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin" | "cos" | "tanh" => numbers,
            "atom" | "red" if self.modifiers.contains(&"add") => numbers,
            "fma" | "mad" => 2 * numbers,
            _ => 0,
        }
    }

    /// Checks that nothing is left.
    pub fn finish(&self) -> Result<()> {
        match self.modifiers.first() {
            None => Ok(()),
            Some(modifier) => Err(format!("`{}`: `.{modifier}` is not supported", self.text)),
        }
    }

    /// The error of an instruction that is not supported in this form.
    pub fn unsupported<T>(&self) -> Result<T> {
        Err(format!("the instruction `{}` is not supported", self.text))
    }
}
