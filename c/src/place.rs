//! Objects of Rust in structs of C. The first word of a struct shows that it holds an object: it is a mark of the object's type, mixed with
//! the address of the struct. A struct of zeros holds none, and neither does a copy. While a call uses an object, the mark is inverted, so
//! a callback or an interrupt cannot use it too. If that call never returns, as after a reset, the struct stays in use until C zeroes it.

use crate::memory::{Checked, Region};
use crate::outcome::{Code, Fault};
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{Ordering, compiler_fence};

/// A struct of C that holds an object of Rust.
///
/// # Safety
///
/// The struct is `repr(C)`, consists of words, and has the size of a [`Held<Self::Object>`] or more.
pub(crate) unsafe trait Place: Sized {
    /// The object.
    type Object;
    /// Mark of the type.
    const MARK: usize;
}

/// The contents of a struct.
#[repr(C)]
pub(crate) struct Held<T> {
    mark: usize,
    object: MaybeUninit<T>,
}

/// Makes the struct of C `$name` hold an object.
macro_rules! place {
    ($name:ident: $object:ty, $mark:literal) => {
        const _: () = {
            assert!(size_of::<$crate::place::Held<$object>>() <= size_of::<$name>());
            assert!(align_of::<$crate::place::Held<$object>>() == align_of::<$name>());
        };

        // SAFETY: the assertions above.
        unsafe impl $crate::place::Place for $name {
            type Object = $object;
            const MARK: usize = u32::from_le_bytes(*$mark) as usize;
        }
    };
}
pub(crate) use place;

/// Returns the mark of an object in the struct at `place`.
#[inline(always)]
fn mark<P: Place>(place: *const P) -> usize {
    place.addr() ^ P::MARK
}

/// Checks the pointer to a struct that will hold an object. Nothing changes.
///
/// # Safety
///
/// If `place` is not null, it points to memory for a `P` that no other thread uses.
#[inline(always)]
pub(crate) unsafe fn begin<P: Place>(argument: u32, place: *mut P) -> Checked<Region> {
    let region = Region::of(argument, place)?;
    // SAFETY: the pointer is not null, and is aligned. Memory of C has some value.
    match unsafe { place.cast::<usize>().read_volatile() } == !mark(place) {
        true => Err(Fault::new(Code::InUse, argument, 0)),
        false => Ok(region),
    }
}

/// Empties the struct at `place`, before an object is made for it.
///
/// # Safety
///
/// The pointer has passed [`begin`] or [`check`], and no argument overlaps the struct.
#[inline(always)]
pub(crate) unsafe fn clear<P: Place>(place: *mut P) {
    // SAFETY: the pointer is not null, and is aligned.
    unsafe { place.cast::<usize>().write_volatile(0) };
    compiler_fence(Ordering::SeqCst);
}

/// Puts `object` into the struct at `place`.
///
/// # Safety
///
/// [`clear`] has emptied the struct.
#[inline(always)]
pub(crate) unsafe fn put<P: Place>(place: *mut P, object: P::Object) {
    let held = place.cast::<Held<P::Object>>();
    // SAFETY: the struct is large enough, and aligned.
    unsafe {
        held.write(Held { mark: 0, object: MaybeUninit::new(object) });
        // An interrupt that sees the mark sees the object.
        compiler_fence(Ordering::SeqCst);
        (&raw mut (*held).mark).write_volatile(mark(place));
    }
}

/// Returns the object in the struct at `place`, for reading.
///
/// # Safety
///
/// If `place` is not null, it points to a `P`, which nothing changes while the object is used.
#[inline(always)]
pub(crate) unsafe fn look<'a, P: Place>(argument: u32, place: *const P) -> Checked<&'a P::Object> {
    // SAFETY: the caller's promise. The mark shows that the struct holds an object.
    unsafe {
        check(argument, place.cast(), mark(place))?;
        Ok((*place.cast::<Held<P::Object>>()).object.assume_init_ref())
    }
}

/// Takes the object in the struct at `place`, for one call.
///
/// # Safety
///
/// If `place` is not null, it points to a `P` that no other thread uses.
#[inline(always)]
pub(crate) unsafe fn take<P: Place>(argument: u32, place: *mut P) -> Checked<Taken<P>> {
    // SAFETY: the promises of the caller.
    unsafe { check(argument, place.cast(), mark(place))? };
    let taken = Taken { place };
    taken.set(!mark(place));
    compiler_fence(Ordering::SeqCst);
    Ok(taken)
}

/// Takes the object out of the struct at `place`, which holds none from then on.
///
/// # Safety
///
/// As for [`take`].
#[inline(always)]
pub(crate) unsafe fn remove<P: Place>(argument: u32, place: *mut P) -> Checked<P::Object> {
    // SAFETY: the caller's promise. The mark shows that the struct holds an object.
    unsafe {
        check(argument, place.cast(), mark(place))?;
        let object = (*place.cast::<Held<P::Object>>()).object.assume_init_read();
        clear(place);
        Ok(object)
    }
}

/// Checks that the struct at `place` has the mark of an object that no call uses.
///
/// # Safety
///
/// If `place` is not null, it points to a word.
#[inline(never)]
unsafe fn check(argument: u32, place: *const usize, mark: usize) -> Checked {
    Region::of(argument, place)?;
    // SAFETY: the pointer is not null, and is aligned.
    match unsafe { place.read_volatile() } ^ mark {
        0 => Ok(()),
        usize::MAX => Err(Fault::new(Code::InUse, argument, 0)),
        _ => Err(Fault::new(Code::NotInitialized, argument, 0)),
    }
}

/// An object that a call uses.
pub(crate) struct Taken<P: Place> {
    place: *mut P,
}

impl<P: Place> Taken<P> {
    /// Returns the memory of the struct, which is that of an argument.
    pub(crate) fn region(&self, argument: u32) -> Region {
        Region::checked(argument, self.place)
    }

    fn set(&self, mark: usize) {
        // SAFETY: `take` has checked the pointer.
        unsafe { self.place.cast::<usize>().write_volatile(mark) };
    }
}

impl<P: Place> Drop for Taken<P> {
    #[inline(always)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        self.set(mark(self.place));
    }
}

impl<P: Place> Deref for Taken<P> {
    type Target = P::Object;

    #[inline(always)]
    fn deref(&self) -> &P::Object {
        // SAFETY: `take` has checked the mark, and no other call uses the object.
        unsafe { (*self.place.cast::<Held<P::Object>>()).object.assume_init_ref() }
    }
}

impl<P: Place> DerefMut for Taken<P> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut P::Object {
        // SAFETY: as above.
        unsafe { (*self.place.cast::<Held<P::Object>>()).object.assume_init_mut() }
    }
}
