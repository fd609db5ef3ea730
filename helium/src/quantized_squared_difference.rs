//! [`quantized_squared_difference`](gradlet_core::ops::quantized_squared_difference), four elements at once.

use crate::pairs::{Inputs, Numbers, squares};
use gradlet_core::custom_op::Call;
use gradlet_core::custom_op::broadcast::{self, Order};
pub use gradlet_core::ops::quantized_squared_difference::{Attributes, DEF};
use gradlet_core::{DType, Kernel, Result};

/// Kernel for i8.
pub static I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { zero_points, output, operands, square } = call.attributes()?;
    let order = Order::new(call)?;
    let inputs = Inputs { zero_points, multipliers: operands, signs: [1, -1], shift: 7 };
    let numbers = Numbers::new(order, &inputs, square, [output.zero_point, output.least, output.greatest]);
    broadcast::rows(call, order, 25, &|x: &mut [i8], y| {
        // SAFETY: x and y have this many elements.
        unsafe { squares(&numbers, x.as_mut_ptr(), y.as_ptr(), x.len().min(y.len())) }
    })
}
