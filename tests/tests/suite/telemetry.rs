//! Telemetry over lines that are slow, or that lose or change bytes. Every frame that arrives is correct, and the
//! missing frames are counted.

use gradlet_core::runtime::Telemetry;
use gradlet_core::runtime::checkpoint::Identity;
use gradlet_core::runtime::telemetry::{Frame as Read, Hello, Statistics};
use gradlet_tests::fuzz::telemetry::{Line, frames, read};
use gradlet_tests::random::Random;
use proptest::prelude::*;
use serde::Serialize;

/// The frames of `SPEC.md`, for the postcard crate: kinds and fields in the order of their table.
#[derive(Serialize)]
enum Frame<'a> {
    Hello { version: u32, sender: &'a str, clock: &'a str, hz: u32, artifact: Option<(u32, u32)> },
    Scalar { tag: &'a str, step: u32, value: f32 },
    Statistics { tag: &'a str, step: u32, floats: [f32; 4], count: u32, non_finite: u32 },
    Text { tag: &'a str, step: u32, text: &'a str },
    Progress { step: u32, of: u32, epoch: u32 },
    Counts { signature: &'a str, step: u32, total: u32, first: u32, of: u32, at: u32, ticks: &'a [u8] },
    Dropped { frames: u32 },
}

/// Returns the bytes that a device sends in `steps` steps.
pub fn sent(steps: u32) -> Vec<u8> {
    let mut buffer = [0; 256];
    let mut telemetry = Telemetry::new(Line::default(), &mut buffer);
    telemetry.hello("board", "cycles", 64_000_000, None);
    for step in 0..steps {
        telemetry.scalar("train/loss", step, 1.0 / (step + 1) as f32);
        telemetry.progress(step + 1, steps, 0);
        let Ok(()) = telemetry.flush();
    }
    std::mem::take(&mut telemetry.writer_mut().bytes)
}

#[test]
fn noise_makes_no_frames_and_is_counted() {
    let clean = sent(500);
    let (truth, _) = frames(&clean, 64);
    let mut random = Random::new(3);
    let (mut seen_lost, mut seen_corrupt) = (0, 0);
    for noise in [10, 30, 100, 1000] {
        for _ in 0..10 {
            // Bytes change, vanish, and are inserted. The last frame stays intact, so that the final count is known.
            let (dirty, last) = clean.split_at(clean.len() - 40);
            let mut line: Vec<u8> = Vec::new();
            for &byte in dirty {
                match random.below(noise) {
                    0 => line.push(random.below(256) as u8),
                    1 => {}
                    2 => line.extend([byte, random.below(256) as u8]),
                    _ => line.push(byte),
                }
            }
            line.extend(last);
            let (came, link) = frames(&line, 5);
            let mut rest = truth.iter();
            assert!(came.iter().all(|frame| rest.any(|true_frame| true_frame == frame)), "a frame that was never sent");
            let missing = (truth.len() - came.len()) as u64;
            assert_eq!(link.lost + u64::from(link.before), missing);
            assert_eq!(link.restarts, 0);
            (seen_lost, seen_corrupt) = (seen_lost + link.lost, seen_corrupt + link.corrupt);
        }
    }
    assert!(seen_lost > 1000 && seen_corrupt > 1000, "{seen_lost} {seen_corrupt}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), any::<u8>()], 0..600)) {
        read(&bytes);
    }

    /// gradlet's own encoder writes the same bytes as the postcard and COBS crates.
    #[test]
    fn the_encoding_is_postcard_in_cobs(tag in ".{0,300}", step: u32, bits: u32, count: u16) {
        let value = f32::from_bits(bits);
        let mut buffer = [0; 4096];
        let mut telemetry = Telemetry::new(Line::default(), &mut buffer);
        telemetry.scalar(&tag, step, value);
        telemetry.text("t", step, &tag);
        let elements = vec![7u8; usize::from(count)];
        let tensor_type = gradlet_core::TensorType::new(gradlet_core::DType::U8, gradlet_core::Shape::new(&[count.into()]).unwrap());
        telemetry.statistics(&tag, step, &gradlet_core::tensor::TensorView { tensor_type: &tensor_type, data: Some(&elements) });
        telemetry.progress(step, bits, 9);
        let Ok(()) = telemetry.flush();
        let seven = if count == 0 { 0.0 } else { 7.0 };
        let floats = [seven, seven, seven, 0.0];
        let frames = [
            Frame::Scalar { tag: &tag, step, value },
            Frame::Text { tag: "t", step, text: &tag },
            Frame::Statistics { tag: &tag, step, floats, count: count.into(), non_finite: 0 },
            Frame::Progress { step, of: bits, epoch: 9 },
        ];
        let mut expected = vec![0];
        for (sequence, frame) in frames.iter().enumerate() {
            let mut bytes = postcard::to_stdvec(&(sequence as u32, frame)).unwrap();
            bytes.extend(gradlet_core::runtime::program::checksum(&bytes).to_le_bytes());
            expected.extend(cobs::encode_vec(&bytes));
            expected.push(0);
        }
        prop_assert_eq!(&telemetry.writer_mut().bytes, &expected);
    }

    /// Frames that the postcard and COBS crates write are read.
    #[test]
    fn frames_of_the_crates_are_read(tag in ".{0,300}", number: u32, bits: u32, ticks: Vec<u8>, named: bool) {
        let (value, artifact) = (f32::from_bits(bits), named.then_some((number, bits)));
        let identity = artifact.map(|(length, checksum)| Identity { length, checksum });
        let statistics = Statistics { min: value, max: 1.0, mean: 2.0, variance: 3.0, count: number, non_finite: bits };
        let (tag, ticks, step) = (&tag[..], &ticks[..], number);
        let pairs = [
            (
                Frame::Hello { version: 1, sender: tag, clock: "cycles", hz: bits, artifact },
                Read::Hello(Hello { version: 1, sender: tag, clock: "cycles", hz: bits, artifact: identity }),
            ),
            (Frame::Scalar { tag, step, value }, Read::Scalar { tag, step, value }),
            (
                Frame::Statistics { tag, step, floats: [value, 1.0, 2.0, 3.0], count: number, non_finite: bits },
                Read::Statistics { tag, step, statistics },
            ),
            (Frame::Text { tag: "t", step, text: tag }, Read::Text { tag: "t", step, text: tag }),
            (Frame::Progress { step, of: bits, epoch: 9 }, Read::Progress { step, of: bits, epoch: 9 }),
            (
                Frame::Counts { signature: tag, step, total: bits, first: 1, of: 2, at: 3, ticks },
                Read::Counts { signature: tag, step, total: bits, first: 1, of: 2, at: 3, ticks },
            ),
            (Frame::Dropped { frames: number }, Read::Dropped { frames: number }),
        ];
        let mut line = vec![0];
        for (sequence, (frame, _)) in pairs.iter().enumerate() {
            let mut bytes = postcard::to_stdvec(&(sequence as u32, frame)).unwrap();
            bytes.extend(gradlet_core::runtime::program::checksum(&bytes).to_le_bytes());
            line.extend(cobs::encode_vec(&bytes));
            line.push(0);
        }
        let expected: Vec<String> = pairs.iter().enumerate().map(|(sequence, (_, read))| format!("{sequence} {read:?}")).collect();
        let (found, link) = frames(&line, 7);
        prop_assert_eq!(found, expected);
        prop_assert_eq!((link.frames, link.corrupt, link.unknown), (7, 0, 0));
    }
}
