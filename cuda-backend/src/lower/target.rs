//! The facts that choose between kernels.

/// Which kernels on tensor cores a device uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TensorCores {
    /// None: the GPU is too old, the device is strict, or the kernels gave wrong results.
    None,
    /// Those in which a warp multiplies, from compute capability 8.0 on.
    Warps,
    /// Also those in which four warps multiply, for compute capability 9.0.
    Warpgroups,
}

impl TensorCores {
    /// Returns the kernels for GPUs of this compute capability.
    pub(crate) fn of(capability: u32) -> TensorCores {
        match capability {
            90 => TensorCores::Warpgroups,
            80.. => TensorCores::Warps,
            _ => TensorCores::None,
        }
    }
}

/// The GPU and the settings of the device for which an op is lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Compute capability: 87 for 8.7.
    pub capability: u32,
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// The most shared memory that a block may have, in bytes.
    pub shared: u32,
    /// True if sums keep the order of the portable kernels and products are rounded before they are added.
    pub strict: bool,
    /// True if products of f32 may round their operands to TF32.
    pub tf32: bool,
    /// The kernels on tensor cores.
    pub tensor_cores: TensorCores,
    /// Size of the workspace in bytes: see [`Argument::Workspace`](super::call::Argument::Workspace).
    pub workspace: u64,
    /// Rank of the wanted plan among those that compute an op: 0 is the one with the least estimated cost.
    pub rank: usize,
}

impl Target {
    /// Returns the plan of the wanted rank, or the first one if there are fewer.
    pub(super) fn pick<P: Copy>(&self, plans: &[P]) -> Option<P> {
        plans.get(self.rank).or(plans.first()).copied()
    }
}

#[cfg(test)]
impl Target {
    /// A Jetson Orin with 16 multiprocessors.
    pub(crate) const ORIN: Target = Target {
        capability: 87,
        multiprocessors: 16,
        shared: 163 << 10,
        strict: false,
        tf32: false,
        tensor_cores: TensorCores::Warps,
        workspace: 8 << 20,
        rank: 0,
    };
}
