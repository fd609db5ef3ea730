//! The example of `SPEC.md`: its bytes are what gradlet reads and writes, and its results are what gradlet computes.

use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::runtime::telemetry::{Decoder, Frame};
use gradlet_core::runtime::{Slots, Telemetry};
use gradlet_core::{Program, Session, ops};
use gradlet_tests::flash::Flash;
use gradlet_tests::fuzz::telemetry::Line;

/// Returns the bytes of the hex dump with this name in `SPEC.md`.
fn dump(name: &str) -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../SPEC.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, block) = text.split_once(&format!("```hex {name}\n")).unwrap_or_else(|| panic!("SPEC.md has no dump {name:?}"));
    let mut bytes = Vec::new();
    for line in block.lines().take_while(|line| *line != "```") {
        let (offset, rest) = line.split_once(": ").unwrap();
        assert_eq!(usize::from_str_radix(offset, 16).unwrap(), bytes.len(), "{name}: {line}");
        let digits = rest.split('#').next().unwrap();
        bytes.extend(digits.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

/// Runs a signature with the inputs of the named dumps, and returns its output.
fn run(session: &mut Session<'_, '_>, name: &str, inputs: &[&str]) -> Vec<u8> {
    let signature = session.program().signature(name).unwrap();
    for (index, input) in inputs.iter().enumerate() {
        session.input_bytes_mut(signature, index).unwrap().copy_from_slice(&dump(input));
    }
    session.run(signature).unwrap();
    session.output_bytes(signature, 0).unwrap().to_vec()
}

#[test]
fn the_example_runs_as_it_says() {
    let artifact = AlignedBytes::from(&dump("artifact")[..]);
    let program = Program::load(&artifact, ops::KERNELS, &["infer", "train"]).unwrap();
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena).unwrap();
    assert_eq!(run(&mut session, "infer", &["infer.x"]), dump("infer.y"));
    assert_eq!(run(&mut session, "train", &["train.x", "train.t"]), dump("train.loss"));
    assert_eq!(session.variable(0).unwrap(), dump("train.kernel"));
    assert_eq!(session.variable(1).unwrap(), dump("train.bias"));
    assert_eq!(run(&mut session, "infer", &["infer.x"]), dump("infer.y.trained"));

    let mut checkpoint = Vec::new();
    session.save(&mut checkpoint, Contents::Full).unwrap();
    assert_eq!(checkpoint, dump("checkpoint"));

    let mut flash = Flash::<1, 8, 256>::new(2, 1);
    Slots::<_, 64>::new(&mut flash, 0..512, 2).unwrap().save(&session, Contents::Full).unwrap();
    let slot = dump("slot");
    assert_eq!(flash.bytes[..slot.len()], slot);

    let loss = f32::from_le_bytes(dump("train.loss").try_into().unwrap());
    let mut buffer = [0; 64];
    let mut telemetry = Telemetry::new(Line::default(), &mut buffer);
    telemetry.scalar("loss", 1, loss);
    let Ok(()) = telemetry.flush();
    assert_eq!(telemetry.writer_mut().bytes, dump("line"));
    let mut decoder = Decoder::new([0; 64]);
    let mut came = 0;
    decoder.feed(&dump("line"), &mut |received| {
        assert_eq!((received.sequence, received.frame), (0, Frame::Scalar { tag: "loss", step: 1, value: loss }));
        came += 1;
    });
    assert_eq!(came, 1);
}
