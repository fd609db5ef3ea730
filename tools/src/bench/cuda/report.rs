//! The figures of the rows, as a table in Markdown and as JSON.

use super::machine::Machine;
use super::rows::{Bar, COPY, KINDS, Kind, Row};
use serde_json::{Map, Value, json};
use std::fmt::Write;

const OWN: usize = 0;
const EAGER: usize = 1;
const COMPILED: usize = 2;

/// Times of each program in milliseconds, or the reason why it has none.
type Times = Vec<Result<Vec<f64>, String>>;

/// A program that took turns.
#[derive(Clone)]
pub struct Program {
    /// Name, as in the head of its column.
    pub name: String,
    /// Command that installs its library.
    pub install: String,
    /// Version of its library, or the reason why it was not measured.
    pub state: Result<String, String>,
}

/// A measured row.
pub struct Line {
    /// Work, unit and bar.
    pub row: Row,
    /// Times of each program. An absent one has none.
    pub times: Times,
}

/// All that was measured.
pub struct Table {
    /// The GPU.
    pub machine: Machine,
    /// gradlet and its peers.
    pub programs: Vec<Program>,
    /// The rows.
    pub lines: Vec<Line>,
    /// Number of rounds.
    pub rounds: usize,
    /// True if the sizes are tiny.
    pub quick: bool,
}

impl Kind {
    /// Returns the title of the group, its unit, and the percentile that the table has beside the median.
    pub fn head(self) -> (&'static str, &'static str, Option<u32>) {
        match self {
            Kind::Products => ("Products of matrices", "TFLOP/s", None),
            Kind::Memory => ("Memory-bound kernels", "GB/s", None),
            Kind::Training => ("Training steps", "ms", Some(95)),
            Kind::Latency => ("Latencies", "µs", Some(99)),
        }
    }

    /// True if a larger figure is better.
    pub fn is_rate(self) -> bool {
        matches!(self, Kind::Products | Kind::Memory)
    }
}

impl Line {
    /// Returns a percentile of a program's times in the unit of the row. 50 is the median.
    fn percentile(&self, program: usize, percent: u32) -> Option<f64> {
        let mut times = self.times.get(program)?.as_ref().ok()?.clone();
        times.sort_by(f64::total_cmp);
        let milliseconds = *times.get((times.len() * percent as usize / 100).min(times.len().checked_sub(1)?))?;
        Some(match self.row.kind {
            Kind::Products => self.row.amount / milliseconds / 1e9,
            Kind::Memory => self.row.amount / milliseconds / 1e6,
            Kind::Training => milliseconds,
            Kind::Latency => milliseconds * 1e3,
        })
    }

    /// Returns a program's median in the unit of the row.
    pub fn figure(&self, program: usize) -> Option<f64> {
        self.percentile(program, 50)
    }

    /// Returns the ratio of gradlet's figure to a program's.
    fn ratio(&self, program: usize) -> Option<f64> {
        Some(self.figure(OWN)? / self.figure(program)?)
    }
}

impl Bar {
    fn text(self) -> String {
        match self {
            Bar::Cublas(least) => format!("≥ {least} of PyTorch"),
            Bar::Copy(least) => format!("≥ {least} of the copy"),
            Bar::Compiled(most) => format!("≤ {most} of compiled"),
            Bar::Microseconds(most) => format!("≤ {most} µs"),
        }
    }
}

impl Table {
    /// Returns the copy bandwidth: the largest that a program measured.
    fn copy(&self) -> Option<f64> {
        let line = self.lines.iter().find(|line| line.row.request.split('/').next() == Some(COPY))?;
        (0..self.programs.len()).filter_map(|program| line.figure(program)).reduce(f64::max)
    }

    /// Returns the figure to compare with the bar of a row, and whether it reaches the bar. Returns `None` if a measurement is missing.
    fn reached(&self, line: &Line) -> Option<(f64, bool)> {
        let (figure, least, most) = match line.row.bar? {
            Bar::Cublas(least) => (line.ratio(EAGER)?, least, f64::INFINITY),
            Bar::Copy(least) => (line.figure(OWN)? / self.copy()?, least, f64::INFINITY),
            Bar::Compiled(most) => (line.ratio(COMPILED)?, 0.0, most),
            Bar::Microseconds(most) => (line.figure(OWN)?, 0.0, most),
        };
        Some((figure, (least..=most).contains(&figure)))
    }

    /// Returns the page with all tables. It is aligned, so that it reads well on a terminal too.
    pub fn markdown(&self) -> String {
        let mut page = format!("# {}\n\n", self.machine.gpu);
        self.machine.facts.iter().for_each(|(name, fact)| line(&mut page, &format!("- {name}: {fact}")));
        for Program { name, install, state } in &self.programs {
            let state = match state {
                Ok(version) => version.clone(),
                Err(reason) if install.is_empty() => reason.clone(),
                Err(reason) => format!("{reason} (`{install}`, then `--python FILE` with that Python)"),
            };
            line(&mut page, &format!("- column {name}: {state}"));
        }
        page += NOTES;
        line(&mut page, &format!("- Each program had {} turns at each row.", self.rounds));
        if self.quick {
            page += "- The sizes are tiny (`--quick`), so the figures mean nothing.\n";
        }
        for kind in KINDS {
            self.group(&mut page, kind);
        }
        for Line { row, times } in &self.lines {
            for (Program { name, .. }, times) in self.programs.iter().zip(times) {
                if let Err(reason) = times {
                    let _ = write!(page, "\n{name} failed at {}: {reason}\n", row.request);
                }
            }
        }
        page
    }

    fn group(&self, page: &mut String, kind: Kind) {
        let lines: Vec<&Line> = self.lines.iter().filter(|line| line.row.kind == kind).collect();
        if lines.is_empty() {
            return;
        }
        let (title, unit, percent) = kind.head();
        let better = if kind.is_rate() { "more" } else { "less" };
        let _ = write!(page, "\n## {title} ({unit}, {better} is better)\n\n");
        let mut head = vec!["row".to_string(), "gradlet".into()];
        head.extend(percent.map(|percent| format!("p{percent}")));
        for Program { name, .. } in &self.programs[1..] {
            head.extend([name.clone(), "ratio".into()]);
        }
        head.extend(["bar".into(), "reached".into()]);
        let mut cells = vec![head];
        cells.extend(lines.iter().map(|line| self.cells(line, percent)));
        aligned(page, &cells);
    }

    fn cells(&self, line: &Line, percent: Option<u32>) -> Vec<String> {
        let mut cells = vec![line.row.request.clone(), self.cell(line, OWN)];
        cells.extend(percent.map(|percent| line.percentile(OWN, percent).map_or_else(missing, number)));
        for program in 1..self.programs.len() {
            cells.extend([self.cell(line, program), line.ratio(program).map_or_else(missing, number)]);
        }
        cells.push(line.row.bar.map_or_else(missing, Bar::text));
        cells.push(match self.reached(line) {
            Some((figure, true)) => format!("{}, yes", number(figure)),
            Some((figure, false)) => format!("{}, no", number(figure)),
            None => missing(),
        });
        cells
    }

    fn cell(&self, line: &Line, program: usize) -> String {
        match (&self.programs[program].state, &line.times[program]) {
            (Err(reason), _) => reason.clone(),
            (_, Err(_)) => "failed".into(),
            _ => line.figure(program).map_or_else(missing, number),
        }
    }

    /// Returns the figures as one JSON object.
    pub fn figures(&self) -> Map<String, Value> {
        let states = self.programs.iter().map(|Program { name, state, .. }| match state {
            Ok(version) => (name.clone(), json!({ "version": version })),
            Err(reason) => (name.clone(), json!({ "missing": reason })),
        });
        let mut figures = Map::new();
        figures.insert("gpu".into(), json!(self.machine.gpu));
        figures.extend(self.machine.facts.iter().map(|(name, fact)| (name.to_string(), json!(fact))));
        figures.insert("programs".into(), Value::Object(states.collect()));
        figures.insert("rounds".into(), json!(self.rounds));
        figures.insert("quick".into(), json!(self.quick));
        let rows = self.lines.iter().map(|line| (line.row.request.clone(), self.row_figures(line)));
        figures.insert("rows".into(), Value::Object(rows.collect()));
        figures
    }

    fn row_figures(&self, line: &Line) -> Value {
        let (_, unit, percent) = line.row.kind.head();
        let mut figures = Map::new();
        figures.insert("unit".into(), json!(unit));
        for (program, Program { name, .. }) in self.programs.iter().enumerate() {
            figures.extend(line.figure(program).map(|figure| (name.clone(), json!(figure))));
            if let Some((percent, figure)) = percent.and_then(|percent| Some((percent, line.percentile(program, percent)?))) {
                figures.insert(format!("{name}_p{percent}"), json!(figure));
            }
        }
        figures.extend(line.row.bar.map(|bar| ("bar".into(), json!(bar.text()))));
        if let Some((figure, met)) = self.reached(line) {
            figures.extend([("reached".into(), json!(figure)), ("met".into(), json!(met))]);
        }
        Value::Object(figures)
    }
}

/// How the figures were measured, and what the names of the rows mean.
const NOTES: &str = "\
- Rows are `WORK/PRECISION/SIZES`. `f32` computes without TF32; `tf32` may round the operands of products to TF32. For products, `bf16` \
and `f16` are the types of operands and results. For models, `bf16` is `mixed_bfloat16` or autocast, with variables of f32.
- Pictures are NHWC; PyTorch has them in the memory format `channels_last`. PyTorch's products are cuBLAS's.
- Sizes: a product of squares has one. Kernels have the dimensions of their input (Adam: variables, rows, columns). `cnn` has batch, \
filters and units; `resnet8` and `mobilenet_v2` batch, side, width in percent and classes; `lstm` batch, steps, features and units; \
`transformer` batch, positions, width and heads; `launch` the nodes of two graphs; `batch_to_loss` batch, features and units of an MLP.
- Figures are medians of wall time, until the GPU has finished. Products and kernels are repeated for at least 5 ms and then waited for; \
steps and latencies are single calls. `batch_to_loss` ends when the host has the loss.
- A kernel's rate counts the bytes that it has to read and write. A ratio is gradlet's figure divided by the program's.
";

fn line(page: &mut String, text: &str) {
    *page += text;
    page.push('\n');
}

fn missing() -> String {
    "–".into()
}

/// Returns a number with at least three digits.
pub fn number(value: f64) -> String {
    let decimals = if value.abs() >= 100.0 { 0 } else { 2i32.saturating_sub(value.abs().log10().floor() as i32).clamp(0, 6) as usize };
    format!("{value:.decimals$}")
}

/// Adds a table whose first row is its head. All columns but the first are aligned to the right.
fn aligned(page: &mut String, cells: &[Vec<String>]) {
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3);
    let widths: Vec<usize> = (0..cells[0].len()).map(width).collect();
    for (index, row) in cells.iter().enumerate() {
        let mut text = String::from("|");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column == 0 { write!(text, " {cell:<width$} |") } else { write!(text, " {cell:>width$} |") };
        }
        line(page, &text);
        if index == 0 {
            let rule = |(column, width): (usize, &usize)| if column == 0 { "-".repeat(width + 2) } else { "-".repeat(width + 1) + ":" };
            line(page, &format!("|{}|", widths.iter().enumerate().map(rule).collect::<Vec<_>>().join("|")));
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::rows::rows;
    use super::*;

    /// A table in which all programs but JAX have figures: gradlet needs 2 ms, 4 ms and 6 ms, PyTorch 2 ms, and compiled 5 ms.
    pub fn table() -> Table {
        let program = |name: &str, state: Result<&str, &str>| Program {
            name: name.into(),
            install: "pip install it".into(),
            state: state.map(String::from).map_err(String::from),
        };
        let programs = vec![
            program("gradlet", Ok("1")),
            program("PyTorch", Ok("2")),
            program("compiled", Ok("2")),
            program("JAX", Err("not installed")),
        ];
        let times = || vec![Ok(vec![4.0, 2.0, 6.0]), Ok(vec![2.0]), Ok(vec![5.0]), Ok(Vec::new())];
        let lines = rows(false).into_iter().map(|row| Line { row, times: times() }).collect();
        Table {
            machine: Machine { gpu: "A & B".into(), facts: vec![("multiprocessors", "8".into())] },
            programs,
            lines,
            rounds: 3,
            quick: false,
        }
    }

    fn find<'a>(table: &'a Table, request: &str) -> &'a Line {
        table.lines.iter().find(|line| line.row.request.starts_with(request)).unwrap()
    }

    #[test]
    fn figures_have_the_units_of_their_rows() {
        let table = table();
        let figure = |request: &str| find(&table, request).figure(OWN).unwrap();
        assert_eq!(figure("gemm/f32/1024"), 2.0 * 1024f64.powi(3) / 4e-3 / 1e12);
        assert_eq!(figure("copy"), 8.0 * 8192f64.powi(2) / 4e-3 / 1e9);
        assert_eq!((figure("cnn/tf32"), figure("batch_to_loss")), (4.0, 4000.0));
        assert_eq!(find(&table, "cnn/tf32").percentile(OWN, 95), Some(6.0));
    }

    #[test]
    fn bars_compare_with_what_they_name() {
        let table = table();
        let reached = |request: &str| table.reached(find(&table, request));
        assert_eq!(reached("gemm/f32/1024"), Some((0.5, false)));
        assert_eq!(reached("gemm/tf32/1024"), None);
        assert_eq!(reached("cnn/bf16"), Some((0.8, true)));
        assert_eq!(reached("launch"), Some((4000.0, false)));
        // PyTorch's copy is the faster one.
        assert_eq!(reached("chain"), Some((0.5, false)));
        assert_eq!(reached("batch_norm").map(|(_, met)| met), Some(false));
    }

    #[test]
    fn the_page_has_every_row_and_says_what_is_missing() {
        let mut table = table();
        table.lines[0].times[1] = Err("out of memory".into());
        let page = table.markdown();
        let lines: Vec<&str> = page.lines().collect();
        for line in &table.lines {
            assert!(lines.iter().any(|text| text.starts_with(&format!("| {} ", line.row.request))), "{}: {page}", line.row.request);
        }
        assert!(page.contains("- column JAX: not installed (`pip install it`") && page.contains("PyTorch failed at gemm/f32/1024: out of"));
        let first = lines.iter().find(|text| text.starts_with("| gemm/f32/1024 ")).unwrap();
        let cells: Vec<&str> = first.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let wanted = ["gemm/f32/1024", "0.537", "failed", "–", "0.429", "1.25", "not installed", "–", "≥ 0.9 of PyTorch", "–"];
        assert_eq!(cells, wanted);
    }

    #[test]
    fn the_figures_are_those_of_the_table() {
        let figures = table().figures();
        assert_eq!((&figures["gpu"], &figures["programs"]["JAX"]["missing"]), (&json!("A & B"), &json!("not installed")));
        let row = &figures["rows"]["lstm/f32/32x28x28x64"];
        assert_eq!((&row["gradlet"], &row["gradlet_p95"], &row["compiled"]), (&json!(4.0), &json!(6.0), &json!(5.0)));
        assert_eq!((&row["reached"], &row["met"], row.get("JAX")), (&json!(0.8), &json!(true), None));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([1234.5, 99.99, 12.345, 1.2345, 0.012345, 0.0].map(number), ["1234", "100.0", "12.3", "1.23", "0.0123", "0.000000"]);
    }
}
