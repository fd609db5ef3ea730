//! Instructions on matrices.

use super::{
    Builder, Opcode,
    builder::{Result, TRUE},
};
use crate::{
    machine::{
        code::{Operation, Space},
        matrix::code::{GroupProduct, Left, MatrixLoad, Number, Product, Warpgroup},
        registers::Register,
    },
    ptx::{syntax::Operand, types::Type},
};

impl<'t> Builder<'_, 't> {
    /// `ldmatrix`.
    pub fn load_matrix(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        self.needs(&op, 75)?;
        let count = op.first(|m| ["x1", "x2", "x4"].contains(&m).then(|| m[1..].parse().unwrap_or(1)));
        let is_known = op.take("sync") && op.take("aligned") && op.take("m8n8");
        let transposed = op.take("trans");
        let ([to, Operand::Address(base, offset)], Some(count), true, Space::Shared) = (operands, count, is_known, op.space()) else {
            return op.unsupported();
        };
        if op.kind()? != Type::B16 {
            return op.unsupported();
        }
        op.finish()?;
        let address = self.in_space(&op, Space::Shared, (*base, *offset))?;
        let to = self.fragment(&op, to, count, true)?;
        self.emit(Operation::LoadMatrix(Box::new(MatrixLoad { address, to, transposed })));
        Ok(())
    }

    /// `mma`.
    pub fn matrix_product(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        let [d, a, b, c] = operands else { return op.unsupported() };
        let is_known = op.take("sync") && op.take("aligned") && op.take("row") && op.take("col");
        let depth = op.first(|m| {
            Some(match m {
                "m16n8k4" => 4,
                "m16n8k8" => 8,
                "m16n8k16" => 16,
                _ => return None,
            })
        });
        let (Some(depth), Some(number), true) = (depth, self.numbers(&mut op)?, is_known) else { return op.unsupported() };
        let depths: &[usize] = if number == Number::Tf32 { &[4, 8] } else { &[8, 16] };
        if !depths.contains(&depth) {
            return op.unsupported();
        }
        op.finish()?;
        self.needs(&op, if depth == 8 && number == Number::Half { 75 } else { 80 })?;
        let registers = depth / 4 / number.per_register();
        let (a, b) = (self.fragment(&op, a, 2 * registers, false)?, self.fragment(&op, b, registers, false)?);
        let four = |list: Box<[Register]>| <[Register; 4]>::try_from(&*list).map_err(|_| "four registers are missing".to_string());
        let (c, d) = (four(self.fragment(&op, c, 4, false)?)?, four(self.fragment(&op, d, 4, true)?)?);
        // 16 × 8 × depth multiplications and additions of 32 lanes.
        self.flops = 8 * depth as u16;
        self.emit(Operation::Product(Box::new(Product { number, depth, a, b, c, d })));
        Ok(())
    }

    /// Takes the types of a product's accumulators and factors: f32, twice those of the factors, and perhaps f32.
    fn numbers(&self, op: &mut Opcode<'t>) -> Result<Option<Number>> {
        let kinds = [op.kind()?, op.kind()?, op.kind()?];
        let is_known = op.base == "wgmma" || op.take("f32");
        Ok(match kinds {
            [Type::F32, Type::F16, Type::F16] if is_known => Some(Number::Half),
            [Type::F32, Type::BF16, Type::BF16] if is_known => Some(Number::Brain),
            [Type::F32, Type::TF32, Type::TF32] if is_known => Some(Number::Tf32),
            _ => None,
        })
    }

    /// The registers of a fragment, of 32 bits each.
    fn fragment(&mut self, op: &Opcode<'t>, operand: &Operand<'t>, count: usize, writes: bool) -> Result<Box<[Register]>> {
        let list = match operand {
            Operand::Vector(list) => &list[..],
            single => std::slice::from_ref(single),
        };
        if list.len() != count {
            return Err(format!("`{}` with {} registers in a fragment of {count}", op.text, list.len()));
        }
        let mut register = |operand| if writes { self.destination(operand, Type::B32) } else { self.source(operand, Type::B32) };
        list.iter().map(&mut register).collect()
    }

    /// `wgmma`.
    pub fn warpgroup(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        if (self.file.target, self.file.letter) != (90, Some('a')) {
            return Err(format!("`{}` needs `.target sm_90a`", op.text));
        }
        let name = op.first(|m| ["fence", "mma_async", "commit_group", "wait_group"].contains(&m).then_some(m));
        if !op.take("sync") || !op.take("aligned") {
            return op.unsupported();
        }
        let operation = match (name, operands) {
            (Some("fence"), []) => Warpgroup::Fence,
            (Some("commit_group"), []) => Warpgroup::Commit,
            (Some("wait_group"), [Operand::Integer(groups)]) => Warpgroup::Wait(*groups as u32),
            (Some("mma_async"), [d, a, b, accumulates, rest @ ..]) => {
                Warpgroup::Product(Box::new(self.group_product(&mut op, d, [a, b, accumulates], rest)?))
            }
            _ => return op.unsupported(),
        };
        op.finish()?;
        self.emit(Operation::Warpgroup(operation));
        Ok(())
    }

    fn group_product(
        &mut self,
        op: &mut Opcode<'t>,
        d: &Operand<'t>,
        [a, b, accumulates]: [&Operand<'t>; 3],
        rest: &[Operand<'t>],
    ) -> Result<GroupProduct> {
        let shape = op.first(|m| m.strip_prefix("m64n")?.split_once('k'));
        let (columns, depth) = shape.and_then(|(n, k)| Some((n.parse::<usize>().ok()?, k.parse::<usize>().ok()?))).unwrap_or_default();
        let Some(number) = self.numbers(op)? else { return op.unsupported() };
        if !columns.is_multiple_of(8) || !(8..=256).contains(&columns) || depth != 32 / number.bytes() {
            return op.unsupported();
        }
        let (from_registers, can_transpose) = (matches!(a, Operand::Vector(_)), number != Number::Tf32);
        let mut flags = [0i64; 4];
        let count = 2 + if can_transpose { 2 - usize::from(from_registers) } else { 0 };
        if rest.len() != count {
            return Err(format!("`{}` with {} operands behind `scale-d`, where {count} are expected", op.text, rest.len()));
        }
        for (flag, operand) in flags.iter_mut().zip(rest) {
            let Operand::Integer(value) = operand else { return op.unsupported() };
            *flag = *value as i64;
        }
        let [scale_a, scale_b, ..] = flags;
        let transposed = if from_registers { [0, flags[2]] } else { [flags[2], flags[3]] };
        if ![scale_a, scale_b].iter().all(|scale| matches!(scale, 1 | -1)) || !transposed.iter().all(|flag| matches!(flag, 0 | 1)) {
            return op.unsupported();
        }
        let a = match a {
            Operand::Vector(_) => {
                Left::Registers((&*self.fragment(op, a, 4, false)?).try_into().map_err(|_| "four registers are missing")?)
            }
            descriptor => Left::Descriptor(self.source(descriptor, Type::B64)?),
        };
        let accumulates = match accumulates {
            Operand::Integer(value @ (0 | 1)) => (TRUE, *value == 0),
            predicate => self.predicate(predicate)?,
        };
        let b = self.source(b, Type::B64)?;
        let d = self.fragment(op, d, columns / 2, true)?;
        // 16 × columns × depth multiplications and additions of 32 lanes.
        self.flops = (columns * depth) as u16;
        let (negated, transposed) = ([scale_a == -1, scale_b == -1], transposed.map(|flag| flag == 1));
        Ok(GroupProduct { number, d, a, b, accumulates, negated, transposed })
    }
}
