//! The file `checkpoint`, which lists the checkpoints of a folder and names the latest.

use super::bundle::append;
use super::text::{Problem, Tokens, escape};
use crate::files::write_whole;
use crate::files::{FileError, FileResult};
use crate::values::numbers::python;
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// Returns the prefix of the latest checkpoint of a folder, such as `save/ckpt-3`. TensorFlow's `tf.train.latest_checkpoint`.
///
/// Returns `None` if the folder has no file `checkpoint`, or if the files of the checkpoint that it names are missing.
///
/// Fails if the file `checkpoint` is damaged. For some damage, TensorFlow only warns and continues as if there were no checkpoint;
/// training would then start over.
///
/// ```
/// use gradlet::checkpoint::{State, latest_checkpoint};
/// let folder = tempfile::tempdir()?;
/// assert_eq!(latest_checkpoint(folder.path())?, None);
/// std::fs::write(folder.path().join("checkpoint"), "model_checkpoint_path: \"ckpt-3\"\n")?;
/// assert_eq!(latest_checkpoint(folder.path())?, None);
/// std::fs::write(folder.path().join("ckpt-3.index"), "")?;
/// assert_eq!(latest_checkpoint(folder.path())?, Some(folder.path().join("ckpt-3")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn latest_checkpoint(directory: impl AsRef<Path>) -> FileResult<Option<PathBuf>> {
    let latest = State::read(directory.as_ref())?.map(|state| state.model_checkpoint_path);
    Ok(latest.filter(|prefix| append(prefix, ".index").exists() || prefix.exists()))
}

/// Contents of the file `checkpoint`: TensorFlow's `CheckpointState`. In memory, the paths can be opened as they are. In the file, they
/// are relative to the file's folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Prefix of the latest checkpoint.
    pub model_checkpoint_path: PathBuf,
    /// Prefixes of the checkpoints that are kept, the latest one last.
    pub all_model_checkpoint_paths: Vec<PathBuf>,
    /// Time of the save of each of these checkpoints, in seconds since 1970. Empty if the times are unknown.
    pub all_model_checkpoint_timestamps: Vec<f64>,
    /// Time of the save of the last preserved checkpoint, in seconds since 1970; 0 if there is none. Preserved checkpoints are
    /// never deleted.
    pub last_preserved_timestamp: f64,
}

impl State {
    /// Reads the state of a folder: TensorFlow's `tf.train.get_checkpoint_state`. Returns `None` if the folder has no file
    /// `checkpoint`.
    ///
    /// Fails if the file is damaged or names no checkpoint.
    pub fn read(directory: &Path) -> FileResult<Option<State>> {
        let path = directory.join("checkpoint");
        let bytes = match std::fs::read(&path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            bytes => bytes.map_err(|error| FileError::io(&path, error))?,
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let offset = error.utf8_error().valid_up_to();
            FileError::at(&path, offset as u64, "the file is not UTF-8")
        })?;
        let mut state = State::parse(&text).map_err(|(offset, text)| FileError::at(&path, offset as u64, text))?;
        if state.model_checkpoint_path.as_os_str().is_empty() {
            return Err(FileError::new(&path, "it names no checkpoint: there is no \"model_checkpoint_path\""));
        }
        for path in state.all_model_checkpoint_paths.iter_mut().chain([&mut state.model_checkpoint_path]) {
            *path = directory.join(&*path);
        }
        Ok(Some(state))
    }

    /// Writes the state of a folder atomically. The file is synced to the disk when this function returns.
    ///
    /// Fails if a path is not UTF-8, if there are timestamps but not one for each checkpoint, or if the file cannot be written.
    pub fn write(&self, directory: &Path) -> FileResult<()> {
        let path = directory.join("checkpoint");
        let (paths, times) = (&self.all_model_checkpoint_paths, &self.all_model_checkpoint_timestamps);
        if !times.is_empty() && times.len() != paths.len() {
            return Err(FileError::new(&path, format!("there are {} checkpoints, but {} times", paths.len(), times.len())));
        }
        let seen = |prefix: &Path| relative(prefix, directory).map_err(|text| FileError::new(prefix, text));
        let paths = paths.iter().map(|path| seen(path)).collect::<FileResult<Vec<String>>>()?;
        write_whole(&path, self.text(&seen(&self.model_checkpoint_path)?, &paths).as_bytes())
    }

    /// Writes the state of a folder without times, from the latest checkpoint and all that are kept. Fails in the same cases as
    /// [`State::write`].
    pub fn update(directory: &Path, latest: &Path, all: &[PathBuf]) -> FileResult<()> {
        let state = State { model_checkpoint_path: latest.into(), all_model_checkpoint_paths: all.into(), ..State::default() };
        state.write(directory)
    }

    fn text(&self, latest: &str, paths: &[String]) -> String {
        let mut text = String::new();
        let mut field = |name: &str, value: &str| writeln!(text, "{name}: {value}").unwrap_or_default();
        let quoted = |path: &str| format!("\"{}\"", escape(path));
        field("model_checkpoint_path", &quoted(latest));
        paths.iter().for_each(|path| field("all_model_checkpoint_paths", &quoted(path)));
        self.all_model_checkpoint_timestamps.iter().for_each(|&time| field("all_model_checkpoint_timestamps", &python(time)));
        if self.last_preserved_timestamp.to_bits() != 0 {
            field("last_preserved_timestamp", &python(self.last_preserved_timestamp));
        }
        text
    }

    /// Parses the fields in the text. If a field occurs twice, the last value counts.
    fn parse(text: &str) -> Result<State, Problem> {
        let mut tokens = Tokens::new(text)?;
        let mut state = State::default();
        while !tokens.token().is_empty() {
            let unknown = tokens.problem("expected a field of CheckpointState");
            let name = tokens.next()?;
            let known =
                ["model_checkpoint_path", "all_model_checkpoint_paths", "all_model_checkpoint_timestamps", "last_preserved_timestamp"];
            if !known.contains(&name) {
                return Err(unknown);
            }
            tokens.expect(":")?;
            match name {
                "model_checkpoint_path" => state.model_checkpoint_path = tokens.string()?.into(),
                "all_model_checkpoint_paths" => tokens.each(|tokens| {
                    state.all_model_checkpoint_paths.push(tokens.string()?.into());
                    Ok(())
                })?,
                "all_model_checkpoint_timestamps" => tokens.each(|tokens| {
                    state.all_model_checkpoint_timestamps.push(tokens.float()?);
                    Ok(())
                })?,
                _ => state.last_preserved_timestamp = tokens.float()?,
            }
            if !tokens.take(",")? {
                tokens.take(";")?;
            }
        }
        Ok(state)
    }
}

/// Returns a path relative to a folder.
fn relative(path: &Path, folder: &Path) -> Result<String, String> {
    let (path, folder) = (normal(path)?, normal(folder)?);
    let common = path.components().zip(folder.components()).take_while(|(path, folder)| path == folder).count();
    let up = folder.components().skip(common).map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(path.components().skip(common)).collect();
    relative.into_os_string().into_string().map_err(|_| "the path is not UTF-8, so it cannot be written to the file \"checkpoint\"".into())
}

/// Returns the absolute path, without `..`.
fn normal(path: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(Path::new(".").join(path)).map_err(|error| error.to_string())?;
    Ok(path.components().fold(PathBuf::new(), |mut normal, part| {
        if part == Component::ParentDir {
            _ = normal.pop()
        } else {
            normal.push(part)
        }
        normal
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> String {
        State::parse(text).map_or_else(
            |(at, text)| format!("{at}: {text}"),
            |state| {
                let (latest, paths) = (&state.model_checkpoint_path, &state.all_model_checkpoint_paths);
                format!("{latest:?} {paths:?} {:?} {:?}", state.all_model_checkpoint_timestamps, state.last_preserved_timestamp)
            },
        )
    }

    #[test]
    fn reads_what_protobuf_reads() {
        let both = "# by hand\nmodel_checkpoint_path : 'a' \"b\\\"\" , all_model_checkpoint_paths: [\"x\", 'y'];\n\
                    all_model_checkpoint_timestamps:1_0.5f # ten\nall_model_checkpoint_timestamps: [] last_preserved_timestamp: -inf";
        assert_eq!(parsed(both), r#""ab\"" ["x", "y"] [10.5] -inf"#);
        assert_eq!(parsed(r#"model_checkpoint_path: "\303\251\u00e9\xe9"#), "23: the string does not end on its line");
        assert_eq!(parsed(r#"model_checkpoint_path: "\303\251\u00e9\x4\q\n""#), r#""éé\u{4}\\q\n" [] [] 0.0"#);
        assert_eq!(parsed("model_checkpoint_path: 'a' model_checkpoint_path: 'b'"), r#""b" [] [] 0.0"#);
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(parsed("model_checkpoint_path \"a\""), "22: expected \":\", got \"\\\"a\\\"\"");
        assert_eq!(parsed("model_path: \"a\""), "0: expected a field of CheckpointState, got \"model_path\"");
        assert_eq!(parsed("last_preserved_timestamp: 012"), "26: expected a number, got \"012\"");
        assert_eq!(parsed("last_preserved_timestamp:"), "25: expected a number, got the end of the file");
        assert_eq!(parsed("model_checkpoint_path: '\\777'"), "23: the string has an invalid escape: \\777");
        assert_eq!(parsed("model_checkpoint_path: '\\xff'"), "23: the string is not UTF-8");
        assert_eq!(parsed("model_checkpoint_path: 3"), "23: expected a string, got \"3\"");
        assert_eq!(parsed("all_model_checkpoint_paths: ['a' 'b' 'c'"), "40: expected \",\", got the end of the file");
    }

    #[test]
    fn writes_paths_as_seen_from_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let state = State {
            model_checkpoint_path: folder.path().join("a \"b\"\u{7f}é-2"),
            all_model_checkpoint_paths: vec![folder.path().join("../x/ckpt-1"), folder.path().join("a \"b\"\u{7f}é-2")],
            all_model_checkpoint_timestamps: vec![1795264602.55347, 1e-5],
            last_preserved_timestamp: 3.0,
        };
        state.write(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join("checkpoint")).unwrap();
        let wanted = "model_checkpoint_path: \"a \\\"b\\\"\\177é-2\"\nall_model_checkpoint_paths: \"../x/ckpt-1\"\n\
                      all_model_checkpoint_paths: \"a \\\"b\\\"\\177é-2\"\nall_model_checkpoint_timestamps: 1795264602.55347\n\
                      all_model_checkpoint_timestamps: 1e-05\nlast_preserved_timestamp: 3.0\n";
        assert_eq!(text, wanted);
        let read = State::read(folder.path()).unwrap().unwrap();
        assert_eq!(read, state);
        assert_eq!(relative(Path::new("save/ckpt-1"), Path::new("save")).unwrap(), "ckpt-1");
        assert_eq!(relative(Path::new("ckpt-1"), Path::new("")).unwrap(), "ckpt-1");
    }

    #[test]
    fn a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(folder.path().join("checkpoint"), bytes).unwrap();
            let text = latest_checkpoint(folder.path()).unwrap_err().to_string();
            text.strip_prefix(folder.path().join("checkpoint").to_str().unwrap()).unwrap().to_string()
        };
        assert_eq!(read(b""), ": it names no checkpoint: there is no \"model_checkpoint_path\"");
        assert_eq!(read(b"model_checkpoint_path: \"\xff\""), ": at byte 24: the file is not UTF-8");
        assert_eq!(read(b"}"), ": at byte 0: expected a field of CheckpointState, got \"}\"");
    }
}
