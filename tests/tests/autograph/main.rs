//! `#[autograph]`: programs that it takes, with what they give as plain Rust and what TensorFlow gives; programs that it does not take;
//! and the code that it makes.

mod accepted;
mod messages;
mod plain;
mod value;

use gradlet_core::Tensor;
use gradlet_core::autograph::{autograph, to_code};
use std::fs;
use std::path::Path;

/// Programs that are wrong, with what the compiler says of them.
#[test]
fn rejected_programs() {
    trybuild::TestCases::new().compile_fail("tests/autograph/rejected/*.rs");
}

#[test]
fn every_rejected_program_has_a_message_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/autograph/rejected");
    let files = || fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = files().filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    assert!(sources.count() >= 20);
}

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
