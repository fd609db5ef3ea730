//! Writes the PTX of a program.

use super::program::{Load, Operand, Program};
use super::writer::Writer;
use crate::ptx::Source;
use gradlet_core::{DType, Error, Result};
use std::ops::Range;

/// Function that divides numbers of elements.
const QUOTIENT: &str = "quotient";
/// Place of an element: numbers, innermost first, and how many axes each of them counts along.
type Place = [(String, usize)];
/// Number of words of a segment before the addresses of its tensors.
const BEFORE: usize = 3;

impl Program {
    /// Returns a module with the program's kernel and the functions that it calls.
    pub(crate) fn module(&self, functions: &Source) -> Result<String> {
        Ok(self.called(functions)? + "\n" + &self.entry()?)
    }

    /// Returns a module with the functions that the program calls.
    pub(super) fn called(&self, functions: &Source) -> Result<String> {
        let called = self.calls.iter().map(|call| call.function.name(call.result));
        let names: Vec<String> = called.chain(self.partial().next().map(|_| QUOTIENT.to_string())).collect();
        if !names.iter().all(|name| functions.has(name)) {
            return Err(Error::Internal);
        }
        Ok(functions.extract(names.iter().map(String::as_str)))
    }

    /// Returns the axes of each tensor that varies along some axes only. The position in such a tensor takes divisions.
    fn partial(&self) -> impl Iterator<Item = u8> {
        self.loads.iter().map(|load| load.varies).filter(|&varies| varies != 0 && varies != self.all_axes())
    }

    /// Returns the text of the kernel.
    fn entry(&self) -> Result<String> {
        let mut writer = Writer::default();
        let sizes = self.sizes(&mut writer);
        writer.guard();
        let segment = if self.segments > 1 { Some(writer.share_segments(self.segments, self.words())) } else { None };
        if segment.is_none() {
            writer.share_elements();
        }
        let bases = self.bases(&mut writer, segment.as_deref());
        for lanes in [self.lanes].into_iter().chain((!self.even).then_some(1)) {
            writer.begin_loop(lanes);
            let numbers = [(writer.element.clone(), self.axes)];
            let loaded = self.load(&mut writer, &sizes, &bases, &numbers, lanes, |_| true);
            self.body(&mut writer, &bases, &loaded, &[], lanes)?;
            writer.end_loop();
        }
        Ok(writer.finish(&self.parameters()))
    }

    /// Reads the lengths of the axes.
    pub(super) fn sizes(&self, writer: &mut Writer) -> Vec<String> {
        (0..self.axes - 1).map(|axis| writer.parameter("b64", "u64", &format!("axis_{axis}"))).collect()
    }

    /// Reads the tensors' addresses, which are those of a segment if there are several.
    pub(super) fn bases(&self, writer: &mut Writer, segment: Option<&str>) -> Vec<String> {
        let base = |operand: usize| {
            let place = segment.map_or(format!("operand_{operand}"), |segment| format!("{segment}+{}", 8 * (BEFORE + operand)));
            let generic = writer.parameter("b64", "u64", &place);
            writer.set("b64", "cvta.to.global.u64", &[&generic])
        };
        (0..self.operands()).map(base).collect()
    }

    /// Number of tensors.
    fn operands(&self) -> usize {
        self.loads.len() + self.stored().count()
    }

    /// Number of words of 64 bits that describe a segment.
    pub(crate) fn words(&self) -> usize {
        BEFORE + self.operands()
    }

    /// Computes `lanes` elements, from the writer's current one on, of inputs that are loaded and elements that are given. `bases` are
    /// the tensors' addresses. Returns the register with the result of the last call for the last one.
    pub(super) fn body(
        &self,
        writer: &mut Writer,
        bases: &[String],
        loaded: &[Vec<String>],
        given: &[String],
        lanes: usize,
    ) -> Result<String> {
        let mut results = vec![Vec::new(); lanes];
        for (lane, results) in results.iter_mut().enumerate() {
            self.compute(writer, 0..self.calls.len(), loaded, given.get(lane..=lane).unwrap_or(&[]), lane, results)?;
        }
        self.store(writer, 0..self.calls.len(), bases, &results);
        results.last().and_then(|results| results.last()).map(|(value, _)| value.clone()).ok_or(Error::Internal)
    }

    /// Computes the calls of `range` for an element, which is number `lane` of those that are loaded. Adds the registers with the results
    /// to those of earlier calls.
    pub(super) fn compute(
        &self,
        writer: &mut Writer,
        range: Range<usize>,
        loaded: &[Vec<String>],
        given: &[String],
        lane: usize,
        results: &mut Vec<(String, DType)>,
    ) -> Result<()> {
        for call in self.calls.get(range).ok_or(Error::Internal)? {
            let arguments = call.arguments.iter().map(|argument| match argument {
                Operand::Load(index) => {
                    let values = loaded.get(*index)?;
                    // A value that is the same for all lanes was loaded once.
                    Some((values.get(lane).or(values.first())?.clone(), self.loads.get(*index)?.dtype))
                }
                Operand::Call(index) => results.get(*index).cloned(),
                Operand::Given(index) => Some((given.get(*index)?.clone(), DType::F32)),
            });
            let arguments: Vec<(String, DType)> = arguments.collect::<Option<_>>().ok_or(Error::Internal)?;
            results.push((writer.call(call, &arguments), call.result));
        }
        Ok(())
    }

    /// Stores the results of the calls of `range` that are kept, for elements that are neighbours.
    ///
    /// An output can have the address of an input: all reads of these elements come before their writes.
    pub(super) fn store(&self, writer: &mut Writer, range: Range<usize>, bases: &[String], results: &[Vec<(String, DType)>]) {
        let kept = self.calls.iter().enumerate().filter(|(_, call)| call.kept);
        for ((index, call), base) in kept.zip(&bases[self.loads.len()..]).filter(|((index, _), _)| range.contains(index)) {
            let values: Vec<String> = results.iter().filter_map(|results| Some(results.get(index)?.0.clone())).collect();
            writer.store(call.result, base, &values);
        }
    }

    /// Loads the elements of the inputs for `lanes` elements, the first of which is at `place`. Returns the registers by input and lane,
    /// with one register if all lanes have the same value. Inputs that vary along axes that are not `chosen` get none.
    pub(super) fn load(
        &self,
        writer: &mut Writer,
        sizes: &[String],
        bases: &[String],
        place: &Place,
        lanes: usize,
        chosen: impl Fn(u8) -> bool,
    ) -> Vec<Vec<String>> {
        let first = writer.element.clone();
        let mut kinds: Vec<u8> = self.partial().filter(|&varies| chosen(varies)).collect();
        kinds.sort();
        kinds.dedup();
        let mut positions = vec![self.positions(writer, sizes, &kinds, &first, place)];
        let apart = !self.even && self.partial().next().is_some();
        for lane in if apart { 1..lanes } else { 0..0 } {
            let element = writer.set("b64", "add.s64", &[&first, &lane.to_string()]);
            positions.push(self.positions(writer, sizes, &kinds, &element, &[(element.clone(), self.axes)]));
        }
        let mut load = |(load, base): (&Load, &String)| {
            let of = |positions: &Vec<(u8, String)>| positions.iter().find(|(varies, _)| *varies == load.varies).map(|(_, at)| at.clone());
            if !chosen(load.varies) {
                return Vec::new();
            }
            let partial = load.varies != 0 && load.varies != self.all_axes();
            if partial && apart {
                return positions.iter().flat_map(|positions| writer.load(load.dtype, base, of(positions).as_deref(), 1)).collect();
            }
            writer.load(load.dtype, base, of(&positions[0]).as_deref(), if load.varies & 1 == 0 { 1 } else { lanes })
        };
        self.loads.iter().zip(bases).map(&mut load).collect()
    }

    /// Returns the declarations of the parameters.
    fn parameters(&self) -> String {
        let mut all = vec![".param .u64 fault".to_string(), ".param .u32 step".to_string()];
        if self.segments > 1 {
            all.push(format!(".param .align 8 .b8 segments[{}]", 8 * self.segments * self.words()));
        } else {
            all.push(".param .u64 elements".to_string());
            all.extend(self.sizes_and_addresses());
        }
        all.join(",\n\t")
    }

    /// Returns the declarations of the parameters with the lengths of the axes and the addresses of the tensors.
    pub(super) fn sizes_and_addresses(&self) -> impl Iterator<Item = String> {
        let wide = |kind: &'static str, count: usize| (0..count).map(move |index| format!(".param .u64 {kind}_{index}"));
        wide("axis", self.axes - 1).chain(wide("operand", self.operands()))
    }

    /// Computes the position of an element in each of these kinds of tensors. Returns registers by the axes along which such tensors
    /// vary. A tensor that varies along no axis has no position.
    fn positions(&self, writer: &mut Writer, sizes: &[String], kinds: &[u8], element: &str, place: &Place) -> Vec<(u8, String)> {
        // A position is a sum over axes. The stride of an axis is the product of the sizes of the inner axes along which the tensor varies.
        let mut sums: Vec<(u8, String, String)> = Vec::new();
        let mut rest = String::new();
        // For each axis, the number that begins with it, and whether this number ends with it.
        let parts = place.iter().flat_map(|(number, axes)| (0..*axes).map(move |at| ((at == 0).then_some(number), at + 1 == *axes)));
        for (axis, (begins, ends)) in parts.enumerate() {
            let bit = 1 << axis;
            if kinds.iter().all(|&varies| varies < bit) {
                break;
            }
            rest = begins.cloned().unwrap_or(rest);
            let mut along = rest.clone();
            if let Some(size) = sizes.get(axis).filter(|_| !ends) {
                let quotient = writer.invoke(QUOTIENT, &[(rest.clone(), "b64"), (size.clone(), "b64")], "b64");
                let whole = writer.set("b64", "mul.lo.s64", &[&quotient, size]);
                along = writer.set("b64", "sub.s64", &[&rest, &whole]);
                rest = quotient;
            }
            for &varies in kinds.iter().filter(|&&varies| varies & bit != 0) {
                let size = sizes.get(axis).cloned().unwrap_or_default();
                match sums.iter().position(|(kind, ..)| *kind == varies) {
                    None => sums.push((varies, along.clone(), size)),
                    Some(found) => {
                        let (_, sum, stride) = sums[found].clone();
                        let sum = writer.set("b64", "mad.lo.s64", &[&along, &stride, &sum]);
                        // Another axis may follow.
                        let stride = if varies >> axis > 1 { writer.set("b64", "mul.lo.s64", &[&stride, &size]) } else { stride };
                        sums[found] = (varies, sum, stride);
                    }
                }
            }
        }
        let whole = (self.all_axes(), element.to_string());
        sums.into_iter().map(|(varies, sum, _)| (varies, sum)).chain([whole]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::{Call, Function, known, moves};
    use super::*;
    use crate::lower::{Job, Target, lower};
    use crate::ptx;
    use crate::ptx::assert_assembles;
    use gradlet_core::custom_op::{Kernel, OpDef};
    use gradlet_core::{Shape, TensorType, ops};

    fn tensor(dtype: DType, dims: &[u32]) -> TensorType {
        TensorType::new(dtype, Shape::new(dims).unwrap())
    }

    /// Returns the module for an op on these inputs.
    fn module(op: &'static OpDef, attributes: &[u32], inputs: &[TensorType]) -> String {
        let outputs = op.output_types(inputs, attributes).unwrap();
        let job = Job { op, attributes, inputs, outputs: &outputs[..usize::from(op.outputs)], target: Target::ORIN };
        lower(&job).unwrap()[0].code.ptx(true).unwrap().0
    }

    /// Returns the modules of all ops, for all element types, with their names.
    fn modules() -> Vec<(String, String)> {
        let alone = |kernel: &&&Kernel| Function::of(kernel.def, kernel.dtype).is_some() && !moves(kernel.def);
        let mut modules = Vec::new();
        for kernel in ops::KERNELS.iter().filter(alone) {
            let (op, dtype) = (kernel.def, kernel.dtype);
            // So many elements that a thread computes several, and an odd number, so that some are left.
            let mut inputs = vec![tensor(dtype, &[129, 129]); usize::from(op.inputs.0)];
            match op.code {
                ops::code::select => inputs[2].dtype = DType::Bool,
                ops::code::sgd_step => inputs[2] = tensor(dtype, &[]),
                ops::code::cast => {
                    let casts = DType::ALL.map(|to| (format!("cast_{dtype}_{to}"), module(op, &[to as u32], &inputs)));
                    modules.extend(casts);
                    continue;
                }
                _ => {}
            }
            modules.push((format!("{}_{dtype}", op.name), module(op, &[], &inputs)));
        }
        modules
    }

    /// Returns the module of a group of all kinds of tensors and types.
    fn mixed() -> String {
        let function = |op: &OpDef, dtype| Function::of(op, dtype).unwrap();
        let call = |function, arguments: &[Operand], result, kept| Call { function, arguments: arguments.to_vec(), result, kept };
        let (load, value) = (Operand::Load, Operand::Call);
        let calls = vec![
            call(function(&ops::add::DEF, DType::F32), &[load(0), load(1)], DType::F32, true),
            call(function(&ops::less::DEF, DType::F32), &[value(0), load(2)], DType::Bool, false),
            call(function(&ops::select::DEF, DType::F32), &[value(0), load(0), value(1)], DType::F32, false),
            call(function(&ops::cast::DEF, DType::F32), &[value(2)], DType::F16, true),
            call(function(&ops::cast::DEF, DType::I8), &[load(3)], DType::F64, false),
            call(function(&ops::sin::DEF, DType::F64), &[value(4)], DType::F64, true),
        ];
        let loads = [(DType::F32, 7), (DType::F32, 5), (DType::F32, 0), (DType::I8, 6)];
        let loads = loads.map(|(dtype, varies)| Load { dtype, varies }).to_vec();
        Program::new(3, loads, calls).module(ptx::functions()).unwrap()
    }

    #[test]
    fn every_function_is_called_by_a_module() {
        for (name, module) in modules() {
            let inlined = module.contains(&format!("{{ // {name}\n"));
            assert!(inlined || module.contains(&format!("call.uni (result), {name}, (")), "{name}");
            assert_eq!(module.matches(".entry").count(), 1, "{name}");
            assert!(module.len() < 60_000, "{name}: {}", module.len());
        }
    }

    #[test]
    fn a_function_that_can_refuse_gets_the_fault_word() {
        for kernel in ops::KERNELS {
            if let Some(function) = Function::of(kernel.def, kernel.dtype) {
                assert_eq!(function.refuses, known(kernel.def).unwrap().may_refuse(kernel.dtype), "{}", kernel.def.name);
                let text = ptx::functions().extract([function.name(DType::F32).as_str()]);
                assert_eq!(text.contains("atom.min"), function.refuses, "{} {}", kernel.def.name, kernel.dtype);
            }
        }
    }

    #[test]
    fn the_text_does_not_depend_on_sizes() {
        let sum = |a: &[u32], b: &[u32]| module(&ops::add::DEF, &[], &[tensor(DType::F32, a), tensor(DType::F32, b)]);
        assert_eq!(sum(&[2, 3, 4], &[2, 3, 4]), sum(&[7], &[7]));
        assert_eq!(sum(&[2, 3, 4], &[4]), sum(&[9, 1000], &[1000]));
        assert_eq!(sum(&[200, 1000], &[1000]), sum(&[5, 4000], &[4000]));
        assert_ne!(sum(&[200, 1000], &[1000]), sum(&[200, 1001], &[1001]));
        assert_ne!(sum(&[2, 3], &[3]), sum(&[2, 3], &[2, 1]));
        assert_eq!(mixed(), mixed());
        assert!(!sum(&[7], &[]).contains(QUOTIENT));
    }

    #[test]
    fn reads_come_before_writes() {
        let text = mixed();
        assert_eq!((text.matches("ld.global.f32").count(), text.matches("ld.global.s8").count()), (3, 1));
        assert_eq!((text.matches("\tst.global.f32").count(), text.matches("\tst.global.u16").count()), (1, 1));
        let entry = &text[text.find(".entry").unwrap()..];
        assert!(entry.rfind("ld.global").unwrap() < entry.find("st.global").unwrap());
    }

    #[test]
    fn an_assembler_takes_the_modules() {
        let broad =
            module(&ops::mul::DEF, &[], &[tensor(DType::I64, &[2, 1, 3, 1, 5, 1, 7, 1]), tensor(DType::I64, &[4, 1, 6, 1, 8, 1, 9])]);
        for (name, module) in modules().into_iter().chain([("mixed".to_string(), mixed()), ("broad".to_string(), broad)]) {
            assert_assembles(&name, &module);
        }
    }
}
