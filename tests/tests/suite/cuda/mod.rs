//! Tests of GPUs. Most of them run on the emulator of NVIDIA's driver, and look at what it counts or tell it to fail. Those in `control`,
//! `groups`, `models`, `profile` and `training` run on a real GPU too, with `GRADLET_GPU=real` in the environment.

mod control;
mod drivers;
mod groups;
mod installed;
mod limits;
mod logical;
mod models;
mod profile;
mod steps;
mod training;
