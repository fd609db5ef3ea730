//! Benchmarks of `tf.train.Example` messages with a 784-byte image and a label: write, parse, and decode to tensors, 128 per iteration.

use criterion::{BatchSize, Criterion, Throughput};
use gradlet::DType;
use gradlet::io::example::{Example, FeatureType, Features, FixedLenFeature, parse_example};
use gradlet::io::{ByteOrder, decode_raw};

const BATCH: usize = 128;

fn examples(c: &mut Criterion) {
    let example = |label: usize| Example::new().with("image", &[label as u8; 784]).with("label", label as i64 % 10);
    let records: Vec<_> = (0..BATCH).map(|label| example(label).to_bytes()).collect();
    let features = Features::new()
        .with("image", FixedLenFeature::new(FeatureType::Strings, &[]))
        .with("label", FixedLenFeature::new(FeatureType::I64, &[]));
    let mut group = c.benchmark_group("examples");
    group.throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("write", |b| {
        b.iter_batched(|| example(3), |example| (0..BATCH).map(|_| example.to_bytes().len()).sum::<usize>(), BatchSize::SmallInput)
    });
    group.bench_function("parse", |b| b.iter(|| parse_example(&records, &features).unwrap()));
    group.bench_function("parse and decode", |b| {
        b.iter(|| {
            let batch = parse_example(&records, &features).unwrap();
            decode_raw(batch.strings("image").unwrap(), DType::U8, ByteOrder::Little).unwrap()
        })
    });
    group.bench_function("message by prost", |b| {
        b.iter(|| records.iter().map(|record| Example::from_bytes(record.clone()).unwrap()).collect::<Vec<_>>())
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    examples(&mut criterion);
    criterion.final_summary();
}
