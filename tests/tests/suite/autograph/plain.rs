//! Programs of plain Rust, which the attribute does not change. They move, borrow, and branch on values that are not tensors.

use gradlet_core::autograph::autograph;
use gradlet_core::{Error, Result};
use std::collections::BTreeMap;

macro_rules! twice {
    ($($name:ident($argument:ident: $ty:ty) -> [$result:ty] $body:tt with $($call:expr),*;)*) => {$(
        #[test]
        fn $name() {
            #[allow(unused_mut, clippy::all)]
            fn rust(mut $argument: $ty) -> Result<$result> $body
            #[autograph]
            fn rewritten(mut $argument: $ty) -> Result<$result> $body
            $(
                let ($argument,): ($ty,) = $call;
                let expected = rust($argument);
                let ($argument,): ($ty,) = $call;
                assert_eq!(rewritten($argument), expected);
            )*
        }
    )*};
}

/// A type that cannot be cloned.
#[derive(Debug, PartialEq)]
struct Owned(i32);

twice! {
    moves_out_of_branches(flag: bool) -> [Owned] {
        let (one, other) = (Owned(1), Owned(2));
        let chosen = if flag { one } else { other };
        Ok(chosen)
    } with (true,), (false,);

    early_return_of_what_is_used_later(n: i32) -> [String] {
        let mut text = String::from("n");
        if n > 4 {
            return Ok(text);
        }
        text += "!";
        if n > 2 && text.len() > 1 {
            text += &n.to_string();
        }
        Ok(text + "?")
    } with (5,), (3,), (1,);

    names_without_values(n: i32) -> [String] {
        let text;
        let length: usize;
        if n > 0 {
            text = "many".to_string();
            length = 4;
        } else if n == 0 {
            return Err(Error::message("none"));
        } else {
            length = 0;
            text = String::new();
        }
        Ok(format!("{text}{length}"))
    } with (1,), (0,), (-1,);

    labels_and_values_of_loops(n: usize) -> [usize] {
        let mut found = 0;
        'outer: for i in 0..n {
            for j in 0..n {
                if i * j > 10 {
                    found = i * 100 + j;
                    break 'outer;
                }
                if j > i {
                    continue 'outer;
                }
            }
        }
        let mut k = 0;
        let square = loop {
            k += 1;
            if k * k > n {
                break k * k;
            }
        };
        Ok(found + square)
    } with (3,), (9,);

    matches_and_lets(words: Vec<&'static str>) -> [i64] {
        let mut sum = 0;
        for word in &words {
            let number = match word.parse::<i64>() {
                Ok(number) if number > 100 => continue,
                Ok(number) => number,
                Err(_) if *word == "stop" => break,
                Err(_) => return Err(Error::message(*word)),
            };
            sum += number * 2;
        }
        if let Some(first) = words.first() && first.len() > 1 {
            sum -= 1;
        }
        let Some(last) = words.last() else { return Ok(-1) };
        while let Some(digit) = char::from_digit((sum % 10).unsigned_abs() as u32, 10) {
            if digit == '0' || last.is_empty() {
                break;
            }
            sum += 1;
        }
        Ok(sum)
    } with (vec!["1", "2", "300", "stop", "9"],), (vec!["11", "2"],), (vec!["x"],), (vec![],);

    slices_and_maps(v: Vec<f64>) -> [f64] {
        let mut counts: BTreeMap<bool, usize> = BTreeMap::new();
        for i in 1..v.len() {
            v[i] += v[i - 1] * 0.5;
            *counts.entry(v[i] > 2.0).or_insert(0) += 1;
        }
        let mut largest = f64::MIN;
        for &x in v.iter() {
            if x > largest {
                largest = x;
            }
        }
        let above: f64 = v.iter().map(|x| x * 2.0).filter(|x| *x > 1.0).sum();
        Ok(largest + above + counts.len() as f64)
    } with (vec![1.0, 2.0, 3.0],), (vec![0.1],), (vec![],);

    borrows_across_branches(v: Vec<String>) -> [Vec<String>] {
        let last = v.len() - 1;
        let target = &mut v[last];
        if target.is_empty() {
            target.push('a');
        } else {
            target.clear();
        }
        let words = ["ab".to_string(), "c".to_string()];
        let mut shortest = &words[0];
        for word in &words {
            if word.len() < shortest.len() {
                shortest = word;
            }
        }
        target.push_str(shortest);
        Ok(v)
    } with (vec![String::new()],), (vec!["x".into(), "y".into()],);

    numbers_of_many_kinds(n: u8) -> [u64] {
        let mut a = 1;
        let mut b = 2u64;
        while a * 2 + 1 < 100 {
            a = a * 2;
            b = b * 3 % 1000 + (n as u64) / 2;
            if !(b > 10) && n != 0 {
                b += 7;
            }
        }
        let c = -(a as i64) + 200;
        let d = if c < 0 { 0 } else { c as u64 };
        Ok(b + d + (n << 1) as u64)
    } with (0,), (5,), (100,);

    early_exits_in_values(n: i32) -> [i32] {
        let m = 1 + if n > 3 { return Ok(100) } else { n };
        let k = {
            if m > 2 {
                return Ok(m);
            }
            m * 10
        };
        let mut i = k;
        while i < 1000 {
            i += if i > 50 { break } else { i };
            if i == 40 {
                return Ok(-1);
            }
        }
        Ok(i)
    } with (5,), (3,), (1,), (0,);
}

#[autograph]
fn largest<T: PartialOrd + Copy + std::ops::Add<Output = T>>(values: &[T], plus: T) -> Result<Option<T>> {
    let mut best: Option<T> = None;
    for &value in values {
        match best {
            Some(known) if known >= value => (),
            _ => best = Some(value + plus),
        }
    }
    Ok(best)
}

#[test]
fn generic_functions() {
    assert_eq!(largest(&[1, 5, 3], 1).unwrap(), Some(6));
    assert_eq!(largest(&[1.5, 0.5], 0.0).unwrap(), Some(1.5));
    assert_eq!(largest::<u8>(&[], 0).unwrap(), None);
}

#[autograph]
fn asserted(n: i32) -> Result<i32> {
    assert!(n > 0, "{n} is too small");
    assert!(n < 100);
    Ok(n)
}

#[test]
#[should_panic = "-5 is too small"]
fn assertions_of_bools_panic() {
    assert_eq!(asserted(7).unwrap(), 7);
    let _ = asserted(-5);
}
