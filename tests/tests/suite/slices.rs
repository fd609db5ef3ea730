//! Runs in slices: the bits of whole runs whatever the budgets, at any point abandoned, beside other models in the same scratch memory.

use gradlet::applications::ModelSpec;
use gradlet::artifact::export::{self, Options};
use gradlet_core::artifact::describe::Description;
use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::SignatureId;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::{Eager, Error, Program, Session, ops};
use gradlet_tests::flat::{arena, kept_artifact, load, program, state, step};
use gradlet_tests::random::Random;
use std::sync::Arc;

/// Returns the model `spec`, exported with both signatures.
fn exported_bytes(spec: &str) -> Vec<u8> {
    let scope = Eager::new(&ops::portable_cpu());
    let spec: ModelSpec = spec.parse().unwrap();
    let model = Arc::new(spec.build(&scope).unwrap());
    let signatures = ["infer", "train"].map(String::from).into();
    let options = Options { learning_rate: 0.05, signatures, ..Options::default() };
    export::artifact(&scope, &model, &spec, &options).unwrap().to_vec()
}

fn exported(spec: &str) -> Program<'static> {
    load(&exported_bytes(spec), &["infer", "train"]).unwrap()
}

/// Sets the inputs of a run of `signature` to numbers that depend on `number`.
fn set_inputs(session: &mut Session<'_, '_>, signature: SignatureId, number: u32) {
    let pixels = session.input_mut::<f32>(signature, 0).unwrap();
    (0..).zip(pixels).for_each(|(at, pixel)| *pixel = ((number * 7 + at * 3) % 11) as f32 * 0.1);
    if let Ok(labels) = session.input_mut::<i32>(signature, 1) {
        labels.fill((number % 2) as i32);
    }
}

/// Runs `signature` in slices with the budgets that `budget` returns. Returns their number.
fn run_in_slices(session: &mut Session<'_, '_>, signature: SignatureId, mut budget: impl FnMut() -> u32) -> u32 {
    session.begin(signature).unwrap();
    let mut slices = 1;
    while session.advance(budget()).unwrap().is_pending() {
        slices += 1;
    }
    slices
}

#[test]
fn all_budgets_give_the_bits_of_a_whole_run() {
    for spec in ["mlp:64-32-10", "cnn"] {
        let program = &exported(spec);
        let (mut one, mut other) = (arena(program), arena(program));
        let mut whole = Session::new(program, &mut one).unwrap();
        let mut sliced = Session::new(program, &mut other).unwrap();
        let mut random = Random::new(7);
        let mut counts = Vec::new();
        for (number, (least, most)) in (0..).zip([(0, 0), (1, 400), (0, 20_000), (20_000, 20_000), (u32::MAX, u32::MAX)]) {
            for signature in ["train", "infer"].map(|name| program.signature(name).unwrap()) {
                set_inputs(&mut whole, signature, number);
                set_inputs(&mut sliced, signature, number);
                whole.run(signature).unwrap();
                let budget = || if least == most { least } else { random.range(least, most) };
                counts.push(run_in_slices(&mut sliced, signature, budget));
                assert!(whole.output_bytes(signature, 0).unwrap() == sliced.output_bytes(signature, 0).unwrap(), "{spec} {most}");
            }
            assert!(state(&whole) == state(&sliced), "{spec} {most}");
        }
        // The smallest budget divides a step most, and the largest does not.
        assert!(counts[0] > 100 && counts[8] == 1, "{spec}: {counts:?}");
    }
}

#[test]
fn a_run_abandoned_at_any_slice_leaves_the_old_values_or_says_so() {
    for keep_copy in [false, true] {
        let program = &load(&kept_artifact(0.01, keep_copy).unwrap(), &["infer", "train"]).unwrap();
        let train = program.signature("train").unwrap();
        let mut arena = arena(program);
        let mut session = Session::new(program, &mut arena).unwrap();
        step(&mut session, 0).unwrap();
        let (before, mut saved) = (state(&session), Vec::new());
        session.save(&mut saved, Contents::Full).unwrap();
        let (mut slices, mut unfinished) = (0, 0);
        loop {
            set_inputs(&mut session, train, 1);
            session.begin(train).unwrap();
            if (0..=slices).any(|_| session.advance(0).unwrap().is_ready()) {
                break;
            }
            slices += 1;
            session.abort();
            // A run that was abandoned is over.
            assert_eq!(session.advance(0), Err(Error::Interrupted));
            match session.begin(train) {
                Ok(()) => session.abort(),
                Err(error) => {
                    assert!(error == Error::Unfinished && !keep_copy);
                    unfinished += 1;
                    session.restore(&mut &saved[..]).unwrap();
                }
            }
            assert!(state(&session) == before, "{keep_copy}, slice {slices}");
        }
        assert!(slices > 20 && (unfinished > 5) != keep_copy, "{slices} {unfinished}");
    }
}

#[test]
fn a_new_run_abandons_the_one_before() {
    let program = program();
    let [infer, train] = ["infer", "train"].map(|name| program.signature(name).unwrap());
    let mut arena = arena(program);
    let mut session = Session::new(program, &mut arena).unwrap();
    let before = state(&session);
    set_inputs(&mut session, train, 3);
    session.begin(train).unwrap();
    assert!(session.advance(0).unwrap().is_pending());
    set_inputs(&mut session, infer, 3);
    session.run(infer).unwrap();
    assert!(state(&session) == before);
    // A run is over after its last slice, and after a reset.
    assert_eq!(session.advance(0), Err(Error::Interrupted));
    session.begin(train).unwrap();
    session.reset();
    assert_eq!(session.advance(0), Err(Error::Interrupted));
}

#[test]
fn two_models_share_scratch_memory_and_keep_their_variables() {
    let programs = [&exported("mlp:64-32-10"), &exported("mlp:16-8-4")];
    let mut alone = programs.map(arena);
    let mut scratch = AlignedBytes::zeroed(programs.map(Program::scratch_bytes).into_iter().max().unwrap());
    let mut kept = programs.map(|program| AlignedBytes::zeroed(program.kept_bytes()));
    for (program, kept) in programs.iter().zip(&mut kept) {
        Session::new_in(program, &mut scratch, kept).unwrap();
    }
    for number in 0..6 {
        for (index, program) in programs.into_iter().enumerate() {
            let train = program.signature("train").unwrap();
            let mut session =
                if number == 0 { Session::new(program, &mut alone[index]) } else { Session::resume(program, &mut alone[index]) }.unwrap();
            let mut shared = Session::resume_in(program, &mut scratch, &mut kept[index]).unwrap();
            set_inputs(&mut session, train, number);
            set_inputs(&mut shared, train, number);
            session.run(train).unwrap();
            run_in_slices(&mut shared, train, || 500);
            assert!(state(&session) == state(&shared), "model {index}, step {number}");
        }
    }
    let needed = programs[0].kept_bytes() as u32;
    let short = Session::new_in(programs[0], &mut scratch, &mut kept[1]).map(drop).unwrap_err();
    assert!(matches!(short, Error::ArenaTooSmall { needed: bytes, .. } if bytes == needed), "{short}");
    let short = Session::resume_in(programs[0], &mut [], &mut kept[0]).map(drop).unwrap_err();
    assert!(matches!(short, Error::ArenaTooSmall { got: 0, .. } | Error::Misaligned), "{short}");
}

/// A kernel that does not divide its work would charge no row.
#[test]
fn the_description_tells_the_longest_part_of_every_layer() {
    for spec in ["mlp:64-32-10", "cnn"] {
        let description = Description::read(&exported_bytes(spec)).unwrap();
        for signature in &description.signatures {
            for (_, instruction) in signature.walk() {
                let part = instruction.part.unwrap();
                assert!((401..25_000).contains(&part), "{spec}: {} has a part of {part} instructions", instruction.op);
            }
            let longest = signature.longest_slice().unwrap().part;
            assert!(signature.walk().iter().all(|(_, instruction)| instruction.part <= longest));
        }
    }
}

/// A session can be moved to another thread or an interrupt, and a program can be shared between them.
#[test]
fn a_session_is_send() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Session<'static, 'static>>();
    sync::<Program<'static>>();
}
