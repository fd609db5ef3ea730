//! Inputs, outputs and variables.

use crate::memory::{Out, Region};
use crate::outcome::{Code, Fault, Outcome, Result};
use crate::place::Taken;
use crate::session::{self, Session};
use core::ffi::c_void;
use core::num::NonZeroUsize;
use core::ptr;
use gradlet_core::runtime::TensorId;
use gradlet_core::tensor::{TensorType, TensorView};

/// The element types, by their numbers in artifacts.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum Dtype {
    /// `float`.
    F32 = 1,
    /// `double`.
    F64 = 2,
    /// IEEE 754 binary16.
    F16 = 3,
    /// bfloat16.
    Bf16 = 4,
    /// `int8_t`.
    I8 = 5,
    /// `uint8_t`.
    U8 = 6,
    /// `int32_t`.
    I32 = 7,
    /// `int64_t`.
    I64 = 8,
    /// A byte: 0 is false, anything else is true.
    Bool = 9,
    /// `int16_t`.
    I16 = 10,
}

/// The type of a tensor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Type {
    /// The element type: one of `enum gradlet_dtype`.
    pub dtype: u32,
    /// Number of dimensions.
    pub rank: u32,
    /// The dimensions, outermost first, then zeros.
    pub dims: [u32; 8],
}

/// A tensor of a session: a signature's input or output, or a variable, with its index.
#[derive(Clone, Copy)]
enum Which {
    Input(u32, u32),
    Output(u32, u32),
    Variable(u32),
}

/// Elements as arguments: the position of the first argument, the element type, the elements, and their number.
type Elements<P, N> = (u32, u32, P, N);

/// Stores the number of variables.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_variable_count(session: *mut Session, count: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let session = unsafe { session::take(0, session)? };
        let count = Out::new(1, count, session.memory())?;
        // SAFETY: as above.
        unsafe { count.set(session.session.variable_count() as u32) };
        Ok(())
    })
}

/// Stores the type of input `index` of a signature.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_input_type(session: *mut Session, signature: u32, index: u32, found: *mut Type) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { store_type(session, Which::Input(signature, index), (3, found)) })
}

/// Stores the type of output `index` of a signature.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_output_type(session: *mut Session, signature: u32, index: u32, found: *mut Type) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { store_type(session, Which::Output(signature, index), (3, found)) })
}

/// Stores the type of variable `index`. Variables have the order of the artifact.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_variable_type(session: *mut Session, index: u32, found: *mut Type) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { store_type(session, Which::Variable(index), (2, found)) })
}

/// Sets input `index` of a signature to `count` values of the element type `dtype`, one of `enum gradlet_dtype`. A run may use the memory
/// of an input for something else, so C sets every input before every run.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_set_input(
    session: *mut Session,
    signature: u32,
    index: u32,
    dtype: u32,
    values: *const c_void,
    count: usize,
) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { set(session, Which::Input(signature, index), (3, dtype, values, count)) })
}

/// Stores a pointer to input `index` of a signature, through which C sets it, and the number of its elements. The pointer is valid until
/// the next run begins. `values` is the address of a `void *`, which C then assigns to a pointer to elements: the address of a `float *`,
/// cast to `void **`, would break C's rules of aliasing. The same is true of the functions below.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_input(
    session: *mut Session,
    signature: u32,
    index: u32,
    dtype: u32,
    values: *mut *mut c_void,
    count: *mut usize,
) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { find(session, Which::Input(signature, index), (3, dtype, values, count)) })
}

/// Stores a pointer to output `index` of a signature, as the last run has left it, and the number of its elements. The values are valid
/// until an input is set or the next run begins. Before the first run they are arbitrary.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_output(
    session: *mut Session,
    signature: u32,
    index: u32,
    dtype: u32,
    values: *mut *const c_void,
    count: *mut usize,
) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { find(session, Which::Output(signature, index), (3, dtype, values.cast(), count)) })
}

/// Sets variable `index` to `count` values. It must be in RAM, as a variable is that a loaded signature assigns.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_set_variable(
    session: *mut Session,
    index: u32,
    dtype: u32,
    values: *const c_void,
    count: usize,
) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { set(session, Which::Variable(index), (2, dtype, values, count)) })
}

/// Stores a pointer to variable `index`, and the number of its elements. The values are valid until a run begins or a variable is set.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_session_variable(
    session: *mut Session,
    index: u32,
    dtype: u32,
    values: *mut *const c_void,
    count: *mut usize,
) -> Outcome {
    // SAFETY: the promises of the caller.
    Outcome::of(|| unsafe { find(session, Which::Variable(index), (2, dtype, values.cast(), count)) })
}

/// Stores the type of a tensor.
///
/// # Safety
///
/// The promises of the crate's page.
#[inline(never)]
unsafe fn store_type(session: *mut Session, which: Which, (argument, found): (u32, *mut Type)) -> Result {
    // SAFETY: the promises of the caller.
    unsafe {
        let session = session::take(0, session)?;
        let found = Out::new(argument, found, session.memory())?;
        let TensorType { dtype, shape } = session.session.view(which.id(&session)?)?.tensor_type;
        let mut dims = [0; 8];
        dims.iter_mut().zip(shape.dims()).for_each(|(to, from)| *to = *from);
        found.set(Type { dtype: *dtype as u32, rank: shape.rank() as u32, dims });
    }
    Ok(())
}

/// Copies values to a tensor.
///
/// # Safety
///
/// The promises of the crate's page.
#[inline(never)]
unsafe fn set(session: *mut Session, which: Which, (argument, dtype, values, count): Elements<*const c_void, usize>) -> Result {
    // SAFETY: the promises of the caller.
    unsafe {
        let mut session = session::take(0, session)?;
        let id = which.id(&session)?;
        let TensorView { tensor_type, data } = session.session.view(id)?;
        let size = element(which, tensor_type, argument, dtype)?;
        let bytes = data.unwrap_or_default().len();
        let want = bytes / size;
        if count != want {
            return Err(Outcome::new(Code::Length, [which.index(), want as u32, count as u32, 0]));
        }
        let from = Region::new(argument + 1, values.cast(), bytes, size.get())?;
        session.memory().iter().try_for_each(|memory| from.apart(memory))?;
        // A view for writing counts as a change of a variable, so all checks come first.
        ptr::copy_nonoverlapping(values.cast(), session.session.view_mut(id)?.data.as_mut_ptr(), bytes);
    }
    Ok(())
}

/// Stores a pointer to a tensor's elements, and their number.
///
/// # Safety
///
/// The promises of the crate's page.
#[inline(never)]
unsafe fn find(session: *mut Session, which: Which, (argument, dtype, values, count): Elements<*mut *mut c_void, *mut usize>) -> Result {
    // SAFETY: the promises of the caller.
    unsafe {
        let session = session::take(0, session)?;
        let values = Out::new(argument + 1, values, session.memory())?;
        let count = Out::new(argument + 2, count, session.memory())?;
        values.region().apart(&count.region())?;
        let TensorView { tensor_type, data } = session.session.view(which.id(&session)?)?;
        let (size, data) = (element(which, tensor_type, argument, dtype)?, data.unwrap_or_default());
        // C writes only an input.
        let pointer = match which {
            Which::Input(..) => session.input(data.as_ptr()),
            Which::Output(..) | Which::Variable(_) => data.as_ptr().cast_mut(),
        };
        values.set(pointer.cast());
        count.set(data.len() / size);
    }
    Ok(())
}

/// Returns the size of an element in bytes. Fails if the tensor's element type is not `dtype`.
#[inline(never)]
fn element(which: Which, tensor_type: &TensorType, argument: u32, dtype: u32) -> Result<NonZeroUsize> {
    if !(Dtype::F32 as u32..=Dtype::Bool as u32).contains(&dtype) {
        return Err(Fault::new(Code::BadNumber, argument, 0).into());
    }
    let size = NonZeroUsize::new(tensor_type.dtype.size()).filter(|_| tensor_type.dtype as u32 == dtype);
    size.ok_or(Outcome::new(Code::TensorType, [which.index(), 0, 0, 0]))
}

impl Which {
    /// Returns the identifier of the tensor in `session`.
    fn id(self, session: &Taken<Session>) -> gradlet_core::Result<TensorId> {
        Ok(match self {
            Which::Input(signature, index) => TensorId::Input(session.signature(signature)?, index as usize),
            Which::Output(signature, index) => TensorId::Output(session.signature(signature)?, index as usize),
            Which::Variable(index) => TensorId::Variable(index as usize),
        })
    }

    fn index(self) -> u32 {
        match self {
            Which::Input(_, index) | Which::Output(_, index) | Which::Variable(index) => index,
        }
    }
}
