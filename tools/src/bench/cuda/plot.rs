//! The figures as bars, in an SVG image.

use super::report::{Table, number};
use super::rows::{KINDS, Kind};
use std::fmt::Write;

const WIDTH: f64 = 1240.0;
const COLUMN: f64 = WIDTH / 2.0;
const MARGIN: f64 = 20.0;
/// Width of the names of rows.
const NAMES: f64 = 255.0;
/// Length of the longest bar of a row.
const BAR: f64 = COLUMN - NAMES - 110.0;
/// Height of a bar.
const THICK: f64 = 11.0;
/// Height of the space between two rows.
const GAP: f64 = 8.0;
/// Height of the title of a panel.
const TITLE: f64 = 34.0;
/// Height of the head with the name of the GPU and the legend.
const HEAD: f64 = 64.0;

/// Colours in light and in dark mode. Each program has one.
const STYLE: &str = "text{fill:#0f172a}.quiet{fill:#475569}.page{fill:#ffffff}\
    .p0{fill:#2563eb}.p1{fill:#f59e0b}.p2{fill:#dc2626}.p3{fill:#16a34a}\
    @media (prefers-color-scheme:dark){text{fill:#e2e8f0}.quiet{fill:#94a3b8}.page{fill:#0f172a}\
    .p0{fill:#60a5fa}.p1{fill:#fbbf24}.p2{fill:#f87171}.p3{fill:#4ade80}}";

/// Draws a panel for each kind of row. The bars of a row are as long as their figures, and the largest one has the full length.
pub fn svg(table: &Table) -> String {
    let mut panels = String::new();
    let mut bottoms = [HEAD; 2];
    for kind in KINDS {
        // Rates are on the left, times on the right.
        let column = usize::from(!kind.is_rate());
        bottoms[column] = panel(&mut panels, table, kind, COLUMN * column as f64, bottoms[column]);
    }
    let height = bottoms[0].max(bottoms[1]) + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"11\">\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
         <text x=\"{MARGIN}\" y=\"28\" font-size=\"17\" font-weight=\"bold\">{}</text>\n\
         <text class=\"quiet\" x=\"{}\" y=\"50\">The largest figure of each row has the full length.</text>\n",
        escaped(&table.machine.gpu),
        COLUMN + MARGIN
    );
    for (index, program) in table.programs.iter().enumerate().filter(|(_, program)| program.state.is_ok()) {
        let x = MARGIN + 110.0 * index as f64;
        let _ = writeln!(svg, "<rect class=\"p{index}\" x=\"{x}\" y=\"40\" width=\"11\" height=\"11\" rx=\"2\"/>");
        let _ = writeln!(svg, "<text x=\"{}\" y=\"50\">{}</text>", x + 16.0, escaped(&program.name));
    }
    svg + &panels + "</svg>\n"
}

/// Draws a panel from `top` on, and returns its bottom.
fn panel(svg: &mut String, table: &Table, kind: Kind, left: f64, top: f64) -> f64 {
    let lines: Vec<_> = table.lines.iter().filter(|line| line.row.kind == kind).collect();
    if lines.is_empty() {
        return top;
    }
    let ((title, unit, _), better) = (kind.head(), if kind.is_rate() { "longer" } else { "shorter" });
    let (x, mut y) = (left + MARGIN, top + TITLE);
    let _ = write!(svg, "<text x=\"{x}\" y=\"{}\" font-size=\"14\" font-weight=\"bold\">{title}</text>", y - 10.0);
    let _ = writeln!(svg, "<text class=\"quiet\" x=\"{}\" y=\"{}\">{unit}, {better} is better</text>", left + NAMES, y - 10.0);
    for line in lines {
        let figures = (0..table.programs.len()).filter_map(|program| Some((program, line.figure(program)?)));
        let figures: Vec<(usize, f64)> = figures.filter(|(_, figure)| figure.is_finite() && *figure > 0.0).collect();
        let largest = figures.iter().map(|(_, figure)| *figure).fold(f64::MIN_POSITIVE, f64::max);
        let request = escaped(&line.row.request);
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{request}</text>", left + NAMES - 8.0, y + 9.0);
        for (program, figure) in &figures {
            let (x, length) = (left + NAMES, BAR * figure / largest);
            let _ = write!(svg, "<rect class=\"p{program}\" x=\"{x}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{}\"/>", THICK - 1.0);
            let _ = writeln!(svg, "<text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\">{}</text>", x + length + 5.0, y + 9.0, number(*figure));
            y += THICK;
        }
        y += GAP + if figures.is_empty() { THICK } else { 0.0 };
    }
    y
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::table;

    /// Returns the texts of an XML document. Panics if tags do not match, or if a character is not escaped.
    fn texts(xml: &str) -> Vec<String> {
        let (mut open, mut texts) = (Vec::new(), Vec::new());
        let mut parts = xml.split('<');
        assert_eq!(parts.next(), Some(""));
        for part in parts {
            let (tag, text) = part.split_once('>').expect("a tag ends");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
                None if tag.ends_with('/') => {}
                None => open.extend(tag.split(' ').next()),
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            assert!(!text.contains('>') && text.matches('&').count() == text.matches("&amp;").count(), "{text}");
            texts.push(text.to_string());
        }
        assert!(open.is_empty(), "{open:?} did not end");
        texts
    }

    #[test]
    fn the_image_has_every_row() {
        let table = table();
        let svg = super::svg(&table);
        let texts = texts(&svg);
        for wanted in table.lines.iter().map(|line| line.row.request.as_str()).chain(["A &amp; B", "gradlet", "compiled"]) {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} is missing");
        }
        assert!(!texts.iter().any(|text| text == "JAX"), "JAX was not measured");
        assert_eq!(svg.matches("<rect class=\"p1\"").count(), table.lines.len() + 1);
        assert!(!svg.contains("NaN"));
    }
}
