//! The source of a project's data.

use anyhow::{Context, Result};
use gradlet::DType;
use gradlet::artifact::describe::SignatureInfo;
use std::fmt::Write;

/// Returns `src/sample.rs`, which makes synthetic data for the inputs of `signature`. `constants` is the source with their names.
pub fn source(signature: &SignatureInfo, constants: &str) -> Result<String> {
    let name = |name: &str, otherwise: String| {
        let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        let name: String = letters.collect();
        // Two names can become the same constant, which then has a number.
        if constants.contains(&format!("pub const {name}: ")) && !constants.contains(&format!("pub const {name}_2: ")) {
            format!("model::{name}")
        } else {
            otherwise
        }
    };
    let own = &signature.name;
    let (loss, output) = loss(signature).context("the signature has no f32 output, such as a loss, to report")?;
    let mut text = format!(
        "//! The data of the training. Replace the function `sample`: until then, the firmware learns from data that it makes.\n\n\
         use crate::model;\n\
         use gradlet_core::runtime::SignatureId;\n\
         use gradlet_core::{{Result, Session}};\n\n\
         /// The signature that trains.\n\
         pub const SIGNATURE: &str = {};\n\
         /// Bytes of its arena.\n\
         pub const ARENA_BYTES: usize = {};\n\
         /// Index of its output that is reported.\n\
         pub const LOSS: usize = {};\n\n\
         /// Sets the inputs of a training step.\n\
         ///\n\
         /// REPLACE THE BODY with your own data: a window of samples and its label, for example. A slice of a wrong length is an error.\n\
         /// The data here has two classes. In class 0, the elements with an even index are larger, and in class 1, those with an odd one.\n\
         pub fn sample(session: &mut Session<'_, '_>, train: SignatureId, step: u32) -> Result<()> {{\n    \
         let class = step % 2;\n    let mut noise = Noise(step + 1);\n",
        name(own, format!("{own:?}")),
        name(&format!("{own}_arena_bytes"), signature.arena_bytes.to_string()),
        name(&format!("{own}_output_{output}"), loss.to_string()),
    );
    let mut data = false;
    for (index, (input, info)) in signature.inputs.iter().enumerate() {
        let constant = name(&format!("{own}_input_{input}"), index.to_string());
        let dtype = info.tensor_type.dtype;
        let elements = match dtype {
            DType::F32 if !data => {
                data = true;
                let _ = write!(
                    text,
                    "    for (index, element) in session.input_mut::<f32>(train, {constant})?.iter_mut().enumerate() {{\n        \
                     *element = 0.5 * noise.next() + if index as u32 % 2 == class {{ 0.5 }} else {{ 0.0 }};\n    }}\n"
                );
                continue;
            }
            DType::F32 => "class as f32",
            DType::I32 => "class as i32",
            DType::I64 => "class.into()",
            _ => {
                let _ = writeln!(text, "    // Input `{input}` ({}) stays zero: see `Session::input_mut`.", info.tensor_type);
                continue;
            }
        };
        let _ = writeln!(text, "    session.input_mut::<{}>(train, {constant})?.fill({elements});", dtype.name());
    }
    text += "    Ok(())\n}\n";
    text += NOISE;
    Ok(if data { text } else { text.replace("    let mut noise = Noise(step + 1);\n", "").replace(NOISE, "") })
}

const NOISE: &str = "
/// Pseudo-random numbers from 0 to 1, the same for the same seed. The seed is not 0.
struct Noise(u32);

impl Noise {
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        (self.0 >> 8) as f32 / (1 << 24) as f32
    }
}
";

/// Returns index and name of the output with the loss: the one named `loss`, or the first one of type f32.
fn loss(signature: &SignatureInfo) -> Option<(usize, &str)> {
    let floats = || signature.outputs.iter().enumerate().filter(|(_, (_, info))| info.tensor_type.dtype == DType::F32);
    let found = floats().find(|(_, (name, _))| name == "loss").or_else(|| floats().next())?;
    Some((found.0, &found.1.0))
}
