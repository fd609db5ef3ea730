//! Groups of devices that share the work of a program: which of them computes an op, and how tensors reach it.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::OpDef;
use crate::base::shape::TensorType;
use crate::base::sync::{Shared, ThreadSafe};
use crate::tensor::device::account::Account;
use crate::tensor::device::{Backend, Device};
use crate::tensor::facts::Op;
use crate::tensor::profile::Profiler;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Rules by which a group of devices shares the work of a program: see [`Device::group`].
pub trait Placement: ThreadSafe {
    /// Returns the index of the device with this name, such as `GPU:0`, `/device:GPU:0` or `GPU`. Returns `None` if there is none and
    /// [`is_soft`](Placement::is_soft) is true. Fails if there is none otherwise, or if the name is not that of a device.
    fn find(&self, name: &str) -> Result<Option<u32>>;
    /// Makes this thread compute its ops on `device`, until [`leave`](Placement::leave) is called with the returned number. `None` ends the
    /// effect of earlier calls.
    fn enter(&self, device: Option<u32>) -> u64;
    /// Ends the effect of the call of [`enter`](Placement::enter) that returned `entered`.
    fn leave(&self, entered: u64);
    /// Returns what holds for the next op of this thread.
    fn now(&self) -> Now;
    /// True if an op runs on another device if the named one does not exist or cannot compute it. Otherwise that is an error.
    fn is_soft(&self) -> bool;
    /// Writes a line to the log.
    fn log(&self, line: fmt::Arguments<'_>) {
        let _ = line;
    }
}

/// Placement of the next op of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The device of the last [`enter`](Placement::enter) of the thread that has not been left.
    pub named: Option<u32>,
    /// True if the placement is logged.
    pub logs: bool,
}

/// Devices that share the work of a program. A device on its own is a group of one, without rules.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) members: Vec<Member>,
    /// The members, the fastest one first.
    fastest: Vec<u32>,
    placement: Option<Shared<dyn Placement>>,
    pub(super) profiler: Option<Shared<dyn Profiler>>,
}

/// A device of a group: its memory, and what computes in it.
#[derive(Clone)]
pub(super) struct Member {
    pub(super) account: Shared<Account>,
    /// True if the backend has remote memory. Every op asks, so this is not a virtual call.
    pub(super) is_remote: bool,
    pub(super) backend: Shared<dyn Backend>,
}

impl Group {
    /// Creates the group of one device.
    pub(super) fn of(member: Member) -> Group {
        Group { members: alloc::vec![member], fastest: Vec::new(), placement: None, profiler: None }
    }
}

impl Device {
    /// Returns the fastest of `devices` as a member of a new group of all of them, in which `placement` decides where ops run. `fastest`
    /// has the index of each device, the fastest one first. [`Device::member`] returns the other members.
    ///
    /// An op on tensors of members runs on the device that the program names with [`Scope::with_device`](crate::Scope::with_device). If it
    /// names none, the op runs on the fastest device that has a kernel for it. Inputs on another device are copied.
    pub fn group(devices: &[Device], fastest: &[u32], placement: Shared<dyn Placement>) -> Result<Device> {
        let count = devices.len() as u32;
        let complete = fastest.len() == devices.len() && (0..count).all(|index| fastest.contains(&index));
        let Some(&index) = fastest.first().filter(|_| complete) else {
            return Err(Error::message(alloc::format!("a group of {count} devices cannot have the order {fastest:?}")));
        };
        let members = devices.iter().map(|device| device.own().clone()).collect();
        let group = Group { members, fastest: fastest.into(), placement: Some(placement), profiler: None };
        Ok(Device { group: Shared::new(group), index })
    }

    /// Returns member `index` of the device's group, or `None` if the group has fewer members. Member 0 of a device without a group is the
    /// device itself.
    pub fn member(&self, index: u32) -> Option<Device> {
        ((index as usize) < self.group.members.len()).then(|| self.at(index))
    }

    /// Returns the device without its group. Ops on its tensors run on this device only.
    pub fn alone(&self) -> Device {
        let group = Group { profiler: self.group.profiler.clone(), ..Group::of(self.own().clone()) };
        Device { group: Shared::new(group), index: 0 }
    }

    fn at(&self, index: u32) -> Device {
        Device { group: self.group.clone(), index }
    }

    /// Returns the rules of the device's group, or `None` for a device on its own.
    #[inline(always)]
    pub(crate) fn placement(&self) -> Option<&Shared<dyn Placement>> {
        self.group.placement.as_ref()
    }

    /// Returns the index of the device in its group.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the device on which this thread creates tensors and runs functions now: the one that the program names, otherwise the
    /// fastest one of the group.
    pub(crate) fn current(&self) -> Device {
        self.placement().and_then(|placement| self.preferred(placement.now())).unwrap_or_else(|| self.clone())
    }

    /// Returns the device of the group on which an op runs if that has a kernel, or `None` if this device is the one.
    fn preferred(&self, now: Now) -> Option<Device> {
        let index = now.named.or(self.group.fastest.first().copied()).unwrap_or(self.index);
        (index != self.index).then(|| self.at(index))
    }

    /// Returns the device of the group that computes `def`, or `None` if this device does. Fails if the program names a device that does
    /// not, and placement is not soft, and if no device does.
    #[inline]
    pub(crate) fn chosen(&self, now: Now, def: &'static OpDef, dtype: DType) -> Result<Option<Device>> {
        let preferred = self.preferred(now);
        let device = preferred.as_ref().unwrap_or(self);
        if device.has_kernel(def, dtype) { Ok(preferred) } else { device.substitute(now.named, def, dtype).map(Some) }
    }

    /// Returns the device that computes `def` although this one has no kernel. Fails if the program names this device, and placement is not
    /// soft, and if no device has a kernel.
    #[cold]
    fn substitute(&self, named: Option<u32>, def: &'static OpDef, dtype: DType) -> Result<Device> {
        if named.is_some() && self.placement().is_some_and(|placement| !placement.is_soft()) {
            let text = "and soft placement is off: allow it with set_soft_device_placement(true), or name another device";
            return Err(Error::message(alloc::format!("{} has no kernel for {} on {dtype}, {text}", self.name(), def.name)));
        }
        self.best(def, dtype).map(|index| self.at(index)).ok_or(Error::NoKernel { op: def.name, dtype })
    }

    /// Returns the device on which a function of this device computes a node, for which the program names `named`.
    pub(crate) fn of_node(&self, named: Option<u32>, def: &'static OpDef, dtype: DType) -> Result<u32> {
        let index = named.unwrap_or(self.index);
        let able = self.group.members.get(index as usize).is_some_and(|member| member.backend.has_kernel(def, dtype));
        // If no device has a kernel, that of the function reports it.
        match able {
            true => Ok(index),
            false if named.is_none() => Ok(self.best(def, dtype).unwrap_or(index)),
            false => Ok(self.at(index).substitute(named, def, dtype)?.index),
        }
    }

    /// Returns the fastest device of the group that computes `def`.
    fn best(&self, def: &'static OpDef, dtype: DType) -> Option<u32> {
        let able = |index: &u32| self.group.members.get(*index as usize).is_some_and(|member| member.backend.has_kernel(def, dtype));
        self.group.fastest.iter().copied().find(able)
    }

    /// Returns this device, or `other` if only that one belongs to a group or reports to a profiler.
    #[inline(always)]
    pub(crate) fn or_led<'d>(&'d self, other: &'d Device) -> &'d Device {
        if self.is(other) { self } else { self.led(other) }
    }

    #[cold]
    fn led<'d>(&'d self, other: &'d Device) -> &'d Device {
        match (&self.group.placement, &other.group.placement) {
            (None, Some(_)) => other,
            (Some(_), None) => self,
            _ if other.profiler().is_some() && self.profiler().is_none() && (self == other || self.placement().is_some()) => other,
            _ => self,
        }
    }

    /// Returns the member of this device's group that is equal to `other`.
    pub(crate) fn peer(&self, other: &Device) -> Option<Device> {
        let index = self.group.members.iter().position(|member| Shared::ptr_eq(&member.account, &other.own().account));
        let known = index.map(|index| self.at(index as u32));
        known.or_else(|| (0..self.group.members.len() as u32).map(|index| self.at(index)).find(|member| member == other))
    }

    /// True if both are the same device in the same group, so that functions planned for one fit the other.
    pub(crate) fn is_like(&self, other: &Device) -> bool {
        let alike = match (self.placement(), other.placement()) {
            (Some(own), Some(other)) => Shared::ptr_eq(own, other),
            (None, None) => true,
            _ => false,
        };
        alike && self == other
    }

    /// Logs that this device has computed `op`.
    #[cold]
    pub(crate) fn log_op(&self, op: &Op) {
        if let Some(placement) = self.placement() {
            placement.log(format_args!("Executing op {} in device {}", op.type_name(), self.full_name()));
        }
    }

    /// Logs that member `index` of the group computes a node of a function.
    pub(crate) fn log_node(&self, name: Option<&str>, op: &Op, index: u32) {
        if let Some(placement) = self.placement().filter(|placement| placement.now().logs) {
            let (kind, device) = (op.type_name(), self.at(index).full_name());
            placement.log(format_args!("{}: ({kind}): {device}", name.unwrap_or(op.def.name)));
        }
    }

    /// Logs that a tensor is copied from `from` to this device.
    pub(crate) fn log_copy(&self, tensor_type: TensorType, from: &Device) {
        if let Some(placement) = self.placement().filter(|placement| placement.now().logs) {
            placement.log(format_args!("Copying {tensor_type} from {} to {}", from.full_name(), self.full_name()));
        }
    }

    /// Returns TensorFlow's full name of the device, such as `/job:localhost/replica:0/task:0/device:GPU:0`.
    ///
    /// ```
    /// let device = gradlet_core::Device::cpu("CPU:0", gradlet_core::ops::KERNELS);
    /// assert_eq!(device.full_name(), "/job:localhost/replica:0/task:0/device:CPU:0");
    /// ```
    pub fn full_name(&self) -> String {
        alloc::format!("/job:localhost/replica:0/task:0/device:{}", self.name())
    }
}
