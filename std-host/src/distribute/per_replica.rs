//! Values of which each replica has its own.

use gradlet_core::function::Structure;
use gradlet_core::{Device, Error, Result, Tensor};

/// A value for each replica, in the order of the replicas: TensorFlow's `tf.distribute.DistributedValues`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerReplica<T>(Vec<T>);

impl<T> PerReplica<T> {
    /// Creates the value of each replica.
    pub fn new(values: Vec<T>) -> PerReplica<T> {
        PerReplica(values)
    }

    /// Returns the values: TensorFlow's `experimental_local_results`.
    pub fn values(&self) -> &[T] {
        &self.0
    }

    /// Returns the values.
    pub fn into_values(self) -> Vec<T> {
        self.0
    }

    /// Returns the value of replica `rank`.
    pub fn get(&self, rank: usize) -> Option<&T> {
        self.0.get(rank)
    }
}

impl<T: Structure> PerReplica<T> {
    /// Divides the rows of every tensor of `batch` among `devices`, and copies each part to its device. All parts but the last have the
    /// same number of rows. The last ones may have fewer, or none.
    pub(super) fn of_batch(batch: &T, devices: &[Device]) -> Result<PerReplica<T>> {
        let mut tensors = Vec::new();
        batch.tensors(&mut |tensor| tensors.push(tensor.clone()));
        let rows = tensors.first().and_then(|tensor| tensor.dims().first().copied());
        if let Some(other) = tensors.iter().find(|tensor| tensor.dims().first().copied() != rows || rows.is_none()) {
            let text =
                format!("a batch is divided along its first axis, and {} has another number of rows than {rows:?}", other.tensor_type());
            return Err(Error::message(text));
        }
        let mut parts = devices.iter().map(|_| Vec::new()).collect::<Vec<Vec<Tensor>>>();
        for tensor in &tensors {
            for (part, one) in parts.iter_mut().zip(rows_of(tensor, devices)?) {
                part.push(one);
            }
        }
        let whole = |part: Vec<Tensor>| {
            let mut part = part.into_iter();
            // The structure has exactly as many tensors as the part.
            batch.with(&mut || part.next().unwrap_or_else(|| Tensor::scalar(&devices[0], 0.0f32)))
        };
        Ok(PerReplica(parts.into_iter().map(whole).collect()))
    }
}

/// Divides the rows of a tensor among devices.
fn rows_of(tensor: &Tensor, devices: &[Device]) -> Result<Vec<Tensor>> {
    let (bytes, dims) = (tensor.bytes()?, tensor.dims());
    let rows = dims[0] as usize;
    let width = bytes.len().checked_div(rows).unwrap_or(0);
    let share = rows.div_ceil(devices.len().max(1));
    let part = |(rank, device): (usize, &Device)| {
        let (first, end) = ((rank * share).min(rows), ((rank + 1) * share).min(rows));
        let mut own = dims.to_vec();
        own[0] = (end - first) as u32;
        let shape = gradlet_core::Shape::new(&own)?;
        Tensor::from_bytes(device, gradlet_core::TensorType::new(tensor.dtype(), shape), &bytes[first * width..end * width])
    };
    devices.iter().enumerate().map(part).collect()
}
