//! The second reader (`tests/second_reader`, in Python, written from `SPEC.md` alone) computes the same bits as the executor.

use gradlet::applications::ModelSpec;
use gradlet::artifact::export::{self, Options};
use gradlet::{Eager, Program, Session, ops};
use gradlet_core::DType;
use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::SignatureId;
use gradlet_tests::random::Random;
use gradlet_tests::{frozen, quantised};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/second_reader");

/// Runs the second reader with these lines on its standard input, and returns its output.
#[track_caller]
fn second_reader(arguments: &[&str], lines: &str) -> String {
    let python = std::env::var_os("GRADLET_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    // Python keeps nothing in the folder.
    command.args(["-B", FOLDER]).args(arguments).env("OMP_NUM_THREADS", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut stdin, lines) = (child.stdin.take().unwrap(), lines.to_string());
    // The reader answers while it reads. If it dies, its own error is told below.
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs `signatures` in turn on random inputs, both in gradlet and in the second reader. Every output and, at the end, every variable must
/// match. There must be at least `variables` with values.
fn same_bits(artifact: &[u8], signatures: &[&str], steps: usize, variables: usize) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), artifact).unwrap();
    let artifact = AlignedBytes::from(artifact);
    let mut random = Random::new(5);
    for signature in signatures {
        let program = Program::load(&artifact, ops::KERNELS, &[signature]).unwrap();
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena).unwrap();
        let id = program.signature(signature).unwrap();
        let (mut lines, mut expected) = (String::new(), Vec::new());
        for _ in 0..steps {
            let inputs = fill(&mut session, id, &mut random);
            session.run(id).unwrap();
            lines += &format!("{}\n", json!({ "signature": signature, "inputs": inputs }));
            let outputs = (0..).map_while(|output| session.output_bytes(id, output).ok()).map(hex);
            expected.push(json!({ "outputs": outputs.collect::<Vec<String>>() }));
        }
        lines += "{\"variables\": true}\n";
        let answers = second_reader(&["run", file.path().to_str().unwrap()], &lines);
        let mut answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let theirs = answers.pop().unwrap();
        assert_eq!(answers, expected, "{signature}");
        let theirs = theirs["variables"].as_object().unwrap();
        let mut compared = 0;
        for (index, variable) in Description::read(&artifact).unwrap().variables.iter().enumerate() {
            // A variable without an initial value has memory only if the signature assigns it.
            if let Ok(bytes) = session.variable(index) {
                assert_eq!(theirs[&variable.name], json!(hex(bytes)), "{signature}: {}", variable.name);
                compared += 1;
            }
        }
        assert!(compared >= variables, "{signature}: only {compared} variables have values");
    }
}

/// Fills the inputs of a signature with random numbers, and returns their bytes in hexadecimal.
fn fill(session: &mut Session<'_, '_>, id: SignatureId, random: &mut Random) -> Vec<String> {
    let mut inputs = Vec::new();
    while let Ok(tensor_type) = session.input_type(id, inputs.len()) {
        match tensor_type.dtype {
            DType::I32 => session.input_mut::<i32>(id, inputs.len()).unwrap().fill_with(|| random.below(4) as i32),
            DType::I8 => session.input_mut(id, inputs.len()).unwrap().fill_with(|| random.bits() as i8),
            DType::I16 => session.input_mut(id, inputs.len()).unwrap().fill_with(|| random.bits() as i16),
            _ => session.input_mut::<f32>(id, inputs.len()).unwrap().fill_with(|| random.below(1 << 16) as f32 / 65536.0 - 0.3),
        }
        inputs.push(hex(session.input_bytes_mut(id, inputs.len()).unwrap()));
    }
    inputs
}

#[test]
#[ignore = "needs Python with NumPy"]
fn samples_and_dumps_have_the_same_bits() {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/artifacts");
    let samples = second_reader(&["samples", fixtures], "");
    assert!(samples.lines().count() >= 7 && samples.lines().all(|line| line.ends_with("bits equal")), "{samples}");
    let spec = Path::new(FOLDER).join("../../SPEC.md");
    let dumps = second_reader(&["spec", spec.to_str().unwrap()], "");
    assert!(dumps.lines().count() >= 10 && dumps.lines().all(|line| line.ends_with(": ok")), "{dumps}");
}

#[test]
#[ignore = "needs Python with NumPy"]
fn perceptrons_and_cnns_train_with_the_same_bits() {
    let scope = Eager::with_seed(&gradlet::portable_cpu(), 3);
    for name in ["mlp:64-32-10", "cnn"] {
        let spec: ModelSpec = name.parse().unwrap();
        let model = Arc::new(spec.build(&scope).unwrap());
        let artifact = export::artifact(&scope, &model, &spec, &Options::default()).unwrap();
        same_bits(&artifact, &["infer", "train", "train_head"], 4, 4);
    }
    same_bits(&frozen::sample().unwrap(), &["infer", "train_sgd", "train_adam"], 20, 4);
}

#[test]
#[ignore = "needs Python with NumPy"]
fn quantised_models_infer_with_the_same_bits() {
    let seeds = 4..12;
    let names: Vec<String> = seeds.clone().flat_map(|seed| [format!("i8_{seed}"), format!("i16_{seed}")]).collect();
    same_bits(&quantised::artifact(seeds).unwrap(), &names.iter().map(String::as_str).collect::<Vec<&str>>(), 2, 0);
    let converted =
        ["mlp_int8_float_io", "residual_int8", "conv_variants_int8", "two_in_two_out_int8", "lstm_unrolled_int8", "lstm_fused_int8"];
    let of_others = ["kws_ref_model", "ad01_int8", "person_detect"];
    let ours = ["attention_int8", "compared_int8", "exponentials_int16", "products_int16", "resized_int8", "roots_int8", "slopes_int8"];
    let names = converted.map(|name| format!("models/{name}")).into_iter().chain(ours.map(|name| format!("models_int16/{name}")));
    for name in names.chain(of_others.map(|name| format!("tinyml/{name}"))) {
        let path = Path::new(FOLDER).join("../fixtures").join(name).with_extension("tflite");
        let model = gradlet::tflite::Model::open(path).unwrap();
        same_bits(&model.export(1).unwrap(), &["infer"], 2, 0);
        same_bits(&model.pack_filters(false).export(1).unwrap(), &["infer"], 2, 0);
    }
}
