//! The rows of the table: the shapes of the work, its size, and its bar.

/// A group of rows with one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Products of matrices.
    Products,
    /// Kernels whose time is that of their memory traffic.
    Memory,
    /// Training steps: forward, backward and optimizer. The batch is on the GPU.
    Training,
    /// Times that a program waits for.
    Latency,
}

/// The kinds, in the order of the table.
pub const KINDS: [Kind; 4] = [Kind::Products, Kind::Memory, Kind::Training, Kind::Latency];

/// The least or the most that gradlet's figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bar {
    /// Least ratio of gradlet's rate to PyTorch's, which is cuBLAS's.
    Cublas(f64),
    /// Least ratio of gradlet's rate to the measured copy bandwidth.
    Copy(f64),
    /// Largest ratio of gradlet's time to that of PyTorch's compiled step.
    Compiled(f64),
    /// Largest time in microseconds.
    Microseconds(f64),
}

/// A row of the table.
pub struct Row {
    /// Request to the programs: `WORK/PRECISION/SIZES`, such as `gemm/tf32/4096`.
    pub request: String,
    /// Group of the row.
    pub kind: Kind,
    /// Operations of a product, bytes that a kernel reads and writes, or 1.
    pub amount: f64,
    /// The bar, if the row has one.
    pub bar: Option<Bar>,
}

/// The request of the row that measures the copy bandwidth.
pub const COPY: &str = "copy";

/// The precisions of products, each with its bar.
const PRODUCTS: [(&str, Option<Bar>); 4] =
    [("f32", Some(Bar::Cublas(0.9))), ("tf32", None), ("bf16", Some(Bar::Cublas(0.8))), ("f16", None)];

/// Dimensions of the squares.
const SQUARES: Sizes<[u32; 4]> = Sizes { usual: [1024, 2048, 4096, 8192], quick: [16, 24, 32, 48] };

/// The precisions of training steps. `bf16` is the dtype policy `mixed_bfloat16`.
const STEPS: [&str; 3] = ["f32", "tf32", "bf16"];

/// A value of the usual table, and that of a quick one, which only shows that all works.
struct Sizes<T> {
    usual: T,
    quick: T,
}

impl<T: Copy> Sizes<T> {
    const fn of(&self, quick: bool) -> T {
        if quick { self.quick } else { self.usual }
    }
}

/// The kernels with their dimensions.
const KERNELS: [(&str, Sizes<&str>); 9] = [
    (COPY, Sizes { usual: "8192x8192", quick: "16x20" }),
    ("chain", Sizes { usual: "8192x8192", quick: "16x20" }),
    ("sum_all", Sizes { usual: "8192x8192", quick: "16x20" }),
    ("sum_rows", Sizes { usual: "16384x4096", quick: "16x20" }),
    ("sum_columns", Sizes { usual: "16384x4096", quick: "16x20" }),
    ("softmax", Sizes { usual: "16384x4096", quick: "16x20" }),
    ("layer_norm", Sizes { usual: "16384x4096", quick: "16x20" }),
    ("batch_norm", Sizes { usual: "128x56x56x128", quick: "2x4x4x8" }),
    ("max_pool", Sizes { usual: "128x56x56x128", quick: "2x4x4x8" }),
];

/// Adam: number of variables, rows and columns.
const ADAM: Sizes<&str> = Sizes { usual: "8x2048x2048", quick: "2x8x8" };

/// The models with their sizes, and whether they have a bar.
const MODELS: [(&str, Sizes<&str>, bool); 5] = [
    ("cnn", Sizes { usual: "50x32x1024", quick: "2x2x8" }, true),
    ("resnet8", Sizes { usual: "32x32x100x10", quick: "1x8x25x3" }, false),
    ("mobilenet_v2", Sizes { usual: "16x96x35x10", quick: "1x32x35x3" }, true),
    ("lstm", Sizes { usual: "32x28x28x64", quick: "2x3x4x8" }, true),
    ("transformer", Sizes { usual: "16x128x512x8", quick: "1x4x16x2" }, true),
];

/// The latencies with their sizes and bars.
const LATENCIES: [(&str, Sizes<&str>, Option<Bar>); 4] = [
    ("launch", Sizes { usual: "64x1024", quick: "4x1028" }, Some(Bar::Microseconds(1.5))),
    ("batch_to_loss", Sizes { usual: "50x784x100", quick: "2x16x8" }, Some(Bar::Microseconds(30.0))),
    ("cnn_infer", Sizes { usual: "1x32x1024", quick: "1x2x8" }, None),
    ("mobilenet_v2_infer", Sizes { usual: "1x224x100x1000", quick: "1x32x35x3" }, None),
];

/// Returns the rows in the order of the table. If `quick` is true, their work is tiny, so the figures mean nothing.
pub fn rows(quick: bool) -> Vec<Row> {
    let row = |work: &str, precision: &str, sizes: &str, kind, amount, bar| {
        let request = format!("{work}/{precision}/{sizes}");
        Row { request, kind, amount, bar }
    };
    let mut rows = Vec::new();
    for side in SQUARES.of(quick) {
        let operations = 2.0 * f64::from(side).powi(3);
        rows.extend(PRODUCTS.map(|(precision, bar)| row("gemm", precision, &side.to_string(), Kind::Products, operations, bar)));
    }
    for (work, sizes) in &KERNELS {
        let (sizes, bar) = (sizes.of(quick), (*work != COPY).then_some(Bar::Copy(0.85)));
        rows.push(row(work, "f32", sizes, Kind::Memory, traffic(work, sizes), bar));
    }
    let sizes = ADAM.of(quick);
    rows.push(row("adam", "f32", sizes, Kind::Memory, traffic("adam", sizes), Some(Bar::Copy(0.85))));
    for (work, sizes, has_bar) in &MODELS {
        let bar = has_bar.then_some(Bar::Compiled(1.0));
        rows.extend(STEPS.map(|precision| row(work, precision, sizes.of(quick), Kind::Training, 1.0, bar)));
    }
    for (work, sizes, bar) in &LATENCIES {
        rows.push(row(work, "f32", sizes.of(quick), Kind::Latency, 1.0, *bar));
    }
    rows
}

/// Returns the bytes that `work` has to read and write. Batch normalization reads its input twice: its statistics are needed before the
/// first result.
fn traffic(work: &str, sizes: &str) -> f64 {
    let sizes: Vec<f64> = sizes.split('x').filter_map(|size| size.parse().ok()).collect();
    let passes = match work {
        "sum_all" => 1.0,
        "sum_rows" => 1.0 + 1.0 / sizes[1],
        "sum_columns" => 1.0 + 1.0 / sizes[0],
        "max_pool" => 1.25,
        "batch_norm" => 3.0,
        // Reads gradients; reads and writes variables, means and mean squares.
        "adam" => 7.0,
        _ => 2.0,
    };
    4.0 * passes * sizes.iter().product::<f64>()
}
