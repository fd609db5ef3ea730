//! Printing of a text with values, when the program reaches the op. Like TensorFlow's `tf.print`.
//!
//! The kernel only signals that there is something to print. The caller of the program does the printing, through [`Printed`].
//! The devices of a host print to standard output, and a firmware can print anywhere.

use crate::base::error::{Error, Result};
use crate::base::format::{PRINT, Piece, Printed, pieces};
use crate::base::op::{Call, Kernel, MAX_INPUTS, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// Definition of the op. It takes any tensors, one for each `{}` of the text. [`Printed`] describes the attribute words.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::print, name: "print", inputs: (0, MAX_INPUTS as u8), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], _: &mut [TensorType]) -> Result<()> {
    let text = Printed { attributes, inputs: &[] }.text().ok_or(Error::Attribute { index: 1 })?;
    let values = pieces(text).filter(|piece| *piece == Piece::Value).count();
    if values == inputs.len() { Ok(()) } else { Err(Error::Arity { got: inputs.len() as u8 }) }
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    call.slice.answer = PRINT;
    Ok(())
}

crate::ops::moving_kernels!(bytes run);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op { tf_type: Some("PrintV2"), ..Op::total(&DEF, "print(\"text {} text\", value)", Gradient::None("it has no result to have one")) };

#[cfg(feature = "alloc")]
mod emit {
    use super::*;
    use crate::base::format::SUMMARIZE;
    use crate::tensor::Tensor;
    use crate::tensor::scope::{Scope, innermost};
    use alloc::format;
    use alloc::vec::Vec;

    /// Options of [`Print::print_with`].
    #[derive(Clone, Copy, Debug)]
    pub struct PrintOptions<'a> {
        /// Number of elements that are printed at each end of a dimension. `u32::MAX` prints all.
        pub summarize: u32,
        /// Text that is printed at the end.
        pub end: &'a str,
    }

    impl Default for PrintOptions<'_> {
        fn default() -> Self {
            PrintOptions { summarize: SUMMARIZE, end: "\n" }
        }
    }

    /// Extension of every scope by methods that print values.
    pub trait Print: Scope {
        /// Prints `text` and a line break, with the values in place of its `{}`. An eager scope prints immediately. In a traced
        /// function, the text is printed each time the function reaches the op.
        ///
        /// The text goes to the device: on a host to standard output, on a board to the output that its firmware provides. Host
        /// values can be formatted into the text itself. `{{` and `}}` print braces. Like TensorFlow's `tf.print`.
        ///
        /// ```
        /// use gradlet_core::{Eager, Print, Scope, Tensor, ops};
        /// let scope = Eager::new(&ops::portable_cpu());
        /// let loss = Tensor::scalar(&scope.device(), 0.25f32);
        /// scope.print("step {} loss {}", &[&Tensor::scalar(&scope.device(), 3i64), &loss])?;
        /// scope.print(&format!("epoch {}", 1), &[])?;
        /// # Ok::<(), gradlet_core::Error>(())
        /// ```
        ///
        /// Fails if there are more than 8 values, or if their number differs from the number of `{}` in the text.
        fn print(&self, text: &str, values: &[&Tensor]) -> Result<()> {
            self.print_with(PrintOptions::default(), text, values)
        }

        /// Prints like [`Print::print`], with `options`. The text ends with [`PrintOptions::end`] instead of a line break.
        fn print_with(&self, options: PrintOptions<'_>, text: &str, values: &[&Tensor]) -> Result<()> {
            let attributes = words(&options, text, values.len())?;
            let scope = innermost(values)?.unwrap_or(self.handle()).deeper(self.handle());
            scope.recorder.emit(&OP, &attributes, values).map(|_| ())
        }
    }

    impl<S: Scope + ?Sized> Print for S {}

    /// Returns the attribute words for `options` and `text`. Fails unless `got`, the number of values, is the number of `{}` in the
    /// text and at most [`MAX_INPUTS`].
    fn words(options: &PrintOptions<'_>, text: &str, got: usize) -> Result<Vec<u32>> {
        let wanted = pieces(text).filter(|piece| *piece == Piece::Value).count();
        if wanted != got || wanted > MAX_INPUTS {
            return Err(Error::message(format!("{text:?} needs {wanted} values, one for each {{}} (at most {MAX_INPUTS}), but got {got}")));
        }
        let end = options.end.replace('{', "{{").replace('}', "}}");
        let mut bytes: Vec<u8> = text.bytes().chain(end.bytes()).collect();
        let length = bytes.len() as u32;
        bytes.resize(bytes.len().next_multiple_of(size_of::<u32>()), 0);
        let words = bytes.chunks_exact(size_of::<u32>()).filter_map(|word| Some(u32::from_le_bytes(word.try_into().ok()?)));
        Ok([options.summarize, length].into_iter().chain(words).collect())
    }
}
#[cfg(feature = "alloc")]
pub use emit::{Print, PrintOptions};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::autodiff::Differentiate;
    use crate::base::dtype::Bool;
    use crate::function::Function;
    use crate::tensor::Tensor;
    use crate::tensor::device::Device;
    use crate::tensor::scope::Scope;
    use crate::trace::control::cond;
    use crate::trace::eager::Eager;
    use std::string::{String, ToString};
    use std::sync::{Arc, Mutex};

    fn captured() -> (Device, impl Fn() -> String) {
        let text = Arc::new(Mutex::new(String::new()));
        let sink = text.clone();
        let device = crate::ops::portable_cpu().printing(move |part| *sink.lock().unwrap() += &part.to_string());
        (device, move || core::mem::take(&mut *text.lock().unwrap()))
    }

    #[test]
    fn values_are_printed_where_they_are_computed() {
        let (device, text) = captured();
        let scope = Eager::new(&device);
        let x = Tensor::new(&device, &[1.0f32, 2.5], &[2]).unwrap();
        scope.print("x {} {{{}}}", &[&x, &Tensor::scalar(&device, 7i32)]).unwrap();
        scope.print("nothing", &[]).unwrap();
        scope.print_with(PrintOptions { summarize: 1, end: "!" }, "{}", &[&Tensor::full(&device, Bool(1), &[3]).unwrap()]).unwrap();
        assert_eq!(text(), "x [1 2.5] {7}\nnothing\n[1 ... 1]!");
        let tape = scope.tape();
        tape.print("{}", &[&tape.watch(&x).unwrap()]).unwrap();
        assert_eq!(text(), "[1 2.5]\n");
        let error = scope.print("{}", &[]).unwrap_err().to_string();
        assert!(error.contains("needs 1 values"), "{error}");
    }

    #[test]
    fn a_function_prints_at_each_call_in_order() {
        let (device, text) = captured();
        let scope = Eager::new(&device);
        let f = Function::new(|scope: &dyn Scope, x: Tensor| {
            scope.print("before {}", &[&x])?;
            let big = x.less(&x.like(0.0)?)?;
            cond(scope, &big, || scope.print("negative", &[]), || Ok(()))?;
            scope.print("after {}", &[&x.neg()?])?;
            Ok(x)
        });
        f.call(&scope, Tensor::scalar(&device, 1.0f32)).unwrap();
        f.call(&scope, Tensor::scalar(&device, -2.0f32)).unwrap();
        assert_eq!(text(), "before 1\nafter -1\nbefore -2\nnegative\nafter 2\n");
        assert_eq!(f.traces(), 1);
    }

    #[test]
    fn wrong_words_are_refused() {
        let types = [TensorType::I32];
        let text = u32::from_le_bytes(*b"{}\0\0");
        assert!(DEF.output_types(&types, &[3, 2, text]).is_ok());
        for wrong in [&[3][..], &[3, 2], &[3, 5, text], &[3, 2, text, text], &[3, 1, 0xff]] {
            assert_eq!(DEF.output_types(&types, wrong).err(), Some(Error::Attribute { index: 1 }));
        }
        assert_eq!(DEF.output_types(&[], &[3, 2, text]).err(), Some(Error::Arity { got: 0 }));
    }
}
