//! Products of matrices by cuBLASLt. Its matrices are stored column by column. A matrix that is stored row by row is the transposed one for
//! it, so it computes the transposed product from the transposed operands, in the other order.

use crate::driver::Driver;
use crate::driver::api::{Address, Handle, Status};
use crate::driver::cublaslt::{Algorithm, Api, Proposal};
use crate::lower::product::Product;
use gradlet_core::device::Placed;
use gradlet_core::{DType, Error, Result};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// Numbers of the computations in f32, with operands that are rounded to TF32 or not.
const TF32: c_int = 77;
const EXACT: c_int = 68;
/// Attributes of a product: whether its operands are transposed, and what happens to its elements.
const TRANSPOSE: [c_int; 2] = [3, 4];
const EPILOGUE: c_int = 7;
const BIAS_POINTER: c_int = 8;
/// The epilogue that adds a bias to each column.
const ADD_BIAS: c_int = 4;
/// Attributes of a layout.
const BATCH_COUNT: c_int = 5;
const BATCH_STRIDE: c_int = 6;
/// Attributes of a preference: the size of the workspace, and the alignment of the four matrices.
const WORKSPACE: c_int = 1;
const ALIGNMENTS: [c_int; 4] = [5, 6, 7, 8];
/// Alignment of tensors in bytes.
const ALIGNMENT: u32 = 16;

/// cuBLASLt for a context.
pub(crate) struct Multiplier {
    driver: Driver,
    handle: Handle,
    /// The algorithms, by the product and the size of the workspace. There is none for what cuBLASLt does not compute.
    algorithms: Mutex<HashMap<(Product, usize), Option<Algorithm>>>,
}

// SAFETY: several threads may use a handle at the same time.
unsafe impl Send for Multiplier {}
// SAFETY: as above.
unsafe impl Sync for Multiplier {}

/// Addresses of the operands of a product, of its bias or 0, and of its result.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub operands: [Address; 2],
    pub bias: Address,
    pub result: Address,
}

impl Places {
    /// Returns the places of an op's operands.
    pub(crate) fn new(inputs: &[Placed<'_>], outputs: &[Placed<'_>]) -> Result<Places> {
        let ([a, b, bias @ ..], [result]) = (inputs, outputs) else { return Err(Error::Internal) };
        let bias = bias.first().map_or(0, |bias| bias.address);
        Ok(Places { operands: [a.address, b.address], bias, result: result.address })
    }
}

impl Multiplier {
    /// Creates cuBLASLt's state for the current context. Returns `None` if there is no cuBLASLt.
    pub(super) fn new(driver: &Driver) -> Option<Multiplier> {
        let (library, mut handle) = (driver.cublaslt()?, std::ptr::null_mut());
        // SAFETY: the argument is a place for the handle.
        let created = check("cublasLtCreate", unsafe { (library.api.create)(&mut handle) });
        created.ok().map(|()| Multiplier { driver: driver.clone(), handle, algorithms: Mutex::default() })
    }

    fn api(&self) -> Result<&Api> {
        self.driver.cublaslt().map(|library| &library.api).ok_or(Error::Internal)
    }

    /// True if cuBLASLt computes the product with a workspace of this size.
    pub(crate) fn computes(&self, product: &Product, workspace: usize) -> bool {
        // Only the alignment of the bias counts.
        let descriptors = self.api().and_then(|api| Descriptors::new(api, product, ALIGNMENT.into()));
        descriptors.and_then(|mut descriptors| self.algorithm(product, &mut descriptors, workspace)).is_ok()
    }

    /// Puts a product on `stream`. The context is current. The workspace is an address with its size in bytes.
    pub(crate) fn launch(&self, product: &Product, places: &Places, workspace: (Address, usize), stream: Handle) -> Result<()> {
        let (api, Places { operands: [a, b], bias, result }) = (self.api()?, *places);
        let mut descriptors = Descriptors::new(api, product, bias)?;
        let algorithm = self.algorithm(product, &mut descriptors, workspace.1)?;
        let ([own_b, own_a, y], (alpha, beta)) = (descriptors.layouts, (1.0, 0.0));
        // SAFETY: the descriptors describe the memory at the addresses, which belongs to the context.
        let status = unsafe {
            let multiply = api.multiply;
            multiply(
                self.handle,
                descriptors.matmul,
                &alpha,
                b,
                own_b,
                a,
                own_a,
                &beta,
                result,
                y,
                result,
                y,
                &algorithm,
                workspace.0,
                workspace.1,
                stream,
            )
        };
        check("cublasLtMatmul", status)
    }

    /// Returns the algorithm that cuBLASLt proposes.
    fn algorithm(&self, product: &Product, descriptors: &mut Descriptors<'_>, workspace: usize) -> Result<Algorithm> {
        let mut known = self.algorithms.lock().unwrap_or_else(PoisonError::into_inner);
        let propose = || descriptors.propose(self.handle, workspace).ok().flatten();
        let algorithm = *known.entry((product.clone(), workspace)).or_insert_with(propose);
        algorithm.ok_or_else(|| Error::message(format!("cuBLASLt has no algorithm for {product:?}")))
    }
}

impl Drop for Multiplier {
    fn drop(&mut self) {
        if let Ok(api) = self.api() {
            // SAFETY: nothing else has the handle.
            unsafe { (api.destroy)(self.handle) };
        }
    }
}

/// The description of a product.
struct Descriptors<'a> {
    api: &'a Api,
    matmul: Handle,
    /// The layouts of b, a and y, transposed.
    layouts: [Handle; 3],
    preference: Handle,
}

impl Descriptors<'_> {
    fn new<'a>(api: &'a Api, product: &Product, bias: Address) -> Result<Descriptors<'a>> {
        let (f32_number, null) = (number(DType::F32)?, std::ptr::null_mut());
        let compute = if product.tf32 { TF32 } else { EXACT };
        // Descriptors that fail half-way are dropped.
        let mut all = Descriptors { api, matmul: null, layouts: [null; 3], preference: null };
        // SAFETY: the first argument is a place for the handle, here and below.
        check("cublasLtMatmulDescCreate", unsafe { (api.create_matmul)(&mut all.matmul, compute, f32_number) })?;
        let [flip_a, flip_b] = product.flipped;
        for (attribute, flip) in TRANSPOSE.into_iter().zip([flip_b, flip_a]) {
            set(api.set_matmul, all.matmul, attribute, &c_int::from(flip))?;
        }
        if product.bias {
            set(api.set_matmul, all.matmul, EPILOGUE, &ADD_BIAS)?;
            set(api.set_matmul, all.matmul, BIAS_POINTER, &bias)?;
        }
        let ([m, k, n], [in_a, in_b]) = ([product.m, product.k, product.n].map(u64::from), product.in_batch);
        let flip = |dims: [u64; 2], flip: bool| if flip { [dims[1], dims[0]] } else { dims };
        let matrices = [(flip([n, k], flip_b), in_b), (flip([k, m], flip_a), in_a), ([n, m], true)];
        for (index, ([rows, columns], in_batch)) in matrices.into_iter().enumerate() {
            // SAFETY: see above.
            let status = unsafe { (api.create_layout)(&mut all.layouts[index], number(product.dtype)?, rows, columns, rows as i64) };
            check("cublasLtMatrixLayoutCreate", status)?;
            let stride = if in_batch { (rows * columns) as i64 } else { 0 };
            set(api.set_layout, all.layouts[index], BATCH_COUNT, &(product.count as c_int))?;
            set(api.set_layout, all.layouts[index], BATCH_STRIDE, &stride)?;
        }
        Ok(all)
    }

    /// Returns the best algorithm as cuBLASLt estimates it, or `None` if it has none.
    fn propose(&mut self, handle: Handle, workspace: usize) -> Result<Option<Algorithm>> {
        let (api, [b, a, y]) = (self.api, self.layouts);
        // SAFETY: the argument is a place for the handle.
        check("cublasLtMatmulPreferenceCreate", unsafe { (api.create_preference)(&mut self.preference) })?;
        set(api.set_preference, self.preference, WORKSPACE, &workspace)?;
        ALIGNMENTS.into_iter().try_for_each(|attribute| set(api.set_preference, self.preference, attribute, &ALIGNMENT))?;
        let (mut proposal, mut found) = (Proposal::default(), 0);
        // SAFETY: all handles exist, and there is a place for one proposal and for the number of proposals.
        let status = unsafe { (api.propose)(handle, self.matmul, b, a, y, y, self.preference, 1, &mut proposal, &mut found) };
        check("cublasLtMatmulAlgoGetHeuristic", status)?;
        Ok((found > 0 && proposal.state == 0 && proposal.workspace <= workspace).then_some(proposal.algorithm))
    }
}

impl Drop for Descriptors<'_> {
    fn drop(&mut self) {
        let Descriptors { api, matmul, layouts, preference } = *self;
        let all = [(matmul, api.destroy_matmul), (preference, api.destroy_preference)].into_iter();
        for (handle, destroy) in all.chain(layouts.map(|layout| (layout, api.destroy_layout))).filter(|(handle, _)| !handle.is_null()) {
            // SAFETY: nothing else has the handle, and cuBLASLt needs descriptors only during its calls.
            unsafe { destroy(handle) };
        }
    }
}

/// Sets an attribute of a descriptor by `function`.
fn set<T>(
    function: unsafe extern "C" fn(Handle, c_int, *const c_void, usize) -> Status,
    descriptor: Handle,
    attribute: c_int,
    value: &T,
) -> Result<()> {
    // SAFETY: the descriptor exists, and the value has the size that is given.
    let status = unsafe { function(descriptor, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
    check("a call for an attribute", status)
}

/// Returns the library's number of an element type.
fn number(dtype: DType) -> Result<c_int> {
    match dtype {
        DType::F32 => Ok(0),
        DType::F16 => Ok(2),
        DType::Bf16 => Ok(14),
        _ => Err(Error::Internal),
    }
}

/// Turns the status of a call of `function` into a result.
fn check(function: &str, status: Status) -> Result<()> {
    if status == 0 { Ok(()) } else { Err(Error::message(format!("{function} failed with cuBLASLt's error {status}"))) }
}
