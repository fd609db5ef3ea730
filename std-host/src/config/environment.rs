//! Environment variables that choose devices and their memory policy.

use super::physical::Physical;
use std::sync::Arc;

/// Environment variables that a [`Context`](super::Context) obeys.
///
/// | variable | effect |
/// |---|---|
/// | `CUDA_VISIBLE_DEVICES` | indices of the GPUs that exist for the program, in this order: `2,3`. The list ends before a wrong index. |
/// | `TF_FORCE_GPU_ALLOW_GROWTH` | `true` or `false`: the memory policy of all GPUs, whatever the program sets |
///
/// A list that names a GPU twice is empty, as for CUDA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Value of `CUDA_VISIBLE_DEVICES`, if it is set.
    pub cuda_visible_devices: Option<String>,
    /// Value of `TF_FORCE_GPU_ALLOW_GROWTH`, if it is set.
    pub force_gpu_allow_growth: Option<String>,
}

impl Environment {
    /// Reads the environment of the process.
    pub fn of_process() -> Environment {
        let read = |name| std::env::var(name).ok();
        Environment { cuda_visible_devices: read("CUDA_VISIBLE_DEVICES"), force_gpu_allow_growth: read("TF_FORCE_GPU_ALLOW_GROWTH") }
    }

    /// Returns the devices that exist for the program. Only GPUs are chosen.
    pub(super) fn chosen(&self, devices: Vec<Arc<dyn Physical>>) -> Vec<Arc<dyn Physical>> {
        let Some(listed) = &self.cuda_visible_devices else { return devices };
        let (gpus, mut others): (Vec<_>, Vec<_>) =
            devices.into_iter().partition(|device| device.device_type() == "GPU" && !device.is_chosen());
        let mut chosen = Vec::new();
        let indices = listed.split(',').map_while(|index| index.trim().parse::<usize>().ok());
        for index in indices.take_while(|&index| index < gpus.len()) {
            // CUDA refuses a list that names a GPU twice.
            if chosen.contains(&index) {
                return others;
            }
            chosen.push(index);
        }
        others.extend(chosen.into_iter().map(|index| gpus[index].clone()));
        others
    }

    /// Returns the memory policy that the environment forces on all GPUs.
    pub(super) fn growth(&self) -> Option<bool> {
        match self.force_gpu_allow_growth.as_deref() {
            Some("true" | "True" | "1") => Some(true),
            Some("false" | "False" | "0") => Some(false),
            _ => None,
        }
    }
}
