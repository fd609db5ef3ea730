//! Stages that store elements, so that later passes need not compute them again.

use super::{Dataset, Elements, Stored};
use crate::files::WholeFile;
use crate::formats::tfrecord::{Compression, RecordReader, RecordWriter};
use gradlet_core::Result;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Elements of the dataset, once a complete pass has returned all of them. `None` before that.
type Kept<T> = Arc<Mutex<Option<Arc<[T]>>>>;

/// Iterator that keeps a copy of each element that it returns.
struct Keeping<T> {
    from: Elements<T>,
    /// Elements returned so far. `None` after an error, because the list would be incomplete.
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
    /// Stores the elements in memory during the first complete pass. Later passes read them from there. A pass that stops before its end or
    /// has an error stores nothing.
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

/// Iterator that writes each element that it returns to a file.
struct Writing<T> {
    from: Elements<T>,
    /// `None` after an error, because the file would be incomplete.
    writer: Option<RecordWriter<WholeFile>>,
    record: Vec<u8>,
}

impl<T: Stored> Writing<T> {
    /// Writes an element, or finishes the file if `element` is `None`.
    fn keep(&mut self, element: Option<&T>) -> Result<()> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        match element {
            Some(element) => {
                self.record.clear();
                element.store(&mut self.record)?;
                Ok(writer.write(&self.record)?)
            }
            None => Ok(self.writer.take().map_or(Ok(()), RecordWriter::finish)?),
        }
    }
}

impl<T: Stored> Iterator for Writing<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let element = self.from.next();
        let kept = match &element {
            Some(Ok(element)) => self.keep(Some(element)),
            Some(Err(_)) => {
                self.writer = None;
                Ok(())
            }
            None => self.keep(None),
        };
        match kept {
            Ok(()) => element,
            Err(error) => {
                self.writer = None;
                Some(Err(error))
            }
        }
    }
}

impl<T: Stored + Send + 'static> Dataset<T> {
    /// Stores the elements in a file during the first complete pass. Later passes read the file, as do other programs with the same
    /// pipeline. If you change the pipeline, remove the file. It is a TFRecord file of [`Stored`] elements. It appears only when it is
    /// complete.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("squares.cache");
    /// assert_eq!(Dataset::range(0..4).map(|x| Ok(x * x)).cache_file(&path).iter().count(), 4);
    /// let nothing_left_to_do = Dataset::range(0..4).map(|_| panic!("it is computed again")).cache_file(&path);
    /// assert_eq!(nothing_left_to_do.reduce(0, |sum, x: i64| Ok(sum + x))?, 14);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cache_file(&self, path: impl AsRef<Path>) -> Dataset<T> {
        let (from, path) = (self.clone(), PathBuf::from(path.as_ref()));
        self.restarting("cache", move |_| {
            Ok(match path.exists() {
                true => {
                    let records = RecordReader::open(&path, Compression::None)?.max_record_bytes(u64::MAX);
                    Box::new(records.map(|record| T::load(&mut record?))) as Elements<T>
                }
                false => {
                    let writer = Some(RecordWriter::create(&path, Compression::None)?);
                    Box::new(Writing { from: from.start()?, writer, record: Vec::new() })
                }
            })
        })
    }
}
