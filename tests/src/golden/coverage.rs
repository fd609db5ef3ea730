//! The element types and runtimes of each op, from the golden cases that passed.

use crate::golden::runtimes::NAMES;
use gradlet_core::custom_op::{Gradient, Op};
use gradlet_core::device::Device;
use gradlet_core::{DType, ops};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// A map from op and element type to the runtimes on which a case passed.
#[derive(Default)]
pub struct Coverage(BTreeMap<(&'static str, u8), BTreeSet<usize>>);

impl Coverage {
    /// Records that a case with these ops passed on `runtime`.
    pub fn add(&mut self, runtime: &str, computed: &[(&'static str, DType)]) {
        let Some(runtime) = NAMES.iter().position(|name| *name == runtime) else { return };
        for &(op, dtype) in computed {
            self.0.entry((op, dtype as u8)).or_default().insert(runtime);
        }
    }

    /// Returns the table as Markdown.
    pub fn table(&self) -> String {
        let mut text = HEAD.to_string();
        let types: Vec<&str> = DType::ALL.iter().map(|dtype| dtype.name()).collect();
        let _ = writeln!(text, "| op | {} | gradient |\n|---|{}---|", types.join(" | "), "---|".repeat(types.len()));
        for op in ops::OPS {
            let cells: Vec<String> = DType::ALL.iter().map(|&dtype| self.cell(op, dtype)).collect();
            let _ = writeln!(text, "| {} | {} | {} |", op.def.name, cells.join(" | "), gradient(op));
        }
        text
    }

    fn cell(&self, op: &Op, dtype: DType) -> String {
        let device: Device = ops::portable_cpu();
        let narrow = matches!(dtype, DType::F16 | DType::Bf16);
        let kernel = device.has_kernel(op.def, dtype);
        if !kernel && narrow && device.has_kernel(op.def, DType::F32) {
            return "f32".into();
        }
        let ran = self.0.get(&(op.def.name, dtype as u8));
        match ran {
            _ if !kernel => String::new(),
            None => "k".into(),
            Some(ran) => ran.iter().map(|&runtime| LETTERS[runtime]).collect(),
        }
    }
}

/// Letters for the runtimes in [`NAMES`].
const LETTERS: [char; NAMES.len()] = ['E', 'C', 'F', 'H', 'G', 'D', 'M'];

const HEAD: &str = "# Coverage of ops

`cargo xtask coverage` writes this page from the catalogue of ops and the golden suite. `cargo xtask test` fails if the page is out of date.

A cell stands for an op with an element type, that of its first input. A letter means that golden cases of the op give the
reference's values on a runtime:

| letter | runtime |
|---|---|
| `E` | eager execution |
| `C` | compiled functions on the host |
| `F` | both, with the host's fast kernels (`cpu()`) |
| `H` | both, on a device that hides its memory |
| `G` | both, on an NVIDIA GPU, which the tests emulate |
| `D` | the heap-free executor, on the host |
| `M` | the heap-free executor, on a Cortex-M4 under QEMU |

`k` means that there is a kernel but no golden case. The tests of the op and the gradient tests, in f64, cover it. `f32` means that
the op is computed in f32 and rounded. An empty cell means that the op does not take the element type.

";

fn gradient(op: &Op) -> String {
    match op.grad {
        Gradient::Rule(_) => "yes".into(),
        Gradient::None(reason) => format!("none: {reason}"),
        Gradient::Missing(reason) => format!("missing: {reason}"),
    }
}
