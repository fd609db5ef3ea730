//! Support of the board for which the firmware is built: its clock, its UART and its flash. `build.rs` has its memory map.

#[cfg(not(any(feature = "microbit", feature = "virt", feature = "mps3-an547")))]
mod cmsdk_timer;
#[cfg(not(any(feature = "microbit", feature = "virt")))]
mod cmsdk_uart;
#[cfg(not(feature = "microbit"))]
mod ram_flash;

#[cfg_attr(feature = "microbit", path = "microbit.rs")]
#[cfg_attr(feature = "mps2-an505", path = "mps2_an505.rs")]
#[cfg_attr(feature = "mps3-an547", path = "mps3_an547.rs")]
#[cfg_attr(feature = "virt", path = "virt.rs")]
#[cfg_attr(any(feature = "mps2-an385", feature = "mps2-an386", feature = "mps2-an500"), path = "mps2.rs")]
mod chosen;
pub use chosen::*;

/// Name of the board, as QEMU calls it.
pub const NAME: &str = env!("GRADLET_BOARD");
