//! Where in a dataset an iterator stands.

use super::{Dataset, Elements};
use gradlet_core::{Device, Error, Result, Tensor};

/// One pass through a dataset. Each item is an element or what went wrong in its place.
pub struct Iter<T> {
    elements: Elements<T>,
    /// How many elements are to be passed over.
    skip: usize,
    position: Position,
}

/// Where an iterator stands: how many elements it gave, and the random numbers that its pass began with.
///
/// A pipeline that is built by the same program goes on from there, in this process or in another one, with the same elements, as long
/// as it is deterministic. What functions compute is computed again only where a stage needs it, such as a filter or the buffer of a
/// shuffle. Random numbers of datasets that functions make, for `flat_map` and such, are not part of it.
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
    /// Key and epoch of each seed.
    seeds: Vec<[u64; 2]>,
}

/// The first number of a stored position.
const VERSION: i64 = 1;

impl Position {
    /// How many elements were given.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// The position as i64\[n\]: version 1, the elements given, then a key and an epoch for each random stage.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor> {
        let seeds = self.seeds.iter().flatten().map(|&word| word as i64);
        let words: Vec<i64> = [VERSION, self.delivered as i64].into_iter().chain(seeds).collect();
        Tensor::new(device, &words, &[words.len() as u32])
    }

    /// The position that [`Position::to_tensor`] made this of. Fails for other tensors.
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
}

impl<T: Send + 'static> Dataset<T> {
    /// Begins a pass. `for element in &dataset` does the same.
    pub fn iter(&self) -> Iter<T> {
        let seeds = self.about.seeds.iter().map(|seed| seed.get()).collect();
        Iter { elements: self.elements(), skip: 0, position: Position { delivered: 0, seeds } }
    }

    /// Goes on where an iterator of this dataset, or of one built by the same program, stood. The next passes follow as they would have.
    ///
    /// Fails where the position is of a dataset with another number of random stages.
    pub fn iter_from(&self, position: &Position) -> Result<Iter<T>> {
        if position.seeds.len() != self.about.seeds.len() {
            let (got, own) = (position.seeds.len(), self.about.seeds.len());
            return Err(Error::message(format!("the position is of a dataset with {got} random stages, this one has {own}")));
        }
        self.about.seeds.iter().zip(&position.seeds).for_each(|(seed, state)| seed.set(*state));
        let elements = self.start()?;
        let skip = usize::try_from(position.delivered).map_err(|_| Error::message("the position is past what this machine can count"))?;
        Ok(Iter { elements, skip, position: position.clone() })
    }
}

impl<T> Iter<T> {
    /// Where the iterator stands.
    pub fn position(&self) -> &Position {
        &self.position
    }
}

impl<T> Iterator for Iter<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let element = self.elements.nth(std::mem::take(&mut self.skip))?;
        self.position.delivered += 1;
        Some(element)
    }

    fn nth(&mut self, skip: usize) -> Option<Result<T>> {
        let element = self.elements.nth(std::mem::take(&mut self.skip) + skip)?;
        self.position.delivered += skip as u64 + 1;
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
