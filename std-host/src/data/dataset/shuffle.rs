//! Random order of elements.

use super::{Dataset, Elements, Stage};
use gradlet_core::random::Stream;
use gradlet_core::{Error, Result};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seed of a random stage: a key, and the number of passes that have started. Each pass has its own stream of random numbers.
pub(crate) struct Seed {
    key: AtomicU64,
    epoch: AtomicU64,
    /// If true, each pass has different random numbers.
    each: bool,
}

impl Seed {
    /// Creates a seed with this key, or with a random key for `None`. If `each` is true, each pass has different random numbers.
    pub(super) fn new(key: Option<u64>, each: bool) -> Arc<Seed> {
        let key = key.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Arc::new(Seed { key: key.into(), epoch: 0.into(), each })
    }

    /// Returns the key and the epoch: the number of passes that have started, or 0 if all passes have the same random numbers.
    pub(super) fn get(&self) -> [u64; 2] {
        [self.key.load(Ordering::Relaxed), self.epoch.load(Ordering::Relaxed)]
    }

    pub(super) fn set(&self, [key, epoch]: [u64; 2]) {
        self.key.store(key, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Returns the random numbers of the next pass.
    pub(super) fn dice(&self) -> Dice {
        let epoch = if self.each { self.epoch.fetch_add(1, Ordering::Relaxed) } else { 0 };
        Dice { stream: Stream { key: self.key.load(Ordering::Relaxed), stream: epoch }, block: [0; 4], drawn: 0 }
    }
}

/// Source of random numbers.
pub(super) struct Dice {
    stream: Stream,
    block: [u32; 4],
    drawn: u64,
}

impl Dice {
    fn word(&mut self) -> u32 {
        let place = (self.drawn % 4) as usize;
        if place == 0 {
            self.block = self.stream.block(self.drawn / 4);
        }
        self.drawn += 1;
        self.block[place]
    }

    /// Returns a random number less than `limit`, which is at least 1.
    fn below(&mut self, limit: usize) -> usize {
        match u32::try_from(limit) {
            // Returns the upper half of word × limit.
            Ok(limit) => ((u64::from(self.word()) * u64::from(limit)) >> 32) as usize,
            Err(_) => {
                let word = u64::from(self.word()) << 32 | u64::from(self.word());
                ((u128::from(word) * limit as u128) >> 64) as usize
            }
        }
    }

    /// Returns a random number in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        f64::from(self.word()) / (u64::from(u32::MAX) + 1) as f64
    }
}

/// Arguments of [`Dataset::shuffle`].
#[derive(Clone, Copy, Debug)]
pub struct Shuffle {
    buffer_size: usize,
    seed: Option<u64>,
    reshuffle_each_iteration: bool,
}

impl Shuffle {
    /// Creates options for a shuffle buffer of `buffer_size` elements. By default each pass, and each run of the program, has a different
    /// order.
    pub fn new(buffer_size: usize) -> Shuffle {
        Shuffle { buffer_size, seed: None, reshuffle_each_iteration: true }
    }

    /// Sets the seed, so that each run of the program has the same orders.
    pub fn seed(self, seed: u64) -> Shuffle {
        Shuffle { seed: Some(seed), ..self }
    }

    /// If true, which is the default, each pass has a different order.
    pub fn reshuffle_each_iteration(self, reshuffle: bool) -> Shuffle {
        Shuffle { reshuffle_each_iteration: reshuffle, ..self }
    }
}

impl From<usize> for Shuffle {
    fn from(buffer_size: usize) -> Shuffle {
        Shuffle::new(buffer_size)
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Shuffles the elements. Each element is drawn at random from a buffer of `buffer_size` elements, and the next input element takes its
    /// place. An element appears at most `buffer_size − 1` positions earlier than in the input, but may appear much later. With a buffer at
    /// least as large as the dataset, all orders are equally probable.
    ///
    /// ```
    /// use gradlet::data::{Dataset, Shuffle};
    /// let shuffled = Dataset::range(0..5).shuffle(Shuffle::new(5).seed(1).reshuffle_each_iteration(false));
    /// let once: Vec<i64> = shuffled.iter().collect::<Result<_, _>>()?;
    /// assert_eq!(once, shuffled.iter().collect::<Result<Vec<i64>, _>>()?);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn shuffle(&self, options: impl Into<Shuffle>) -> Dataset<T> {
        let Shuffle { buffer_size, seed, reshuffle_each_iteration } = options.into();
        let check = match buffer_size {
            0 => Err(Error::message("buffer_size must be greater than zero or UNKNOWN_CARDINALITY: it is 0")),
            _ => Ok(()),
        };
        let seed = Seed::new(seed, reshuffle_each_iteration);
        let own = seed.clone();
        let pass = move |from: Elements<T>, _: Stage| {
            Box::new(Window { from, dice: own.dice(), size: buffer_size, window: Vec::new(), over: false }) as Elements<T>
        };
        let mut shuffled = self.stage("shuffle", pass).checked(check);
        shuffled.about.seeds.push(seed);
        shuffled
    }
}

/// Iterator of [`Dataset::shuffle`].
struct Window<T> {
    from: Elements<T>,
    dice: Dice,
    size: usize,
    window: Vec<T>,
    /// True if the input has ended.
    over: bool,
}

impl<T> Iterator for Window<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        while !self.over && self.window.len() < self.size {
            match self.from.next() {
                Some(Ok(element)) => self.window.push(element),
                Some(Err(error)) => return Some(Err(error)),
                None => self.over = true,
            }
        }
        if self.window.is_empty() {
            return None;
        }
        let place = self.dice.below(self.window.len());
        Some(Ok(self.window.swap_remove(place)))
    }
}
