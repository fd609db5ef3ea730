//! Positions of iterators, which can be saved and restored.

use super::{Dataset, Elements};
use gradlet_core::layers::{Module, State, Visitor};
use gradlet_core::{Device, Error, Result, Tensor};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Iterator over one pass through a dataset. Each item is an element or an error in its place.
pub struct Iter<T> {
    dataset: Dataset<T>,
    elements: Elements<T>,
    /// Number of elements to skip before the next one.
    skip: usize,
    place: Arc<Mutex<Place>>,
}

/// Position of an iterator.
struct Place {
    position: Position,
    moved: bool,
}

/// Handle to the position of an iterator, for use in a [`Checkpoint`](crate::checkpoint::Checkpoint). Saving the checkpoint saves the
/// position. Restoring moves the iterator to the saved position, and iteration continues from there.
///
/// ```
/// use gradlet::checkpoint::Checkpoint;
/// use gradlet::data::Dataset;
/// let folder = tempfile::tempdir()?;
/// let mut iterator = Dataset::range(0..100).shuffle(20).iter();
/// let checkpoint = Checkpoint::new().with("iterator", iterator.tracked());
/// iterator.nth(9);
/// let prefix = checkpoint.save(folder.path().join("ckpt"))?;
/// let eleventh = iterator.next();
/// checkpoint.restore(&prefix)?;
/// assert_eq!(iterator.next(), eleventh);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tracked(Arc<Mutex<Place>>);

impl State for Tracked {
    fn value(&self) -> Result<Tensor> {
        lock(&self.0).position.to_tensor(&crate::compute::devices::cpu())
    }

    fn restore(&self, value: &Tensor) -> Result<()> {
        let position = Position::from_tensor(value)?;
        let mut place = lock(&self.0);
        position.fits(place.position.seeds.len())?;
        *place = Place { position, moved: true };
        Ok(())
    }
}

impl Module for Tracked {
    fn visit(&self, visitor: &mut dyn Visitor) {
        visitor.state(self);
    }
}

fn lock(place: &Mutex<Place>) -> MutexGuard<'_, Place> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Position of an iterator: the number of elements returned, and the random seeds at the start of the pass.
///
/// A pipeline that the same program builds can continue from there, in this process or in another one. It then returns the same elements,
/// provided that it is deterministic. Functions run again for skipped elements only if a stage needs their results, such as a filter or the
/// buffer of a shuffle. The position does not include the random state of datasets that a function creates, for instance for `flat_map`.
///
/// ```
/// use gradlet::data::{Dataset, Position};
/// let dataset = Dataset::range(0..100).shuffle(20).repeat();
/// let mut iterator = dataset.iter();
/// let first: Vec<i64> = iterator.by_ref().take(130).collect::<Result<_, _>>()?;
/// let saved = iterator.position().to_tensor(&gradlet::cpu())?; // goes into a checkpoint like any other tensor
/// let mut again = dataset.iter_from(&Position::from_tensor(&saved)?)?;
/// assert_eq!(again.next(), iterator.next());
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    delivered: u64,
    /// Key and epoch of the seed of each random stage.
    seeds: Vec<[u64; 2]>,
}

/// Version of the stored form, its first number.
const VERSION: i64 = 1;

impl Position {
    /// Returns the number of elements that the iterator has returned.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the position as i64\[n\]: version 1, the number of elements returned, then a key and an epoch for each random stage.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        let seeds = self.seeds.iter().flatten().map(|&word| word as i64);
        let words: Vec<i64> = [VERSION, self.delivered as i64].into_iter().chain(seeds).collect();
        Tensor::new(device, &words, &[words.len() as u32])
    }

    /// Reads a position from the tensor that [`Position::to_tensor`] returns. Fails for other tensors.
    pub fn from_tensor(tensor: &Tensor) -> Result<Position> {
        let words = tensor.to_vec::<i64>()?;
        match words.as_slice() {
            [VERSION, delivered, seeds @ ..] if *delivered >= 0 && seeds.len() % 2 == 0 => {
                let seeds = seeds.as_chunks().0.iter().map(|pair: &[i64; 2]| pair.map(|word| word as u64)).collect();
                Ok(Position { delivered: *delivered as u64, seeds })
            }
            _ => Err(Error::message(format!("{} is not the position of an iterator", tensor.tensor_type()))),
        }
    }

    /// Checks that the position belongs to a dataset like this one, which has `own` random stages.
    fn fits(&self, own: usize) -> Result<()> {
        match self.seeds.len() {
            got if got == own => Ok(()),
            got => Err(Error::message(format!("the position belongs to a dataset with {got} random stages, but this one has {own}"))),
        }
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Starts a pass. `for element in &dataset` does the same.
    pub fn iter(&self) -> Iter<T> {
        let seeds = self.about.seeds.iter().map(|seed| seed.get()).collect();
        let place = Place { position: Position { delivered: 0, seeds }, moved: false };
        Iter { dataset: self.clone(), elements: self.elements(), skip: 0, place: Arc::new(Mutex::new(place)) }
    }

    /// Starts an iterator at a saved position of this dataset, or of one that the same program built. Later passes also continue as they
    /// would have.
    ///
    /// Fails if the position belongs to a dataset with a different number of random stages.
    pub fn iter_from(&self, position: &Position) -> Result<Iter<T>> {
        let (elements, skip) = self.elements_from(position)?;
        let place = Place { position: position.clone(), moved: false };
        Ok(Iter { dataset: self.clone(), elements, skip, place: Arc::new(Mutex::new(place)) })
    }

    /// Starts a pass with the random seeds of `position`. Also returns the number of elements to skip.
    fn elements_from(&self, position: &Position) -> Result<(Elements<T>, usize)> {
        position.fits(self.about.seeds.len())?;
        self.about.seeds.iter().zip(&position.seeds).for_each(|(seed, state)| seed.set(*state));
        let skip = usize::try_from(position.delivered).map_err(|_| Error::message("the position is too large for this machine"))?;
        Ok((self.start()?, skip))
    }
}

impl<T> Iter<T> {
    /// Returns the current position.
    pub fn position(&self) -> Position {
        lock(&self.place).position.clone()
    }

    /// Returns a handle to the position, for use in a checkpoint.
    pub fn tracked(&self) -> Tracked {
        Tracked(self.place.clone())
    }
}

impl<T: Send + 'static> Iterator for Iter<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.nth(0)
    }

    fn nth(&mut self, skip: usize) -> Option<Result<T>> {
        let moved = {
            let mut place = lock(&self.place);
            std::mem::take(&mut place.moved).then(|| place.position.clone())
        };
        if let Some(position) = moved {
            match self.dataset.elements_from(&position) {
                Ok(pass) => (self.elements, self.skip) = pass,
                Err(error) => return Some(Err(error)),
            }
        }
        let element = self.elements.nth(std::mem::take(&mut self.skip) + skip)?;
        let mut place = lock(&self.place);
        if !place.moved {
            place.position.delivered += skip as u64 + 1;
        }
        drop(place);
        Some(element)
    }
}

impl<T: Send + 'static> IntoIterator for &Dataset<T> {
    type Item = Result<T>;
    type IntoIter = Iter<T>;
    fn into_iter(self) -> Iter<T> {
        self.iter()
    }
}

impl<T: Send + 'static> IntoIterator for Dataset<T> {
    type Item = Result<T>;
    type IntoIter = Iter<T>;
    fn into_iter(self) -> Iter<T> {
        self.iter()
    }
}
