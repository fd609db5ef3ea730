//! The source of a project's data.

use anyhow::{Context, Result};
use gradlet::DType;
use gradlet::artifact::describe::SignatureInfo;
use std::fmt::Write;

/// Returns `src/sample.rs`, which makes synthetic data for the inputs of `signature`. `constants` is the source of `src/model.rs`.
pub fn source(signature: &SignatureInfo, constants: &str) -> Result<String> {
    let (names, own) = (Names(constants), &signature.name);
    let (index, loss) = loss(signature).context("the signature has no f32 output, such as a loss, to report")?;
    let name = names.of(own, format!("{own:?}"));
    let bytes = names.of(&format!("{own}_arena_bytes"), signature.arena_bytes.to_string());
    let loss = names.of(&format!("{own}_output_{loss}"), index.to_string());
    let (inputs, is_noisy) = inputs(signature, &names);
    let (seed, noise) = if is_noisy { ("    let mut noise = Noise(step + 1);\n", NOISE) } else { ("", "") };
    Ok(format!(
        "//! The data of the training. Replace the function `sample`: until then, the firmware learns from\n\
         //! data that it makes.\n\n\
         use crate::model;\n\
         use gradlet_core::runtime::SignatureId;\n\
         use gradlet_core::{{Result, Session}};\n\n\
         /// The signature that trains.\n\
         pub const SIGNATURE: &str = {name};\n\
         /// Bytes of its arena.\n\
         pub const ARENA_BYTES: usize = {bytes};\n\
         /// Index of its output that is reported.\n\
         pub const LOSS: usize = {loss};\n\n\
         /// Sets the inputs of a training step.\n\
         ///\n\
         /// REPLACE THE BODY with your own data, such as a window of samples and its label. The data here has\n\
         /// two classes. In class 0, the first half of the elements is larger, in class 1 the second half.\n\
         pub fn sample(session: &mut Session<'_, '_>, train: SignatureId, step: u32) -> Result<()> {{\n    \
         let class = step % 2;\n{seed}{inputs}    Ok(())\n}}\n{noise}"
    ))
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

/// Returns the statements that set the inputs, and true if they use random numbers. The first input of type f32 is the data, and the
/// others are the class.
fn inputs(signature: &SignatureInfo, names: &Names<'_>) -> (String, bool) {
    let (mut text, mut is_noisy) = (String::new(), false);
    for (index, (input, info)) in signature.inputs.iter().enumerate() {
        let dtype = info.tensor_type.dtype;
        let class = match dtype {
            DType::F32 => "class as f32",
            DType::I32 => "class as i32",
            DType::I64 => "class.into()",
            _ => {
                let _ = writeln!(text, "    // The input `{input}` ({}) stays zero: see `Session::input_mut`.", info.tensor_type);
                continue;
            }
        };
        let constant = names.of(&format!("{}_input_{input}", signature.name), index.to_string());
        let _ = writeln!(text, "    let input = session.input_mut::<{}>(train, {constant})?;", dtype.name());
        if dtype == DType::F32 && !is_noisy {
            is_noisy = true;
            text += "    let half = input.len() / 2;\n    for (index, element) in input.iter_mut().enumerate() {\n";
            text += "        let larger = (index < half) == (class == 0);\n";
            text += "        *element = 0.5 * noise.next() + if larger { 0.5 } else { 0.0 };\n    }\n";
        } else {
            let _ = writeln!(text, "    input.fill({class});");
        }
    }
    (text, is_noisy)
}

/// Returns index and name of the output with the loss: the one named `loss`, or the first one of type f32.
fn loss(signature: &SignatureInfo) -> Option<(usize, &str)> {
    let floats = || signature.outputs.iter().enumerate().filter(|(_, (_, info))| info.tensor_type.dtype == DType::F32);
    let found = floats().find(|(_, (name, _))| name == "loss").or_else(|| floats().next())?;
    Some((found.0, &found.1.0))
}

/// The source of `src/model.rs`, with the names of its constants.
struct Names<'a>(&'a str);

impl Names<'_> {
    /// Returns the constant that belongs to `name`. If another name has become the same constant, returns `otherwise`.
    fn of(&self, name: &str, otherwise: String) -> String {
        let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        let name: String = letters.collect();
        let is_defined = |name: &str| self.0.contains(&format!("pub const {name}: "));
        if is_defined(&name) && !is_defined(&format!("{name}_2")) { format!("model::{name}") } else { otherwise }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet::artifact::describe::Description;
    use gradlet::artifact::firmware;
    use gradlet::{Artifact, Eager, Function, Scope, Tensor};

    /// Returns `src/sample.rs` for a signature with inputs of types f32, i64 and u8.
    fn sample(name: &str, inputs: &[&str]) -> String {
        let scope = Eager::new(&gradlet::portable_cpu());
        let device = scope.device();
        let (x, y) = (Tensor::full(&device, 0.5f32, &[1, 4]).unwrap(), Tensor::full(&device, 1i64, &[1]).unwrap());
        let mask = Tensor::full(&device, 1u8, &[4]).unwrap();
        let step = Function::new(|_: &dyn Scope, (x, y, mask): (Tensor, Tensor, Tensor)| {
            x.add(&mask.cast(DType::F32)?)?.sum(&[], false)?.add(&y.cast(DType::F32)?.sum(&[], false)?)
        });
        let mut artifact = Artifact::new();
        artifact.signature(name, &step.concrete(&scope, &(x, y, mask)).unwrap(), inputs, &["error"]).unwrap();
        let bytes = artifact.to_bytes().unwrap();
        let description = Description::read(&bytes).unwrap();
        source(&description.signatures[0], &firmware::source(&bytes, "a test").unwrap()).unwrap()
    }

    #[test]
    fn each_type_has_its_data() {
        let text = sample("fine-tune", &["x", "label", "mask"]);
        let lines = [
            "pub const SIGNATURE: &str = model::FINE_TUNE;",
            "pub const LOSS: usize = model::FINE_TUNE_OUTPUT_ERROR;",
            "let input = session.input_mut::<f32>(train, model::FINE_TUNE_INPUT_X)?;\n    let half = input.len() / 2;",
            "let input = session.input_mut::<i64>(train, model::FINE_TUNE_INPUT_LABEL)?;\n    input.fill(class.into());",
            "// The input `mask` (u8[4]) stays zero",
        ];
        lines.iter().for_each(|line| assert!(text.contains(line), "{line}\n{text}"));
    }

    /// Two names that become the same constant are told apart by their indices.
    #[test]
    fn equal_constants_are_not_used() {
        let text = sample("train", &["a-b", "a_b", "mask"]);
        assert!(text.contains("::<f32>(train, 0)?") && text.contains("::<i64>(train, 1)?"), "{text}");
    }
}
