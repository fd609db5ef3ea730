//! Summary of a tensor at a step, for TensorBoard. Like `tf.summary.scalar`, `histogram` and `image`.
//!
//! The kernel only signals that there is a summary to report. The caller of the program reports it, through [`Summary`]. The
//! devices of a host use their event writer, and a firmware uses its telemetry.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::format::{SUMMARY, Summary, SummaryKind};
use crate::base::op::{Call, Kernel, OpDef};
use crate::base::shape::TensorType;
#[cfg(feature = "alloc")]
use crate::tensor::scope::{Gradient, Op};

/// Definition of the op. The inputs are the value and an optional step, an i64 scalar. Without it, the summary gets the writer's
/// current step. [`Summary`] describes the attribute words.
pub static DEF: OpDef = OpDef { code: crate::ops::code::summary, name: "summary", inputs: (1, 2), outputs: 0, infer, in_place: &[] };

fn infer(inputs: &[TensorType], attributes: &[u32], _: &mut [TensorType]) -> Result<()> {
    let (kind, ..) = Summary::words(attributes).ok_or(Error::Attribute { index: 2 })?;
    let [value, step @ ..] = inputs else { return Err(Error::Internal) };
    match (kind, value.shape.dims()) {
        (SummaryKind::Scalar, []) | (SummaryKind::Histogram, _) => (),
        (SummaryKind::Image, _) if value.dtype == DType::Bool => return Err(Error::DType { input: 0 }),
        (SummaryKind::Image, &[_, 0, ..]) => return Err(Error::Dimension { input: 0, axis: 1, want: 1, got: 0 }),
        (SummaryKind::Image, &[_, _, 0, _]) => return Err(Error::Dimension { input: 0, axis: 2, want: 1, got: 0 }),
        (SummaryKind::Image, [_, _, _, 1..=4]) => (),
        (SummaryKind::Image, &[_, _, _, got]) => return Err(Error::Dimension { input: 0, axis: 3, want: 3, got }),
        _ => return Err(Error::Rank { input: 0 }),
    }
    match step {
        [] => Ok(()),
        [step, ..] if step.dtype != DType::I64 => Err(Error::DType { input: 1 }),
        [step, ..] if step.shape.dims().is_empty() => Ok(()),
        _ => Err(Error::Rank { input: 1 }),
    }
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    call.slice.answer = SUMMARY;
    Ok(())
}

crate::ops::moving_kernels!(bytes run);

/// The op, which has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op =
    Op::total(&DEF, "summary(value, optional step), where step is an i64 scalar", Gradient::None("it has no result to have one"));

#[cfg(feature = "alloc")]
mod emit {
    use super::*;
    use crate::tensor::Tensor;
    use crate::tensor::scope::{Scope, innermost};
    use alloc::vec::Vec;

    /// Step of a summary.
    #[derive(Clone, Copy)]
    pub enum Step<'a> {
        /// The writer's current step.
        Default,
        /// This step. In a traced function, every call has the same step.
        At(i64),
        /// The value of this i64 scalar when the summary is reported.
        Of(&'a Tensor),
    }

    impl From<i64> for Step<'_> {
        fn from(step: i64) -> Self {
            Step::At(step)
        }
    }

    impl From<i32> for Step<'_> {
        fn from(step: i32) -> Self {
            Step::At(step.into())
        }
    }

    impl From<Option<i64>> for Step<'_> {
        fn from(step: Option<i64>) -> Self {
            step.map_or(Step::Default, Step::At)
        }
    }

    impl<'a> From<&'a Tensor> for Step<'a> {
        fn from(step: &'a Tensor) -> Self {
            Step::Of(step)
        }
    }

    /// Summaries for TensorBoard, in every scope. An eager scope reports a summary immediately. In a traced function, it is
    /// reported each time the function reaches the op.
    ///
    /// The caller of the program receives the summary. On a host, it goes to the event writer of the scope's device, if there is
    /// one. On a board, it goes to the receiver that the firmware provides. Name scopes do not change the tags.
    pub trait Summarize: Scope {
        /// Reports a scalar tensor of any element type. Like TensorFlow's `tf.summary.scalar`.
        ///
        /// ```
        /// use gradlet_core::{Eager, Scope, Summarize, Tensor, ops};
        /// use std::sync::{Arc, Mutex};
        /// let told = Arc::new(Mutex::new(String::new()));
        /// let sink = told.clone();
        /// let device = ops::portable_cpu().summarizing(move |summary| Ok(*sink.lock().unwrap() += &summary.to_string()));
        /// let scope = Eager::new(&device);
        /// scope.scalar("loss", &Tensor::scalar(&device, 0.5f32), 3)?;
        /// assert_eq!(*told.lock().unwrap(), "loss at step 3: 0.5");
        /// # Ok::<(), gradlet_core::Error>(())
        /// ```
        ///
        /// Fails if the value is not a scalar, or if the step is not an i64 scalar.
        fn scalar<'a>(&self, tag: &str, value: &'a Tensor, step: impl Into<Step<'a>>) -> Result<()> {
            tell(&self.handle(), SummaryKind::Scalar, 0, tag, value, step.into())
        }

        /// Reports the distribution of a tensor's elements over `buckets` of equal width. TensorFlow's default is 30. Like
        /// TensorFlow's `tf.summary.histogram`.
        fn histogram<'a>(&self, tag: &str, value: &'a Tensor, step: impl Into<Step<'a>>, buckets: u32) -> Result<()> {
            tell(&self.handle(), SummaryKind::Histogram, buckets, tag, value, step.into())
        }

        /// Reports the first `max_outputs` images of `[images, height, width, channels]`. The elements are u8, or floats from 0
        /// to 1. There are 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA) channels. TensorFlow's default for `max_outputs` is 3.
        /// Like TensorFlow's `tf.summary.image`.
        fn image<'a>(&self, tag: &str, value: &'a Tensor, step: impl Into<Step<'a>>, max_outputs: u32) -> Result<()> {
            tell(&self.handle(), SummaryKind::Image, max_outputs, tag, value, step.into())
        }
    }

    impl<S: Scope + ?Sized> Summarize for S {}

    fn tell(scope: &dyn Scope, kind: SummaryKind, parameter: u32, tag: &str, value: &Tensor, step: Step<'_>) -> Result<()> {
        let length = tag.len() as u32;
        let words = tag.as_bytes().chunks(size_of::<u32>()).map(|bytes| {
            let mut word = [0; size_of::<u32>()];
            word.iter_mut().zip(bytes).for_each(|(to, &from)| *to = from);
            u32::from_le_bytes(word)
        });
        let attributes: Vec<u32> = [kind as u32, parameter, length].into_iter().chain(words).collect();
        let step = match step {
            Step::Default => None,
            Step::At(step) => Some(Tensor::scalar(&scope.device(), step)),
            Step::Of(step) => Some(step.clone()),
        };
        let inputs: Vec<&Tensor> = [value].into_iter().chain(&step).collect();
        let scope = innermost(&inputs)?.unwrap_or(scope.handle()).deeper(scope.handle());
        scope.recorder.emit(&OP, &attributes, &inputs).map(drop)
    }
}
#[cfg(feature = "alloc")]
pub use emit::{Step, Summarize};

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::function::Function;
    use crate::ops::portable_cpu;
    use crate::tensor::Tensor;
    use crate::tensor::device::Device;
    use crate::tensor::scope::Scope;
    use crate::trace::eager::Eager;
    use std::string::{String, ToString};
    use std::sync::{Arc, Mutex};
    use std::vec::Vec;

    fn captured() -> (Device, impl Fn() -> Vec<String>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        let device = portable_cpu().summarizing(move |summary| {
            sink.lock().unwrap().push(summary.to_string());
            Ok(())
        });
        (device, move || core::mem::take(&mut *told.lock().unwrap()))
    }

    #[test]
    fn scalars_are_told_with_the_step_of_the_call() {
        let (device, told) = captured();
        let scope = Eager::new(&device);
        let x = Tensor::scalar(&device, 1.5f32);
        scope.scalar("now", &x, None).unwrap();
        scope.scalar("now", &Tensor::scalar(&device, 7i32), 5i64).unwrap();
        assert_eq!(told(), ["now: 1.5", "now at step 5: 7"]);
        let f = Function::new(|scope: &dyn Scope, (x, step): (Tensor, Tensor)| {
            scope.scalar("in/function", &x, &step)?;
            x.neg()
        });
        for step in 0..2i64 {
            f.call(&scope, (x.clone(), Tensor::scalar(&device, step))).unwrap();
        }
        assert_eq!(told(), ["in/function at step 0: 1.5", "in/function at step 1: 1.5"]);
        assert_eq!(f.traces(), 1);
        let error = scope.scalar("v", &Tensor::full(&device, 0f32, &[2]).unwrap(), 0).unwrap_err().to_string();
        assert!(error.contains("summary"), "{error}");
        let other = Eager::new(&portable_cpu());
        other.scalar("unheard", &x, 0).unwrap();
        assert_eq!(told(), Vec::<String>::new());
    }

    #[test]
    fn a_failing_listener_fails_the_call() {
        let device = portable_cpu().summarizing(|_| Err(Error::message("the disk is full")));
        let error = Eager::new(&device).scalar("x", &Tensor::scalar(&device, 1i64), 1).unwrap_err().to_string();
        assert!(error.contains("the disk is full"), "{error}");
    }

    #[test]
    fn wrong_words_are_refused() {
        let text = u32::from_le_bytes(*b"tag\0");
        let types = |words: &[u32], inputs: &[TensorType]| DEF.output_types(inputs, words).err();
        assert_eq!(types(&[0, 0, 3, text], &[TensorType::I32]), None);
        for wrong in [&[][..], &[0, 0], &[9, 0, 3, text], &[0, 0, 5, text], &[0, 0, 3, text, text], &[0, 0, 1, 0xff]] {
            assert_eq!(types(wrong, &[TensorType::I32]), Some(Error::Attribute { index: 2 }));
        }
        assert_eq!(types(&[0, 0, 3, text], &[TensorType::I32, TensorType::I32]), Some(Error::DType { input: 1 }));
        assert_eq!(types(&[2, 3, 3, text], &[TensorType::I32]), Some(Error::Rank { input: 0 }));
    }
}
