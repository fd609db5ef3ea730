//! Replacement of the initial values of an artifact's variables.

use bytemuck::{Pod, bytes_of, pod_read_unaligned};
use gradlet_core::device::AlignedBytes;
use gradlet_core::runtime::program::{self, ALIGN, Header, NONE, Space, TensorRecord, VariableRecord};
use gradlet_core::{Error, Result};
use std::mem::offset_of;

/// Indices, in the header, of the sections that are changed.
const VARIABLES: usize = 2;
const TENSORS: usize = 3;
const DATA: usize = 11;

/// Returns a copy of `artifact`, which must be valid, with new initial values of its variables. The values are in the order of the
/// variables; `None` keeps the old value. A new value overwrites the bytes of the old one, unless a constant or another variable
/// shares them. In that case, the new value is appended.
pub(crate) fn replaced(artifact: &[u8], values: &[Option<Vec<u8>>]) -> Result<AlignedBytes> {
    let header: Header = pod_read_unaligned(&artifact[..size_of::<Header>()]);
    let mut bytes = artifact[..header.length as usize].to_vec();
    let mut edit = Edit { header, bytes: &mut bytes };
    edit.put_data_last();
    for (index, value) in values.iter().enumerate() {
        value.iter().try_for_each(|value| edit.set(index, value))?;
    }
    edit.finish()?;
    Ok(AlignedBytes::from(bytes.as_slice()))
}

struct Edit<'b> {
    header: Header,
    bytes: &'b mut Vec<u8>,
}

impl Edit<'_> {
    fn place<T>(&self, section: usize, index: usize) -> std::ops::Range<usize> {
        let start = self.header.sections[section].offset as usize + index * size_of::<T>();
        start..start + size_of::<T>()
    }

    fn records<T: Pod>(&self, section: usize) -> impl Iterator<Item = T> {
        (0..self.header.sections[section].count as usize).map(move |index| pod_read_unaligned(&self.bytes[self.place::<T>(section, index)]))
    }

    fn data(&self) -> usize {
        self.header.sections[DATA].offset as usize
    }

    /// Moves the data section to the end, so that bytes can be appended to it.
    fn put_data_last(&mut self) {
        let (start, count) = (self.data(), self.header.sections[DATA].count as usize);
        if start + count != self.bytes.len() {
            let data = self.bytes[start..start + count].to_vec();
            self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
            self.header.sections[DATA].offset = self.bytes.len() as u32;
            self.bytes.extend(data);
        }
    }

    fn set(&mut self, index: usize, value: &[u8]) -> Result<()> {
        let place = self.place::<VariableRecord>(VARIABLES, index);
        let mut record: VariableRecord = pod_read_unaligned(&self.bytes[place.clone()]);
        let data = self.data();
        let known = (record.initial != NONE).then(|| data + record.initial as usize..data + record.initial as usize + value.len());
        let same = match &known {
            Some(known) => self.bytes[known.clone()] == *value,
            None => value.iter().all(|&byte| byte == 0),
        };
        match known {
            _ if same => (),
            Some(known) if !self.is_shared(index, record.initial, value.len()) => self.bytes[known].copy_from_slice(value),
            _ => {
                self.bytes.resize(data + (self.bytes.len() - data).next_multiple_of(ALIGN), 0);
                record.initial = u32::try_from(self.bytes.len() - data).map_err(|_| Error::TooLarge)?;
                self.bytes.extend(value);
                self.bytes[place].copy_from_slice(bytes_of(&record));
            }
        }
        Ok(())
    }

    /// True if a constant, or a variable other than number `index`, uses some of these bytes of the data section.
    fn is_shared(&self, index: usize, start: u32, length: usize) -> bool {
        let meets = |other: u32, bytes: u32| {
            u64::from(start) < u64::from(other) + u64::from(bytes) && u64::from(other) < u64::from(start) + length as u64
        };
        let constants = self.records::<TensorRecord>(TENSORS).filter(|record| record.space == Space::Flash as u8);
        let sizes: Vec<u32> = self.records::<TensorRecord>(TENSORS).map(|record| record.bytes).collect();
        let others = self.records::<VariableRecord>(VARIABLES).enumerate().filter(|(other, _)| *other != index);
        let mut places = constants
            .map(|record| (record.location, record.bytes))
            .chain(others.filter(|(_, record)| record.initial != NONE).map(|(_, record)| (record.initial, sizes[record.tensor as usize])));
        places.any(|(other, bytes)| meets(other, bytes))
    }

    fn finish(mut self) -> Result<()> {
        self.header.sections[DATA].count = (self.bytes.len() - self.data()) as u32;
        self.header.length = u32::try_from(self.bytes.len()).map_err(|_| Error::TooLarge)?;
        self.bytes[..size_of::<Header>()].copy_from_slice(bytes_of(&self.header));
        self.header.checksum = program::checksum(&self.bytes[offset_of!(Header, sections)..]);
        self.bytes[..size_of::<Header>()].copy_from_slice(bytes_of(&self.header));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gradlet_core::{Artifact, Eager, Function, Scope, Tensor, Variable};

    use crate::artifact::Loaded;

    /// `a`, `b` and a constant have the same initial value, so they share its bytes in the file.
    #[test]
    fn values_that_lay_together_part() {
        let scope = Eager::new(&crate::compute::devices::cpu());
        let one = Tensor::full(&scope.device(), 1.0f32, &[3]).unwrap();
        let [a, b] = ["a", "b"].map(|name| Variable::new(&scope, name, &one).unwrap());
        let constant = Tensor::full(&scope.device(), 1.0f32, &[3]).unwrap();
        let (own, other) = (a.clone(), b.clone());
        let f = Function::new(move |scope: &dyn Scope, x: Tensor| {
            scope.assign_add(&own, &x)?;
            scope.assign_sub(&other, &x)?;
            scope.read(&own)?.mul(&constant)
        });
        let mut artifact = Artifact::new();
        artifact.signature("f", &f.concrete(&scope, &one).unwrap(), &["x"], &["y"]).unwrap();
        let mut bytes = artifact.to_bytes().unwrap();
        let mut lengths = Vec::new();
        for turn in 1..4 {
            let loaded = Loaded::new(&bytes, None).unwrap();
            let y = loaded.signature("f").unwrap().call(std::slice::from_ref(&one)).unwrap();
            assert_eq!(y[0].to_vec::<f32>().unwrap(), [1.0 + turn as f32; 3]);
            bytes = loaded.to_bytes().unwrap();
            let values = ["a", "b"].map(|name| Loaded::new(&bytes, None).unwrap().variable(name).unwrap().to_vec::<f32>().unwrap());
            assert_eq!(values, [[1.0 + turn as f32; 3], [1.0 - turn as f32; 3]]);
            lengths.push(bytes.len());
        }
        assert_eq!(lengths[1], lengths[2], "the file grows only until each has its own bytes");
    }
}
