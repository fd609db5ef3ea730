//! Shared ownership and locks: `Arc` and a spinlock on targets with atomic pointers, otherwise `Rc` and `RefCell`.
//!
//! Because the lock spins, code holds it only briefly. Longer waits go through the device: see `waiting.rs`.

#[cfg(target_has_atomic = "ptr")]
mod imp {
    pub use alloc::sync::{Arc as Shared, Weak};
    pub use spin::Mutex as Lock;

    /// Types that threads may share: `Send + Sync` on targets with atomic pointers, every type on other targets.
    pub trait ThreadSafe: Send + Sync {}
    impl<T: ?Sized + Send + Sync> ThreadSafe for T {}

    /// Work that another thread may do.
    pub type Task<'t> = dyn FnMut() + Send + 't;
}

#[cfg(not(target_has_atomic = "ptr"))]
mod imp {
    pub use alloc::rc::{Rc as Shared, Weak};

    /// Types that threads may share: every type, because this target has no threads.
    pub trait ThreadSafe {}
    impl<T: ?Sized> ThreadSafe for T {}

    /// Work that another thread may do, on targets with threads.
    pub type Task<'t> = dyn FnMut() + 't;

    /// A `RefCell` with the interface of a lock.
    #[derive(Debug, Default)]
    pub struct Lock<T>(core::cell::RefCell<T>);

    impl<T> Lock<T> {
        /// Creates a lock around `value`.
        pub const fn new(value: T) -> Lock<T> {
            Lock(core::cell::RefCell::new(value))
        }

        /// Returns a guard with access to the value. Panics if another guard exists.
        pub fn lock(&self) -> core::cell::RefMut<'_, T> {
            self.0.borrow_mut()
        }

        /// Returns a guard with access to the value, or `None` if another guard exists.
        pub fn try_lock(&self) -> Option<core::cell::RefMut<'_, T>> {
            self.0.try_borrow_mut().ok()
        }
    }
}

pub use imp::{Lock, Shared, Task, ThreadSafe, Weak};
