//! Functions that run other programs and read their output.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variable with which jemalloc, the compiler's allocator, takes large pages. The compiler takes a fifteenth less time. On other systems
/// than Linux, jemalloc would print a warning.
pub(crate) const LARGE_PAGES: Option<(&str, &str)> =
    if cfg!(target_os = "linux") { Some(("MALLOC_CONF", "thp:always,metadata_thp:auto")) } else { None };

/// Returns the root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_path_buf()
}

/// Returns a command of the cargo that runs this task, in the root of the workspace.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(root()).envs(LARGE_PAGES);
    command
}

/// Returns the command `cargo SUBCOMMAND` for the tools, in the current folder.
pub fn tools(subcommand: &str) -> Command {
    program(subcommand, "gradlet-tools")
}

/// Returns the command `cargo SUBCOMMAND` for the program that runs golden vectors, in the current folder.
pub fn suite(subcommand: &str) -> Command {
    program(subcommand, "gradlet-tests")
}

fn program(subcommand: &str, package: &str) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.args([subcommand, "--package", package, "--manifest-path"]).arg(root().join("Cargo.toml"));
    command
}

/// Runs `command` and waits for it. If it fails, returns an error that names the command.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", name(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", line(command));
    }
    Ok(())
}

/// Runs `program` with `arguments`, and returns its standard output, trimmed. Returns `None` if it fails or does not exist.
pub fn answer(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// Returns the name of the program that `command` runs.
pub fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// Returns the words of `command`, separated by spaces. Only the first 20 words are included, followed by the number of the others.
pub fn line(command: &Command) -> String {
    const MOST: usize = 20;
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    let mut words: Vec<String> = std::iter::once(name(command)).chain(words).collect();
    let rest = words.len().saturating_sub(MOST);
    words.truncate(MOST);
    words.extend((rest > 0).then(|| format!("… {rest} more")));
    words.join(" ")
}
