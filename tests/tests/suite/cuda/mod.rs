//! Tests of GPUs. Most of them run on the emulator of NVIDIA's driver, and look at what it counts or tell it to fail. Those in `control`,
//! `groups`, `models`, `profile`, `serving` and `training` run on a real GPU too, with `GRADLET_GPU=real` in the environment.

mod ahead;
mod bench;
mod control;
mod convolutions;
mod cublaslt;
mod drivers;
mod external;
mod groups;
mod installed;
mod jetson;
mod limits;
mod logical;
mod memory_bound;
mod models;
mod nccl;
mod normalization;
mod passes;
mod products;
mod profile;
mod roofline;
mod serving;
mod steps;
mod tensor_core;
mod training;
mod tuner;
