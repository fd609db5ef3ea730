extern crate std;

use super::*;
use crate::base::dtype::{Bool, DType, Element};
use crate::base::shape::{Shape, TensorType};
use crate::runtime::arena::Aligned;
use core::convert::Infallible;
use embedded_io::ErrorType;
use std::string::{String, ToString};
use std::vec::Vec;

/// A line that accepts `room` bytes before it must be given time.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    room: usize,
}

impl ErrorType for Line {
    type Error = Infallible;
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        // A blocking write makes room for at least one byte.
        let taken = bytes.len().min(self.room.max(1));
        self.bytes.extend(&bytes[..taken]);
        self.room = self.room.saturating_sub(taken);
        Ok(taken)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl WriteReady for Line {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.room > 0)
    }
}

/// Returns the frames on the line as text, and the state of the line.
fn read(bytes: &[u8]) -> (Vec<String>, Link) {
    let (mut frames, mut decoder) = (Vec::new(), Decoder::new([0; 4096]));
    decoder.feed(bytes, &mut |received| frames.push(std::format!("{} {:?}", received.sequence, received.frame)));
    (frames, *decoder.link())
}

fn sent(buffer: usize, send: impl FnOnce(&mut Telemetry<'_, Line>)) -> Vec<u8> {
    let mut buffer = std::vec![0; buffer];
    let mut telemetry = Telemetry::new(Line::default(), &mut buffer);
    send(&mut telemetry);
    telemetry.flush().unwrap();
    telemetry.writer.bytes
}

fn statistics<T: Element>(elements: &[T]) -> Statistics {
    let tensor_type = TensorType::new(T::DTYPE, Shape::new(&[elements.len() as u32]).unwrap());
    Statistics::of(&TensorView { tensor_type: &tensor_type, data: Some(bytemuck::cast_slice(elements)) })
}

#[test]
fn every_frame_comes_as_it_was_sent() {
    let tensor_type = TensorType::new(i32::DTYPE, Shape::new(&[2]).unwrap());
    let bytes = sent(4096, |telemetry| {
        telemetry.hello("board", "cycles", 64_000_000, Some(Identity { length: 1000, checksum: u32::MAX }));
        telemetry.scalar("loss", 300, -0.5);
        telemetry.statistics("w", 1, &TensorView { tensor_type: &tensor_type, data: Some(bytemuck::cast_slice(&[1i32, 3])) });
        telemetry.text("note", 2, "ä\0b");
        telemetry.format("note", 3, format_args!("{} V", 3.3));
        telemetry.progress(1, 500, 2);
        let mut counts = [0; 20];
        let mut now = 0;
        let mut profiler = Profiler::new(
            || {
                now += 10;
                now
            },
            &mut counts,
        );
        crate::runtime::exec::Profile::begin(&mut profiler, 0);
        crate::runtime::exec::Profile::end(&mut profiler, 17);
        telemetry.counts("train", 4, &profiler);
    });
    let (frames, link) = read(&bytes);
    let zeros = std::vec![0u8; 64];
    let expected = [
        concat!(
            r#"0 Hello(Hello { version: 1, sender: "board", clock: "cycles", hz: 64000000, "#,
            r#"artifact: Some(Identity { length: 1000, checksum: 4294967295 }) })"#
        )
        .to_string(),
        r#"1 Scalar { tag: "loss", step: 300, value: -0.5 }"#.to_string(),
        concat!(
            r#"2 Statistics { tag: "w", step: 1, statistics: Statistics "#,
            "{ min: 1.0, max: 3.0, mean: 2.0, variance: 1.0, count: 2, non_finite: 0 } }"
        )
        .to_string(),
        r#"3 Text { tag: "note", step: 2, text: "ä\0b" }"#.to_string(),
        r#"4 Text { tag: "note", step: 3, text: "3.3 V" }"#.to_string(),
        "5 Progress { step: 1, of: 500, epoch: 2 }".to_string(),
        std::format!(r#"6 Counts {{ signature: "train", step: 4, total: 0, first: 0, of: 18, at: 0, ticks: {zeros:?} }}"#),
        r#"7 Counts { signature: "train", step: 4, total: 0, first: 0, of: 18, at: 16, ticks: [0, 0, 0, 0, 10, 0, 0, 0] }"#.to_string(),
    ];
    assert_eq!(frames, expected);
    assert_eq!(link, Link { frames: 8, ..Link::default() });
}

#[test]
fn what_a_program_says_becomes_frames() {
    let (tensor_type, nan) = (TensorType::new(f32::DTYPE, Shape::SCALAR), Aligned(f32::NAN.to_le_bytes()));
    let value = TensorView { tensor_type: &tensor_type, data: Some(&nan.0) };
    let summary = |kind, step| Said::Summary(Summary { kind, parameter: 0, tag: "w", step, value });
    let bytes = sent(256, |telemetry| {
        telemetry.said(&summary(SummaryKind::Scalar, Some(7)), 1);
        telemetry.said(&summary(SummaryKind::Histogram, None), 1);
        let words = [3, 2, u32::from_le_bytes(*b"{}\0\0")];
        telemetry.said(&Said::Print(crate::base::format::Printed { attributes: &words, inputs: &[value] }), 2);
    });
    let bytes = [
        bytes,
        sent(64, |telemetry| {
            let (tensor_type, nan) = (TensorType::new(f64::DTYPE, Shape::SCALAR), Aligned(f64::NAN.to_le_bytes()));
            let value = TensorView { tensor_type: &tensor_type, data: Some(&nan.0) };
            telemetry.said(&Said::Summary(Summary { kind: SummaryKind::Scalar, parameter: 0, tag: "double", step: None, value }), 3);
        }),
    ]
    .concat();
    let (frames, _) = read(&bytes);
    let expected = [
        r#"0 Scalar { tag: "w", step: 7, value: NaN }"#,
        concat!(
            r#"1 Statistics { tag: "w", step: 1, statistics: Statistics "#,
            "{ min: 0.0, max: 0.0, mean: 0.0, variance: 0.0, count: 1, non_finite: 1 } }"
        ),
        r#"2 Text { tag: "print", step: 2, text: "nan" }"#,
        r#"0 Scalar { tag: "double", step: 3, value: NaN }"#,
    ];
    assert_eq!(frames, expected);
}

#[test]
fn the_bytes_are_those_of_the_specification() {
    let bytes = sent(64, |telemetry| telemetry.scalar("a", 300, 1.0));
    // Number 0, kind 1, "a", 300, 1.0, and the checksum of these.
    let content = [0, 1, 1, b'a', 0xac, 0x02, 0, 0, 0x80, 0x3f];
    let whole: Vec<u8> = content.into_iter().chain(crate::runtime::program::checksum(&content).to_le_bytes()).collect();
    let mut coded = std::vec![0];
    for part in whole.split(|&byte| byte == 0) {
        coded.push(part.len() as u8 + 1);
        coded.extend(part);
    }
    coded.push(0);
    assert_eq!(bytes, coded);
}

#[test]
fn what_does_not_fit_is_dropped_and_told() {
    for buffer in 0..200 {
        for room in [0, 1, 7, 50] {
            let mut memory = std::vec![0; buffer];
            let mut telemetry = Telemetry::new(Line::default(), &mut memory);
            for step in 0..100 {
                telemetry.scalar("loss", step, step as f32);
                telemetry.writer.room = room;
                telemetry.poll().unwrap();
            }
            telemetry.flush().unwrap();
            let (dropped, bytes) = (telemetry.dropped(), telemetry.writer.bytes);
            let (frames, link) = read(&bytes);
            let told = frames.iter().filter(|frame| frame.contains("Dropped")).count();
            assert_eq!(frames.len() - told + dropped as usize, 100, "{buffer} {room}");
            assert_eq!((link.lost, link.corrupt), (0, 0));
            let last = frames.iter().rfind(|frame| frame.contains("Dropped"));
            let fits = buffer >= 9;
            assert_eq!(last.is_some_and(|last| last.ends_with(&std::format!("Dropped {{ frames: {dropped} }}"))), fits && dropped > 0);
            if room == 50 && buffer >= 50 {
                assert_eq!(dropped, 0);
            }
        }
    }
}

/// At half of the required speed, a third of the scalars arrives, evenly over the whole run.
#[test]
fn a_slow_line_is_not_filled_with_accounts() {
    const STEPS: u32 = 4000;
    for (buffer, room) in [(1024, 20), (256, 20)] {
        let mut memory = std::vec![0; buffer];
        let mut telemetry = Telemetry::new(Line::default(), &mut memory);
        for step in 0..STEPS {
            telemetry.scalar("train/loss", step, 0.3);
            telemetry.progress(step, STEPS, 0);
            telemetry.writer.room = room;
            telemetry.poll().unwrap();
        }
        telemetry.flush().unwrap();
        let dropped = telemetry.dropped();
        let (frames, link) = read(&telemetry.writer.bytes);
        let told = frames.iter().filter(|frame| frame.contains("Dropped")).count();
        assert_eq!((link.lost, frames.len() - told + dropped as usize), (0, 2 * STEPS as usize));
        // Each report of dropped frames but the last is followed by another frame.
        assert!(!frames.iter().zip(&frames[1..]).any(|(frame, next)| frame.contains("Dropped") && next.contains("Dropped")));
        for quarter in 0..4 {
            let steps = quarter * STEPS / 4..(quarter + 1) * STEPS / 4;
            let came = steps.filter(|step| frames.iter().any(|frame| frame.contains(&std::format!("step: {step}, value")))).count();
            assert!(came >= STEPS as usize / 4 / 3, "{buffer} {room}: {came} scalars in quarter {quarter}");
        }
    }
}

#[test]
fn a_buffer_without_room_for_an_account_becomes_empty() {
    let mut memory = [0; 8];
    let mut telemetry = Telemetry::new(Line::default(), &mut memory);
    telemetry.scalar("loss", 0, 1.0);
    assert!(!telemetry.is_empty());
    telemetry.flush().unwrap();
    assert!(telemetry.is_empty() && telemetry.dropped() == 1);
    // With enough room, the buffer is not empty until the report has been sent.
    let mut memory = [0; 12];
    let mut telemetry = Telemetry::new(Line::default(), &mut memory);
    telemetry.flush().unwrap();
    telemetry.scalar("loss", 0, 1.0);
    assert!(!telemetry.is_empty());
    telemetry.flush().unwrap();
    assert!(telemetry.is_empty());
    assert_eq!(read(&telemetry.writer.bytes).0, ["0 Dropped { frames: 1 }"]);
}

#[test]
fn a_new_start_is_seen() {
    let first = sent(256, |telemetry| (0..3).for_each(|step| telemetry.progress(step, 3, 0)));
    let second = sent(256, |telemetry| (0..5).for_each(|step| telemetry.progress(step, 5, 1)));
    let (_, link) = read(&[&first[..], &second].concat());
    assert_eq!(link, Link { frames: 8, restarts: 1, ..Link::default() });
    // Power fails in the middle of a frame; the second start begins with a zero byte.
    let (frames, link) = read(&[&first[..first.len() - 3], &second].concat());
    assert_eq!((frames.len(), link), (7, Link { frames: 7, corrupt: 1, restarts: 1, ..Link::default() }));
    // The frames up to an unused sequence number are lost, so only the number of dropped frames shows the restart.
    let dropped = sent(256, |telemetry| telemetry.queue.dropped = 3);
    let late: Vec<u8> = sent(256, |telemetry| {
        (0..5).for_each(|step| telemetry.progress(step, 5, 0));
        telemetry.queue.dropped += 1;
        telemetry.progress(5, 5, 0);
    });
    let lost = late.split(|&byte| byte == 0).skip(6).collect::<Vec<_>>().join(&0);
    let (_, link) = read(&[&dropped[..], &lost].concat());
    assert_eq!(link, Link { frames: 3, lost: 5, restarts: 1, ..Link::default() });
    // The reader starts late.
    let (_, link) = read(&first[15..]);
    assert_eq!(link, Link { frames: 1, before: 2, ..Link::default() });
}

#[test]
fn other_versions_and_kinds_are_passed_over() {
    let mut memory = [0; 256];
    let mut telemetry = Telemetry::new(Line::default(), &mut memory);
    telemetry.queue.tagged(99, "what a later version sends", 0);
    telemetry.queue.end();
    telemetry.queue.begin(kind::PROGRESS);
    (1..9).for_each(|number| telemetry.queue.number(number)); // it has more fields
    telemetry.queue.end();
    telemetry.queue.begin(kind::HELLO);
    telemetry.queue.number(2);
    telemetry.queue.end();
    telemetry.scalar("loss", 0, 1.0);
    telemetry.flush().unwrap();
    let (frames, link) = read(&telemetry.writer.bytes);
    assert_eq!(frames, ["1 Progress { step: 1, of: 2, epoch: 3 }"]);
    assert_eq!(link, Link { frames: 4, unknown: 3, foreign: Some(2), ..Link::default() });
}

#[test]
fn a_frame_that_is_too_long_for_the_reader_is_counted() {
    let text = "x".repeat(600);
    let bytes = sent(2048, |telemetry| {
        telemetry.text("long", 0, &text);
        telemetry.progress(1, 1, 0);
    });
    assert_eq!(read(&bytes).0.len(), 2);
    let mut decoder = Decoder::new([0; 64]);
    let mut frames = 0;
    decoder.feed(&bytes, &mut |_| frames += 1);
    assert_eq!((frames, *decoder.link()), (1, Link { frames: 1, before: 1, corrupt: 1, ..Link::default() }));
}

#[test]
fn statistics_are_those_of_the_elements() {
    let found = statistics(&[1.0f32, f32::NAN, -3.0, f32::INFINITY, 5.0]);
    assert_eq!((found.min, found.max, found.mean, found.count, found.non_finite), (-3.0, 5.0, 1.0, 5, 2));
    assert!((found.variance - 32.0 / 3.0).abs() < 1e-6, "{found:?}");
    let all = |found: Statistics| (found.min, found.max, found.mean, found.variance);
    for found in [
        statistics(&[1i8, 2, 3, 6]),
        statistics(&[1u8, 2, 3, 6]),
        statistics(&[1i32, 2, 3, 6]),
        statistics(&[1i64, 2, 3, 6]),
        statistics(&[1f64, 2.0, 3.0, 6.0]),
        statistics(&[1.0, 2.0, 3.0, 6.0].map(half::f16::from_f32)),
        statistics(&[1.0, 2.0, 3.0, 6.0].map(half::bf16::from_f32)),
    ] {
        assert_eq!((all(found), found.count, found.non_finite), ((1.0, 6.0, 3.0, 3.5), 4, 0));
    }
    assert_eq!(all(statistics(&[Bool(1), Bool(0)])), (0.0, 1.0, 0.5, 0.25));
    for value in [-1, -5, -100, -200, i64::MIN, i64::MAX, 1 << 40, -(1 << 40) - 3] {
        assert_eq!(all(statistics(&[value])), (value as f32, value as f32, value as f32, 0.0));
    }
    for bits in 0..=u16::MAX {
        let (value, tensor_type) = (half::f16::from_bits(bits), TensorType::new(DType::F16, Shape::SCALAR));
        let found = statistics::value(&TensorView { tensor_type: &tensor_type, data: Some(bytemuck::bytes_of(&bits)) }, 0).unwrap();
        assert!(found == value.to_f32() || found.is_nan() && value.is_nan(), "{value}: {found}");
    }
    for value in [-1.5, 1e300, f64::NEG_INFINITY, 3e38, 1e-300, f64::INFINITY, f64::from_bits(0x7ff0_0000_4000_0000), -f64::NAN] {
        let (narrow, tensor_type) = (value as f32, TensorType::new(DType::F64, Shape::SCALAR));
        let found = statistics::value(&TensorView { tensor_type: &tensor_type, data: Some(bytemuck::bytes_of(&value)) }, 0).unwrap();
        assert!(found == narrow || found.is_nan() && narrow.is_nan(), "{value}: {found}");
    }
    assert_eq!(all(statistics(&[3e38f32, -3e38])), (-3e38, 3e38, 0.0, f32::INFINITY));
    assert_eq!(statistics::<f32>(&[]), Statistics::default());
    assert_eq!(statistics(&[f32::NAN]), Statistics { count: 1, non_finite: 1, ..Statistics::default() });
    let many: Vec<f32> = (0..1_000_000).map(|index| 1000.0 + (index % 2) as f32 * 0.01).collect();
    let found = statistics(&many);
    let exact = many.iter().map(|&value| f64::from(value)).sum::<f64>() / 1e6;
    assert!((f64::from(found.mean) - exact).abs() < 1e-4, "{found:?}");
    assert!((found.variance - 2.5e-5).abs() < 1e-6, "{found:?}");
}
