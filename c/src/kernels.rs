//! A symbol for each kernel. A C source names the kernels that its artifact needs, and the linker drops the others.

use gradlet_core::Kernel as Compute;

/// A kernel: code that computes an op for one element type. Its symbol is `gradlet_kernel_`, the name of the op, `_`, and the element type,
/// as in `gradlet_kernel_dense_F32`. `gradlet export --c` writes the list that an artifact needs.
pub struct Kernel(#[allow(dead_code)] Compute);

// The loader reads a list of pointers to `Kernel` as one of pointers to core's.
const _: () = assert!(size_of::<Kernel>() == size_of::<Compute>() && align_of::<Kernel>() == align_of::<Compute>());
const _: () = assert!(core::mem::offset_of!(Kernel, 0) == 0);

macro_rules! symbols {
    ($($code:literal $op:ident: $($dtype:ident),*;)*) => {
        $(
            #[doc = concat!("Kernels of `", stringify!($op), "`.")]
            pub mod $op {
                use gradlet_core::ops::$op;
                $(
                    #[doc = concat!("Kernel for ", stringify!($dtype), ".")]
                    #[unsafe(export_name = concat!("gradlet_kernel_", stringify!($op), "_", stringify!($dtype)))]
                    pub static $dtype: super::Kernel = super::Kernel(gradlet_core::Kernel {
                        def: $op::$dtype.def,
                        dtype: $op::$dtype.dtype,
                        run: $op::$dtype.run,
                    });
                )*
            }
        )*
    };
}
gradlet_core::catalogue!(symbols);
