//! Datasets of TFRecord files.

use crate::data::dataset::{Dataset, Interleave};
use crate::formats::tfrecord::RecordFiles;
use bytes::Bytes;

impl RecordFiles {
    /// Creates a dataset of the records. Equivalent of TensorFlow's `TFRecordDataset`. The files are opened when the dataset is iterated.
    ///
    /// If compressed files are read in turn, each is decompressed on its own thread. Other files are read on the consumer's thread, which
    /// is faster than passing records between threads. [`Dataset::prefetch`] reads ahead.
    ///
    /// ```
    /// use gradlet::io::tfrecord::{Compression, RecordFiles, RecordWriter};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("lines.tfrecord");
    /// let mut writer = RecordWriter::create(&path, Compression::None)?;
    /// ["a", "b", "c"].iter().try_for_each(|line| writer.write(line.as_bytes()))?;
    /// writer.finish()?;
    ///
    /// let batches = RecordFiles::new([&path]).dataset().map(|record| Ok(record.len() as i64)).batch(2);
    /// assert_eq!(batches.iter().count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dataset(&self) -> Dataset<Bytes> {
        let files = self.clone();
        if !self.inflates_in_turns() {
            return Dataset::from_fn("tf_record", move || Ok(files.clone().into_iter().map(|record| Ok(record?))));
        }
        let turns = self.turns();
        let options = Interleave::new(turns).num_parallel_calls(turns);
        let paths: Dataset<_> = self.paths().iter().cloned().collect();
        paths.interleave(options, move |path| Ok(files.clone().only(path).dataset()))
    }
}
