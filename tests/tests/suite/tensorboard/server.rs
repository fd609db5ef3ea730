//! TensorBoard, serving.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A TensorBoard, which ends when this is dropped.
pub struct TensorBoard {
    child: Child,
    url: String,
}

impl TensorBoard {
    /// Serves what is below a folder, and looks every second for more. Gives it once it answers.
    pub fn serve(folder: &Path) -> TensorBoard {
        let mut command = Command::new(crate::tensorboard::interpreter());
        command.args(["-m", "tensorboard.main", "--port", "0", "--reload_interval", "1", "--logdir"]).arg(folder.file_name().unwrap());
        // The pages show the folder as it was given.
        let mut child =
            command.current_dir(folder.parent().unwrap()).envs(crate::tensorboard::QUIET).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut told = String::new();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            told += &line;
            let (_, rest) = line.split_once(" at http")?;
            Some(format!("http{}", rest.split(' ').next().unwrap_or_default()))
        });
        // What it says later would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        TensorBoard { child, url: url.unwrap_or_else(|| panic!("TensorBoard does not serve: {told}")) }
    }

    /// The address of a page, such as `#scalars`, or `?tagFilter=loss#timeseries`.
    pub fn page(&self, name: &str) -> String {
        format!("{}{name}", self.url)
    }
}

impl Drop for TensorBoard {
    fn drop(&mut self) {
        // Its data server ends with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
