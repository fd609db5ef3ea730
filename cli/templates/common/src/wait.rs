//! Flash whose driver has the async traits of `embedded-storage-async`.

use embassy_futures::block_on;
use embedded_storage_async::nor_flash as driver;
use gradlet_core::runtime::embedded_storage::nor_flash::{ErrorType, NorFlash, ReadNorFlash};

/// An async driver as a blocking one, which `Slots` takes. Each operation is polled until it ends.
pub struct Wait<F>(pub F);

impl<F: driver::NorFlash> ErrorType for Wait<F> {
    type Error = F::Error;
}

impl<F: driver::NorFlash> ReadNorFlash for Wait<F> {
    const READ_SIZE: usize = F::READ_SIZE;

    fn read(&mut self, offset: u32, bytes: &mut [u8]) -> Result<(), F::Error> {
        block_on(self.0.read(offset, bytes))
    }

    fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<F: driver::NorFlash> NorFlash for Wait<F> {
    const WRITE_SIZE: usize = F::WRITE_SIZE;
    const ERASE_SIZE: usize = F::ERASE_SIZE;

    fn erase(&mut self, from: u32, to: u32) -> Result<(), F::Error> {
        block_on(self.0.erase(from, to))
    }

    fn write(&mut self, offset: u32, bytes: &[u8]) -> Result<(), F::Error> {
        block_on(self.0.write(offset, bytes))
    }
}
