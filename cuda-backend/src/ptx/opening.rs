//! Openings: instructions of a stored kernel in whose place the host writes a computation, such as that of the elements of a sum.

use super::program::Program;
use super::source::Source;
use super::writer::Writer;
use gradlet_core::{DType, Error, Result};

/// Comment before the elements of a thread. The registers with the element's positions along the inner and the outer axis follow.
const BEGINNING: &str = "// opening begins ";
/// Comment of the instructions that the computation replaces. The registers for the result, the number of the element, its positions along
/// three axes, innermost first, and the condition follow.
const MARK: &str = "// opening ";

/// Comment after the elements of a batch, where those that others read are stored.
const STORES: &str = "// opening stores";

/// Comment where a kernel would store neighbouring elements. The registers with the elements, one or four, and the number of the first
/// element follow.
const CLOSING: &str = "// closing ";

/// Comment where a kernel knows the mean and the variance of a row. The registers with both, the number of the row, the condition, and that
/// for stores follow.
const ROW: &str = "// row begins ";
/// Comment in the place of neighbouring elements of a row. The registers with the elements, one or four, the number of the first element,
/// those of its column and of its row, and the condition follow.
const ELEMENT: &str = "// row element ";
/// Comment after some elements of a row, where results are stored.
const ROW_STORES: &str = "// row stores";

/// A computation in the place of a kernel's loads or stores. Its arguments are the last ones of the kernel: the lengths of its axes but the
/// outermost, its inputs, and its outputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    /// The functions, the last of which returns the element as f32. It has one lane and one segment.
    ///
    /// In the place of stores, the functions take the element, which is given.
    pub program: Program,
    /// How many of the program's axes belong to each axis of the kernel, innermost first.
    pub axes: [usize; 3],
    /// How many of the functions have one result for each row, of which mean and variance are given.
    pub by_row: usize,
}

/// Registers with what is known of a row: the values that are given, the inputs, and the results of functions.
#[derive(Default)]
struct Row {
    given: Vec<String>,
    loaded: Vec<Vec<String>>,
    results: Vec<(String, DType)>,
}

impl Opening {
    /// Returns a module with the kernel of `module`, in which the computation stands in the place of each opening.
    pub(super) fn module(&self, module: &str, functions: &Source) -> Result<String> {
        const HEADER: &str = ".address_size 64\n";
        let (target, kernel) = module.split_once(HEADER).ok_or(Error::Internal)?;
        let (before, entry) = kernel.split_once(".entry").ok_or(Error::Internal)?;
        let (signature, entry) = entry.split_once("\n)").ok_or(Error::Internal)?;
        let (bounds, body) = entry.split_once("{\n").ok_or(Error::Internal)?;
        let mut writer = Writer::default();
        let (sizes, bases) = (self.program.sizes(&mut writer), self.program.bases(&mut writer, None));
        let mut text = writer.take();
        let (mut early, mut row) = (Vec::new(), Row::default());
        for line in body.lines() {
            if let Some((_, registers)) = line.split_once(BEGINNING) {
                early = self.begin(&mut writer, &sizes, &bases, registers)?;
            } else if let Some((_, registers)) = line.split_once(ROW) {
                row = self.begin_row(&mut writer, &sizes, &bases, registers)?;
            } else if let Some((_, registers)) = line.split_once(ELEMENT) {
                self.element(&mut writer, &sizes, &bases, &row, registers)?;
            } else if line.contains(STORES) || line.contains(ROW_STORES) {
                text += &std::mem::take(&mut writer.late);
            } else if let Some((_, registers)) = line.split_once(MARK) {
                self.fill(&mut writer, &sizes, &bases, &early, registers)?;
            } else if let Some((_, registers)) = line.split_once(CLOSING) {
                self.close(&mut writer, &sizes, &bases, registers)?;
            } else {
                text = text + line + "\n";
            }
            text += &writer.take();
        }
        let parameters: String = self.program.sizes_and_addresses().map(|parameter| format!(",\n\t{parameter}")).collect();
        let called = self.program.called(functions)?;
        // The kernel may be for later GPUs than the functions.
        let (_, called) = called.split_once(HEADER).ok_or(Error::Internal)?;
        let start = format!("{target}{HEADER}{called}\n{before}.entry{signature}{parameters}\n){bounds}{{\n");
        Ok(start + &writer.declarations() + &text)
    }

    /// True if an input that varies along these axes of the program is not the same in all rows.
    fn by_row(&self, varies: u8) -> bool {
        let axes = ((1u16 << self.axes[1]) - 1) << self.axes[0];
        u16::from(varies) & axes != 0
    }

    /// Loads the inputs that are the same in all rows. Returns their registers.
    fn begin(&self, writer: &mut Writer, sizes: &[String], bases: &[String], registers: &str) -> Result<Vec<Vec<String>>> {
        let registers: Vec<&str> = registers.split_whitespace().collect();
        let &[inner, outer] = registers.as_slice() else { return Err(Error::Internal) };
        let row = writer.set("b64", "mov.u64", &["0"]);
        let place: Vec<(String, usize)> = [inner, &row, outer].map(String::from).into_iter().zip(self.axes).collect();
        Ok(self.program.load(writer, sizes, bases, &place, 1, |varies| !self.by_row(varies)))
    }

    /// Writes the computation of an element. `early` has the registers of the inputs that are the same in all rows.
    fn fill(&self, writer: &mut Writer, sizes: &[String], bases: &[String], early: &[Vec<String>], registers: &str) -> Result<()> {
        let registers: Vec<&str> = registers.split_whitespace().collect();
        let &[result, element, inner, row, outer, within] = registers.as_slice() else { return Err(Error::Internal) };
        let place: Vec<(String, usize)> = [inner, row, outer].map(String::from).into_iter().zip(self.axes).collect();
        writer.element = element.to_string();
        writer.within = Some(writer.set("pred", "setp.ne.u32", &[within, "0"]));
        let mut loaded = self.program.load(writer, sizes, bases, &place, 1, |varies| self.by_row(varies));
        loaded.iter_mut().zip(early).for_each(|(own, early)| own.extend_from_slice(early));
        writer.defers = true;
        let value = self.program.body(writer, bases, &loaded, &[], 1)?;
        writer.line(&format!("mov.f32 \t{result}, {value};"));
        Ok(())
    }

    /// Writes the computation in the place of a store.
    fn close(&self, writer: &mut Writer, sizes: &[String], bases: &[String], registers: &str) -> Result<()> {
        let registers: Vec<String> = registers.split_whitespace().map(String::from).collect();
        let (element, given) = registers.split_last().ok_or(Error::Internal)?;
        writer.element = element.clone();
        let place = [(element.clone(), self.program.axes)];
        let loaded = self.program.load(writer, sizes, bases, &place, given.len(), |_| true);
        self.program.body(writer, bases, &loaded, given, given.len()).map(drop)
    }

    /// Computes what has one value for each row.
    fn begin_row(&self, writer: &mut Writer, sizes: &[String], bases: &[String], registers: &str) -> Result<Row> {
        let registers: Vec<&str> = registers.split_whitespace().collect();
        let &[mean, variance, number, within, first] = registers.as_slice() else { return Err(Error::Internal) };
        let given = vec![mean.to_string(), variance.to_string()];
        let column = writer.set("b64", "mov.u64", &["0"]);
        let place = self.place(&column, number);
        let [within, first] = [within, first].map(|flag| writer.set("pred", "setp.ne.u32", &[flag, "0"]));
        (writer.element, writer.within, writer.defers) = (number.to_string(), Some(within), false);
        let loaded = self.program.load(writer, sizes, bases, &place, 1, |varies| !self.by_column(varies));
        let mut results = Vec::new();
        self.program.compute(writer, 0..self.by_row, &loaded, &given, 0, &mut results)?;
        writer.within = Some(first);
        self.program.store(writer, 0..self.by_row, bases, std::slice::from_ref(&results));
        Ok(Row { given, loaded, results })
    }

    /// Computes what has one value for each element of a row.
    fn element(&self, writer: &mut Writer, sizes: &[String], bases: &[String], row: &Row, registers: &str) -> Result<()> {
        let registers: Vec<&str> = registers.split_whitespace().collect();
        let &[ref elements @ .., element, column, number, within] = registers.as_slice() else { return Err(Error::Internal) };
        let within = writer.set("pred", "setp.ne.u32", &[within, "0"]);
        (writer.element, writer.within, writer.defers) = (element.to_string(), Some(within), true);
        let place = self.place(column, number);
        let mut loaded = self.program.load(writer, sizes, bases, &place, elements.len(), |varies| self.by_column(varies));
        loaded.iter_mut().zip(&row.loaded).for_each(|(own, early)| own.extend_from_slice(early));
        let (range, mut results) = (self.by_row..self.program.calls.len(), vec![row.results.clone(); elements.len()]);
        for (lane, (x, results)) in elements.iter().zip(&mut results).enumerate() {
            let given = [row.given.as_slice(), &[x.to_string()]].concat();
            self.program.compute(writer, range.clone(), &loaded, &given, lane, results)?;
        }
        self.program.store(writer, range, bases, &results);
        Ok(())
    }

    fn place(&self, column: &str, row: &str) -> [(String, usize); 2] {
        [(column.to_string(), self.axes[0]), (row.to_string(), self.axes[2])]
    }

    /// True if an input that varies along these axes of the program is not the same in all columns.
    fn by_column(&self, varies: u8) -> bool {
        u16::from(varies) & ((1 << self.axes[0]) - 1) != 0
    }
}
