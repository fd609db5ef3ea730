//! The command `gradlet new`.

mod boards;
mod sample;

use crate::firmware::core;
use crate::print;
use anyhow::{Context, Result, bail, ensure};
use boards::{BOARDS, Board, CODE, RECORD, STACK};
use clap::Args;
use gradlet::artifact::describe::{Description, SignatureInfo};
use gradlet::artifact::firmware;
use gradlet::device::AlignedBytes;
use gradlet::io::{FileError, write_whole};
use gradlet::runtime::checkpoint::Contents;
use gradlet::{Program, Session, ops};
use std::fs;
use std::path::{Path, PathBuf};

/// Write a firmware project that trains a model on a board
///
/// The project builds at once. It trains with the model's training signature, keeps checkpoints in the board's flash, and sends its losses
/// to `gradlet monitor`. It makes its own data until you replace the function `sample` in src/sample.rs. Its README.md has the steps from
/// plugging in the board to the loss curve in TensorBoard.
#[derive(Args)]
#[command(after_help = "Examples:\n  gradlet new --board pico2 --model model.grdl my-firmware\n  \
                        gradlet new --board mps2-an386 --model cnn.grdl --signature train_head my-firmware")]
pub struct New {
    /// The board
    #[arg(long, value_name = "BOARD", value_parser = boards::parser())]
    board: String,
    /// The artifact, from `gradlet export` or your own program
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// The signature that trains the model
    #[arg(long, value_name = "NAME", default_value = "train")]
    signature: String,
    /// Folder of the crate gradlet-core [default: the one in the checkout that this command was built from. If that checkout is gone, the
    /// project names this version of the crate on crates.io, and cannot be built before that version is published]
    #[arg(long, value_name = "DIR")]
    core: Option<PathBuf>,
    /// Folder for the project. It is created if it does not exist, and must be empty
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl New {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let board = BOARDS.iter().find(|board| board.name == self.board).context("the board is unknown")?;
        let bytes = fs::read(&self.model).map_err(|error| FileError::io(&self.model, error))?;
        let model = Model::read(&bytes, &self.signature).map_err(|error| FileError::new(&self.model, format!("{error:#}")))?;
        model.fits(board).with_context(|| format!("{} does not fit on {}", self.model.display(), board.name))?;
        let constants = firmware::source(&bytes, "gradlet inspect model.grdl --rust src/model.rs")?;
        let sample = sample::source(&model.signature, &constants)?;
        let marks = [
            ("{{name}}", project_name(&self.folder)?),
            ("{{core}}", core(self.core.as_deref())?),
            ("{{signature}}", self.signature.clone()),
        ];

        empty(&self.folder)?;
        for (path, text) in board.files {
            let filled = marks.iter().fold(text.to_string(), |text, (mark, value)| text.replace(mark, value));
            self.write(path, filled.as_bytes())?;
        }
        self.write("src/sample.rs", sample.as_bytes())?;
        self.write("src/model.rs", constants.as_bytes())?;
        self.write("model.grdl", &bytes)?;
        if quiet { Ok(()) } else { print(&self.summary(board, &model)) }
    }

    /// Writes a file of the project.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.folder.join(path);
        let folder = path.parent().unwrap_or(&self.folder);
        fs::create_dir_all(folder).map_err(|error| FileError::io(folder, error))?;
        Ok(write_whole(&path, bytes)?)
    }

    fn summary(&self, board: &Board, model: &Model) -> String {
        format!(
            "{}: a project for {}\n  model {:>14} B of {} B of flash for model and code\n  arena {:>14} B of {} B of RAM\n  \
             checkpoint {:>9} B of {} B of a slot\nNext: follow README.md in it. src/sample.rs has the data\n",
            self.folder.display(),
            board.name,
            model.flash,
            board.flash,
            model.signature.arena_bytes,
            board.ram,
            model.checkpoint,
            board.slot
        )
    }
}

/// Creates the folder of the project. Fails if it has files.
fn empty(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| FileError::io(folder, error))?;
    let first = fs::read_dir(folder).map_err(|error| FileError::io(folder, error))?.next();
    ensure!(first.is_none(), "{} is not empty: name a new folder", folder.display());
    Ok(())
}

/// Returns the name of the package, which is the folder's name with `-` for each character that a package's name cannot have.
fn project_name(folder: &Path) -> Result<String> {
    let absolute = std::path::absolute(folder)?;
    let name = absolute.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let letters: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' }).collect();
    let name = letters.trim_matches('-');
    Ok(if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name.into() } else { format!("firmware-{name}").trim_matches('-').into() })
}

/// The model of a project.
struct Model {
    signature: SignatureInfo,
    flash: u32,
    checkpoint: u32,
}

impl Model {
    /// Reads an artifact. Fails if `signature` trains nothing.
    fn read(bytes: &[u8], signature: &str) -> Result<Model> {
        let description = Description::read(bytes)?;
        let training: Vec<&str> =
            description.signatures.iter().map(|info| info.name.as_str()).filter(|name| trains(&description, name)).collect();
        let Some(info) = description.signatures.iter().find(|info| info.name == signature && training.contains(&signature)) else {
            ensure!(!training.is_empty(), "no signature trains a variable: export the training step, as `gradlet export` does");
            let names = training.join(", ");
            match description.signatures.iter().any(|info| info.name == signature) {
                true => bail!("the signature {signature:?} trains no variable: choose one with --signature: {names}"),
                false => bail!("there is no signature {signature:?}: choose one with --signature: {names}"),
            }
        };
        let aligned = AlignedBytes::from(bytes);
        let program = Program::load(&aligned, ops::KERNELS, &[signature])?;
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena)?;
        for (index, _) in (0..).zip(&description.variables).filter(|(_, variable)| variable.assigned_by.iter().any(|by| by == signature)) {
            // A checkpoint has the variables that differ from their initial values.
            session.variable_mut(index)?.iter_mut().for_each(|byte| *byte ^= 1);
        }
        let checkpoint = session.checkpoint_len(Contents::Changed);
        Ok(Model { signature: info.clone(), flash: description.length, checkpoint })
    }

    /// Fails if the flash, the RAM or a slot of `board` is too small. The error names the boards that fit.
    fn fits(&self, board: &Board) -> Result<()> {
        let lacks = self.lacks(board);
        if lacks.is_empty() {
            return Ok(());
        }
        let fitting: Vec<&str> = BOARDS.iter().filter(|board| self.lacks(board).is_empty()).map(|board| board.name).collect();
        let boards = if fitting.is_empty() { "no board of `gradlet new`".into() } else { fitting.join(", ") };
        bail!("{}. It fits on: {boards}. gradlet's boards/README.md has ways to make a training step smaller", lacks.join(", and "))
    }

    /// Returns a text for each memory of `board` that is too small.
    fn lacks(&self, board: &Board) -> Vec<String> {
        let needs = [
            ("model and code together take", self.flash, CODE, "flash, and the board has", board.flash),
            ("arena, stack and statics together take", self.signature.arena_bytes, STACK, "RAM, and the board has", board.ram),
            ("a checkpoint and its record together take", self.checkpoint, RECORD, "a slot, and it has", board.slot),
        ];
        let all = needs.map(|(what, bytes, rest, of, has)| (what, u64::from(bytes) + u64::from(rest), of, u64::from(has)));
        let small = all.iter().filter(|(_, bytes, _, has)| bytes > has);
        small.map(|(what, bytes, of, has)| format!("{what} up to {bytes} bytes of {of} {has}")).collect()
    }
}

/// True if the signature `name` assigns a trainable variable, and has inputs to learn from.
fn trains(description: &Description, name: &str) -> bool {
    let assigns = description.variables.iter().any(|variable| variable.trainable && variable.assigned_by.iter().any(|by| by == name));
    let inputs = description.signatures.iter().any(|signature| signature.name == name && !signature.inputs.is_empty());
    assigns && inputs
}
