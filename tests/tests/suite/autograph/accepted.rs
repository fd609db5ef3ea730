//! Typical programs, each in three forms: plain Rust, with the attribute on numbers, and with the attribute on tensors. The file
//! `tests/fixtures/autograph/programs.json` has TensorFlow's results. `make.py` beside it has the same programs in Python.

use super::value::{Argument, check, names};

macro_rules! programs {
    ($($name:ident($($argument:ident: $kind:ident),*) of $number:ident $body:tt)*) => {
        $(
            #[allow(unused_imports, unused_mut, unused_assignments, clippy::all)]
            mod $name {
                pub mod rust {
                    use super::super::super::value::on_numbers::*;
                    use gradlet_core::Result;
                    type Scalar = $number;
                    #[allow(dead_code)]
                    type Row = Vec<$number>;
                    pub fn program($(mut $argument: $kind),*) -> Result<Scalar> $body
                }
                pub mod plain {
                    use super::super::super::value::on_numbers::*;
                    use gradlet_core::{Result, autograph::autograph};
                    type Scalar = $number;
                    #[allow(dead_code)]
                    type Row = Vec<$number>;
                    #[autograph]
                    pub fn program($(mut $argument: $kind),*) -> Result<Scalar> $body
                }
                pub mod tensors {
                    use super::super::super::value::on_tensors::*;
                    use gradlet_core::{Result, Tensor, autograph::autograph};
                    type Scalar = Tensor;
                    #[allow(dead_code)]
                    type Row = Tensor;
                    #[autograph]
                    pub fn program($(mut $argument: $kind),*) -> Result<Scalar> $body
                }
            }
        )*

        $(
            #[test]
            fn $name() {
                check::<$number>(
                    stringify!($name),
                    |json| {
                        let mut json = json.iter();
                        Ok($name::rust::program($(programs!(@read $argument json)),*)?.into())
                    },
                    |json| {
                        let mut json = json.iter();
                        Ok($name::plain::program($(programs!(@read $argument json)),*)?.into())
                    },
                    |tensors| {
                        let mut tensors = tensors.into_iter();
                        $name::tensors::program($(programs!(@take $argument tensors)),*)
                    },
                );
            }
        )*

        const PROGRAMS: &[&str] = &[$(stringify!($name)),*];
    };
    (@read $argument:ident $json:ident) => { Argument::read($json.next().unwrap()) };
    (@take $argument:ident $tensors:ident) => { $tensors.next().unwrap() };
}

#[test]
fn every_program_of_the_fixture_is_here() {
    assert_eq!(names(), PROGRAMS);
    assert!(PROGRAMS.len() >= 40);
}

programs! {
    square_if_positive(x: Scalar) of i32 {
        if x > 0 {
            x = x * x;
        } else {
            x = 0;
        }
        Ok(x)
    }

    absolute(x: Scalar) of f32 {
        if x < 0.0 {
            return Ok(-x);
        }
        Ok(x)
    }

    clamp(x: Scalar) of f32 {
        let y;
        if x > 5.0 {
            y = like(&x, 5)?;
        } else if x < 0.0 {
            y = like(&x, 0)?;
        } else {
            y = x;
        }
        Ok(y)
    }

    early_return(x: Scalar) of i32 {
        if x > 10 {
            return Ok(x);
        }
        Ok(-x)
    }

    returns_everywhere(x: Scalar) of i32 {
        if x > 10 {
            return Ok(x * 2);
        } else if x > 0 {
            return Ok(x * 3);
        } else {
            return Ok(x * 4);
        }
    }

    sum_below(n: Scalar) of i32 {
        let mut i = like(&n, 0)?;
        let mut s = like(&n, 0)?;
        while i < n {
            s += i;
            i += 1;
        }
        Ok(s)
    }

    range_break_continue(n: Scalar) of i32 {
        let mut s = like(&n, 0)?;
        for i in below(&n)? {
            if i == 2 {
                continue;
            }
            if i > 5 {
                break;
            }
            s += i;
        }
        Ok(s)
    }

    return_in_for(n: Scalar) of i32 {
        for i in below(&n)? {
            if i * i > 20 {
                return Ok(i);
            }
        }
        like(&n, -1)
    }

    return_in_while(n: Scalar) of i32 {
        let mut i = like(&n, 0)?;
        while i < n {
            if i * i > 50 {
                return Ok(i);
            }
            i += 1;
        }
        like(&n, -1)
    }

    logical_operators(x: Scalar) of i32 {
        let mut r = like(&x, 3)?;
        if x > 0 && x < 10 {
            r = 1;
        } else if x == 0 || !(x <= 100) {
            r = 2;
        }
        Ok(r)
    }

    if_expression(x: Scalar) of f32 {
        let y = if x > 0.0 { x * 2.0 } else { x * 3.0 };
        Ok(y + 1.0)
    }

    literal_in_a_branch(x: Scalar) of f32 {
        if x > 0.0 { Ok(x) } else { Ok(like(&x, 0)?) }
    }

    sign(x: Scalar) of f32 {
        let s = if x > 0.0 {
            1.0
        } else if x < 0.0 {
            like(&x, -1)?
        } else {
            like(&x, 0)?
        };
        Ok(s)
    }

    larger(a: Scalar, b: Scalar) of f32 {
        if a > b {
            return Ok(a);
        }
        Ok(b)
    }

    swap(a: Scalar, b: Scalar) of f32 {
        if a > b {
            (a, b) = (b, a);
        }
        Ok(a - b * 10.0)
    }

    greatest_common_divisor(a: Scalar, b: Scalar) of i32 {
        while b != 0 {
            let t = a % b;
            a = b;
            b = t;
        }
        Ok(a)
    }

    collatz(n: Scalar) of i32 {
        let mut steps = like(&n, 0)?;
        while n != 1 {
            n = if n % 2 == 0 { half(&n)? } else { n * 3 + 1 };
            steps += 1;
        }
        Ok(steps)
    }

    newtons_root(x: Scalar) of f32 {
        let mut y = like(&x, 1)?;
        for _ in 0..20 {
            y = (y + x / y) * 0.5;
        }
        Ok(y)
    }

    newton_until_close(x: Scalar) of f32 {
        let mut y = like(&x, 1)?;
        while abs(&(y * y - x))? > 1e-4 {
            y = (y + x / y) * 0.5;
        }
        Ok(y)
    }

    factorial(n: Scalar) of i32 {
        let mut product = like(&n, 1)?;
        for i in between(1, &(n + 1))? {
            product *= i;
        }
        Ok(product)
    }

    fibonacci(n: Scalar) of i32 {
        let (mut a, mut b) = (like(&n, 0)?, like(&n, 1)?);
        for _ in below(&n)? {
            let t = a + b;
            a = b;
            b = t;
        }
        Ok(a)
    }

    nested_loops(n: Scalar) of i32 {
        let mut s = like(&n, 0)?;
        for i in below(&n)? {
            for j in below(&i)? {
                s += i * j;
            }
        }
        Ok(s)
    }

    break_of_the_inner_loop(n: Scalar) of i32 {
        let mut s = like(&n, 0)?;
        for i in below(&n)? {
            for j in below(&n)? {
                if j > i {
                    break;
                }
                s += j;
            }
        }
        Ok(s)
    }

    primes(n: Scalar) of i32 {
        let mut count = like(&n, 0)?;
        for i in between(2, &n)? {
            let mut divisors = like(&n, 0)?;
            for j in between(2, &i)? {
                if i % j == 0 {
                    divisors += 1;
                    break;
                }
            }
            if divisors == 0 {
                count += 1;
            }
        }
        Ok(count)
    }

    while_with_continue(n: Scalar) of i32 {
        let (mut i, mut s) = (like(&n, 0)?, like(&n, 0)?);
        while i < n {
            i += 1;
            if i % 2 == 0 {
                continue;
            }
            s += i;
        }
        Ok(s)
    }

    while_true_by_a_flag(n: Scalar) of i32 {
        let mut i = like(&n, 0)?;
        while i < n {
            i += 1;
            if i * i > 30 {
                break;
            }
        }
        Ok(i)
    }

    unrolled_with_break(x: Scalar) of i32 {
        for i in 0..5 {
            if x > 100 {
                break;
            }
            x *= i + 1;
        }
        Ok(x)
    }

    unrolled_with_continue(x: Scalar) of i32 {
        let mut s = like(&x, 0)?;
        for i in 0..6 {
            if x == i {
                continue;
            }
            s += i;
        }
        Ok(s)
    }

    unrolled_with_return(x: Scalar) of i32 {
        for i in 0..6 {
            if x == i {
                return Ok(x * 10);
            }
        }
        like(&x, -1)
    }

    nested_ifs(x: Scalar) of i32 {
        let mut y;
        if x > 0 {
            if x > 5 {
                y = x * 2;
            } else {
                y = x * 3;
            }
            y += 1;
        } else {
            y = -x;
        }
        Ok(y)
    }

    return_in_a_nested_if(x: Scalar) of i32 {
        let mut y = x + 1;
        if x > 0 {
            y += 10;
            if x > 5 {
                return Ok(y);
            }
            y *= 2;
        }
        Ok(y + 1000)
    }

    several_returns(x: Scalar) of i32 {
        if x < 0 {
            return Ok(x * 0);
        }
        let mut y = x * 2;
        if y > 100 {
            return Ok(y);
        }
        y = y + 3;
        if y % 2 == 1 && x > 5 {
            return Ok(y * 10);
        }
        Ok(y)
    }

    return_and_break(n: Scalar) of i32 {
        let mut s = like(&n, 0)?;
        for i in below(&n)? {
            if i == 8 {
                return Ok(s * 100);
            }
            if s > 20 {
                break;
            }
            s += i;
        }
        Ok(s)
    }

    both_branches_change_two(x: Scalar) of i32 {
        let mut a = x + 1;
        let mut b = x + 2;
        if x > 0 {
            a = b * 2;
            b = a + 1;
        } else {
            b = a * 3;
        }
        Ok(a * 100 + b)
    }

    condition_from_a_call(x: Scalar) of f32 {
        if abs(&x)? > 2.0 {
            return abs(&x);
        }
        Ok(x * x)
    }

    not_operator(x: Scalar) of i32 {
        if !(x > 0) {
            x = -x;
        }
        Ok(x)
    }

    truth_values(x: Scalar) of i32 {
        let positive = x > 0;
        let small = x < 3;
        if positive && small || x == -4 {
            return like(&x, 1);
        }
        like(&x, 2)
    }

    guarded_operand(n: Scalar) of i32 {
        let mut i = like(&n, 0)?;
        while i < n && i * i < 30 {
            i += 1;
        }
        Ok(i)
    }

    range_with_a_step(n: Scalar, step: Scalar) of i32 {
        let mut s = like(&n, 0)?;
        for i in by(&n, &step)? {
            s += i;
        }
        Ok(s)
    }

    polynomial_pieces(x: Scalar) of f32 {
        let y = if x < 0.0 {
            x * x
        } else if x < 1.0 {
            x * x * x - 2.0 * x
        } else {
            x / 3.0 + 1.0
        };
        Ok(y - 0.5)
    }

    loop_over_a_pair(x: Scalar) of f32 {
        let (mut a, mut b) = (x * 1.0, x * 2.0);
        while a < 100.0 {
            let sum = a + b;
            a = b;
            b = sum;
        }
        Ok(a + b)
    }

    assertion(x: Scalar) of f32 {
        assert!(x > 0.0, "positive");
        Ok(x * 2.0)
    }

    sum_of_elements(x: Row) of f32 {
        let mut s = first(&x)? * 0.0;
        for v in x {
            s += v;
        }
        Ok(s)
    }

    largest_element(x: Row) of f32 {
        let mut best = first(&x)?;
        for v in x {
            if v > best {
                best = v;
            }
        }
        Ok(best)
    }

    sum_until_negative(x: Row) of f32 {
        let mut s = first(&x)? * 0.0;
        for v in x {
            if v < 0.0 {
                break;
            }
            s += v;
        }
        Ok(s)
    }

    first_above_two(x: Row) of f32 {
        let none = first(&x)? * 0.0;
        for v in x {
            if v > 2.0 {
                return Ok(v);
            }
        }
        Ok(none)
    }
}
