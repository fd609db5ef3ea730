//! Operations that consume a whole dataset.

use super::Dataset;
use gradlet_core::{Error, Result};

impl<T: Send + 'static> Dataset<T> {
    /// Folds all elements into a state. Each call of `f` receives the state and the next element, and returns the next state.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// assert_eq!(Dataset::range(0..5).reduce(0, |sum, x| Ok(sum + x))?, 10);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn reduce<S>(&self, initial_state: S, mut f: impl FnMut(S, T) -> Result<S>) -> Result<S> {
        self.iter().try_fold(initial_state, |state, element| f(state, element?))
    }

    /// Returns the only element. Fails if there is no element or more than one.
    pub fn get_single_element(&self) -> Result<T> {
        let mut elements = self.iter();
        let element = elements.next().ok_or_else(|| Error::message("Dataset was empty."))??;
        match elements.next() {
            None => Ok(element),
            Some(_) => Err(Error::message("Dataset had more than one element.")),
        }
    }
}
