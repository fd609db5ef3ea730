//! [`quantized_add`](gradlet_core::ops::quantized_add), four elements at once.

use crate::pairs::{Inputs, Numbers, sums};
use gradlet_core::custom_op::Call;
use gradlet_core::custom_op::broadcast::{self, Order};
pub use gradlet_core::ops::quantized_add::{Attributes, DEF};
use gradlet_core::{DType, Kernel, Result};

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, operands, sum, subtract } = call.attributes()?;
    let order = Order::new(call)?;
    let inputs = Inputs { zero_points, multipliers: operands, signs: [1, if subtract == 0 { 1 } else { -1 }], shift: 20 };
    let numbers = Numbers::new(order, &inputs, sum, [output.zero_point, output.least, output.greatest]);
    broadcast::rows(call, order, 25, &|x: &mut [i8], y| {
        // SAFETY: x and y have this many elements.
        unsafe { sums(&numbers, x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) }
    })
}
