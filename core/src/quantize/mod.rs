//! Post-training quantization: from a trained function of floats to one that computes with int8, as TensorFlow Lite does.
//!
//! A [`Calibration`] observes a function on samples. It records the range of each tensor, and then quantizes the function: weights have a
//! scale for each channel, other tensors have one scale and zero point. The result is an ordinary function. A microcontroller runs it with
//! the bits that the host computes.
//!
//! ```
//! use gradlet_core::quantize::{Calibration, Options};
//! use gradlet_core::{Artifact, DType, Eager, Function, Scope, Tensor, TensorType, ops};
//! let scope = Eager::new(&ops::portable_cpu());
//! let kernel = Tensor::new(&scope.device(), &[0.5f32, -1.0, 0.25, 2.0], &[2, 2])?;
//! let model = Function::new(move |_: &dyn Scope, x: Tensor| x.dense(&kernel, None)?.relu());
//! let x = Tensor::new(&scope.device(), &[1.0f32, 0.5], &[1, 2])?;
//!
//! let mut calibration = Calibration::new(&*model.concrete(&scope, &x)?)?;
//! calibration.observe(&[x.clone()])?;
//! let quantized = calibration.quantize(&scope, &Options::default())?;
//! let y = quantized.run(&[x])?[0].to_vec::<f32>()?;
//! assert!((y[0] - 0.625).abs() < 0.01 && y[1] == 0.0, "{y:?}");
//!
//! let mut artifact = Artifact::new();
//! let int8 = Options { input: DType::I8, output: DType::I8, ..Options::default() };
//! artifact.signature("infer", &*calibration.quantize(&scope, &int8)?, &["x"], &["y"])?;
//! # artifact.to_bytes()?;
//! # Ok::<(), gradlet_core::Error>(())
//! ```
//!
//! | in the float function | in int8 |
//! |---|---|
//! | convolutions and dense layers whose weights are constants or variables | one op, with the normalization, bias and relu after it |
//! | products of matrices, sums, differences, products, reductions, pooling, softmax, concatenation, selection, moved elements | one op |
//! | functions of one tensor, element by element, such as GELU | one table of 256 entries for all of them together |
//! | other ops, such as loops and `log_softmax` | float, between conversions: see [`Calibration::float_ops`] |

mod forms;
mod lower;
mod plan;
mod ranges;
#[cfg(test)]
mod tests;

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::shape::TensorType;
use crate::base::sync::Shared;
use crate::function::{ConcreteFunction, Function};
use crate::ops::code;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Graph, ValueId};
use crate::tensor::scope::Scope;
use crate::trace::eager::Eager;
use crate::trace::replay::emit;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use lower::{Lowering, argument_types};
use plan::Plan;
use ranges::Range;

/// Settings of [`Calibration::quantize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Element type of the arguments that are f32 in the float function: [`DType::F32`] or [`DType::I8`]. The default is f32, and the
    /// function then begins with a conversion.
    pub input: DType,
    /// Element type of the results that are f32 in the float function: [`DType::F32`] or [`DType::I8`]. The default is f32.
    pub output: DType,
    /// True if ops without an int8 form stay in float, which is the default. Otherwise they are an error.
    pub float_ops: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { input: DType::F32, output: DType::F32, float_ops: true }
    }
}

/// The ranges of the tensors of a function, as its samples show them.
#[doc(alias = "representative_dataset", alias = "tf.lite.TFLiteConverter")]
pub struct Calibration {
    model: Shared<Model>,
    device: Device,
    ranges: Vec<Range>,
    samples: usize,
}

/// A float function and its plan.
struct Model {
    name: String,
    graph: Graph,
    plan: Plan,
    /// The role of each value.
    roles: Vec<Role>,
}

/// The role of a value, which determines how its range is observed.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Number,
    /// Score of a softmax.
    Score,
    /// No f32, or a padded image before a pooling, where a padding with −∞ has no effect.
    Other,
}

impl Role {
    fn of(graph: &Graph, plan: &Plan, id: ValueId) -> Role {
        let padded = || plan.makers[id].is_some_and(|maker| graph.nodes[maker].op.def.code == code::pad);
        match graph.values[id].tensor_type.dtype {
            DType::F32 if forms::are_scores(graph, id) => Role::Score,
            DType::F32 if !padded() || !forms::only_maxima_read(graph, id) => Role::Number,
            _ => Role::Other,
        }
    }
}

impl Calibration {
    /// Prepares a function. Its variables count as constants, with the values that they have now.
    ///
    /// Fails if the function changes a variable, as a training step does, and if a constant cannot be computed.
    pub fn new(function: &ConcreteFunction) -> Result<Calibration> {
        let graph = function.frozen()?;
        let plan = Plan::new(&graph);
        let roles: Vec<Role> = (0..graph.values.len()).map(|id| Role::of(&graph, &plan, id)).collect();
        let constant = |id| graph.constant(id).filter(|_| roles[id] == Role::Number);
        // A constant that is not finite, such as a mask, has no range.
        let range = |id| constant(id).and_then(|constant| Range::of(constant).ok()).unwrap_or(Range::EMPTY);
        let ranges = (0..graph.values.len()).map(range).collect();
        let model = Shared::new(Model { name: function.name().into(), graph, plan, roles });
        Ok(Calibration { model, device: function.device().clone(), ranges, samples: 0 })
    }

    /// Returns the types of the inputs of a sample.
    pub fn inputs(&self) -> Vec<TensorType> {
        argument_types(&self.model.graph, false).collect()
    }

    /// Runs the function on one more sample, and records the ranges of its tensors. About 100 samples of real data are usual.
    /// They can be on any device.
    ///
    /// Fails unless the inputs have the function's types. Fails if an element of a tensor is not finite, and names the op that computed
    /// it. The sample then does not count.
    pub fn observe(&mut self, inputs: &[Tensor]) -> Result<()> {
        let graph = &self.model.graph;
        self.check(inputs)?;
        let mut ranges = self.ranges.clone();
        let scope = Eager::new(&self.device).handle();
        let mut values: Vec<Option<Tensor>> = (0..graph.values.len()).map(|id| graph.constant(id).cloned()).collect();
        for (&id, input) in graph.inputs.iter().zip(inputs) {
            self.widen(&mut ranges, id, input).map_err(|error| Error::message(format!("cannot quantize an input: {error}")))?;
            values[id] = Some(input.brought(&self.device)?);
        }
        for (index, node) in graph.nodes.iter().enumerate() {
            let operands = node.inputs.iter().map(|&id| values[id].clone().ok_or(Error::Internal)).collect::<Result<Vec<Tensor>>>()?;
            for (&id, output) in node.outputs.iter().zip(emit(node, Some(&scope), &operands)?) {
                let wrong = |error| Error::message(format!("cannot quantize {}: {error}", forms::described(graph, index)));
                self.widen(&mut ranges, id, &output).map_err(wrong)?;
                values[id] = Some(output);
            }
        }
        self.ranges = ranges;
        self.samples += 1;
        Ok(())
    }

    /// Fails unless the inputs have the types of the function's arguments.
    fn check(&self, inputs: &[Tensor]) -> Result<()> {
        let wanted = self.inputs();
        let got: Vec<_> = inputs.iter().map(Tensor::tensor_type).collect();
        if wanted == got {
            return Ok(());
        }
        let list = |types: &[TensorType]| types.iter().map(|one| format!("{one}")).collect::<Vec<_>>().join(", ");
        let (name, wanted, got) = (&self.model.name, list(&wanted), list(&got));
        Err(Error::message(format!("sample {} has ({got}), but {name} takes ({wanted})", self.samples)))
    }

    fn widen(&self, ranges: &mut [Range], id: usize, value: &Tensor) -> Result<()> {
        ranges[id] = ranges[id].or(match self.model.roles[id] {
            Role::Number => Range::of(value)?,
            Role::Score => Range::of_scores(value)?,
            Role::Other => Range::EMPTY,
        });
        Ok(())
    }

    /// Returns the ops that have no int8 form and stay in float, each with its name in the trace and its result. Functions of such a
    /// result, element by element, can also stay in float.
    pub fn float_ops(&self) -> Vec<String> {
        let Model { graph, plan, .. } = &*self.model;
        let stays = |index: &usize| forms::stays_in_float(graph, &plan.fates, *index);
        (0..graph.nodes.len()).filter(stays).map(|index| forms::described(graph, index)).collect()
    }

    /// Returns the quantized function, with the arguments and results of the float one in the same order.
    ///
    /// Each int8 op has the bits of TensorFlow Lite's reference kernel. Tensors that are concatenated get one scale, where their ops
    /// leave it open. A mask of large negative numbers before a softmax does not widen the scale of the scores.
    ///
    /// Fails if no sample was observed, if the element types of `options` are not f32 or i8, and if ops would stay in float that
    /// `options` does not permit; the error lists all of them.
    pub fn quantize(&self, scope: &dyn Scope, options: &Options) -> Result<Shared<ConcreteFunction>> {
        let (model, ranges) = (self.model.clone(), self.joined());
        let &Options { input, output, float_ops } = options;
        if self.samples == 0 {
            return Err(Error::message(format!("{} has no ranges yet: observe samples first", model.name)));
        }
        if let Some(other) = [input, output].into_iter().find(|dtype| !matches!(dtype, DType::F32 | DType::I8)) {
            return Err(Error::message(format!("the arguments and results of a quantized function are f32 or i8, not {other}")));
        }
        let stay = self.float_ops();
        if !float_ops && !stay.is_empty() {
            return Err(Error::message(format!("ops without an int8 form:\n  {}", stay.join("\n  "))));
        }
        let arguments = argument_types(&model.graph, input == DType::I8).map(Tensor::symbolic).collect();
        let name = model.name.clone();
        let body = move |scope: &dyn Scope, inputs: Vec<Tensor>| {
            Lowering::new(&model.graph, &model.plan, &ranges, scope).run(&inputs, output == DType::I8)
        };
        Function::new(body).named(&name).concrete(scope, &arguments)
    }

    /// Returns the ranges that determine the scales. Tensors that are concatenated have the range of the result. The operands of a sum of
    /// scores have no larger one than it needs.
    fn joined(&self) -> Vec<Range> {
        let Model { graph, roles, .. } = &*self.model;
        let (mut ranges, uses) = (self.ranges.clone(), graph.uses());
        for node in graph.nodes.iter().rev() {
            let Some(&result) = node.outputs.first() else { continue };
            let parts = match node.op.def.code {
                code::concat => &node.inputs[..],
                _ if forms::moves(node) => node.inputs.get(..1).unwrap_or(&[]),
                _ => &[],
            };
            for &part in parts {
                ranges[part] = ranges[part].or(ranges[result]);
            }
            let is_sum = matches!(node.op.def.code, code::add | code::sub) && !ranges[result].is_empty();
            if let (true, &[left, right]) = (is_sum && roles[result] == Role::Score, &node.inputs[..]) {
                let signed = |range: Range| if node.op.def.code == code::sub { range.negated() } else { range };
                let (a, b) = (ranges[left], signed(ranges[right]));
                if uses[left] == 1 {
                    ranges[left] = a.within(ranges[result], b);
                }
                if uses[right] == 1 {
                    ranges[right] = signed(b.within(ranges[result], a));
                }
            }
        }
        ranges
    }
}
