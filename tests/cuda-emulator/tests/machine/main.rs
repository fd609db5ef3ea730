//! Tests of the interpreter, as one program: kernels that NVIDIA's compiler has made, and what they compute.

mod ampere;
mod control;
mod faults;
mod hopper;
mod integers;
mod math;
mod numbers;
mod parse;
mod support;
mod throughput;
mod together;
