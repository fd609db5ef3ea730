//! The C API of gradlet, for firmware and programs that are written in C. `include/gradlet.h` declares it, and `README.md` explains it.
//!
//! Every function checks what it can check about its arguments: null and misaligned pointers, memory that overlaps or is too small, structs
//! that are not initialised or are in use. It returns an [`Outcome`](outcome::Outcome), never panics, and never allocates.
//!
//! # Safety
//!
//! These are the promises of the caller of any function of C. Every pointer is null, or points to what its type and the argument after it
//! say, which exists until the call returns. What an initialised struct uses exists as long as the struct is used. Structs, arenas and
//! queues share no memory. No other thread uses a struct, or memory of an argument, meanwhile; but threads may share a program.
//!
//! A struct is zero before it is initialised for the first time after a reset: otherwise it may hold the mark of a call that a reset has
//! ended. Callbacks return. They do not load a program that the call around them uses: a count of its users would need atomic operations,
//! which not every processor has.
//!
//! A module imports only from those declared before it.

#![cfg_attr(target_os = "none", no_std)]
// C passes pointers. This crate alone turns them into references.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)]

// The version of the library and of the header.
pub mod version;

// The outcome of a function: a code, and the numbers of an error.
pub mod outcome;

// The texts of errors.
pub mod text;

// Checks of the caller's pointers.
mod memory;

// Objects of Rust in structs of C.
mod place;

// A symbol for each kernel.
pub mod kernels;

// Programs: artifacts, verified.
pub mod program;

// Loading in slices.
pub mod loading;

// Sessions: programs with their memory.
pub mod session;

// Inputs, outputs and variables.
pub mod tensors;

// Checkpoints through callbacks.
pub mod checkpoint;

// Checkpoints in NOR flash.
pub mod slots;

// Telemetry through a callback.
pub mod telemetry;

/// Stops the processor. gradlet never panics; this is for the linker.
#[cfg(target_os = "none")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
