//! The registers of a warp, and instructions that only compute with them.
//!
//! A register holds a word for each lane and a mask of the lanes whose word is defined. A result is defined where all operands are.
//! An undefined value may be computed with; it is a fault where it decides something: as an address, as a condition, in memory.

/// Lanes of a warp.
pub const LANES: usize = 32;
/// The mask of all lanes.
pub const FULL: u32 = !0;
/// The index of a register in its bank.
pub type Register = u16;
/// An instruction that only computes with registers, for the lanes of a mask.
pub type Compute = fn(&mut Registers, &Operands, u32);

/// The registers of an instruction: the destination, three sources, a predicate. The instruction knows their banks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operands {
    pub d: Register,
    pub a: Register,
    pub b: Register,
    pub c: Register,
    pub p: Register,
}

/// Registers of one width.
#[derive(Clone, Debug, Default)]
pub struct Bank<T> {
    pub values: Vec<[T; LANES]>,
    pub defined: Vec<u32>,
}

impl<T: Copy + Default> Bank<T> {
    pub fn new(count: usize) -> Self {
        Self { values: vec![[T::default(); LANES]; count], defined: vec![0; count] }
    }

    /// Sets a register in the lanes of `mask` and says which of them are defined.
    #[inline(always)]
    pub fn set(&mut self, register: Register, values: [T; LANES], mask: u32, defined: u32) {
        self.values[register as usize] = values;
        let old = &mut self.defined[register as usize];
        *old = *old & !mask | defined & mask;
    }
}

/// The registers of a warp.
#[derive(Clone, Debug)]
pub struct Registers {
    /// 32 bits; narrower ones too, whose upper bits mean nothing.
    pub narrow: Bank<u32>,
    /// 64 bits.
    pub wide: Bank<u64>,
    /// Predicates, as masks of lanes.
    pub predicates: Vec<u32>,
    pub predicates_defined: Vec<u32>,
}

/// The word of a bank.
pub trait Word: Copy + Default {
    fn bank(registers: &Registers) -> &Bank<Self>;
    fn bank_mut(registers: &mut Registers) -> &mut Bank<Self>;
}

impl Word for u32 {
    fn bank(registers: &Registers) -> &Bank<u32> {
        &registers.narrow
    }
    fn bank_mut(registers: &mut Registers) -> &mut Bank<u32> {
        &mut registers.narrow
    }
}

impl Word for u64 {
    fn bank(registers: &Registers) -> &Bank<u64> {
        &registers.wide
    }
    fn bank_mut(registers: &mut Registers) -> &mut Bank<u64> {
        &mut registers.wide
    }
}

/// A type that instructions compute with.
pub trait Value: Copy {
    type Word: Word;
    fn from_word(word: Self::Word) -> Self;
    fn to_word(self) -> Self::Word;
}

macro_rules! integers {
    ($($type:ty: $word:ty),*) => {$(
        impl Value for $type {
            type Word = $word;
            #[inline(always)]
            fn from_word(word: $word) -> Self {
                word as $type
            }
            #[inline(always)]
            fn to_word(self) -> $word {
                self as $word
            }
        }
    )*};
}

integers!(u8: u32, i8: u32, u16: u32, i16: u32, u32: u32, i32: u32, u64: u64, i64: u64);

impl Value for f32 {
    type Word = u32;
    #[inline(always)]
    fn from_word(word: u32) -> Self {
        f32::from_bits(word)
    }
    #[inline(always)]
    fn to_word(self) -> u32 {
        self.to_bits()
    }
}

impl Value for f64 {
    type Word = u64;
    #[inline(always)]
    fn from_word(word: u64) -> Self {
        f64::from_bits(word)
    }
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits()
    }
}

/// The lanes of a mask, in order.
pub fn lanes(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// Sets the lanes of a mask.
#[inline(always)]
pub fn fill<T>(out: &mut [T; LANES], mask: u32, f: impl Fn(usize) -> T) {
    if mask == FULL {
        for (lane, out) in out.iter_mut().enumerate() {
            *out = f(lane);
        }
    } else {
        for lane in lanes(mask) {
            out[lane] = f(lane);
        }
    }
}

/// A mask of the lanes for which something holds.
#[inline(always)]
fn test(mask: u32, f: impl Fn(usize) -> bool) -> u32 {
    let mut out = 0;
    if mask == FULL {
        for lane in 0..LANES {
            out |= u32::from(f(lane)) << lane;
        }
    } else {
        for lane in lanes(mask) {
            out |= u32::from(f(lane)) << lane;
        }
    }
    out
}

impl Registers {
    pub fn new(narrow: usize, wide: usize, predicates: usize) -> Self {
        Self { narrow: Bank::new(narrow), wide: Bank::new(wide), predicates: vec![0; predicates], predicates_defined: vec![0; predicates] }
    }

    /// The values of a register, and where they are defined.
    #[inline(always)]
    fn get<A: Value>(&self, register: Register) -> (&[A::Word; LANES], u32) {
        let bank = A::Word::bank(self);
        (&bank.values[register as usize], bank.defined[register as usize])
    }

    /// `d = f(a)`.
    #[inline(always)]
    pub fn map1<A: Value, D: Value>(&mut self, o: &Operands, mask: u32, f: impl Fn(A) -> D) {
        let (a, defined) = self.get::<A>(o.a);
        let mut out = D::Word::bank(self).values[o.d as usize];
        fill(&mut out, mask, |lane| f(A::from_word(a[lane])).to_word());
        D::Word::bank_mut(self).set(o.d, out, mask, defined);
    }

    /// `d = f(a, b)`.
    #[inline(always)]
    pub fn map2<A: Value, B: Value, D: Value>(&mut self, o: &Operands, mask: u32, f: impl Fn(A, B) -> D) {
        let ((a, da), (b, db)) = (self.get::<A>(o.a), self.get::<B>(o.b));
        let mut out = D::Word::bank(self).values[o.d as usize];
        fill(&mut out, mask, |lane| f(A::from_word(a[lane]), B::from_word(b[lane])).to_word());
        D::Word::bank_mut(self).set(o.d, out, mask, da & db);
    }

    /// `d = f(a, b, c)`.
    #[inline(always)]
    pub fn map3<A: Value, B: Value, C: Value, D: Value>(&mut self, o: &Operands, mask: u32, f: impl Fn(A, B, C) -> D) {
        let ((a, da), (b, db), (c, dc)) = (self.get::<A>(o.a), self.get::<B>(o.b), self.get::<C>(o.c));
        let mut out = D::Word::bank(self).values[o.d as usize];
        fill(&mut out, mask, |lane| f(A::from_word(a[lane]), B::from_word(b[lane]), C::from_word(c[lane])).to_word());
        D::Word::bank_mut(self).set(o.d, out, mask, da & db & dc);
    }

    /// `d, p = f(a, b, c, p)`, where the predicate `p` is the carry. An instruction that begins a chain does not read it.
    #[inline(always)]
    pub fn carry<A: Value>(&mut self, o: &Operands, mask: u32, reads: bool, writes: bool, f: impl Fn(A, A, A, bool) -> (A, bool)) {
        let ((a, da), (b, db), (c, dc)) = (self.get::<A>(o.a), self.get::<A>(o.b), self.get::<A>(o.c));
        let carry = if reads { self.predicates[o.p as usize] } else { 0 };
        let defined = da & db & dc & if reads { self.predicates_defined[o.p as usize] } else { FULL };
        let mut out = A::Word::bank(self).values[o.d as usize];
        let mut carries = 0;
        for lane in lanes(mask) {
            let (value, carry) = f(A::from_word(a[lane]), A::from_word(b[lane]), A::from_word(c[lane]), carry >> lane & 1 != 0);
            out[lane] = value.to_word();
            carries |= u32::from(carry) << lane;
        }
        A::Word::bank_mut(self).set(o.d, out, mask, defined);
        if writes {
            self.set_predicate(o.p, carries, mask, defined);
        }
    }

    /// The predicate `p = f(a, b)`.
    #[inline(always)]
    pub fn test2<A: Value>(&mut self, o: &Operands, mask: u32, f: impl Fn(A, A) -> bool) {
        let ((a, da), (b, db)) = (self.get::<A>(o.a), self.get::<A>(o.b));
        let out = test(mask, |lane| f(A::from_word(a[lane]), A::from_word(b[lane])));
        self.set_predicate(o.p, out, mask, da & db);
    }

    /// `d = if p { a } else { b }`. Only the chosen operand has to be defined.
    #[inline(always)]
    pub fn select<A: Value>(&mut self, o: &Operands, mask: u32) {
        let ((a, da), (b, db)) = (self.get::<A>(o.a), self.get::<A>(o.b));
        let (p, dp) = (self.predicates[o.p as usize], self.predicates_defined[o.p as usize]);
        let mut out = A::Word::bank(self).values[o.d as usize];
        fill(&mut out, mask, |lane| if p >> lane & 1 != 0 { a[lane] } else { b[lane] });
        A::Word::bank_mut(self).set(o.d, out, mask, dp & (p & da | !p & db));
    }

    /// The predicate `d = f(a, b)`, for all lanes at once.
    #[inline(always)]
    pub fn logic(&mut self, o: &Operands, mask: u32, f: impl Fn(u32, u32) -> u32) {
        let (a, b) = (o.a as usize, o.b as usize);
        let defined = self.predicates_defined[a] & self.predicates_defined[b];
        self.set_predicate(o.d, f(self.predicates[a], self.predicates[b]), mask, defined);
    }

    /// Sets a predicate in the lanes of a mask.
    #[inline(always)]
    pub fn set_predicate(&mut self, register: Register, value: u32, mask: u32, defined: u32) {
        let register = register as usize;
        self.predicates[register] = self.predicates[register] & !mask | value & mask;
        self.predicates_defined[register] = self.predicates_defined[register] & !mask | defined & mask;
    }

    /// Forgets every value but those of the template.
    pub fn reset(&mut self, template: &Registers) {
        self.narrow.defined.copy_from_slice(&template.narrow.defined);
        self.wide.defined.copy_from_slice(&template.wide.defined);
        self.predicates_defined.copy_from_slice(&template.predicates_defined);
    }
}
