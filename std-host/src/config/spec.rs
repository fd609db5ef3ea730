//! Names of devices, as TensorFlow writes them: `CPU:0`, `/device:GPU:1`, `/job:localhost/replica:0/task:0/device:GPU:1`.

use gradlet_core::{Error, Result};

/// Device types that TensorFlow knows. The last one stands for devices of other makers.
const TYPES: [&str; 5] = ["CPU", "GPU", "TPU", "XLA_CPU", "CUSTOM"];

/// Parts of a device's name that a program states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spec {
    /// Type in capital letters, such as `GPU`.
    pub(super) kind: Option<String>,
    pub(super) index: Option<u32>,
    /// True if the name is that of a device in another process.
    pub(super) remote: bool,
}

impl Spec {
    /// Parses a name. Fails if it is not that of a device.
    pub(super) fn parse(name: &str) -> Result<Spec> {
        let wrong = |part: &str| {
            let text = format!("{name:?} is not the name of a device, because of {part:?}: write CPU:0, GPU:1, or /device:GPU:1");
            Error::message(text)
        };
        let mut spec = Spec::default();
        for part in name.split('/').filter(|part| !part.is_empty()) {
            let words: Vec<&str> = part.split(':').collect();
            match *words.as_slice() {
                ["job", job] => spec.remote |= job != "localhost",
                ["replica" | "task", number] => spec.remote |= number.parse::<u32>().map_err(|_| wrong(part))? != 0,
                ["device", kind, index] => spec.set(kind, Some(index)).ok_or_else(|| wrong(part))?,
                [kind] if is_type(kind) => spec.set(kind, None).ok_or_else(|| wrong(part))?,
                [kind, index] if is_type(kind) => spec.set(kind, Some(index)).ok_or_else(|| wrong(part))?,
                _ => return Err(wrong(part)),
            }
        }
        Ok(spec)
    }

    fn set(&mut self, kind: &str, index: Option<&str>) -> Option<()> {
        self.kind = Some(kind.to_ascii_uppercase()).filter(|kind| !kind.is_empty() && kind != "*");
        if let Some(index) = index.filter(|index| *index != "*") {
            self.index = Some(index.parse().ok()?);
        }
        Some(())
    }
}

fn is_type(word: &str) -> bool {
    TYPES.contains(&word.to_ascii_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_name_is_read() {
        let gpu = Spec { kind: Some("GPU".into()), index: Some(1), remote: false };
        for name in ["GPU:1", "/GPU:1", "gpu:1", "/device:GPU:1", "/device:gpu:1", "/job:localhost/replica:0/task:0/device:GPU:1"] {
            assert_eq!(Spec::parse(name).unwrap(), gpu, "{name}");
        }
        assert_eq!(Spec::parse("CPU").unwrap(), Spec { kind: Some("CPU".into()), index: None, remote: false });
        assert!(Spec::parse("/job:other/device:CPU:0").unwrap().remote);
        assert_eq!(Spec::parse("").unwrap(), Spec::default());
        for name in ["nonsense", "GPU:one", "GPU:-1", "/device:GPU", "CPU:0:1", "/replica:x", "/device:GPU:1/nonsense"] {
            let error = Spec::parse(name).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{name:?} is not the name of a device")), "{error}");
        }
    }
}
