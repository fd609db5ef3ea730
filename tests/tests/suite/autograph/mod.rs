//! Tests of `#[autograph]`: accepted programs, whose results must equal plain Rust's and TensorFlow's, and the generated code. The programs
//! that it rejects are in `derive/tests/`, whose check compiles few crates.

mod accepted;
mod messages;
mod plain;
mod value;

use gradlet_core::Tensor;
use gradlet_core::autograph::{autograph, to_code};

#[autograph]
fn doubled_while_small(mut x: Tensor) -> gradlet_core::Result<Tensor> {
    while x < 100 {
        x = x * 2;
    }
    Ok(x)
}

#[test]
fn the_code_reads_as_one_would_write_it() {
    let code = r#"fn doubled_while_small(mut x: Tensor) -> gradlet_core::Result<Tensor> {
    {
        let mut looping = ag::looping::<_, _, ()>(None);
        while looping.again((looping.slot("x", &mut x),))? {
            if looping.asks() && !looping.holds(ag::Pair(&x, &100).less()?)? {
                continue;
            }
            x = ag::Pair(&x, &2).mul()?;
        }
    }
    Ok(x)
}
"#;
    assert_eq!(to_code!(doubled_while_small), code);
}
