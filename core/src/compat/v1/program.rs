//! Programs that are recorded again for each size of their placeholders' open dimensions.

use super::fetch::{Fetch, Target};
use super::graph::{Building, Graph, Placeholder, Sizes};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::tensor::graph::ValueId;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Returns the size of an open dimension while no value is fed.
pub(super) fn stand_in(axis: usize) -> u32 {
    if axis == 0 { 2 } else { 32 }
}

/// A program and its recordings. The first recording has the handles that the caller holds.
pub(super) struct Program {
    build: Box<dyn Build>,
    recordings: Lock<Vec<Shared<Recording>>>,
}

/// A recording of a program, for some shapes of its placeholders.
pub(super) struct Recording {
    shapes: Vec<Shape>,
    pub(super) building: Shared<Building>,
    /// The items that the program returned.
    items: Vec<Target>,
}

trait Build: ThreadSafe {
    fn build(&self, graph: &Graph) -> Result<Vec<Target>>;
}

impl<T: Fetch, F: Fn(&Graph) -> Result<T> + ThreadSafe> Build for F {
    fn build(&self, graph: &Graph) -> Result<Vec<Target>> {
        graph.building.targets(&self(graph)?)
    }
}

impl Program {
    /// Creates a program whose first run recorded `building` and returned `items`. Fails if it cannot run again.
    pub(super) fn new<T, F>(building: Shared<Building>, items: Vec<Target>, build: F) -> Result<Program>
    where
        T: Fetch,
        F: Fn(&Graph) -> Result<T> + ThreadSafe + 'static,
    {
        let first = Shared::new(Recording { shapes: shapes(&building, &[]), building, items });
        let program = Program { build: Box::new(build), recordings: Lock::new(alloc::vec![first.clone()]) };
        program.record(&first, first.shapes.clone())?;
        Ok(program)
    }

    /// Returns the first recording, and the one for these shapes of the fed values.
    pub(super) fn recordings(&self, fed: &[(ValueId, Shape)]) -> Result<[Shared<Recording>; 2]> {
        let find = |wanted: &[Shape]| self.recordings.lock().iter().find(|known| known.shapes == wanted).cloned();
        let first = self.recordings.lock()[0].clone();
        let shapes = shapes(&first.building, fed);
        if let Some(known) = find(&shapes) {
            return Ok([first, known]);
        }
        let recording = Shared::new(self.record(&first, shapes)?);
        self.recordings.lock().push(recording.clone());
        Ok([first, recording])
    }

    fn record(&self, first: &Recording, shapes: Vec<Shape>) -> Result<Recording> {
        let initial = first.building.record.lock().variables.clone();
        let sizes = Sizes::Given { shapes: shapes.clone(), initial };
        let building = Building::new(first.building.base.clone(), sizes);
        let items = self.build.build(&Graph { building: building.clone(), program: None });
        let named = |error: Error| {
            let one = |(placeholder, shape): (&Placeholder, &Shape)| format!("{} {shape}", placeholder.name);
            let list: Vec<String> = first.building.record.lock().placeholders.iter().zip(&shapes).map(one).collect();
            error.context(format!("the program was recorded again for {}", list.join(", ")))
        };
        let items = items.map_err(named)?;
        if items.len() != first.items.len() {
            return Err(Error::message(format!("the program returned {} items, but at first {}", items.len(), first.items.len())));
        }
        Ok(Recording { shapes, building, items })
    }
}

impl Recording {
    /// Returns this recording's item for `target`, an item of `first`.
    pub(super) fn same(&self, first: &Recording, target: &Target) -> Result<Target> {
        let found = first.items.iter().position(|item| item == target).and_then(|index| self.items.get(index));
        match target {
            Target::Variable(_) => Ok(target.clone()),
            _ => found.cloned().ok_or_else(|| {
                Error::message("for other sizes than at first, only tensors and operations that the program of Graph::build returned exist")
            }),
        }
    }

    /// Returns this recording's value for value `id` of `first`.
    pub(super) fn value(&self, first: &Recording, id: ValueId) -> Result<ValueId> {
        match self.same(first, &Target::Value(id))? {
            Target::Value(id) => Ok(id),
            _ => Err(Error::Traced),
        }
    }
}

/// Returns the shapes of all placeholders. The open dimensions of a placeholder that is not fed have the sizes of the first one that is
/// fed and has them.
fn shapes(building: &Building, fed: &[(ValueId, Shape)]) -> Vec<Shape> {
    let placeholders = &building.record.lock().placeholders;
    let shape_of = |placeholder: &Placeholder| fed.iter().find(|(id, _)| *id == placeholder.id).map(|(_, shape)| *shape);
    let size = |axis: usize| {
        let is_open = |placeholder: &&Placeholder| placeholder.dims().get(axis) == Some(&None);
        let mut known = placeholders.iter().filter(is_open).filter_map(|placeholder| shape_of(placeholder)?.dims().get(axis).copied());
        known.next().unwrap_or(stand_in(axis))
    };
    let shape = |placeholder: &Placeholder| {
        let dims = placeholder.dims().iter().enumerate().map(|(axis, dim)| dim.unwrap_or_else(|| size(axis)));
        shape_of(placeholder).unwrap_or_else(|| Shape::new(&dims.collect::<Vec<u32>>()).unwrap_or(Shape::SCALAR))
    };
    placeholders.iter().map(shape).collect()
}
