//! The committed table of occupancy and arithmetic intensity.

use gradlet_core::Result;
use gradlet_tests::roofline;

#[test]
fn the_table_is_that_of_the_kernels() -> Result<()> {
    let table = roofline::table()?;
    let committed = include_str!("../../../../cuda-backend/ptx/roofline.txt");
    let differing = table.lines().zip(committed.lines()).find(|(new, old)| new != old);
    assert!(table == committed, "run `cargo xtask roofline`, and look at what changed, first in {differing:?}");
    Ok(())
}
