//! Elements that are computed once.

use super::{Dataset, Elements};
use gradlet_core::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// The elements of a whole pass, once there was one.
type Kept<T> = Arc<Mutex<Option<Arc<[T]>>>>;

/// A pass that keeps what it gives.
struct Keeping<T> {
    from: Elements<T>,
    /// What was given; `None` after an error, for then something is missing.
    given: Option<Vec<T>>,
    kept: Kept<T>,
}

impl<T: Clone> Iterator for Keeping<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let element = self.from.next();
        match &element {
            Some(Ok(element)) => self.given.iter_mut().for_each(|given| given.push(element.clone())),
            Some(Err(_)) => self.given = None,
            None => {
                if let Some(given) = self.given.take() {
                    *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(given.into());
                }
            }
        }
        element
    }
}

impl<T: Clone + Send + Sync + 'static> Dataset<T> {
    /// The elements, from memory after the first whole pass. A pass that is not gone through to its end, or has an error, keeps nothing.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
    /// let calls = Arc::new(AtomicU32::new(0));
    /// let counted = calls.clone();
    /// let cached = Dataset::range(0..4).map(move |x| { counted.fetch_add(1, Ordering::Relaxed); Ok(x) }).cache();
    /// assert_eq!(cached.repeat_times(3).iter().count(), 12);
    /// assert_eq!(calls.load(Ordering::Relaxed), 4);
    /// ```
    pub fn cache(&self) -> Dataset<T> {
        let kept: Kept<T> = Arc::default();
        let from = self.clone();
        self.restarting("cache", move |_| {
            let there = kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Ok(match there {
                Some(elements) => Box::new((0..elements.len()).map(move |index| Ok(elements[index].clone()))) as Elements<T>,
                None => Box::new(Keeping { from: from.start()?, given: Some(Vec::new()), kept: kept.clone() }),
            })
        })
    }
}
