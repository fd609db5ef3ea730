//! SVG image of an arena over time, with the work of each instruction.

use crate::artifact::costs::{Measured, multiply_accumulates};
use crate::artifact::inspect::{Kind, Storage, grouped, peak, storages};
use gradlet_core::artifact::describe::{Description, SignatureInfo};
use std::fmt::Write;

const LEFT: f64 = 100.0;
const RIGHT: f64 = 30.0;
const HEAD: f64 = 140.0;
/// First pixel of the bars that show the work of each instruction, and their largest height.
const BARS: (f64, f64) = (58.0, 52.0);
const WORK: (&str, &str) = ("#99f6e4", "#0d9488");
const PLOT: f64 = 440.0;
const MIN_WIDTH: f64 = 960.0;
/// Angle of the labels with the names of ops, in degrees.
const SLOPE: f64 = 55.0;
/// Width of a letter of the labels, in pixels.
const LETTER: f64 = 6.1;

const VARIABLE: (&str, &str, &str) = ("variable", "#cbd5e1", "#64748b");
const LEGEND: [(&str, &str, &str); 5] = [
    VARIABLE,
    ("input", "#bbf7d0", "#16a34a"),
    ("value", "#bfdbfe", "#2563eb"),
    ("gradient", "#fed7aa", "#ea580c"),
    ("output", "#e9d5ff", "#9333ea"),
];

fn colours(kind: Kind) -> (&'static str, &'static str, &'static str) {
    LEGEND[1 + kind as usize]
}

/// Draws a panel for each signature, one below another.
pub(crate) fn picture(description: &Description, signatures: &[&SignatureInfo], measured: &[Measured]) -> String {
    let width = signatures.iter().map(|signature| Panel::new(signature, 0.0).width()).fold(MIN_WIDTH, f64::max);
    let instructions = signatures.iter().flat_map(|signature| signature.walk());
    let letters = instructions.map(|(depth, instruction)| 2 * depth + instruction.op.chars().count() + 4).max().unwrap_or(0);
    let panel = HEAD + PLOT + 28.0 + LETTER * letters as f64 * SLOPE.to_radians().sin();
    let height = (panel * signatures.len() as f64).ceil();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\" fill=\"#0f172a\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    for (index, signature) in signatures.iter().enumerate() {
        Panel::new(signature, panel * index as f64).draw(&mut svg, description, Measured::find(measured, signature));
    }
    svg + "</svg>\n"
}

struct Panel<'a> {
    signature: &'a SignatureInfo,
    top: f64,
    columns: usize,
    column: f64,
}

impl<'a> Panel<'a> {
    fn new(signature: &'a SignatureInfo, top: f64) -> Panel<'a> {
        let columns = signature.walk().len().max(1);
        Panel { signature, top, columns, column: ((MIN_WIDTH - LEFT - RIGHT) / columns as f64).clamp(24.0, 90.0) }
    }

    fn width(&self) -> f64 {
        LEFT + self.column * self.columns as f64 + RIGHT
    }

    fn x(&self, instruction: usize) -> f64 {
        LEFT + self.column * instruction as f64
    }

    fn y(&self, offset: u32) -> f64 {
        self.top + HEAD + PLOT * (1.0 - f64::from(offset) / f64::from(self.signature.arena_bytes.max(1)))
    }

    fn draw(&self, svg: &mut String, description: &Description, measured: Option<&Measured>) {
        self.head(svg);
        self.work(svg, measured);
        self.axes(svg);
        let storages = storages(self.signature);
        let (at, bytes) = peak(self.signature, &storages);
        storages.iter().for_each(|storage| self.storage(svg, storage));
        self.variables(svg, description);
        self.mark_peak(svg, at, bytes);
    }

    fn head(&self, svg: &mut String) {
        let SignatureInfo { name, arena_bytes, variable_bytes, scratch, .. } = self.signature;
        let (arena, variables, scratch) = (grouped(*arena_bytes), grouped(*variable_bytes), grouped(*scratch));
        let y = self.top + 24.0;
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{y}\" font-size=\"16\" font-weight=\"bold\">{}</text>", escaped(name));
        let x = LEFT + 12.0 + 10.0 * name.chars().count() as f64;
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"12\" fill=\"#475569\">\
         arena {arena} B: variables {variables} B, scratch {scratch} B</text>"
        );
        let mut x = LEFT;
        for (name, fill, stroke) in LEGEND {
            let (y, text) = (self.top + 36.0, self.top + 45.0);
            let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"11\" height=\"11\" rx=\"2\" fill=\"{fill}\" stroke=\"{stroke}\"/>");
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{text}\" fill=\"#475569\">{name}</text>", x + 16.0);
            x += 34.0 + LETTER * name.len() as f64;
        }
    }

    /// Draws a bar for the work of each instruction: the measured one, or else its multiply-accumulates.
    fn work(&self, svg: &mut String, measured: Option<&Measured>) {
        let all = self.signature.walk().into_iter().map(|(_, one)| one);
        let work: Vec<(&str, u64)> =
            all.map(|one| (one.op.as_str(), measured.map_or(multiply_accumulates(one), |measured| measured.of(one.index)))).collect();
        let most = work.iter().map(|(_, count)| *count).max().unwrap_or(0);
        if most == 0 {
            return;
        }
        let (unit, bottom) = (if measured.is_some() { "instructions" } else { "MACs" }, self.top + BARS.0 + BARS.1);
        for (line, text) in [(bottom - 14.0, grouped(most)), (bottom - 1.0, unit.into())] {
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{line}\" text-anchor=\"end\" fill=\"#475569\">{text}</text>", LEFT - 8.0);
        }
        for (index, (op, count)) in work.into_iter().enumerate().filter(|(_, (_, count))| *count > 0) {
            let height = (BARS.1 * count as f64 / most as f64).max(0.6);
            let _ = writeln!(
                svg,
                "<g><title>{}: {} {unit}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{}\" \
                 stroke=\"{}\" stroke-width=\"0.7\"/></g>",
                escaped(op),
                grouped(count),
                self.x(index) + 0.5,
                bottom - height,
                self.column - 1.0,
                WORK.0,
                WORK.1
            );
        }
    }

    /// Draws the axes: bytes upwards, instructions to the right.
    fn axes(&self, svg: &mut String) {
        let (right, bottom) = (self.x(self.columns), self.y(0));
        let step = tick(self.signature.arena_bytes);
        for offset in (0..=self.signature.arena_bytes).step_by(step as usize) {
            let y = self.y(offset);
            let _ = writeln!(svg, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e2e8f0\"/>");
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#475569\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                grouped(offset)
            );
        }
        let middle = self.top + HEAD + PLOT / 2.0;
        let _ = writeln!(
            svg,
            "<text transform=\"translate(20 {middle}) rotate(-90)\" text-anchor=\"middle\" fill=\"#475569\">\
         offset in the arena, bytes</text>"
        );
        for (index, (depth, instruction)) in self.signature.walk().into_iter().enumerate() {
            let inside = "› ".repeat(depth);
            let (x, y) = (self.x(index) + self.column / 2.0 + 4.0, bottom + 10.0);
            let _ = writeln!(
                svg,
                "<text transform=\"translate({x:.1} {y:.1}) rotate(-{SLOPE})\" text-anchor=\"end\" fill=\"#475569\">\
             {inside}{} {index}</text>",
                escaped(&instruction.op)
            );
        }
        let _ = writeln!(svg, "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#475569\"/>");
    }

    /// Draws the variables in RAM. They are above the scratch memory and last the whole time.
    fn variables(&self, svg: &mut String, description: &Description) {
        let SignatureInfo { name, scratch, .. } = self.signature;
        let mut offset = scratch.saturating_add(15) & !15;
        for variable in description.variables.iter().filter(|variable| variable.assigned_by.contains(name)) {
            self.rectangle(svg, (0, self.columns), (offset, variable.bytes), VARIABLE, &variable.name, &variable.tensor_type.to_string());
            offset = offset.saturating_add(variable.bytes).saturating_add(15) & !15;
        }
    }

    fn storage(&self, svg: &mut String, storage: &Storage) {
        let times = (storage.first, storage.last + 1);
        self.rectangle(
            svg,
            times,
            (storage.offset, storage.bytes),
            colours(storage.kind),
            &storage.label,
            &storage.tensor_type.to_string(),
        );
    }

    fn rectangle(
        &self,
        svg: &mut String,
        times: (usize, usize),
        (offset, bytes): (u32, u32),
        (_, fill, stroke): (&str, &str, &str),
        label: &str,
        detail: &str,
    ) {
        let (x, y) = (self.x(times.0) + 0.5, self.y(offset.saturating_add(bytes)));
        let (width, height) = (self.x(times.1) - 0.5 - x, (self.y(offset) - y).max(0.6));
        let size = grouped(bytes);
        let _ = write!(
            svg,
            "<g><title>{}: {detail}, {size} B at {}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"0.7\"/>",
            escaped(label),
            grouped(offset)
        );
        let room = ((width - 8.0) / LETTER).max(0.0) as usize;
        let texts = [format!("{label}, {size} B"), label.to_string(), label.split(" → ").last().unwrap_or_default().to_string()];
        if let Some(text) = texts.iter().find(|text| text.chars().count() <= room).filter(|_| height >= 12.5) {
            let (x, y) = (x + width / 2.0, y + height / 2.0 + 4.0);
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>", escaped(text));
        }
        svg.push_str("</g>\n");
    }

    /// Marks the instruction during which the most scratch memory is in use.
    fn mark_peak(&self, svg: &mut String, at: usize, bytes: u32) {
        let all = self.signature.walk();
        let Some((_, instruction)) = all.get(at) else { return };
        let (x, top, width) = (self.x(at), self.top + HEAD, self.column);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{PLOT}\" fill=\"#dc2626\" fill-opacity=\"0.08\" \
             stroke=\"#dc2626\" stroke-dasharray=\"4 3\" pointer-events=\"none\"/>"
        );
        let text = format!("peak at {at}, {}: {} B of scratch in use", instruction.op, grouped(bytes));
        let half = 1.1 * LETTER * text.chars().count() as f64 / 2.0;
        let x = (x + width / 2.0).clamp(LEFT + half, (self.width() - half).max(LEFT + half));
        let y = top - 9.0;
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#dc2626\" font-weight=\"bold\">{}</text>",
            escaped(&text)
        );
    }
}

/// Returns a round distance that divides `bytes` into at most ten steps.
fn tick(bytes: u32) -> u32 {
    let mut step = 16;
    while bytes / step > 10 {
        step *= 2;
    }
    step
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
