//! The exported functions.

// cuBLASLt's documentation states for each function what its caller guarantees.
#![allow(clippy::missing_safety_doc, non_snake_case)]

use super::product::{self, Matrix, Product};
use super::{CublasResult, INVALID_VALUE, Library, Matmul, NOT_INITIALIZED, NOT_SUPPORTED, Preference, Proposal, SUCCESS, library};
use crate::driver::{Handle, Work, emulator};
use std::ffi::c_void;
use std::sync::Arc;

/// An algorithm: the first word is its number, from 1 on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Algorithm(pub [u64; 8]);

/// A proposed algorithm.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct HeuristicResult {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Bytes of workspace that it needs.
    pub workspace: usize,
    /// Whether it works.
    pub state: CublasResult,
    /// The part of the device that it uses.
    pub waves: f32,
    /// Unused.
    pub reserved: [i32; 4],
}

/// The bytes of workspace that the emulated algorithm likes to have.
const WORKSPACE: usize = 4096;

fn call(body: impl FnOnce(&mut Library) -> Result<(), CublasResult>) -> CublasResult {
    body(&mut library()).err().unwrap_or(SUCCESS)
}

/// Writes a result to where the caller wants it.
fn give<T>(place: *mut T, value: T) -> Result<(), CublasResult> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller gives a place for a value of this type, or a null pointer.
    unsafe { place.write(value) };
    Ok(())
}

/// Reads the value of an attribute, whose size must be right.
fn take<T: Copy>(value: *const c_void, size: usize) -> Result<T, CublasResult> {
    if value.is_null() || size != size_of::<T>() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller gives as many bytes as it says.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// Creates a handle for the device of the current context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(handle: *mut Handle) -> CublasResult {
    call(|library| {
        let device = emulator().current().map_err(|_| NOT_INITIALIZED)?;
        let new = library.handle();
        library.handles.insert(new, device);
        give(handle, new)
    })
}

/// Ends a handle. Its context must be current.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtDestroy(handle: Handle) -> CublasResult {
    call(|library| {
        let device = emulator().current().map_err(|_| NOT_INITIALIZED)?;
        library.handles.remove(&handle).filter(|own| *own == device).map(drop).ok_or(NOT_INITIALIZED)
    })
}

/// Creates the description of a product with sums in f32.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescCreate(matmul: *mut Handle, compute: i32, scale: i32) -> CublasResult {
    call(|library| {
        let tf32 = match (compute, scale) {
            (68, 0) => false,
            (77, 0) => true,
            _ => return Err(INVALID_VALUE),
        };
        let handle = library.handle();
        library.matmuls.insert(handle, Matmul { tf32, ..Matmul::default() });
        give(matmul, handle)
    })
}

/// Ends a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescDestroy(matmul: Handle) -> CublasResult {
    call(|library| library.matmuls.remove(&matmul).map(drop).ok_or(INVALID_VALUE))
}

/// Sets the transpositions, the epilogue or the address of the bias.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulDescSetAttribute(matmul: Handle, attribute: i32, value: *const c_void, size: usize) -> CublasResult {
    call(|library| {
        let matmul = library.matmuls.get_mut(&matmul).ok_or(INVALID_VALUE)?;
        let number = || take::<i32>(value, size).and_then(|number| u32::try_from(number).map_err(|_| INVALID_VALUE));
        match attribute {
            3 | 4 => {
                matmul.transposed[attribute as usize - 3] =
                    number().and_then(|turned| (turned < 2).then_some(turned == 1).ok_or(INVALID_VALUE))?
            }
            7 => {
                matmul.adds_bias =
                    number().and_then(|epilogue| if [1, 4].contains(&epilogue) { Ok(epilogue == 4) } else { Err(INVALID_VALUE) })?
            }
            8 => matmul.bias = take(value, size)?,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

/// Creates the layout of a matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut Handle,
    dtype: i32,
    rows: u64,
    columns: u64,
    leading: i64,
) -> CublasResult {
    call(|library| {
        let leading = u64::try_from(leading).map_err(|_| INVALID_VALUE)?;
        let handle = library.handle();
        library.layouts.insert(handle, Matrix { dtype, rows, columns, leading, count: 1, stride: 0 });
        give(layout, handle)
    })
}

/// Ends a layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutDestroy(layout: Handle) -> CublasResult {
    call(|library| library.layouts.remove(&layout).map(drop).ok_or(INVALID_VALUE))
}

/// Sets the number of matrices, or the elements from one to the next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: Handle,
    attribute: i32,
    value: *const c_void,
    size: usize,
) -> CublasResult {
    call(|library| {
        let layout = library.layouts.get_mut(&layout).ok_or(INVALID_VALUE)?;
        match attribute {
            5 => layout.count = take::<i32>(value, size)?.try_into().map_err(|_| INVALID_VALUE)?,
            6 => layout.stride = take::<i64>(value, size)?.try_into().map_err(|_| INVALID_VALUE)?,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

/// Creates a preference: no workspace, and matrices at multiples of 256.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut Handle) -> CublasResult {
    call(|library| {
        let handle = library.handle();
        library.preferences.insert(handle, Preference { workspace: 0, alignments: [256; 4] });
        give(preference, handle)
    })
}

/// Ends a preference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceDestroy(preference: Handle) -> CublasResult {
    call(|library| library.preferences.remove(&preference).map(drop).ok_or(INVALID_VALUE))
}

/// Sets the largest workspace, or the alignment of a matrix.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: Handle,
    attribute: i32,
    value: *const c_void,
    size: usize,
) -> CublasResult {
    call(|library| {
        let preference = library.preferences.get_mut(&preference).ok_or(INVALID_VALUE)?;
        match attribute {
            1 => preference.workspace = take(value, size)?,
            5..=8 => preference.alignments[attribute as usize - 5] = take(value, size)?,
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    })
}

/// Proposes an algorithm. There is none for a row of a single element, so that a caller meets this case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: Handle,
    matmul: Handle,
    a: Handle,
    b: Handle,
    c: Handle,
    d: Handle,
    preference: Handle,
    wanted: i32,
    results: *mut HeuristicResult,
    found: *mut i32,
) -> CublasResult {
    call(|library| {
        library.handles.get(&handle).ok_or(NOT_INITIALIZED)?;
        let (Some(matmul), Some(preference)) = (library.matmuls.get(&matmul), library.preferences.get(&preference)) else {
            return Err(INVALID_VALUE);
        };
        let matrices = library.matrices([a, b, d])?;
        product::check(&matrices, matmul.transposed)?;
        if c != d || wanted < 1 || matmul.adds_bias && matmul.bias == 0 {
            return Err(INVALID_VALUE);
        }
        if matrices[2].rows == 1 {
            return Err(NOT_SUPPORTED);
        }
        let Matmul { tf32, transposed, adds_bias, .. } = *matmul;
        let proposal = Proposal { handle, transposed, tf32, adds_bias, matrices, alignments: preference.alignments };
        let workspace = WORKSPACE.min(preference.workspace as usize);
        library.proposals.push(proposal);
        let algorithm = Algorithm([library.proposals.len() as u64, workspace as u64, 0, 0, 0, 0, 0, 0]);
        give(results, HeuristicResult { algorithm, workspace, state: SUCCESS, waves: 1.0, reserved: [0; 4] })?;
        give(found, 1)
    })
}

/// Multiplies matrices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmul(
    handle: Handle,
    matmul: Handle,
    alpha: *const f32,
    a: u64,
    a_layout: Handle,
    b: u64,
    b_layout: Handle,
    beta: *const f32,
    c: u64,
    c_layout: Handle,
    d: u64,
    d_layout: Handle,
    algorithm: *const Algorithm,
    workspace: u64,
    workspace_size: usize,
    stream: Handle,
) -> CublasResult {
    call(|library| {
        let device = *library.handles.get(&handle).ok_or(NOT_INITIALIZED)?;
        let matmul = library.matmuls.get(&matmul).ok_or(INVALID_VALUE)?;
        let matrices = library.matrices([a_layout, b_layout, d_layout])?;
        // SAFETY: the caller gives two numbers and an algorithm, or null pointers.
        let (scales, algorithm) = unsafe { ([alpha.as_ref(), beta.as_ref()], algorithm.as_ref()) };
        let [number, needed, ..] = algorithm.ok_or(INVALID_VALUE)?.0;
        let proposal = library.proposals.get((number as usize).wrapping_sub(1)).ok_or(INVALID_VALUE)?;
        let Matmul { tf32, transposed, adds_bias, bias } = *matmul;
        let own = Proposal { handle, transposed, tf32, adds_bias, matrices, alignments: proposal.alignments };
        let aligned = [a, b, c, d].iter().zip(proposal.alignments).all(|(address, alignment)| address.is_multiple_of(alignment.into()));
        let is_right = scales == [Some(&1.0), Some(&0.0)] && (c, c_layout) == (d, d_layout) && own == *proposal && aligned;
        if !is_right || (workspace_size as u64) < needed || adds_bias && !bias.is_multiple_of(16) {
            return Err(INVALID_VALUE);
        }
        let mut emulator = emulator();
        if workspace_size > 0 {
            emulator.memory.check(device, workspace, workspace_size).map_err(|_| INVALID_VALUE)?;
        }
        let stream = emulator.current().and_then(|_| emulator.stream(device, stream)).map_err(|_| INVALID_VALUE)?;
        let (places, bias, time) = ([a, b, d], adds_bias.then_some(bias), emulator.configuration.cublaslt);
        let product = Product { device, transposed, matrices, places, bias, time };
        emulator.counts.kernel_launches += 1;
        emulator.submit(stream, Work::Product(Arc::new(product))).map(drop).map_err(|_| INVALID_VALUE)
    })
}
