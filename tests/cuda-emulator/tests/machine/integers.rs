//! Integers, bits and conversions against the host's.

use crate::support::{load, random};

fn words() -> Vec<i32> {
    let mut next = random(1);
    let mut list = vec![0, 1, -1, 2, i32::MAX, i32::MIN, 0x1234_5678, -7, 33, 31];
    list.resize_with(64, || (next() >> (next() & 31)) as i32);
    list
}

#[test]
fn of_32_bits() {
    let mut cuda = load("integers.ptx");
    let (a, mut b) = (words(), words());
    b.rotate_left(5);
    let (left, right, out) = (cuda.upload(&a), cuda.upload(&b), cuda.device.allocate(64 * 32 * 4));
    cuda.block("words", 64, &[&left, &right, &out]);
    for ((row, x), y) in cuda.download::<i32>(out).chunks(32).zip(a).zip(b) {
        let (u, v) = (x as u32, y as u32);
        let joined = (u64::from(v) << 32) | u64::from(u);
        let bytes = |word: i32| word.to_le_bytes().map(|byte| i32::from(byte as i8));
        let dot = bytes(x).iter().zip(bytes(y)).map(|(a, b)| a * b).sum::<i32>() + 5;
        let expected = [
            x.wrapping_add(y),
            x.wrapping_sub(y),
            x.wrapping_mul(y),
            if y == 0 { 0 } else { x.wrapping_div(y) },
            if y == 0 { 0 } else { x.wrapping_rem(y) },
            u.checked_div(v).unwrap_or(0) as i32,
            u.checked_rem(v).unwrap_or(0) as i32,
            ((i64::from(x) * i64::from(y)) >> 32) as i32,
            ((u64::from(u) * u64::from(v)) >> 32) as i32,
            x.min(y),
            u.max(v) as i32,
            x.wrapping_abs(),
            x >> (y & 31),
            (u >> (v & 31)) as i32,
            x << (y & 31),
            u.count_ones() as i32,
            u.leading_zeros() as i32,
            u.reverse_bits() as i32,
            if x == 0 { 0 } else { x.trailing_zeros() as i32 + 1 },
            i32::from_le_bytes([u as u8, v as u8, (u >> 8) as u8, (v >> 8) as u8]),
            (joined << 7 >> 32) as i32,
            (joined >> 8) as i32,
            (x & y) ^ (!x | y),
            i32::from(x as i16) * i32::from(y as i16),
            i32::from(x as i8),
            i32::from(y as u16),
            dot,
            x.abs_diff(y).wrapping_add(3) as i32,
            if x < y {
                if u < v { 1 } else { 2 }
            } else if u < v {
                3
            } else {
                4
            },
            i32::from(x as i16 >> 3) as i16 as i32 + i32::from(y as u16 >> 3),
            i32::from(x == y),
            (x as f32).to_bits() as i32,
        ];
        assert_eq!(row, expected, "of {x} and {y}");
    }
}

#[test]
fn of_64_bits() {
    let mut cuda = load("integers.ptx");
    let mut next = random(2);
    let mut a = vec![0, 1, -1, i64::MAX, i64::MIN, 1 << 32, -(1 << 33)];
    a.resize_with(64, || (next() >> (next() & 63)) as i64);
    let mut b = a.clone();
    b.rotate_left(9);
    let (left, right, out) = (cuda.upload(&a), cuda.upload(&b), cuda.device.allocate(64 * 16 * 8));
    cuda.block("longs", 64, &[&left, &right, &out]);
    for ((row, x), y) in cuda.download::<i64>(out).chunks(16).zip(a).zip(b) {
        let (u, v) = (x as u64, y as u64);
        let wide = (u128::from(u) * u128::from(v)).wrapping_add(u.into());
        let expected = [
            if y == 0 { 0 } else { x.wrapping_div(y) },
            if y == 0 { 0 } else { x.wrapping_rem(y) },
            u.checked_div(v).unwrap_or(0) as i64,
            u.checked_rem(v).unwrap_or(0) as i64,
            ((i128::from(x) * i128::from(y)) >> 64) as i64,
            ((u128::from(u) * u128::from(v)) >> 64) as i64,
            i64::from(u.count_ones()),
            i64::from(u.leading_zeros()),
            u.reverse_bits() as i64,
            x >> (y & 63),
            (u >> (v & 63)) as i64,
            x << (y & 63),
            (wide >> 64) as i64,
            wide as i64,
            (wide.wrapping_sub(v.into()) >> 64) as i64,
            if v == 0 { 0 } else { (wide / u128::from(v)) as i64 },
        ];
        assert_eq!(row, expected, "of {x} and {y}");
    }
}

/// A value rounded up or down to an f32.
fn directed(value: f64, up: bool) -> f32 {
    let near = value as f32;
    match f64::from(near).partial_cmp(&value) {
        Some(std::cmp::Ordering::Less) if up => near.next_up(),
        Some(std::cmp::Ordering::Greater) if !up => near.next_down(),
        _ => near,
    }
}

#[test]
fn conversions() {
    let mut cuda = load("integers.ptx");
    let mut next = random(3);
    let mut a = vec![0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e9, -3e9, 65_503.9, 3e-6, 70_000.0, 126.9, -129.5];
    a.resize_with(64, || (next() as i64 >> (24 + next() % 40)) as f64 / 1024.0);
    let (input, out) = (cuda.upload(&a), cuda.device.allocate(64 * 24 * 8));
    cuda.block("conversions", 64, &[&input, &out]);
    for (row, x) in cuda.download::<i64>(out).chunks(24).zip(a) {
        let f = x as f32;
        let (bits, wide) = (|f: f32| i64::from(f.to_bits() as i32), f64::from(f));
        let toward_zero = |value: f64| directed(value, value < 0.0);
        let scaled = i64::from((x as i32).wrapping_mul(16_777_259));
        let long = (x as i64).wrapping_mul(16_777_259);
        // A sum and product of two f32 are exact in f64, or nearly so.
        let tenth = f64::from(0.1f32);
        let expected = [
            i64::from(x as i32),
            i64::from(x.round_ties_even() as i32),
            i64::from(x.ceil() as i32),
            i64::from(x.floor() as i32),
            x as i64,
            x.round_ties_even() as u64 as i64,
            i64::from(f.round_ties_even() as i32),
            i64::from(f as u32),
            f.floor() as i64,
            bits(toward_zero(x)),
            bits(directed(x, true)),
            bits(directed(x, false)),
            bits(toward_zero(scaled as f64)),
            bits(if long.unsigned_abs() < 1 << 53 { directed(long as f64, true) } else { f32::from_bits(row[13] as u32) }),
            bits(toward_zero(wide + tenth)),
            bits(directed(wide * tenth, true)),
            bits(directed(wide / 3.0, false)),
            bits(directed(wide.abs().sqrt(), true)),
            row[18],
            row[19],
            x.mul_add(x, 0.1).to_bits() as i64,
        ];
        assert_eq!(row[..21], expected, "of {x}");
        let (zero, down) = (f64::from_bits(row[18] as u64), f64::from_bits(row[19] as u64));
        assert!(zero == x + 0.1 || zero == (x + 0.1).next_down() || zero == (x + 0.1).next_up());
        assert!(zero.abs() <= (x + 0.1).abs() && down <= x * 0.1 && down >= (x * 0.1).next_down());
        let back = f32::from_bits(row[22] as u32);
        assert!(f.abs() > 65_519.9 && back.is_infinite() || (back - f).abs() <= f.abs() / 2048.0 || (back - f).abs() <= 3e-8, "{f} {back}");
        assert_eq!(row[23], i64::from((x as i32).clamp(-128, 127)));
    }
}
