//! Known datasets, and datasets in common file layouts.

#![doc(alias = "keras.datasets")]

pub mod digits;
#[cfg(feature = "image")]
mod image_folder;

pub use digits::Digits;
#[cfg(feature = "image")]
pub use image_folder::{ImageFolder, LabelMode};

use gradlet_core::{Error, Result};
use std::path::{Path, PathBuf};

/// Names of the datasets that [`load`] can load. Each is a folder of that name with the four MNIST files that [`digits::load`] reads.
///
/// `mnist10k` comes with gradlet: 10,000 images of MNIST. The others are the complete MNIST and Fashion-MNIST, which you download
/// yourself.
pub const KNOWN: [&str; 3] = ["mnist10k", "mnist", "fashion_mnist"];

/// Loads the training digits and the test digits of the dataset with this name.
///
/// Searches the folder that the environment variable `GRADLET_DATA` names. If it is not set, searches the folder `data` in the current
/// folder and in each of its parent folders.
///
/// Fails if the name is not in [`KNOWN`], if the folder is not found, or if a file in it is damaged. If the folder is not found, the error
/// lists the searched paths.
pub fn load(name: &str) -> Result<(Digits, Digits)> {
    match std::env::var_os("GRADLET_DATA") {
        Some(folder) => load_from(name, Path::new(&folder)),
        None => {
            let current =
                std::env::current_dir().map_err(|error| Error::message(format!("cannot determine the current folder: {error}")))?;
            find(name, current.ancestors().map(|folder| folder.join("data")).collect())
        }
    }
}

/// Loads a dataset from the folder `data`, like [`load`].
pub fn load_from(name: &str, data: &Path) -> Result<(Digits, Digits)> {
    find(name, vec![data.into()])
}

fn find(name: &str, places: Vec<PathBuf>) -> Result<(Digits, Digits)> {
    if !KNOWN.contains(&name) {
        return Err(Error::message(format!("unknown dataset {name:?}: expected one of {}", KNOWN.join(", "))));
    }
    match places.iter().map(|data| data.join(name)).find(|folder| folder.is_dir()) {
        Some(folder) => Ok(digits::load(&folder)?),
        None => {
            let places: Vec<String> = places.iter().map(|data| data.join(name).display().to_string()).collect();
            let text =
                format!("the dataset {name:?} was not found as {}; set GRADLET_DATA to the folder that contains it", places.join(", "));
            Err(Error::message(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_that_comes_with_it() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data");
        let (train, test) = load_from("mnist10k", &data).unwrap();
        assert_eq!((train.len() + test.len(), train.rows, train.cols), (10_000, 28, 28));
        // Tests run in the folder of the package, and `data` is in its parent.
        assert_eq!(load("mnist10k").unwrap().1, test);
    }

    #[test]
    fn others_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name| load_from(name, folder.path()).unwrap_err().to_string();
        assert_eq!(refused("imagenet"), "unknown dataset \"imagenet\": expected one of mnist10k, mnist, fashion_mnist");
        assert!(refused("mnist").contains(&folder.path().join("mnist").display().to_string()));
    }
}
