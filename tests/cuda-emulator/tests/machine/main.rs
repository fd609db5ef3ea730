//! Tests of the interpreter, as one program: kernels that NVIDIA's compiler has made, and what they compute.

mod control;
mod faults;
mod integers;
mod math;
mod parse;
mod support;
mod throughput;
mod together;
