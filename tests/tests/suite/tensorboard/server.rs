//! A TensorBoard server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running TensorBoard. Dropping it ends the process.
pub struct TensorBoard {
    child: Child,
    url: String,
}

impl TensorBoard {
    /// Serves the runs below a folder, and reloads them every second. Returns as soon as the server runs.
    pub fn serve(folder: &Path) -> TensorBoard {
        let mut command = Command::new(crate::tensorboard::interpreter());
        command.args(["-m", "tensorboard.main", "--port", "0", "--reload_interval", "1", "--logdir"]).arg(folder.file_name().unwrap());
        // The pages show the folder as given, so pass only its name.
        let mut child =
            command.current_dir(folder.parent().unwrap()).envs(crate::tensorboard::QUIET).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut told = String::new();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            told += &line;
            let (_, rest) = line.split_once(" at http")?;
            Some(format!("http{}", rest.split(' ').next().unwrap_or_default()))
        });
        // Discard later output, which would otherwise fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        TensorBoard { child, url: url.unwrap_or_else(|| panic!("TensorBoard did not start: {told}")) }
    }

    /// Returns the address of a page, such as `#scalars` or `?tagFilter=loss#timeseries`.
    pub fn page(&self, name: &str) -> String {
        format!("{}{name}", self.url)
    }
}

impl Drop for TensorBoard {
    fn drop(&mut self) {
        // TensorBoard's data server ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
