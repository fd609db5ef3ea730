//! Tensor functions that are composed of other ops and need no kernels.

mod activations;
mod clip;
pub mod conv1d;
mod cross_entropy;
mod dropout;
mod masks;
mod math;
mod normalization;
pub mod resize;
pub mod sequences;
pub mod slicing;
mod statistics;
