//! `Dataset`: pipelines that bring elements from files or memory to where they are used, with TensorFlow's names and meaning.
//!
//! A dataset is a description, cheap to clone, that can be gone through again and again. Its elements are of any type that may pass
//! between threads: tensors, numbers, byte strings, tuples and maps of such, or a type of your own. Nothing is computed before
//! somebody asks for an element.
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
//! **Errors** come as items: a stage that fails for one element gives `Err` in its place, which names the stage (counted from the
//! source) and the element, and goes on with the next one; [`Dataset::ignore_errors`] drops them. An argument that makes no sense, such
//! as a batch of 0, is told by [`Dataset::check`], and otherwise by the first element that is asked for.
//!
//! **Threads**: [`Dataset::map_parallel`], [`Dataset::interleave`] and [`Dataset::prefetch`] start theirs with the first element and end
//! them when the iterator is dropped. A panic in a function comes out where the elements are used.

pub mod dataset;
pub mod datasets;
pub mod digits;
pub mod image;
pub mod io;

#[doc(inline)]
pub use dataset::{
    AUTOTUNE, Batch, Buckets, Cardinality, Components, Dataset, Element, ElementSpec, Interleave, Iter, Pad, PaddedBatch, Parallel,
    Position, RaggedBatch, Setting, Shuffle, Slices, Stored, Tracked, Tuned,
};
