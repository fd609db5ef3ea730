//! Programs that `#[autograph]` rejects.

/// Compiles wrong programs, and compares the compiler's errors.
#[test]
fn rejected_programs() {
    trybuild::TestCases::new().compile_fail("tests/rejected/*.rs");
}
