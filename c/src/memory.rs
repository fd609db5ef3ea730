//! Checks of the caller's pointers, before they become references.

use crate::outcome::{Code, Fault};
use core::ffi::c_char;
use core::{ptr, slice, str};
use gradlet_core::runtime::program::ALIGN;

/// Alignment of artifacts and arenas, in bytes.
pub const GRADLET_ALIGNMENT: usize = 16;
const _: () = assert!(GRADLET_ALIGNMENT == ALIGN);

/// Most bytes of a text, without the zero at its end.
const TEXT: usize = 255;

/// Result of a check.
pub(crate) type Checked<T = ()> = Result<T, Fault>;

/// Memory that an argument names.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    /// Position of the argument, from 0 on.
    argument: u32,
    start: *mut u8,
    end: usize,
}

impl Region {
    /// Checks the pointer to `bytes` bytes, and returns their memory.
    #[inline(always)]
    pub(crate) fn new(argument: u32, pointer: *const u8, bytes: usize, align: usize) -> Checked<Region> {
        check(argument, pointer, bytes, align)?;
        Ok(Region { argument, start: pointer.cast_mut(), end: pointer.addr() + bytes })
    }

    /// Checks the pointer to a value, and returns its memory.
    #[inline(always)]
    pub(crate) fn of<T>(argument: u32, pointer: *const T) -> Checked<Region> {
        Region::new(argument, pointer.cast(), size_of::<T>(), align_of::<T>())
    }

    /// Returns the memory of a value whose pointer was checked.
    pub(crate) fn checked<T>(argument: u32, pointer: *const T) -> Region {
        Region { argument, start: pointer.cast_mut().cast(), end: pointer.addr().wrapping_add(size_of::<T>()) }
    }

    /// Returns the same memory as part of another argument.
    pub(crate) fn of_argument(self, argument: u32) -> Region {
        Region { argument, ..self }
    }

    /// Returns the first address.
    pub(crate) fn start(self) -> usize {
        self.start.addr()
    }

    /// Returns the pointer to an address in the memory. C may write there, unlike through a pointer that comes from a reference.
    pub(crate) fn pointer_to(self, address: *const u8) -> *mut u8 {
        self.start.with_addr(address.addr())
    }

    /// Returns the values in the memory.
    ///
    /// # Safety
    ///
    /// The memory was checked for the alignment of `T`. It consists of values of type `T`, and nothing changes them while the slice is
    /// used.
    pub(crate) unsafe fn slice<'a, T>(self) -> &'a [T] {
        // SAFETY: the promises of the caller; if there are no bytes, the pointer is aligned and not null.
        unsafe { slice::from_raw_parts(self.pointer().cast(), (self.end - self.start.addr()) / size_of::<T>()) }
    }

    /// Returns the bytes of the memory, for writing.
    ///
    /// # Safety
    ///
    /// The bytes exist, and nothing else uses them while the slice is used.
    pub(crate) unsafe fn slice_mut<'a>(self) -> &'a mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.pointer(), self.end - self.start.addr()) }
    }

    /// Returns the pointer to the memory. It is not null, also if there are no bytes.
    fn pointer(self) -> *mut u8 {
        if self.start.is_null() { ptr::without_provenance_mut(GRADLET_ALIGNMENT) } else { self.start }
    }

    /// Checks that the memory does not overlap `other`.
    #[inline(always)]
    pub(crate) fn apart(&self, other: &Region) -> Checked {
        match self.start.addr() < other.end && other.start.addr() < self.end {
            true => Err(Fault::new(Code::Overlap, self.argument, other.argument)),
            false => Ok(()),
        }
    }
}

/// Checks that `pointer` begins at a multiple of `align`, a power of two, and that `bytes` bytes fit behind it. Null is allowed if there
/// are none.
#[inline(never)]
fn check(argument: u32, pointer: *const u8, bytes: usize, align: usize) -> Checked {
    let start = pointer.addr();
    if start == 0 && bytes > 0 {
        return Err(Fault::new(Code::NullPointer, argument, 0));
    }
    if start & (align - 1) != 0 {
        return Err(Fault::new(Code::MisalignedPointer, argument, align as u32));
    }
    if bytes > isize::MAX as usize || start.checked_add(bytes).is_none() {
        return Err(Fault::new(Code::Overlap, argument, argument));
    }
    Ok(())
}

/// Returns the text that begins at `pointer` and ends with a zero. It overlaps none of `others`.
///
/// # Safety
///
/// If `pointer` is not null, it points to bytes up to a zero, or to 256 bytes, which nothing changes while the text is used.
pub(crate) unsafe fn text<'a>(argument: u32, pointer: *const c_char, others: &[Region]) -> Checked<&'a str> {
    check(argument, pointer.cast(), 1, 1)?;
    let wrong = Fault::new(Code::BadText, argument, 0);
    let mut length = 0;
    // SAFETY: every byte up to the first zero exists.
    while unsafe { *pointer.add(length) } != 0 {
        length += 1;
        if length > TEXT {
            return Err(wrong);
        }
    }
    let region = Region { argument, start: pointer.cast_mut().cast(), end: pointer.addr().saturating_add(length + 1) };
    others.iter().try_for_each(|other| region.apart(other))?;
    // SAFETY: these bytes exist.
    str::from_utf8(unsafe { slice::from_raw_parts(pointer.cast(), length) }).map_err(|_| wrong)
}

/// Memory of the caller for a result.
pub(crate) struct Out<T> {
    argument: u32,
    pointer: *mut T,
}

impl<T> Out<T> {
    /// Checks the pointer to a result, and that the memory overlaps none of `others`.
    #[inline(always)]
    pub(crate) fn new(argument: u32, pointer: *mut T, others: &[Region]) -> Checked<Out<T>> {
        clear(argument, pointer.cast(), size_of::<T>() | align_of::<T>() << 16, others)?;
        Ok(Out { argument, pointer })
    }

    /// Returns the memory.
    #[inline(always)]
    pub(crate) fn region(&self) -> Region {
        Region::checked(self.argument, self.pointer)
    }
}

/// Checks a pointer to memory that overlaps none of `others`. The low 16 bits of `layout` are its size, the others its alignment.
#[inline(never)]
fn clear(argument: u32, pointer: *const u8, layout: usize, others: &[Region]) -> Checked {
    let region = Region::new(argument, pointer, layout & 0xffff, layout >> 16)?;
    others.iter().try_for_each(|other| region.apart(other))
}

impl<T> Out<T> {
    /// Stores the result.
    ///
    /// # Safety
    ///
    /// The pointer has pointed to memory for a `T` since it was checked.
    pub(crate) unsafe fn set(self, value: T) {
        // SAFETY: the promises of the caller.
        unsafe { self.pointer.write(value) };
    }
}

/// Fails if `pointer` to a callback is null.
pub(crate) fn callback<F>(argument: u32, pointer: Option<F>) -> Checked<F> {
    pointer.ok_or(Fault::new(Code::NullPointer, argument, 0))
}
