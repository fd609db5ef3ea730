//! Sharing: `Arc` and a lock where the target has atomic pointers, else `Rc` and `RefCell`.
//!
//! The lock spins, so it is held for moments only. What takes longer is waited for through the device: see `waiting.rs`.

#[cfg(target_has_atomic = "ptr")]
mod imp {
    pub use alloc::sync::{Arc as Shared, Weak};
    pub use spin::Mutex as Lock;

    /// What may be shared between threads here: `Send + Sync` where the target has atomics, anything where it has not.
    pub trait ThreadSafe: Send + Sync {}
    impl<T: ?Sized + Send + Sync> ThreadSafe for T {}

    /// Work that another thread may do.
    pub type Task<'t> = dyn FnMut() + Send + 't;
}

#[cfg(not(target_has_atomic = "ptr"))]
mod imp {
    pub use alloc::rc::{Rc as Shared, Weak};

    /// What may be shared between threads here: anything, for there are none.
    pub trait ThreadSafe {}
    impl<T: ?Sized> ThreadSafe for T {}

    /// Work that another thread may do, where there are threads.
    pub type Task<'t> = dyn FnMut() + 't;

    /// A `RefCell` with the interface of a lock.
    #[derive(Debug, Default)]
    pub struct Lock<T>(core::cell::RefCell<T>);

    impl<T> Lock<T> {
        /// A lock around `value`.
        pub const fn new(value: T) -> Lock<T> {
            Lock(core::cell::RefCell::new(value))
        }

        /// The value, for as long as the guard lives.
        pub fn lock(&self) -> core::cell::RefMut<'_, T> {
            self.0.borrow_mut()
        }

        /// The value, unless a guard lives already.
        pub fn try_lock(&self) -> Option<core::cell::RefMut<'_, T>> {
            self.0.try_borrow_mut().ok()
        }
    }
}

pub use imp::{Lock, Shared, Task, ThreadSafe, Weak};
