//! Asynchronous copies, and the fences between the ways to access memory.

use super::{Builder, Opcode, builder::Result};
use crate::{
    machine::code::{Address, AsyncCopy, Operation, Space},
    ptx::{syntax::Operand, types::Type},
};

impl<'t> Builder<'_, 't> {
    /// `cp.async`, and what groups and awaits it.
    pub fn copy_async(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        self.needs(&op, 80)?;
        if !op.take("async") {
            return op.unsupported();
        }
        let operation = match operands {
            [] if op.take("commit_group") => Operation::CommitCopies,
            [] if op.take("wait_all") => Operation::WaitCopies(None),
            [Operand::Integer(groups)] if op.take("wait_group") => Operation::WaitCopies(Some(*groups as u32)),
            [Operand::Address(to, to_offset), Operand::Address(from, from_offset), Operand::Integer(length), used @ ..]
                if used.len() < 2 =>
            {
                let bypasses = op.take("cg");
                let is_known = matches!(length, 4 | 8) && !bypasses || *length == 16;
                op.take_ordering();
                if !is_known || !op.take("shared") && !op.take("shared::cta") || !op.take("global") {
                    return op.unsupported();
                }
                let used = used.first().map(|used| self.source(used, Type::B32)).transpose()?;
                let to = self.in_space(&op, Space::Shared, (*to, *to_offset))?;
                let from = self.in_space(&op, Space::Global, (*from, *from_offset))?;
                Operation::CopyAsync(Box::new(AsyncCopy { to, from, length: *length as u8, used }))
            }
            _ => return op.unsupported(),
        };
        op.finish()?;
        self.emit(operation);
        Ok(())
    }

    /// An address in a space.
    pub fn in_space(&mut self, op: &Opcode<'t>, space: Space, address: (Option<&'t str>, i64)) -> Result<Address> {
        match self.resolve(space, address)? {
            (found, address) if found == space => Ok(address),
            (found, _) => Err(format!("`{}` with an address of {found:?}", op.text)),
        }
    }

    /// `fence` and `membar`. The machine executes one instruction at a time on one memory, so only those between proxies count.
    pub fn fence(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        if !operands.is_empty() {
            return op.unsupported();
        }
        if op.take("proxy") {
            self.needs(&op, 90)?;
            if !op.take("async") {
                return op.unsupported();
            }
            // A space restricts the fence. Products read only shared memory.
            let space = op.space();
            op.finish()?;
            if space != Space::Global {
                self.emit(Operation::ProxyFence);
            }
            return Ok(());
        }
        op.take("gl");
        op.take_ordering();
        op.finish()
    }
}
