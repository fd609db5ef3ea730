//! Memory that a program owns, as memory of a device.

use super::Shared;
use crate::gpu::foreign::{External, Mapping};
use gradlet_core::device::Imported;
use gradlet_core::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// A mapping with its owner. It ends when the device has finished its work, and the owner is dropped afterwards.
struct Borrowed {
    device: Arc<Shared>,
    mapping: Mapping,
    _owner: Box<dyn Send + Sync>,
}

/// Makes memory addressable that `source`, an [`External`], describes.
pub(super) fn import(device: &Arc<Shared>, source: Box<dyn Any + Send + Sync>) -> Result<Imported> {
    let source = source.downcast::<External>().map_err(|_| Error::message("external memory of a GPU is of the type External"))?;
    let bytes = source.bytes();
    if bytes == 0 {
        return Err(Error::message("external memory has at least one byte"));
    }
    let mapped = source.map(device.stream().enter()?);
    let (mapping, owner) = mapped.map_err(|error| error.context(format!("external memory of {bytes} bytes")))?;
    let address = mapping.address();
    let borrowed = Borrowed { device: device.clone(), mapping, _owner: owner };
    if address == 0 {
        return Err(Error::message("external memory at a null pointer"));
    }
    Ok(Imported { address, bytes, owner: Box::new(borrowed) })
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // A failure means that the GPU is lost. It reads nothing then.
        let _ = self.device.stream().synchronize();
        if let Ok(driver) = self.device.stream().enter() {
            self.mapping.end(driver);
        }
    }
}
