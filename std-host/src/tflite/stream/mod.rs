//! Streaming: a model over a sliding window, computed for one column of its time axis at a time.
//!
//! A tensor has a time axis if each of its columns moves by one place when the window moves by one frame. A call computes only its newest
//! column. Where an operator needs more columns, a variable keeps the earlier ones. A tensor without a time axis is computed whole.

mod rules;

use super::node::Node;
use super::plan::{Plan, Run, Values};
use super::variables::Variables;
use super::{Model, Unsupported, info, refused};
use crate::formats::tflite::Subgraph;
use gradlet_core::scope::ScopeHandle;
use gradlet_core::{Device, Eager, Error, Result, Scope, Shape, Tensor, TensorType, Variable};
use rules::{Rule, Times};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The time axes of a model's main subgraph.
pub(super) struct Stream {
    /// Number of frames of the window.
    pub frames: u32,
    /// For each tensor that a call computes, its dimensions in the call.
    dims: BTreeMap<usize, Vec<u32>>,
    /// The tensors whose earlier columns a variable keeps.
    kept: BTreeMap<usize, Kept>,
    /// For each operator, its operands in a call.
    steps: Vec<Step>,
}

/// The columns of a tensor before the newest one.
struct Kept {
    name: String,
    axis: usize,
    /// Columns of a window of zeros.
    first: Tensor,
}

/// Operands of an operator in a call.
enum Step {
    /// The newest column of each tensor that has columns.
    Newest,
    /// As many columns of each of these tensors, up to the newest one.
    Last(Vec<(usize, u32)>),
    /// The operator only chooses a column of a tensor: the one this many columns before the newest. Its dimensions become `dims`.
    One { tensor: usize, back: u32, dims: Vec<u32> },
}

impl Model {
    /// Returns the model as a step for each frame of its input, whose axis `axis` is the time. The model must have been trained on a
    /// sliding window of frames.
    ///
    /// A call takes one frame, so `axis` has length 1. It returns the results for the window that ends with this frame, with the same
    /// bits as the whole model (on [`portable_cpu`](crate::portable_cpu); integers on every device). Before the first frame, the window
    /// has frames of zeros. The call computes only the new column of each layer. [Variables](Model::variables) keep the columns that the
    /// next frames need; they have the names of the tensors. [`Model::reset`] begins again. In a result that has the time axis, only the
    /// last column is returned. Dimensions that the model leaves open become 1.
    ///
    /// - Convolutions and pooling must have stride 1 and padding `VALID` along the time. They keep the columns that their kernels span.
    /// - Operators on elements or along other axes keep nothing.
    /// - Other operators, such as a mean over time or a dense layer of all frames, keep all columns of their input. They and those behind
    ///   them are computed whole.
    ///
    /// ```no_run
    /// use gradlet::{Eager, Tensor, portable_cpu, tflite};
    /// let model = tflite::Model::open("wake_word.tflite")?; // i8[1,30,1,40]
    /// let step = model.streaming(1)?; // i8[1,1,1,40]
    /// let scope = Eager::new(&portable_cpu());
    /// for frame in [3i8, 5, 7] {
    ///     println!("{}", step.call(&scope, &[&Tensor::full(&portable_cpu(), frame, &[1, 1, 1, 40])?])?[0]);
    /// }
    /// gradlet::io::write_whole("wake_word.grdl".as_ref(), &step.export(1)?)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Fails if the model does not have one input, if `axis` is not an axis with two or more frames, and if an operator is not supported or
    /// prevents streaming: by a stride or padding along the time, by a variable, a branch or a loop. The error lists all such operators.
    pub fn streaming(&self, axis: usize) -> Result<Model> {
        if self.stream.is_some() {
            return Err(Error::message("the model is a step for each frame already"));
        }
        let plan = Plan::new(self.parsed(), 0).map_err(|list| refused(list, "are not supported"))?;
        let graph = self.parsed().subgraphs.first().ok_or(Error::Internal)?;
        let window = window(graph, axis, &self.device())?;
        let nodes = || graph.operators.iter().map(|operator| Node { model: self.parsed(), graph, subgraph: 0, operator });
        let listed = |unsupported: Vec<Unsupported>| match unsupported.is_empty() {
            true => Ok(()),
            false => Err(refused(unsupported, "prevent streaming")),
        };
        listed(nodes().enumerate().filter_map(|(at, node)| rules::stateful(&node).err().map(|reason| node.refused(at, reason))).collect())?;

        let mut values = BTreeMap::from([(graph.inputs.first().copied().unwrap_or(0), window.clone())]);
        let observe = &mut |_, tensor, value: &Tensor| drop(values.insert(tensor, value.clone()));
        Run::new(&plan, self, Eager::new(&self.device()).handle(), observe).subgraph(0, vec![window])?;

        let mut planner = Planner::new(graph, &values, axis);
        let refusals = nodes().enumerate().filter_map(|(at, node)| planner.add(&node).err().map(|reason| node.refused(at, reason)));
        listed(refusals.collect())?;
        let frames = planner.times.columns(graph.inputs.first().copied().unwrap_or(0));
        let stream = planner.finish(frames, graph, &values)?;
        Ok(Model { stream: Some(Arc::new(stream)), ..self.clone() }.begun_again())
    }

    /// Returns the model with variables of its own, which have no values yet.
    pub(super) fn begun_again(&self) -> Model {
        Model { variables: Arc::new(Variables::new(self.parsed().subgraphs.len())), ..self.clone() }
    }

    /// Sets the columns that a [streaming](Model::streaming) model keeps to those of zeros, so that the next frame is the first one. In an
    /// artifact, [`Session::reset`](crate::Session::reset) does this. A model that does not stream has no such columns.
    pub fn reset(&self, scope: &dyn Scope) -> Result<()> {
        for kept in self.stream.iter().flat_map(|stream| stream.kept.values()) {
            let variable = kept.variable(self, scope)?;
            scope.assign(&variable, &kept.first(&scope.handle())?)?;
        }
        Ok(())
    }
}

/// Returns the window of zeros: an input of the model.
fn window(graph: &Subgraph<'_>, axis: usize, device: &Device) -> Result<Tensor> {
    let &[input] = graph.inputs.as_slice() else {
        return Err(Error::message(format!("a model with {} inputs cannot be streamed: it must have one", graph.inputs.len())));
    };
    let info = info(graph, input);
    let spec = super::spec(&info)?;
    match info.dims.get(axis) {
        Some(Some(2..)) => (),
        Some(Some(length)) => {
            return Err(Error::message(format!("input 0, {spec}, has {length} frames along axis {axis}, not two or more")));
        }
        Some(None) => return Err(Error::message(format!("input 0, {spec}, has no fixed number of frames along axis {axis}"))),
        None => return Err(Error::message(format!("input 0, {spec}, has no axis {axis}"))),
    }
    let dims: Vec<u32> = info.dims.iter().map(|dim| dim.unwrap_or(1)).collect();
    let zeros = Tensor::zeros(device, TensorType::new(spec.dtype(), Shape::new(&dims)?))?;
    let zero_point = info.quantization.and_then(|quantization| quantization.zero_points.first().copied());
    zero_point.map_or(Ok(zeros.clone()), |zero_point| zeros.like(zero_point.into())?.broadcast_to(&dims))
}

/// A stream whose operators are added in order.
struct Planner {
    times: Times,
    steps: Vec<Step>,
    /// For each tensor whose earlier columns are needed, their number.
    kept: BTreeMap<usize, u32>,
}

impl Planner {
    fn new(graph: &Subgraph<'_>, values: &BTreeMap<usize, Tensor>, axis: usize) -> Planner {
        let dims = |(at, tensor): (usize, &crate::formats::tflite::Tensor<'_>)| match values.get(&at) {
            Some(value) => value.dims().to_vec(),
            None => tensor.dims.clone(),
        };
        let count = graph.tensors.len();
        let mut times =
            Times { dims: graph.tensors.iter().enumerate().map(dims).collect(), axes: vec![None; count], depends: vec![false; count] };
        for &input in &graph.inputs {
            times.set(input, axis);
            times.depend(input);
        }
        Planner { times, steps: Vec::new(), kept: BTreeMap::new() }
    }

    /// Adds an operator. Fails if it prevents streaming.
    fn add(&mut self, node: &Node<'_>) -> std::result::Result<(), String> {
        if node.operator.inputs.iter().flatten().any(|&input| self.times.depends.get(input) == Some(&true)) {
            node.operator.outputs.iter().for_each(|&output| self.times.depend(output));
        }
        let operands: Vec<usize> = node.operator.inputs.iter().flatten().copied().filter(|&input| self.times.of(input).is_some()).collect();
        let Some(&tensor) = operands.first() else {
            self.steps.push(Step::Newest);
            return Ok(());
        };
        let output = node.operator.outputs.first().copied().unwrap_or(0);
        let outputs = |times: &mut Times, axis: usize| node.operator.outputs.iter().for_each(|&output| times.set(output, axis));
        let rule = rules::rule(node, &self.times).inspect_err(|_| {
            // The operators behind it may be refused, too.
            self.times.of(tensor).iter().for_each(|&axis| outputs(&mut self.times, axis));
        })?;
        let step = match rule {
            Rule::Column(axis) => {
                outputs(&mut self.times, axis);
                Step::Newest
            }
            Rule::Columns(axis, count) => {
                outputs(&mut self.times, axis);
                Step::Last(vec![(tensor, count)])
            }
            Rule::Whole => Step::Last(operands.iter().map(|&tensor| (tensor, self.times.columns(tensor))).collect()),
            Rule::One(axis, back) => {
                axis.iter().for_each(|&axis| outputs(&mut self.times, axis));
                Step::One { tensor, back, dims: self.times.in_a_call(output) }
            }
        };
        let needed = match &step {
            Step::Newest => Vec::new(),
            Step::Last(list) => list.clone(),
            Step::One { back, .. } => vec![(tensor, back + 1)],
        };
        for (tensor, count) in needed.into_iter().filter(|&(_, count)| count > 1) {
            let kept = self.kept.entry(tensor).or_insert(0);
            *kept = (*kept).max(count - 1);
        }
        self.steps.push(step);
        Ok(())
    }

    fn finish(self, frames: u32, graph: &Subgraph<'_>, values: &BTreeMap<usize, Tensor>) -> Result<Stream> {
        let mut kept: BTreeMap<usize, Kept> = BTreeMap::new();
        for (&tensor, &count) in &self.kept {
            let (axis, value) = self.times.of(tensor).zip(values.get(&tensor)).ok_or(Error::Internal)?;
            let name = graph.tensors.get(tensor).map_or("", |tensor| tensor.name);
            let taken = name.is_empty() || kept.values().any(|other| other.name == name);
            let name = if taken { format!("{name}_{tensor}") } else { name.into() };
            kept.insert(tensor, Kept { name, axis, first: last(value, axis, count)? });
        }
        let dims = values.keys().map(|&tensor| (tensor, self.times.in_a_call(tensor))).collect();
        Ok(Stream { frames, dims, kept, steps: self.steps })
    }
}

impl Stream {
    /// Returns the dimensions of a tensor in a call.
    pub(super) fn dims(&self, tensor: usize) -> Option<&[u32]> {
        self.dims.get(&tensor).map(Vec::as_slice)
    }
}

impl Kept {
    /// Returns the variable, which gets its first value here.
    fn variable(&self, model: &Model, scope: &dyn Scope) -> Result<Variable> {
        model.variables.state(&self.name, scope, |eager| self.first(&eager.handle()))
    }

    /// Returns the first value on the device of a scope.
    fn first(&self, scope: &ScopeHandle) -> Result<Tensor> {
        Tensor::from_bytes(&scope.device(), self.first.tensor_type(), &self.first.bytes()?)
    }
}

/// The columns of tensors in a call.
pub(super) struct Columns<'r> {
    model: &'r Model,
    scope: &'r ScopeHandle,
    /// For each tensor that is kept, its earlier columns and the newest one.
    joined: BTreeMap<usize, Tensor>,
}

impl<'r> Columns<'r> {
    pub(super) fn new(model: &'r Model, scope: &'r ScopeHandle) -> Columns<'r> {
        Columns { model, scope, joined: BTreeMap::new() }
    }

    /// Adds the newest column of a tensor to those that its variable keeps, without the oldest one.
    pub(super) fn push(&mut self, tensor: usize, column: &Tensor) -> Result<()> {
        let Some(kept) = self.model.stream.as_ref().and_then(|stream| stream.kept.get(&tensor)) else { return Ok(()) };
        let variable = kept.variable(self.model, self.scope)?;
        let earlier = self.scope.read(&variable)?;
        let joined = Tensor::concat(&[&earlier, column], kept.axis as i32)?;
        let count = earlier.dims().get(kept.axis).copied().unwrap_or(0);
        self.scope.assign(&variable, &last(&joined, kept.axis, count)?)?;
        self.joined.insert(tensor, joined);
        Ok(())
    }

    /// Computes an operator from its operands in the call. `values` has the newest columns.
    pub(super) fn emitted(&self, at: usize, values: &Values, emit: impl Fn(&Values) -> Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        match self.model.stream.as_ref().and_then(|stream| stream.steps.get(at)) {
            None | Some(Step::Newest) => emit(values),
            Some(Step::Last(list)) => {
                let mut wide = values.clone();
                for &(tensor, count) in list {
                    wide.set(tensor, Some(self.last(tensor, values, count)?));
                }
                emit(&wide)
            }
            Some(Step::One { tensor, back, dims }) => {
                let columns = self.last(*tensor, values, back + 1)?;
                let column = match self.axis(*tensor) {
                    Some(axis) if *back > 0 => part(&columns, axis, 0, 1)?,
                    _ => columns,
                };
                Ok(vec![column.reshape(dims)?])
            }
        }
    }

    fn axis(&self, tensor: usize) -> Option<usize> {
        self.model.stream.as_ref().and_then(|stream| stream.kept.get(&tensor)).map(|kept| kept.axis)
    }

    /// Returns the last columns of a tensor, up to the newest one.
    fn last(&self, tensor: usize, values: &Values, count: u32) -> Result<Tensor> {
        let newest = values.get(tensor).ok_or(Error::Internal)?;
        let Some((axis, joined)) = self.axis(tensor).zip(self.joined.get(&tensor)).filter(|_| count > 1) else { return Ok(newest.clone()) };
        let columns = last(joined, axis, count)?;
        newest.quantization().map_or(Ok(columns.clone()), |quantization| columns.with_quantization(quantization.clone()))
    }
}

/// Returns the last `count` columns of `axis`.
fn last(x: &Tensor, axis: usize, count: u32) -> Result<Tensor> {
    let all = x.dims().get(axis).copied().unwrap_or(0);
    if count == all { Ok(x.clone()) } else { part(x, axis, all.saturating_sub(count), count) }
}

fn part(x: &Tensor, axis: usize, first: u32, count: u32) -> Result<Tensor> {
    let rank = x.dims().len();
    let begin: Vec<u32> = (0..rank).map(|at| if at == axis { first } else { 0 }).collect();
    let size: Vec<i64> = (0..rank).map(|at| if at == axis { count.into() } else { -1 }).collect();
    x.slice(&begin, &size)
}
