//! Summaries: the layers, shapes and parameters of a model in Keras's table.

use super::Layer;
use super::sequential::unused;
use crate::base::error::Result;
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::{Lock, Shared};
use crate::tensor::scope::{Entered, Scope};
use crate::tensor::variable::Variable;
use crate::trace::observe::{Observer, observed};
use crate::trace::tracing::dry_run;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// Summary of a model: its layers in the order in which they were called, as Keras's `model.summary()` prints them.
///
/// `{}` prints the layers of the model itself, and `{:#}` also the layers inside them. A width, as in `{:100}`, sets the width of
/// the table. [`show_trainable`](Summary::show_trainable) adds a column that shows which layers are frozen.
///
/// ```
/// use gradlet_core::layers::{Activation, Dense, Layer, Sequential};
/// use gradlet_core::{Eager, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let model = Sequential::new().with(Dense::new(100).activation(Activation::Relu)).with(Dense::new(10));
/// let summary = model.summary(&scope, &[784])?;
/// assert_eq!(summary.parameters().count, 79_510);
/// assert!(summary.to_string().ends_with(" Non-trainable params: 0 (0.00 B)\n"));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Name of the model.
    pub name: String,
    /// Layers of the model. Each layer comes before the layers inside it.
    pub layers: Vec<LayerSummary>,
    /// Size of the parameters that optimizers train.
    pub trainable: Size,
    /// Size of the parameters that no optimizer trains.
    pub non_trainable: Size,
    /// Size of the optimizer's state, if the model has an optimizer.
    pub optimizer: Option<Size>,
    trainable_column: bool,
}

/// Row of a summary: one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSummary {
    /// Name of the layer within the layer or model that contains it.
    pub name: String,
    /// Type of the layer, such as `Conv2D`.
    pub kind: String,
    /// Nesting depth: 0 for a layer of the model itself, 1 for a layer inside such a layer, and so on.
    pub depth: usize,
    /// Shape of the output.
    pub output: Shape,
    /// Size of the parameters of the layer, including those of the layers inside it.
    pub parameters: Size,
    /// False if all variables of the layer are frozen. `None` if the layer has no variables.
    pub trainable: Option<bool>,
}

/// Size of variables, in elements and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of elements.
    pub count: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Size {
    /// Returns the total size of `variables`. Unbuilt variables count as 0.
    pub fn of<'a>(variables: impl IntoIterator<Item = &'a Variable>) -> Size {
        let types = variables.into_iter().filter_map(|variable| variable.tensor_type().ok());
        types.fold(Size::default(), |sum, of| {
            let count = of.shape.elements().unwrap_or(0) as u64;
            Size { count: sum.count + count, bytes: sum.bytes + count * of.dtype.size() as u64 }
        })
    }
}

impl Summary {
    /// Creates the summary of `model` for inputs of the type `input`, which includes the batch dimension. Creates all variables.
    pub fn new<L: Layer + ?Sized>(model: &L, scope: &dyn Scope, input: TensorType) -> Result<Summary> {
        let heard = Shared::new(Heard::default());
        dry_run(scope, input, |scope, x| model.apply(&observed(scope, heard.clone()), x))?;
        let (variables, trained) = (model.named_variables(), model.trainable_variables());
        let size =
            |trainable| Size::of(variables.iter().map(|(_, variable)| variable).filter(|variable| trained.contains(variable) == trainable));
        let calls = core::mem::take(&mut heard.0.lock().calls);
        let (trainable, non_trainable) = (size(true), size(false));
        let (name, layers) = (model.name().into(), layers(calls, &variables));
        Ok(Summary { name, layers, trainable, non_trainable, optimizer: None, trainable_column: false })
    }

    /// Adds the column of Keras's `show_trainable`, if `show_trainable` is true: `Y` for a layer that is trained, `N` for a frozen
    /// layer, `-` for a layer without variables.
    ///
    /// ```
    /// use gradlet_core::layers::{Dense, Layer, Module, Sequential};
    /// use gradlet_core::{Eager, ops};
    /// let model = Sequential::new().with(Dense::new(4)).with(Dense::new(2));
    /// model.layer("dense").unwrap().set_trainable(false);
    /// let summary = model.summary(&Eager::new(&ops::portable_cpu()), &[3])?.show_trainable(true);
    /// println!("{summary}");
    /// assert_eq!([0, 1].map(|index| summary.layers[index].trainable), [Some(false), Some(true)]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn show_trainable(self, show_trainable: bool) -> Summary {
        Summary { trainable_column: show_trainable, ..self }
    }

    /// Returns the size of all parameters, including those of the optimizer.
    pub fn parameters(&self) -> Size {
        let parts = [self.trainable, self.non_trainable, self.optimizer.unwrap_or_default()];
        parts.iter().fold(Size::default(), |sum, part| Size { count: sum.count + part.count, bytes: sum.bytes + part.bytes })
    }
}

/// Observer that records the calls of a model's layers.
#[derive(Default)]
struct Heard(Lock<Calls>);

#[derive(Default)]
struct Calls {
    calls: Vec<Call>,
    /// Indices of the calls that have not returned yet.
    open: Vec<usize>,
}

/// Call of a layer.
struct Call {
    name: String,
    kind: String,
    id: Option<usize>,
    /// Index of the call of the layer that made this call, or `None` for the outermost call.
    parent: Option<usize>,
    depth: usize,
    variables: Vec<(String, Variable)>,
    output: Option<TensorType>,
}

impl Observer for Heard {
    fn enter(&self, layer: &Entered<'_>) {
        let mut heard = self.0.lock();
        let (index, parent, depth) = (heard.calls.len(), heard.open.last().copied(), heard.open.len());
        let (name, kind) = (layer.name.into(), layer.kind.into());
        heard.calls.push(Call { name, kind, id: layer.id, parent, depth, variables: Vec::new(), output: None });
        heard.open.push(index);
        drop(heard);
        let variables = (layer.variables)();
        self.0.lock().calls[index].variables = variables;
    }

    fn leave(&self, output: Option<TensorType>) {
        let mut heard = self.0.lock();
        if let Some(index) = heard.open.pop() {
            heard.calls[index].output = output;
        }
    }
}

/// Converts the calls to layers, each layer once. A layer's name is its path in `variables`, the variables of the model. A layer
/// without variables gets the name of its call. If another layer has the name already, a number is appended.
fn layers(mut calls: Vec<Call>, variables: &[(String, Variable)]) -> Vec<LayerSummary> {
    let mut layers: Vec<LayerSummary> = Vec::new();
    let mut paths: Vec<Option<String>> = Vec::new();
    let mut taken: Vec<(Option<usize>, String)> = Vec::new();
    for index in 0..calls.len() {
        let path = path(&calls[index], variables);
        let call = &calls[index];
        let again = |other: &Call| other.parent == call.parent && other.kind == call.kind && other.id.is_some() && other.id == call.id;
        let hidden = |parent: usize| calls[parent].output.is_none();
        if call.depth > 0 && (calls[..index].iter().any(again) || call.parent.is_some_and(hidden)) {
            // The layers inside it are not listed again either.
            calls[index].output = None;
        }
        let call = &calls[index];
        if let (1.., Some(output)) = (call.depth, call.output) {
            let parent = call.parent.and_then(|parent| paths[parent].as_deref()).unwrap_or_default();
            let inner = path.as_deref().map(|path| path.strip_prefix(parent).unwrap_or(path).trim_start_matches('/'));
            let name = inner.filter(|name| !name.is_empty()).unwrap_or(&call.name);
            let siblings = || taken.iter().filter(|(parent, _)| *parent == call.parent).map(|(_, name)| name);
            let name = unused(name, |name| siblings().all(|sibling| sibling != name));
            taken.push((call.parent, name.clone()));
            let variables = || call.variables.iter().map(|(_, variable)| variable);
            let trainable = variables().map(|variable| !variable.is_frozen()).reduce(|any, one| any || one);
            let (kind, depth, parameters) = (call.kind.clone(), call.depth - 1, Size::of(variables()));
            layers.push(LayerSummary { name, kind, depth, output: output.shape, parameters, trainable });
        }
        paths.push(path);
    }
    layers
}

/// Returns the path of the layer's variables in the model: `blocks/0`, if its kernel is `blocks/0/kernel`. Returns `None` if the
/// layer has no variables.
fn path(call: &Call, variables: &[(String, Variable)]) -> Option<String> {
    let (inner, variable) = call.variables.first()?;
    let (outer, _) = variables.iter().find(|(_, other)| other == variable)?;
    Some(outer.strip_suffix(inner.as_str())?.trim_end_matches('/').into())
}

/// Default width of a table, in characters. Keras uses this width when it does not write to a terminal.
const WIDTH: usize = 76;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = &widths(f.width().unwrap_or(WIDTH), self.trainable_column);
        writeln!(f, "Model: \"{}\"", self.name)?;
        line(f, widths, "┏━┳┓")?;
        row(f, widths, ["Layer (type)", "Output Shape", "Param #", "Trainable"], "┃")?;
        line(f, widths, "┡━╇┩")?;
        let deepest = if f.alternate() { usize::MAX } else { 0 };
        let shown = self.layers.iter().filter(|layer| layer.depth <= deepest);
        for (index, layer) in shown.enumerate() {
            if index > 0 {
                line(f, widths, "├─┼┤")?;
            }
            let nested = if layer.depth > 0 { format!("{}└ ", "   ".repeat(layer.depth)) } else { String::new() };
            let name = format!("{nested}{} ({})", layer.name, layer.kind);
            let trainable = layer.trainable.map_or("-", |trainable| if trainable { "Y" } else { "N" });
            row(f, widths, [&name, &shape(&layer.output), &grouped(layer.parameters.count), trainable], "│")?;
        }
        line(f, widths, "└─┴┘")?;
        let mut total = |name, size: Size| writeln!(f, " {name} params: {} ({})", grouped(size.count), readable(size.bytes));
        total("Total", self.parameters())?;
        total("Trainable", self.trainable)?;
        total("Non-trainable", self.non_trainable)?;
        self.optimizer.map_or(Ok(()), |size| total("Optimizer", size))
    }
}

/// Returns the widths of the columns for a table of this width. Keras divides the width in the ratio 45 : 35 : 20. A fourth column,
/// `trainable`, gets a tenth of the width. The space for borders and padding is taken evenly from the columns, left to right.
fn widths(width: usize, trainable: bool) -> Vec<usize> {
    let ends: &[usize] = if trainable { &[405, 720, 900, 1000] } else { &[450, 800, 1000] };
    let starts = core::iter::once(&0).chain(ends);
    let mut widths: Vec<usize> = ends.iter().zip(starts).map(|(end, start)| width * end / 1000 - width * start / 1000 + 2).collect();
    let (columns, mut excess) = (widths.len(), 3 * widths.len() + 1);
    for (index, width) in widths.iter_mut().enumerate() {
        let left = columns - index;
        // Rounded half to even.
        let part = (excess / left) + usize::from(2 * (excess % left) + (excess / left) % 2 > left);
        *width = width.saturating_sub(part).max(4);
        excess -= part;
    }
    widths
}

/// Writes a horizontal line of the table. `signs` holds four characters: left end, fill, crossing between two columns, right end.
fn line(f: &mut fmt::Formatter<'_>, widths: &[usize], signs: &str) -> fmt::Result {
    let signs: Vec<String> = signs.chars().map(String::from).collect();
    let [left, fill, between, right] = signs.as_slice() else { return Err(fmt::Error) };
    let columns: Vec<String> = widths.iter().map(|&width| fill.repeat(width)).collect();
    writeln!(f, "{left}{}{right}", columns.join(between))
}

/// Writes a row, with `bar` between the cells and at both ends. The text in the cells is wrapped. The third cell is right-aligned, and
/// the fourth is centred. A table with three columns shows only the first three cells.
fn row(f: &mut fmt::Formatter<'_>, widths: &[usize], cells: [&str; 4], bar: &str) -> fmt::Result {
    let columns: Vec<(usize, Vec<String>)> = widths.iter().zip(cells).map(|(width, cell)| (width - 2, wrapped(cell, width - 2))).collect();
    for index in 0..columns.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0) {
        for (column, (width, lines)) in columns.iter().enumerate() {
            let text = lines.get(index).map_or("", String::as_str);
            match column {
                2 => write!(f, "{bar} {text:>width$} ")?,
                3 => write!(f, "{bar} {text:^width$} ")?,
                _ => write!(f, "{bar} {text:width$} ")?,
            }
        }
        writeln!(f, "{bar}")?;
    }
    Ok(())
}

/// Splits `text` at spaces into lines of at most `width` characters. A word that is longer than a line is cut, and ends with `…`.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let length = |text: &str| text.chars().count();
    for word in text.split_inclusive(' ') {
        match lines.last_mut() {
            Some(line) if length(line) + length(word.trim_end()) <= width => line.push_str(word),
            _ => lines.push(word.into()),
        }
    }
    let cut = |line: &String| {
        let line = line.trim_end();
        if length(line) <= width { line.into() } else { line.chars().take(width - 1).chain(['…']).collect() }
    };
    lines.iter().map(cut).collect()
}

/// Formats a shape as `(None, 28, 28, 1)`. The batch dimension is `None` because it may have any size.
fn shape(shape: &Shape) -> String {
    match shape.dims() {
        [] => "()".into(),
        [_] => "(None,)".into(),
        [_, dims @ ..] => dims.iter().fold("(None".to_string(), |text, dim| format!("{text}, {dim}")) + ")",
    }
}

/// Formats a number with thousands separators: `3,538,984`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |index: usize| if index > 0 && (digits.len() - index).is_multiple_of(3) { "," } else { "" };
    digits.chars().enumerate().map(|(index, digit)| format!("{}{digit}", comma(index))).collect()
}

/// Formats a number of bytes with a unit: `12.49 MB`.
fn readable(bytes: u64) -> String {
    let units = ["B", "KB", "MB", "GB", "TB", "PB"];
    let unit = units.iter().enumerate().find(|(power, _)| bytes >> (10 * power) < 1024);
    let (power, unit) = unit.unwrap_or((units.len() - 1, &"PB"));
    format!("{:.2} {unit}", bytes as f64 / (1u64 << (10 * power)) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::layers::{Conv2D, Dense, Flatten, MaxPool2D, Padding, Sequential};
    use crate::tensor::Tensor;
    use crate::trace::eager::Eager;
    use gradlet_derive::Module;

    fn conv(filters: u32) -> Conv2D {
        Conv2D::new(filters, [5, 5]).padding(Padding::Same)
    }

    fn book_cnn() -> Sequential {
        let pool = || MaxPool2D::new([2, 2]);
        Sequential::new().with(conv(32)).with(pool()).with(conv(64)).with(pool()).with(Flatten).with(Dense::new(1024)).with(Dense::new(10))
    }

    fn scope() -> Eager {
        Eager::new(&crate::ops::portable_cpu())
    }

    #[test]
    fn the_table_is_keras_s() {
        let summary = book_cnn().summary(&scope(), &[28, 28, 1]).unwrap();
        assert_eq!(summary.to_string(), include_str!("summary_of_book_cnn.txt"));
    }

    #[derive(Module)]
    struct Wide {
        first: Sequential,
        pool: MaxPool2D,
        batch_normalization: Dense,
    }

    impl Layer for Wide {
        fn name(&self) -> &str {
            "wide"
        }
        fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
            let x = self.pool.apply(scope, &self.first.apply(scope, x)?)?;
            let x = Flatten.apply(scope, &self.pool.apply(scope, &x)?)?;
            let x = Flatten.apply(scope, &x)?;
            self.batch_normalization.apply(scope, &x)
        }
    }

    #[test]
    fn layers_have_the_names_of_their_fields_and_stand_there_once() {
        let wide = Wide { first: Sequential::new().with(conv(3)), pool: MaxPool2D::new([2, 2]), batch_normalization: Dense::new(4) };
        let summary = wide.summary(&scope(), &[8, 8, 1]).unwrap();
        let names: Vec<(&str, &str, usize)> =
            summary.layers.iter().map(|layer| (layer.name.as_str(), layer.kind.as_str(), layer.depth)).collect();
        let (pool, flat, dense) = (("max_pooling2d", "MaxPooling2D", 0), ("flatten", "Flatten", 0), ("batch_normalization", "Dense", 0));
        let first_layers = [("first", "Sequential", 0), ("conv2d", "Conv2D", 1)];
        assert_eq!(names, [&first_layers[..], &[pool, flat, ("flatten_1", "Flatten", 0), dense]].concat());
    }

    #[test]
    fn nested_layers_and_long_names_are_keras_s() {
        let pool = MaxPool2D::new([2, 2]);
        let model = Sequential::new().with_named("first", Sequential::new().with(conv(3))).with(pool).with(Flatten);
        let model = model.with_named("batch_normalization_dense", Dense::new(4));
        let summary = Summary { name: "wide".into(), ..model.summary(&scope(), &[8, 8, 1]).unwrap() };
        assert_eq!(format!("{summary:#64}"), include_str!("summary_of_nested.txt"));
        assert!(!summary.to_string().contains("└ conv2d"));
    }

    #[test]
    fn columns_and_cells() {
        let three = [76, 60, 100].map(|width| widths(width, false));
        assert_eq!(three, [[33, 24, 15], [26, 19, 11], [44, 33, 19]]);
        assert_eq!(wrapped("batch_normalization (BatchNormalization)", 31), ["batch_normalization", "(BatchNormalization)"]);
        assert_eq!(wrapped("ab cd", 5), ["ab cd"]);
        assert_eq!(wrapped("abcdef g", 4), ["abc…", "g"]);
        assert_eq!([999, 1_000, 3_538_984].map(grouped), ["999", "1,000", "3,538,984"]);
        assert_eq!([256, 1024, 1_007_400].map(readable), ["256.00 B", "1.00 KB", "983.79 KB"]);
        assert_eq!(shape(&Shape::new(&[1, 28, 28]).unwrap()), "(None, 28, 28)");
    }
}
