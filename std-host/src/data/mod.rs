//! `Dataset`: input pipelines with the names and semantics of `tf.data`. A pipeline reads elements from files or memory, transforms them
//! and delivers them to the consumer.
//!
//! A dataset is a description of a pipeline. It is cheap to clone and can be iterated any number of times. Its elements are of any type
//! that is `Send`: tensors, numbers, byte strings, tuples and maps of these, or a type that you define. A dataset computes nothing until
//! the consumer asks for an element.
//!
//! ```
//! use gradlet::data::{AUTOTUNE, Dataset};
//! let squares = Dataset::range(0..10).map(|x| Ok(x * x)).shuffle(10).batch(4).prefetch(AUTOTUNE);
//! assert_eq!(squares.len()?, 3);
//! for batch in &squares {
//!     println!("{}", batch?);
//! }
//! # Ok::<(), gradlet::Error>(())
//! ```
//!
//! **Errors** are items of the iterator. A stage that fails for one element returns `Err` in its place and continues with the next element.
//! The error names the stage (counted from the source) and the number of the element. [`Dataset::ignore_errors`] drops these errors.
//! [`Dataset::check`] reports an invalid argument, such as a batch size of 0. Without that call, the first item of the iterator reports it.
//!
//! **Threads**: [`Dataset::map_parallel`], [`Dataset::interleave`] and [`Dataset::prefetch`] start their threads at the first element and
//! end them when the iterator is dropped. A panic in a user's function resumes in the thread that consumes the elements.

pub(crate) mod dataset;
#[doc(hidden)]
pub mod datasets;
#[doc(hidden)]
pub mod image;
pub(crate) mod io;

#[doc(inline)]
pub use dataset::{
    AUTOTUNE, Batch, Buckets, Cardinality, Components, Dataset, Element, ElementSpec, Interleave, Iter, Pad, PaddedBatch, Parallel,
    Position, RaggedBatch, Setting, Shuffle, Slices, Stored, Tracked, Tuned,
};
