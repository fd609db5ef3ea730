//! The copies between host and device that an eager case may make.

use crate::golden::case::Case;
use crate::golden::runtimes::Traced;
use crate::hiding::Counts;
use gradlet_core::TensorType;
use gradlet_core::function::graph::Origin;

/// Returns a description of the copies that the case did not need. The inputs, the constants that its ops make from host data, and the
/// first values of its variables go to the device. Its outputs come back. Where the shape of a result depends on data, so that the case
/// cannot be traced (`traced` is `None`), the inputs may come back too. Copies within the device happen only to a variable that is updated
/// in place while its old value is held as an output.
pub fn superfluous(case: &Case, traced: Option<&Traced>, counts: Counts) -> Vec<String> {
    let full = |tensor_type: &&TensorType| tensor_type.bytes() != Some(0);
    let inputs = case.inputs.iter().map(|value| &value.tensor_type).filter(full).count();
    let outputs = case.wanted.iter().map(|value| &value.tensor_type).filter(full).count();
    let [constants, variables] = traced.map_or([inputs, 0], |traced| {
        let [graph, _] = traced.graphs();
        let constant = |origin: &Origin| matches!(origin, Origin::Constant(tensor) if !tensor.dims().is_empty());
        [graph.values.iter().filter(|value| constant(&value.origin)).count(), graph.captures.len()]
    });
    let least = [0, outputs, 0];
    let most =
        [inputs + constants + variables, outputs + if traced.is_none() { inputs } else { 0 }, if variables > 0 { outputs } else { 0 }];
    let made = [counts.uploads, counts.downloads, counts.copies].map(|count| count as usize);
    let names = ["to the device", "to the host", "within the device"];
    let wrong = |index: &usize| made[*index] > most[*index] || made[*index] < least[*index];
    let told = |index| format!("{} copies {}, but {} at most", made[index], names[index], most[index]);
    (0..3).filter(wrong).map(told).collect()
}
