//! Programs: artifacts, verified.

use crate::kernels::Kernel;
use crate::memory::{self, Checked, Out, Region};
use crate::outcome::{Code, Fault, Outcome};
use crate::place::{self, place};
use core::ffi::c_char;
use gradlet_core::runtime::checkpoint::Identity;
use gradlet_core::runtime::program::{ALIGN, missing_kernel};
use gradlet_core::{Kernel as Compute, Program as Loaded};

/// Size of a `gradlet_program`, in words of a pointer's size.
pub const GRADLET_PROGRAM_WORDS: usize = 40;

/// A program: an artifact that was verified for some of its signatures. The struct stays where it is, and the artifact, the list of
/// kernels and the struct live as long as a session of the program.
#[repr(C)]
pub struct Program {
    words: [usize; GRADLET_PROGRAM_WORDS],
}

place!(Program: Opened, b"prog");

/// A loaded program.
pub struct Opened {
    pub(crate) program: Loaded<'static>,
    pub(crate) key: Key,
    /// The bytes of the artifact, and the list of kernels.
    pub(crate) memory: [Region; 2],
}

/// The facts that distinguish two programs in the same place: the address and the identity of the artifact, and the loaded signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key(usize, Identity, u32);

/// The sizes of the memory that a session needs, in bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sizes {
    /// The whole arena: `scratch` and `kept`.
    pub arena: usize,
    /// The part that holds nothing between runs.
    pub scratch: usize,
    /// The part that holds the variables.
    pub kept: usize,
}

/// Verifies the artifact of `bytes` bytes at `artifact`, which begins at a multiple of 16. `kernels` lists the kernels that it needs. Bit
/// `i` of `signatures` loads the signature with index `i`; a header of `gradlet export --c` has the bits of all of them, and the indices.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_program_load(
    program: *mut Program,
    artifact: *const u8,
    bytes: usize,
    kernels: *const *const Kernel,
    kernel_count: usize,
    signatures: u32,
) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        unsafe {
            let own = place::begin(0, program)?;
            let (bytes, kernels, memory) = sources(own, (artifact, bytes), (kernels, kernel_count))?;
            place::clear(program);
            put(program, Loaded::load_at(bytes, kernels, signatures)?, signatures, memory);
        }
        Ok(())
    })
}

/// Puts a loaded program into its struct.
///
/// # Safety
///
/// [`place::clear`] has emptied the struct.
#[inline(always)]
pub(crate) unsafe fn put(place: *mut Program, program: Loaded<'static>, signatures: u32, memory: [Region; 2]) {
    let key = Key(memory[0].start(), program.identity(), signatures);
    // A session has the program as argument 1.
    let memory = memory.map(|region| region.of_argument(1));
    // SAFETY: the promises of the caller.
    unsafe { place::put(place, Opened { program, key, memory }) };
}

/// The bytes of an artifact, a list of kernels, and the memory of both.
type Sources = (&'static [u8], &'static [&'static Compute], [Region; 2]);

/// Checks the artifact and the list of kernels of a program or a load whose struct is `own`: the arguments 1 and 3.
///
/// # Safety
///
/// The promises of the crate's page.
pub(crate) unsafe fn sources(
    own: Region,
    (artifact, bytes): (*const u8, usize),
    (kernels, count): (*const *const Kernel, usize),
) -> Checked<Sources> {
    let artifact = Region::new(1, artifact, bytes, ALIGN)?;
    let table = Region::new(3, kernels.cast(), count.saturating_mul(size_of::<*const Kernel>()), align_of::<*const Kernel>())?;
    own.apart(&artifact)?;
    own.apart(&table)?;
    // SAFETY: the promises of the caller.
    for &kernel in unsafe { table.slice::<*const Kernel>() } {
        Region::of(3, kernel)?;
    }
    // SAFETY: as above. No pointer to a kernel is null, and each points to a `Kernel`, which has the layout of core's.
    Ok(unsafe { (artifact.slice(), table.slice(), [artifact, table]) })
}

/// Stores the sizes of the memory that a session of `program` needs.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_program_sizes(program: *const Program, sizes: *mut Sizes) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let opened = unsafe { place::look(0, program)? };
        let sizes = Out::new(1, sizes, &[Region::checked(0, program)])?;
        let [scratch, kept] = [opened.program.scratch_bytes(), opened.program.kept_bytes()];
        // SAFETY: as above.
        unsafe { sizes.set(Sizes { arena: scratch + kept, scratch, kept }) };
        Ok(())
    })
}

/// Stores the index of the loaded signature with the name `name`. Other functions take the index. A header of `gradlet export --c` has it
/// as a constant.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_program_signature(program: *const Program, name: *const c_char, signature: *mut u32) -> Outcome {
    Outcome::of(|| {
        // SAFETY: the promises of the caller.
        let (opened, name) = unsafe { (place::look(0, program)?, memory::text(1, name, &[])?) };
        let signature = Out::new(2, signature, &[Region::checked(0, program)])?;
        // SAFETY: as above.
        unsafe { signature.set(opened.program.signature(name)?.index()) };
        Ok(())
    })
}

/// Writes the name of the op whose kernel a load lacked to `op`, of `bytes` bytes, and ends it with a zero. `kernel` is the number of
/// GRADLET_CODE_MISSING_KERNEL. Stores the element type, one of `enum gradlet_dtype`, in `dtype`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gradlet_missing_kernel(
    artifact: *const u8,
    artifact_bytes: usize,
    kernel: u32,
    op: *mut c_char,
    bytes: usize,
    dtype: *mut u32,
) -> Outcome {
    Outcome::of(|| {
        let artifact = Region::new(0, artifact, artifact_bytes, ALIGN)?;
        let text = Region::new(3, op.cast(), bytes, 1)?;
        let dtype = Out::new(5, dtype, &[artifact, text])?;
        artifact.apart(&text)?;
        // SAFETY: the promises of the caller.
        let (artifact, text) = unsafe { (artifact.slice(), text.slice_mut()) };
        let (name, found) = missing_kernel(artifact, kernel).ok_or(Fault::new(Code::BadNumber, 2, 0))?;
        let needed = name.len() + 1;
        let text = text.get_mut(..needed).ok_or(Outcome::new(Code::BufferTooSmall, [3, needed as u32, bytes as u32, 0]))?;
        text.iter_mut().zip(name.bytes().chain([0])).for_each(|(to, from)| *to = from);
        // SAFETY: as above.
        unsafe { dtype.set(found as u32) };
        Ok(())
    })
}
