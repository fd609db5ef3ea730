//! The check of a variable's value.

use crate::base::error::Result;
use crate::base::op::{Call, Slice};
use crate::base::shape::TensorType;
use crate::base::view::TensorView;
use crate::ops;
use crate::runtime::program::{KernelRecord, Program};

impl Program<'_> {
    /// Fails with [`Error::NotFinite`](crate::Error::NotFinite) if an element of `data` is infinite or NaN, and the artifact has the kernel
    /// of `check_numerics` for its element type. An artifact without this kernel allows such values.
    #[inline(never)]
    pub(crate) fn check_finite(&self, tensor_type: &TensorType, data: &[u8], slice: &mut Slice) -> Result<()> {
        let checks = |record: &KernelRecord| record.op == ops::code::check_numerics.0 && record.dtype == tensor_type.dtype as u8;
        let index = self.kernel_records.iter().position(checks);
        let Some(kernel) = index.and_then(|index| self.kernel(index as u16)) else { return Ok(()) };
        let inputs = &[TensorView { tensor_type, data: Some(data) }];
        (kernel.run)(&mut Call { attributes: &[], inputs, outputs: &mut [], slice })
    }
}
