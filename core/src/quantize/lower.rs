//! Emission of a planned graph in int8.

use super::forms;
use super::plan::{Fate, Plan, Site};
use super::ranges::Range;
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::quantization::Quantization;
use crate::base::shape::TensorType;
use crate::ops::{self, code, tables};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Graph, Node, ValueId};
use crate::tensor::scope::{DeviceScope, Scope, ScopeHandle};
use crate::trace::replay::emit;
use alloc::format;
use alloc::vec::Vec;

/// A graph whose nodes are being emitted.
pub(super) struct Lowering<'a> {
    pub(super) graph: &'a Graph,
    plan: &'a Plan,
    /// Range of each value.
    ranges: &'a [Range],
    pub(super) device: Device,
    scope: ScopeHandle,
    /// Each value as the float graph has it.
    plain: Vec<Option<Tensor>>,
    /// Each value as int8.
    int8: Vec<Option<(Tensor, Quantization)>>,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(graph: &'a Graph, plan: &'a Plan, ranges: &'a [Range], scope: &dyn Scope) -> Lowering<'a> {
        let none = graph.values.len();
        let (plain, int8) = (alloc::vec![None; none], alloc::vec![None; none]);
        Lowering { graph, plan, ranges, device: scope.device(), scope: scope.handle(), plain, int8 }
    }

    /// Emits the graph for `inputs`, which are int8 where the graph has f32, or have its types. Returns the results, which are int8 if
    /// `int8` is true, where the graph has f32.
    pub(super) fn run(mut self, inputs: &[Tensor], int8: bool) -> Result<Vec<Tensor>> {
        let (graph, plan) = (self.graph, self.plan);
        for (&id, input) in graph.inputs.iter().zip(inputs) {
            if input.dtype() == self.dtype(id) {
                self.plain[id] = Some(input.clone());
            } else {
                let quantization = self.quantization(id);
                self.int8[id] = Some((input.with_quantization(quantization)?, quantization));
            }
        }
        for (index, (node, fate)) in graph.nodes.iter().zip(&plan.fates).enumerate() {
            let scope = self.scope.clone();
            let around = node.name.as_deref().and_then(|name| name.rsplit_once('/'));
            let _named = around.map(|(around, _)| scope.name_scope(around));
            let _there = DeviceScope::at(scope.recorder.device(), node.device);
            let wrong = |error| Error::message(format!("cannot quantize {}: {error}", forms::described(graph, index)));
            match fate {
                Fate::Int8(site) => (site.form)(&mut self, node, site).map_err(wrong)?,
                Fate::Part => (),
                Fate::Stays => self.stay(node)?,
            }
        }
        let result = |&id: &ValueId| match self.dtype(id) {
            DType::F32 if int8 => Ok(self.int8(id)?.0),
            _ => self.plain(id),
        };
        graph.outputs.iter().map(result).collect()
    }

    fn dtype(&self, id: ValueId) -> DType {
        self.graph.values[id].tensor_type.dtype
    }

    /// Returns the scale and zero point that a value gets if no op before it determines them.
    pub(super) fn quantization(&self, id: ValueId) -> Quantization {
        let fixed = forms::fixed(self.graph, self.plan.makers[id], self.plan.roots[id]);
        fixed.unwrap_or_else(|| self.ranges[id].quantization())
    }

    /// Sets the result of a node.
    pub(super) fn put(&mut self, site: &Site, y: Tensor, quantization: Quantization) -> Result<()> {
        self.int8[site.result] = Some((y.with_quantization(quantization)?, quantization));
        Ok(())
    }

    /// Sets a value that is no f32.
    pub(super) fn put_plain(&mut self, id: ValueId, value: Tensor) {
        self.plain[id] = Some(value);
    }

    /// Emits a node as it is.
    fn stay(&mut self, node: &Node) -> Result<()> {
        let inputs = node.inputs.iter().map(|&id| self.plain(id)).collect::<Result<Vec<Tensor>>>()?;
        for (&id, output) in node.outputs.iter().zip(emit(node, Some(&self.scope), &inputs)?) {
            self.plain[id] = Some(output);
        }
        Ok(())
    }

    /// Returns a value as the float graph has it.
    pub(super) fn plain(&mut self, id: ValueId) -> Result<Tensor> {
        if let Some(value) = &self.plain[id] {
            return Ok(value.clone());
        }
        let value = match self.graph.constant(id) {
            Some(constant) => constant.clone(),
            None if self.plan.roots[id] != id && (self.dtype(id) != DType::F32 || self.is_float(self.plan.roots[id])) => {
                let node = &self.graph.nodes[self.plan.makers[id].ok_or(Error::Internal)?];
                self.stay(node)?;
                return self.plain[id].clone().ok_or(Error::Internal);
            }
            None => {
                let (value, quantization) = self.int8(id)?;
                value.dequantize(quantization)?
            }
        };
        self.plain[id] = Some(value.clone());
        Ok(value)
    }

    /// True if a node computed a value in float and not in int8.
    fn is_float(&self, id: ValueId) -> bool {
        self.plan.makers[id].is_some() && self.plain[id].is_some() && self.int8[id].is_none()
    }

    /// Returns an f32 value as int8.
    pub(super) fn int8(&mut self, id: ValueId) -> Result<(Tensor, Quantization)> {
        if let Some(value) = &self.int8[id] {
            return Ok(value.clone());
        }
        let value = if let Some(constant) = self.graph.constant(id) {
            let quantization = self.ranges[id].quantization();
            (constant.quantize(DType::I8, quantization)?, quantization)
        } else if self.plan.roots[id] != id {
            self.table(id)?
        } else {
            let quantization = self.quantization(id);
            let value = self.plain[id].as_ref().ok_or(Error::Internal)?;
            (value.quantize(DType::I8, quantization)?, quantization)
        };
        self.int8[id] = Some(value.clone());
        Ok(value)
    }

    /// Returns an f32 value as int8 of this scale and zero point.
    pub(super) fn int8_with(&mut self, id: ValueId, wanted: Quantization) -> Result<Tensor> {
        match self.graph.constant(id) {
            Some(constant) => constant.quantize(DType::I8, wanted),
            None => {
                let (value, quantization) = self.int8(id)?;
                if quantization == wanted { Ok(value) } else { value.requantize(quantization, DType::I8, wanted) }
            }
        }
    }

    pub(super) fn quantized_constant(&self, constant: &Tensor) -> Result<(Tensor, Quantization)> {
        let quantization = Range::of(constant)?.quantization();
        Ok((constant.quantize(DType::I8, quantization)?, quantization))
    }

    /// Returns a function of one value, element by element, as a table.
    fn table(&mut self, id: ValueId) -> Result<(Tensor, Quantization)> {
        let (root, y) = (self.plan.roots[id], self.quantization(id));
        let (x, samples) = match self.dtype(root) {
            DType::F32 => {
                let (x, from) = self.int8(root)?;
                let maker = self.plan.makers[id].map(|maker| &self.graph.nodes[maker]).filter(|maker| maker.inputs == [root]);
                let known = match maker.map(|maker| maker.op.def.code) {
                    Some(code::sigmoid) => Some(tables::sigmoid(from, y)),
                    Some(code::tanh) => Some(tables::tanh(from, y)),
                    _ => None,
                };
                if let Some(table) = known {
                    return self.lookup(&x, &table, y);
                }
                let reals: Vec<f32> = (-128..=127).map(|integer| from.real(integer)).collect();
                (x, Tensor::new(&ops::portable_cpu(), &reals, &[256])?)
            }
            DType::I8 => (
                self.plain(root)?,
                Tensor::new(&ops::portable_cpu(), &core::array::from_fn::<i8, 256, _>(|at| at as u8 as i8 ^ -128), &[256])?,
            ),
            _ => (self.plain(root)?, Tensor::new(&ops::portable_cpu(), &core::array::from_fn::<u8, 256, _>(|at| at as u8), &[256])?),
        };
        let results = self.apply(id, &samples)?.to_vec::<f32>()?;
        let table: Vec<i8> = results.iter().map(|&real| y.nearest(real).clamp(i8::MIN.into(), i8::MAX.into()) as i8).collect();
        self.lookup(&x, &table, y)
    }

    /// Applies a table. If each integer is its own result, as after a product with a positive number, returns a view of `x` with the scale
    /// of `y`.
    fn lookup(&self, x: &Tensor, table: &[i8], y: Quantization) -> Result<(Tensor, Quantization)> {
        if x.dtype() == DType::I8 && table.iter().copied().eq(i8::MIN..=i8::MAX) {
            return Ok((x.reshape(x.dims())?.with_quantization(y)?, y));
        }
        self.applied(x, table, y)
    }

    fn applied(&self, x: &Tensor, table: &[i8], y: Quantization) -> Result<(Tensor, Quantization)> {
        let value = x.lookup(&Tensor::new(&self.device, table, &[table.len() as u32])?)?;
        Ok((value.with_quantization(y)?, y))
    }

    /// Returns the function that gives value `id`, for a list of elements of its root.
    fn apply(&self, id: ValueId, samples: &Tensor) -> Result<Tensor> {
        let (root, device) = (self.plan.roots[id], samples.device()?);
        let mut values: Vec<Option<Tensor>> = alloc::vec![None; self.graph.values.len()];
        values[root] = Some(samples.clone());
        for node in &self.graph.nodes {
            let Some(&output) = node.outputs.first().filter(|&&output| output != root && self.plan.roots[output] == root) else { continue };
            let operand = |&id: &ValueId| match self.graph.constant(id) {
                Some(constant) => constant.brought(&device)?.reshape(&[]),
                None => values[id].clone().ok_or(Error::Internal),
            };
            let operands = node.inputs.iter().map(operand).collect::<Result<Vec<Tensor>>>()?;
            values[output] = Tensor::compute(node.op, &node.attributes, &operands.iter().collect::<Vec<_>>())?.into_iter().next();
            if output == id {
                break;
            }
        }
        values[id].take().ok_or(Error::Internal)
    }
}

/// Returns the types of the arguments: those of the graph, with int8 instead of f32 if `int8` is true.
pub(super) fn argument_types(graph: &Graph, int8: bool) -> impl Iterator<Item = TensorType> + '_ {
    graph.inputs.iter().map(move |&id| {
        let own = graph.values[id].tensor_type;
        if int8 && own.dtype == DType::F32 { TensorType::new(DType::I8, own.shape) } else { own }
    })
}
