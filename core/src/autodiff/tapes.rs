//! Further methods of a tape, and the creation of tapes.

use super::{Tape, Tracks};
use crate::autodiff::sources::{Source, Sources};
use crate::base::error::{Error, Result};
use crate::base::shape::merged;
use crate::tensor::Tensor;
use crate::tensor::scope::{Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::vec::Vec;

/// Options of a tape.
#[derive(Clone, Copy, Debug)]
pub struct TapeOptions {
    /// True if more than one gradient can be taken.
    pub persistent: bool,
    /// True if the tape watches trainable variables when they are read.
    pub watch_accessed_variables: bool,
}

impl Default for TapeOptions {
    fn default() -> TapeOptions {
        TapeOptions { persistent: false, watch_accessed_variables: true }
    }
}

const NOT_RECORDING: &str = "the tape is not recording";

impl Tape {
    /// Creates a tape over `scope` with these options.
    ///
    /// ```
    /// use gradlet_core::autodiff::{Tape, TapeOptions};
    /// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let [v, w] = ["v", "w"].map(|name| Variable::new(&scope, name, &Tensor::scalar(&scope.device(), 2.0f32)).unwrap());
    /// let tape = Tape::with_options(&scope, TapeOptions { watch_accessed_variables: false, ..TapeOptions::default() });
    /// tape.watch_variable(&w);
    /// let y = tape.read(&v)?.mul(&tape.read(&w)?)?;
    /// let gradients = tape.gradient(&y, &[v, w])?;
    /// assert!(gradients[0].is_none() && gradients[1].is_some());
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn with_options(scope: &dyn Scope, options: TapeOptions) -> Tape {
        Tape::new(scope.handle(), options)
    }

    /// Watches `variable`, even if it is not trainable. Values read from it afterwards can be sources.
    pub fn watch_variable(&self, variable: &Variable) {
        let watched = &mut self.0.tracks.lock().watched;
        if !watched.contains(variable) {
            watched.push(variable.clone());
        }
    }

    /// Returns the watched variables: those that were read, and those passed to [`Tape::watch_variable`].
    pub fn watched_variables(&self) -> Vec<Variable> {
        let tracks = self.0.tracks.lock();
        let mut all: Vec<Variable> = Vec::new();
        for variable in tracks.watched.iter().chain(tracks.reads.iter().map(|read| &read.variable)) {
            if !all.contains(variable) {
                all.push(variable.clone());
            }
        }
        all
    }

    /// Ends the recording, like leaving TensorFlow's `with` block. Later ops are not recorded, but gradients can still be taken.
    pub fn stop(&self) {
        self.0.tracks.lock().stopped = true;
    }

    /// Returns the result of `run` without recording it, so no gradient flows through it.
    ///
    /// ```
    /// use gradlet_core::{Differentiate, Eager, Tensor, ops};
    /// let tape = Eager::new(&ops::portable_cpu()).tape();
    /// let x = tape.watch(&Tensor::scalar(&ops::portable_cpu(), 3.0f32))?;
    /// let frozen = tape.stop_recording(|| x.mul(&x))?;
    /// assert_eq!(tape.gradient(&frozen.mul(&x)?, &x)?.unwrap().item::<f32>()?, 9.0);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails if the tape does not record, or if `run` fails.
    pub fn stop_recording<R>(&self, run: impl FnOnce() -> Result<R>) -> Result<R> {
        /// Guard that resumes the recording on drop.
        struct Paused<'t>(&'t Tape);
        impl Drop for Paused<'_> {
            fn drop(&mut self) {
                let mut tracks = self.0.0.tracks.lock();
                tracks.stopped = tracks.spent;
            }
        }
        if core::mem::replace(&mut self.0.tracks.lock().stopped, true) {
            return Err(Error::message(NOT_RECORDING));
        }
        let _paused = Paused(self);
        run()
    }

    /// Discards all records. Watched tensors remain watched. A variable is watched again when it is read.
    ///
    /// Fails if the tape does not record.
    pub fn reset(&self) -> Result<()> {
        let mut tracks = self.0.tracks.lock();
        if tracks.stopped {
            return Err(Error::message(NOT_RECORDING));
        }
        let values = tracks.values;
        *tracks = Tracks { values, ..Tracks::default() };
        Ok(())
    }

    /// Returns gradients like [`Tape::gradient`], with zeros for a source on which the target does not depend, like TensorFlow's
    /// `unconnected_gradients="zero"`.
    pub fn gradient_or_zeros<S: Sources + ?Sized>(&self, target: &Tensor, sources: &S) -> Result<S::Gradients> {
        let list = sources.list();
        let seeds = self.0.seed(target, None)?.into_iter().collect();
        let gradients = self.gradients(alloc::vec![seeds], &list)?.pop().unwrap_or_default();
        let zeros = |(gradient, source): (Option<Tensor>, &Source<'_>)| match (gradient, source) {
            (Some(gradient), _) => Ok(Some(gradient)),
            (None, Source::Tensor(tensor)) => Tensor::zeros(&self.device(), tensor.tensor_type()).map(Some),
            (None, Source::Variable(variable)) => Tensor::zeros(&self.device(), variable.tensor_type()?).map(Some),
        };
        sources.pack(gradients.into_iter().zip(&list).map(zeros).collect::<Result<_>>()?)
    }

    /// Returns the derivative of each element of `target` with respect to each element of `sources`. Its dimensions are those of the
    /// target, followed by those of the source.
    ///
    /// ```
    /// use gradlet_core::{Differentiate, Eager, Tensor, ops};
    /// let device = ops::portable_cpu();
    /// let tape = Eager::new(&device).tape();
    /// let x = tape.watch(&Tensor::new(&device, &[1.0f32, 2.0], &[2])?)?;
    /// let jacobian = tape.jacobian(&x.mul(&x)?, &x)?.unwrap();
    /// assert_eq!((jacobian.dims(), jacobian.to_vec::<f32>()?), (&[2, 2][..], vec![2.0, 0.0, 0.0, 4.0]));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Walks the record backward once for each element of the target. Fails like [`Tape::gradient`].
    pub fn jacobian<S: Sources + ?Sized>(&self, target: &Tensor, sources: &S) -> Result<S::Gradients> {
        let elements = merged(target.dims())?;
        let rows = self.rows(target, elements, &sources.list())?;
        let whole = |parts: Vec<Tensor>| {
            let dims: Vec<u32> = target.dims().iter().chain(parts.first().map_or(&[][..], Tensor::dims)).copied().collect();
            Tensor::stack(&parts, 0)?.reshape(&dims)
        };
        sources.pack(rows.into_iter().map(|rows| rows.map(whole).transpose()).collect::<Result<_>>()?)
    }

    /// Returns the jacobian of each row of `target` with respect to the same row of `source`. The rows must not depend on each other.
    /// The dimensions are the number of rows, the target's other dimensions, and the source's other dimensions.
    ///
    /// Fails like [`Tape::gradient`], and if the first dimensions differ.
    pub fn batch_jacobian(&self, target: &Tensor, source: &Tensor) -> Result<Option<Tensor>> {
        let (Some((&batch, inner)), Some((&other, rest))) = (target.dims().split_first(), source.dims().split_first()) else {
            return Err(Error::message("batch_jacobian needs a target and a source with at least one axis"));
        };
        if batch != other {
            return Err(Error::message(format!("the target has {batch} rows, but the source has {other}")));
        }
        let elements = merged(inner)?;
        let rows = self.rows(target, elements, &[Source::Tensor(source)])?.pop().flatten();
        let dims: Vec<u32> = [batch].iter().chain(inner).chain(rest).copied().collect();
        rows.map(|parts| Tensor::stack(&parts, 1)?.reshape(&dims)).transpose()
    }

    /// Returns, for each source, one gradient for each of the `elements` elements in a row of the target. Each is computed for all
    /// rows together. Returns `None` for a source on which the target does not depend.
    fn rows(&self, target: &Tensor, elements: u32, sources: &[Source<'_>]) -> Result<Vec<Option<Vec<Tensor>>>> {
        if elements == 0 {
            return Err(Error::message(format!("{} has no elements to take a gradient of", target.tensor_type())));
        }
        let device = target.device()?;
        let seed = |element: u32| {
            let one: Vec<f32> = (0..target.shape().elements().unwrap_or(0))
                .map(|index| f32::from(u8::from(index % elements as usize == element as usize)))
                .collect();
            let one = Tensor::new(&device, &one, target.dims())?.cast(target.dtype())?;
            Ok(self.0.seed(target, Some(&one))?.into_iter().collect())
        };
        let found = self.gradients((0..elements).map(seed).collect::<Result<_>>()?, sources)?;
        let mut of_sources: Vec<Option<Vec<Tensor>>> = sources.iter().map(|_| None).collect();
        let zeros = |source: &Source<'_>| match source {
            Source::Tensor(tensor) => Tensor::zeros(&device, tensor.tensor_type()),
            Source::Variable(variable) => Tensor::zeros(&device, variable.tensor_type()?),
        };
        for (index, source) in sources.iter().enumerate() {
            if found.iter().any(|row| row[index].is_some()) {
                let rows = found.iter().map(|row| row[index].clone().map_or_else(|| zeros(source), Ok));
                of_sources[index] = Some(rows.collect::<Result<_>>()?);
            }
        }
        Ok(of_sources)
    }
}

/// Methods of every scope that create tapes.
#[doc(alias = "GradientTape", alias = "tf.GradientTape")]
pub trait Differentiate: Scope {
    /// Creates a tape over this scope that can compute one gradient.
    fn tape(&self) -> Tape {
        Tape::new(self.handle(), TapeOptions::default())
    }

    /// Creates a tape over this scope that continues to record after a gradient is taken, so several gradients can be taken.
    fn persistent_tape(&self) -> Tape {
        Tape::new(self.handle(), TapeOptions { persistent: true, ..TapeOptions::default() })
    }
}

impl<S: Scope + ?Sized> Differentiate for S {}

impl Scope for Tape {
    fn handle(&self) -> ScopeHandle {
        ScopeHandle::new(self.0.clone()).in_mode(self.0.parent.mode()).current()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::portable_cpu;
    use crate::trace::eager::Eager;

    fn vector(values: &[f32]) -> Tensor {
        Tensor::new(&portable_cpu(), values, &[values.len() as u32]).unwrap()
    }

    #[test]
    fn sources_can_be_tuples_arrays_and_maps() {
        let tape = Eager::new(&portable_cpu()).persistent_tape();
        let (x, y) = (tape.watch(&vector(&[2.0])).unwrap(), tape.watch(&vector(&[3.0])).unwrap());
        let z = x.mul(&y).unwrap();
        let item = |gradient: &Option<Tensor>| gradient.as_ref().unwrap().item::<f32>().unwrap();
        let [a, b] = tape.gradient(&z, &[x.clone(), y.clone()]).unwrap();
        assert_eq!((item(&a), item(&b)), (3.0, 2.0));
        let (a, [b]) = tape.gradient(&z, &(x.clone(), [y.clone()])).unwrap();
        assert_eq!((item(&a), item(&b)), (3.0, 2.0));
        let named = tape.gradient(&z, &alloc::collections::BTreeMap::from([("x", x), ("y", y)])).unwrap();
        assert_eq!((item(&named["x"]), item(&named["y"])), (3.0, 2.0));
    }

    #[test]
    fn a_tape_stops_pauses_and_forgets() {
        let tape = Eager::new(&portable_cpu()).persistent_tape();
        let x = tape.watch(&vector(&[2.0])).unwrap();
        let y = x.mul(&x).unwrap();
        let z = tape.stop_recording(|| y.mul(&x)).unwrap();
        assert!(tape.gradient(&z, &x).unwrap().is_none());
        assert_eq!(tape.gradient_or_zeros(&z, &x).unwrap().unwrap().to_vec::<f32>().unwrap(), [0.0]);
        assert!(tape.stop_recording(|| tape.stop_recording(|| Ok(()))).is_err());
        assert_eq!(tape.gradient(&y.mul(&x).unwrap(), &x).unwrap().unwrap().to_vec::<f32>().unwrap(), [12.0]);
        tape.reset().unwrap();
        assert!(tape.gradient(&y, &x).unwrap().is_none());
        tape.stop();
        assert!(tape.reset().is_err() && tape.gradient(&x.mul(&x).unwrap(), &x).unwrap().is_none());
    }

    #[test]
    fn jacobians_have_the_dimensions_of_both() {
        let tape = Eager::new(&portable_cpu()).persistent_tape();
        let x = tape.watch(&Tensor::new(&portable_cpu(), &[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap()).unwrap();
        let y = x.mul(&x).unwrap();
        let (whole, rows) = (tape.jacobian(&y, &x).unwrap().unwrap(), tape.batch_jacobian(&y, &x).unwrap().unwrap());
        assert_eq!((whole.dims(), rows.dims()), (&[2, 2, 2, 2][..], &[2, 2, 2][..]));
        assert_eq!(rows.to_vec::<f32>().unwrap(), [2.0, 0.0, 0.0, 4.0, 6.0, 0.0, 0.0, 8.0]);
        assert!(tape.jacobian(&vector(&[1.0]), &x).unwrap().is_none());
        assert!(tape.batch_jacobian(&vector(&[1.0]), &x).is_err());
    }
}
