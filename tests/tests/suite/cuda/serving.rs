//! Sessions and batchers on a GPU.

use crate::serving;
use gradlet_core::Result;
use gradlet_tests::gpu;

#[test]
fn sessions_share_weights() -> Result<()> {
    serving::sessions_share_weights(&gpu::device()?)
}

#[test]
fn sessions_run_at_the_same_time() -> Result<()> {
    serving::sessions_run_at_the_same_time(&gpu::device()?)
}

#[test]
fn every_caller_gets_its_own_rows() -> Result<()> {
    serving::every_caller_gets_its_own_rows(&gpu::device()?, 6)
}

#[test]
fn only_allowed_sizes_are_traced() -> Result<()> {
    serving::only_allowed_sizes_are_traced(&gpu::device()?)
}

#[test]
fn a_step_beside_the_server() -> Result<()> {
    serving::a_step_beside_the_server(&gpu::device()?, 40)
}
