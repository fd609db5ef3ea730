//! Known sets, and folders and tables in known forms.

pub mod digits;
#[cfg(feature = "image")]
mod image_folder;

pub use digits::Digits;
#[cfg(feature = "image")]
pub use image_folder::{ImageFolder, LabelMode};

use gradlet_core::{Error, Result};
use std::path::{Path, PathBuf};

/// The sets that [`load`] knows: each is a folder of that name with the four files of MNIST, as [`digits::load`] reads them.
///
/// `mnist10k` comes with gradlet: 10,000 pictures of MNIST. The others are MNIST and Fashion-MNIST whole, for who downloads them.
pub const KNOWN: [&str; 3] = ["mnist10k", "mnist", "fashion_mnist"];

/// The set of this name: what to train on, and what to test on.
///
/// It is looked for in the folder that the environment variable `GRADLET_DATA` names; where it names none, in `data` of the current
/// folder and of those that this one is in.
///
/// Fails where the name is none of [`KNOWN`], there is no such folder (saying where it was looked for), or a file in it is damaged.
pub fn load(name: &str) -> Result<(Digits, Digits)> {
    match std::env::var_os("GRADLET_DATA") {
        Some(folder) => load_from(name, Path::new(&folder)),
        None => {
            let current = std::env::current_dir().map_err(|error| Error::message(format!("the current folder: {error}")))?;
            find(name, current.ancestors().map(|folder| folder.join("data")).collect())
        }
    }
}

/// As [`load`], from the folder `data`.
pub fn load_from(name: &str, data: &Path) -> Result<(Digits, Digits)> {
    find(name, vec![data.into()])
}

fn find(name: &str, places: Vec<PathBuf>) -> Result<(Digits, Digits)> {
    if !KNOWN.contains(&name) {
        return Err(Error::message(format!("there is no set {name:?}: known are {}", KNOWN.join(", "))));
    }
    match places.iter().map(|data| data.join(name)).find(|folder| folder.is_dir()) {
        Some(folder) => Ok(digits::load(&folder)?),
        None => {
            let places: Vec<String> = places.iter().map(|data| data.join(name).display().to_string()).collect();
            let text =
                format!("the set {name:?} is not there: it was looked for in {}. GRADLET_DATA names another folder", places.join(", "));
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
        // Tests run in the package's folder, `data` is above.
        assert_eq!(load("mnist10k").unwrap().1, test);
    }

    #[test]
    fn others_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |name| load_from(name, folder.path()).unwrap_err().to_string();
        assert_eq!(refused("imagenet"), "there is no set \"imagenet\": known are mnist10k, mnist, fashion_mnist");
        assert!(refused("mnist").contains(&folder.path().join("mnist").display().to_string()));
    }
}
