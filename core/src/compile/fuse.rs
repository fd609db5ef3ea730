//! Decides which nodes run together: neighbours that compute element by element. They run block by block. Intermediate values therefore
//! stay in the cache, and values that no other node reads exist only one block at a time. On a remote device, a product may begin a group,
//! and a reduction may end it.

use crate::base::shape::Shape;
use crate::compile::neighbours;
use crate::compile::plan::{Division, Fusion, Step, is_by_element, is_view};
use crate::tensor::device::Device;
use crate::tensor::device::remote::Fuses;
use crate::tensor::graph::{Graph, Node, ValueId};
use alloc::vec::Vec;

/// Maximum number of storage areas that a group writes.
pub(crate) const MAX_WRITES: usize = 12;
/// Maximum number of storage areas that a group only reads.
pub(crate) const MAX_READS: usize = 24;

/// Maximum number of threads that share the blocks.
pub(crate) const MAX_THREADS: usize = 16;

impl Fusion {
    /// No fusion: every node is a step.
    pub(crate) const NONE: Fusion = Fusion { block: usize::MAX, threads: 1, grain: usize::MAX, registers: false, neighbours: false };

    /// Returns the settings for `device`: blocks of 1024 elements, at most [`MAX_THREADS`] threads, and at least 65,536 elements for each
    /// thread. A remote device computes node by node, unless it fuses.
    pub(crate) fn of(device: &Device) -> Fusion {
        let Some(remote) = device.remote() else {
            return Fusion { block: 1024, threads: device.threads().min(MAX_THREADS), grain: 1 << 16, ..Fusion::NONE };
        };
        match remote.fuses() {
            Fuses::Nothing => Fusion::NONE,
            fuses => Fusion { block: 0, registers: true, neighbours: fuses == Fuses::Neighbours, ..Fusion::NONE },
        }
    }

    /// Returns the order in which nodes that a group may contain are neighbours.
    pub(crate) fn order(&self, graph: &Graph, order: &[usize]) -> Vec<usize> {
        if self.neighbours { neighbours::brought_together(graph, order) } else { order.to_vec() }
    }

    /// Groups the nodes of `order` into steps. Neighbours are fused where possible.
    pub(crate) fn steps(&self, graph: &Graph, order: &[usize]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut open: Option<Open> = None;
        for &index in order {
            let node = &graph.nodes[index];
            let fits = self.fits(graph, node);
            if let Some(group) = &mut open
                && (is_view(graph, node) || fits.as_ref().is_some_and(|fits| group.follows(graph, node) && group.join(node, fits)))
            {
                group.nodes.push(index);
                continue;
            }
            if let Some(mut group) = open.take() {
                let ended = self.neighbours && group.end(graph, node);
                group.nodes.extend(ended.then_some(index));
                steps.extend(self.close(group));
                if ended {
                    continue;
                }
            }
            match fits {
                Some(fits) => open = Some(Open::new(index, node, fits)),
                None if self.neighbours && neighbours::is_product(graph, node) => open = Some(Open::product(index, graph, node)),
                None => steps.push(Step::single(index)),
            }
        }
        steps.extend(open.into_iter().flat_map(|group| self.close(group)));
        steps
    }

    /// Returns the layout of a node's elements, or `None` if the node cannot belong to a group.
    fn fits(&self, graph: &Graph, node: &Node) -> Option<Layout> {
        let tensor_type = |id: ValueId| graph.values[id].tensor_type;
        let count = |id: ValueId| tensor_type(id).shape.elements();
        let (&input, &output) = (node.inputs.first()?, node.outputs.first()?);
        let elements = count(output)?;
        let even = node.outputs.iter().all(|&id| count(id) == Some(elements));
        let joins = node.op.elementwise || self.registers && is_by_element(node);
        if !joins || node.op.may_refuse(tensor_type(input).dtype) || !even || elements <= self.block {
            return None;
        }
        if self.registers && node.outputs.len() > 1 {
            return None;
        }
        let mut layout = Layout { elements, columns: 1, edges: Vec::new() };
        for &id in &node.inputs {
            let own = count(id)?;
            let (shape, whole) = (tensor_type(id).shape, tensor_type(output).shape);
            if own == 1 || own == elements {
                continue;
            }
            if self.registers {
                layout.add_edges(&edges(&whole, &shape)).then_some(())?;
                continue;
            }
            let leading = shape.dims().iter().take_while(|&&dim| dim == 1).count();
            let trails = whole.dims().ends_with(&shape.dims()[leading..]);
            if !trails || own > 4 * self.block || (layout.columns != 1 && layout.columns != own) {
                return None;
            }
            layout.columns = own;
        }
        Some(layout)
    }

    /// Returns the steps of a complete group. This is one step, or one step for each of its nodes if neither fusion nor threads would help.
    fn close(&self, group: Open) -> Vec<Step> {
        let Open { nodes, members, layout: Layout { elements, columns, .. }, .. } = group;
        if self.registers && members > 1 {
            return alloc::vec![Step { nodes, division: Division { elements, columns, block: elements, threads: 1 } }];
        }
        let block = (self.block / columns).max(1) * columns;
        let threads = self.threads.min(elements * members / self.grain).min(elements.div_ceil(block)).max(1);
        if members == 1 && threads == 1 {
            return nodes.into_iter().map(Step::single).collect();
        }
        alloc::vec![Step { nodes, division: Division { elements, columns, block, threads } }]
    }
}

/// Largest number of edges in the layout of a group.
const MAX_EDGES: usize = 7;

/// The order of the elements of a group or a node, and where its operands are broadcast.
struct Layout {
    /// Number of elements of each output.
    elements: usize,
    /// Number of elements in a row: the size of operands that are broadcast along leading axes, or 1 if there are none.
    columns: usize,
    /// For a remote device, which takes operands that are broadcast along any axes: the sizes of the stretches of elements at whose ends an
    /// operand begins or ends to vary. Each one is a multiple of the one before.
    edges: Vec<usize>,
}

impl Layout {
    /// Adds edges. Returns false, and leaves the layout, if they do not fit the others.
    fn add_edges(&mut self, edges: &[usize]) -> bool {
        let mut all = [&self.edges, edges].concat();
        all.sort_unstable();
        all.dedup();
        let fit = all.len() <= MAX_EDGES && all.is_sorted_by(|inner, outer| outer % inner == 0);
        if fit {
            self.edges = all;
        }
        fit
    }
}

/// Returns the sizes of the stretches at whose ends an operand begins or ends to vary, if it is broadcast to a tensor of shape `whole`.
fn edges(whole: &Shape, operand: &Shape) -> Vec<usize> {
    let (mut edges, mut size, mut before) = (Vec::new(), 1, None);
    for (back, &dim) in whole.dims().iter().rev().enumerate().filter(|(_, dim)| **dim != 1) {
        let varies = operand.back(back).is_some_and(|own| own != 1);
        if before.replace(varies).is_some_and(|before| before != varies) {
            edges.push(size);
        }
        size *= dim as usize;
    }
    edges
}

/// A group that may still grow.
struct Open {
    /// Its nodes, including the views between them.
    nodes: Vec<usize>,
    /// Number of its nodes that are not views.
    members: usize,
    layout: Layout,
    written: Vec<ValueId>,
    read: Vec<ValueId>,
    /// The value of the product with which the group begins.
    product: Option<ValueId>,
}

impl Open {
    fn new(index: usize, node: &Node, layout: Layout) -> Open {
        let nodes = alloc::vec![index];
        Open { nodes, members: 1, layout, written: node.outputs.clone(), read: node.inputs.clone(), product: None }
    }

    /// Begins a group with a product.
    fn product(index: usize, graph: &Graph, node: &Node) -> Open {
        let value = node.outputs[0];
        let elements = graph.values[value].tensor_type.shape.elements().unwrap_or(0);
        Open { product: Some(value), ..Open::new(index, node, Layout { elements, columns: 1, edges: Vec::new() }) }
    }

    /// True if `node` may follow the product, if there is one. The first node that does reads it.
    fn follows(&self, graph: &Graph, node: &Node) -> bool {
        let Some(product) = self.product else { return true };
        let reads = || node.inputs.iter().any(|&id| self.root(graph, id) == product);
        neighbours::is_plain(graph, node) && (self.members > 1 || reads())
    }

    /// Adds `node` to the group if the node has the same number of elements and a layout that fits, and if the group has room. Returns true
    /// if it was added.
    fn join(&mut self, node: &Node, own: &Layout) -> bool {
        let read = node.inputs.iter().filter(|id| !self.written.contains(id) && !self.read.contains(id));
        let read: Vec<ValueId> = read.copied().collect();
        let columns = self.layout.columns;
        let alike = own.elements == self.layout.elements && (own.columns == 1 || columns == 1 || own.columns == columns);
        let room = self.written.len() + node.outputs.len() <= MAX_WRITES && self.read.len() + read.len() <= MAX_READS;
        let joins = alike && room && self.layout.add_edges(&own.edges);
        if joins {
            self.members += 1;
            self.layout.columns = columns.max(own.columns);
            self.written.extend(&node.outputs);
            self.read.extend(read);
        }
        joins
    }

    /// Ends the group with `node` if that is a reduction of one of the group's values, and the group has room. Returns true if it did.
    fn end(&mut self, graph: &Graph, node: &Node) -> bool {
        let Some((value, edges)) = neighbours::reduction(graph, node).filter(|_| self.product.is_none()) else { return false };
        let ends = self.written.contains(&self.root(graph, value)) && self.written.len() < MAX_WRITES && self.layout.add_edges(&edges);
        self.members += usize::from(ends);
        ends
    }

    /// Returns the value of which `id` is a view, through the views of the group.
    fn root(&self, graph: &Graph, id: ValueId) -> ValueId {
        self.nodes
            .iter()
            .rev()
            .map(|&index| &graph.nodes[index])
            .filter(|node| is_view(graph, node))
            .fold(id, |id, view| if view.outputs[0] == id { view.inputs[0] } else { id })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::dtype::DType;
    use crate::base::op::{Call, Kernel, OpDef};
    use crate::base::random::Stream;
    use crate::base::sync::{Shared, Task};
    use crate::compile::plan::{Location, Plan, Target};
    use crate::compile::planner::plan;
    use crate::host::executable::{Caller, Executable};
    use crate::host::kernel_step::Scratch;
    use crate::ops;
    use crate::tensor::device::Backend;
    use crate::tensor::scope::Op;
    use crate::{Eager, Error, Function, Result, Scope, Tensor, Variable};
    use std::vec;

    /// The portable CPU with threads.
    struct Threads(Device, usize);

    impl Backend for Threads {
        // The name is that of the inner device, so the two count as the same device.
        fn name(&self) -> &str {
            self.0.name()
        }
        fn run(&self, def: &'static OpDef, _: &mut Call<'_, '_>) -> Result<()> {
            Err(Error::NoKernel { op: def.name, dtype: DType::F32 })
        }
        fn has_kernel(&self, def: &OpDef, dtype: DType) -> bool {
            self.0.has_kernel(def, dtype)
        }
        fn kernels(&self) -> &[&'static Kernel] {
            self.0.kernels()
        }
        fn threads(&self) -> usize {
            self.1
        }
        fn join(&self, tasks: &mut [&mut Task<'_>]) {
            std::thread::scope(|threads| tasks.iter_mut().for_each(|task| drop(threads.spawn(task))));
        }
    }

    /// A source of random numbers that depend only on the seed.
    struct Dice {
        stream: Stream,
        rolled: u64,
    }

    impl Dice {
        fn roll(&mut self, below: usize) -> usize {
            self.rolled += 1;
            self.stream.block(self.rolled)[0] as usize % below
        }

        /// Returns a random one of `values`. In two of three cases, it is chosen from the last six.
        fn choose(&mut self, values: &[Tensor]) -> Tensor {
            let below = if self.roll(3) == 0 { values.len() } else { values.len().min(6) };
            values[values.len() - 1 - self.roll(below)].clone()
        }
    }

    const ADAM: [f32; 5] = [0.9, 0.999, 1e-7, 0.1, 0.001];
    const DIMS: [u32; 2] = [7, 6];

    /// Returns a function of elementwise ops, with some other ops between them, on tensors of all kinds that these ops accept.
    fn random_function(seed: u64, variables: Vec<Variable>) -> Function<(Tensor, Tensor), Vec<Tensor>> {
        Function::new(move |scope: &dyn Scope, (x, row): (Tensor, Tensor)| {
            let mut dice = Dice { stream: Stream { key: seed, stream: 1 }, rolled: 0 };
            let mut values = vec![x.clone(), row, Tensor::scalar(&scope.device(), 0.5f32), Tensor::scalar(&scope.device(), 3i64)];
            for variable in &variables {
                values.push(scope.read(variable)?);
            }
            let elementwise: Vec<&'static Op> = ops::OPS.iter().copied().filter(|op| op.elementwise).collect();
            for _ in 0..20 + dice.roll(100) {
                let op = elementwise[dice.roll(elementwise.len())];
                let arity = usize::from(op.def.inputs.0);
                let inputs: Vec<Tensor> = (0..arity).map(|_| dice.choose(&values)).collect();
                let attributes = match op.def.code {
                    ops::code::adam_step => ADAM.map(f32::to_bits).to_vec(),
                    ops::code::cast => vec![1 + dice.roll(9) as u32],
                    ops::code::reshape => [vec![6, 7], vec![42], vec![1, 7, 6], DIMS.to_vec()][dice.roll(4)].clone(),
                    _ => vec![],
                };
                if !scope.device().has_kernel(op.def, inputs[0].dtype()) || op.may_refuse(inputs[0].dtype()) {
                    continue;
                }
                match scope.emit(op, &attributes, &inputs.iter().collect::<Vec<_>>()) {
                    Ok(outputs) => values.extend(outputs),
                    Err(_) if dice.roll(9) == 0 => values.push(x.mean(&[], false)?),
                    Err(_) => (),
                }
            }
            for variable in &variables {
                let value = dice.choose(&values);
                if value.tensor_type() == variable.tensor_type()? {
                    scope.assign(variable, &value)?;
                }
            }
            Ok((0..1 + dice.roll(4)).map(|_| dice.choose(&values)).collect())
        })
    }

    /// Returns the bits of the elements. All NaNs count as the same.
    fn bits(tensor: &Tensor) -> Vec<u64> {
        match tensor.dtype() {
            DType::F32 => tensor.to_vec::<f32>().unwrap().iter().map(|x| if x.is_nan() { 1 << 40 } else { x.to_bits().into() }).collect(),
            DType::F64 => tensor.to_vec::<f64>().unwrap().iter().map(|x| if x.is_nan() { f64::NAN } else { *x }.to_bits()).collect(),
            _ => tensor.bytes().unwrap().iter().map(|&byte| byte.into()).collect(),
        }
    }

    /// Runs `graph` twice. Returns the bits of the results and of the variables after each run.
    fn two_runs(graph: &Graph, device: &Device, fusion: Fusion, inputs: &[Tensor], variables: &[(Variable, Tensor)]) -> Vec<Vec<u64>> {
        variables.iter().for_each(|(variable, value)| variable.set(value).unwrap());
        let mut executable = Executable::new(graph, device, fusion, &Shared::new(Scratch::new(""))).unwrap();
        let mut seen = Vec::new();
        for _ in 0..2 {
            let results: Result<Vec<Tensor>> = executable.run(
                &Caller::on(device),
                &|_, _| Error::Internal,
                |take| inputs.iter().for_each(take),
                |next| graph.outputs.iter().map(|_| next()).collect(),
            );
            seen.extend(results.unwrap().iter().map(bits));
            seen.extend(variables.iter().map(|(variable, _)| bits(&variable.value().unwrap())));
        }
        seen
    }

    #[test]
    fn fused_and_single_steps_have_the_same_bits() {
        let scope = Eager::new(&ops::portable_cpu());
        let numbers = |stream: u64, dims: &[u32]| {
            let count = dims.iter().product::<u32>() as usize;
            let numbers: Vec<f32> = Stream { key: 9, stream }.uniform(count).iter().map(|x| 3.0 * x - 1.5).collect();
            Tensor::new(&scope.device(), &numbers, dims).unwrap()
        };
        let (mut groups, mut blocks, mut steps) = (0, 0, 0);
        for seed in 0..300 {
            let variables: Vec<(Variable, Tensor)> = (2..5).map(|stream| (Variable::untrained("v"), numbers(stream, &DIMS))).collect();
            variables.iter().for_each(|(variable, value)| variable.create(&scope, value).unwrap());
            let function = random_function(seed, variables.iter().map(|(variable, _)| variable.clone()).collect());
            let inputs = [numbers(0, &DIMS), numbers(1, &[6])];
            let concrete = function.concrete(&scope, &(inputs[0].clone(), inputs[1].clone())).unwrap();
            let graph = concrete.graph();
            let mut dice = Dice { stream: Stream { key: seed, stream: 2 }, rolled: 0 };
            let single = Fusion::NONE;
            let fused = Fusion { block: 1 + dice.roll(20), threads: 1 + dice.roll(4), grain: 1, ..Fusion::NONE };
            let device = Device::new(Threads(scope.device(), fused.threads));
            let wanted = two_runs(graph, &device, single, &inputs, &variables);
            assert!(two_runs(graph, &device, fused, &inputs, &variables) == wanted, "seed {seed}, {fused:?}");
            let (alone, together): (Plan, Plan) = (plan(graph, Target::Host(single)), plan(graph, Target::Host(fused)));
            assert!(together.scratch <= alone.scratch, "seed {seed}: {} and {}", together.scratch, alone.scratch);
            groups += together.steps.iter().filter(|step| step.nodes.len() > 1).count();
            blocks += together.locations.iter().filter(|location| matches!(location, Location::Block(_))).count();
            steps += together.steps.len();
        }
        assert!(groups > 400 && blocks > 400, "{groups} groups of {steps} steps, {blocks} values that exist for one block only");
    }

    #[test]
    fn edges_are_where_operands_begin_or_end_to_vary() {
        let shape = |dims: &[u32]| Shape::new(dims).unwrap();
        let own = |operand: &[u32]| edges(&shape(&[2, 3, 1, 4]), &shape(operand));
        assert_eq!(own(&[4]), [4]);
        assert_eq!(own(&[2, 3, 1, 1]), [4]);
        assert_eq!(own(&[3, 1, 4]), [12]);
        assert_eq!(own(&[2, 1, 1, 4]), [4, 12]);
        let mut layout = Layout { elements: 24, columns: 1, edges: Vec::new() };
        assert!(layout.add_edges(&[4, 12]) && layout.add_edges(&[2]) && !layout.add_edges(&[3]));
        assert_eq!(layout.edges, [2, 4, 12]);
    }

    #[test]
    fn a_chain_takes_a_block_and_no_more() {
        let scope = Eager::new(&ops::portable_cpu());
        let chain = Function::new(|_: &dyn Scope, x: Tensor| {
            x.exp()?.mul(&x)?.sub(&x)?.cast(DType::I32)?.cast(DType::F32)?.mul(&x)?.tanh()?.sum(&[], false)
        });
        let concrete = chain.concrete(&scope, &Tensor::full(&scope.device(), 1.0f32, &[100, 100]).unwrap()).unwrap();
        let fusion = Fusion { block: 500, threads: 1, grain: 1, ..Fusion::NONE };
        let planned = plan(concrete.graph(), Target::Host(fusion));
        assert_eq!(planned.steps.iter().map(|step| step.nodes.len()).collect::<Vec<_>>(), [7, 1]);
        // The sum reads the output of the last fused node, so that value exists as a whole.
        assert!(planned.scratch <= 40_000 + 3 * 2000, "{}", planned.scratch);
        assert_eq!(plan(concrete.graph(), Target::Device).scratch, 3 * 40_000);
    }
}
