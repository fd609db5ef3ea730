//! Writes instructions of PTX.

use super::program::Call;
use gradlet_core::DType;
use std::fmt::Write;

/// Name of the entry of each program.
pub(crate) const ENTRY: &str = "elementwise";

/// A body of a kernel, with numbered registers.
#[derive(Default)]
pub(super) struct Writer {
    body: String,
    /// Number of registers of each type.
    registers: Vec<(&'static str, usize)>,
    /// Register with the number of the first element that the thread computes now.
    pub element: String,
    /// Register with a predicate, if elements are loaded and stored only where it is true.
    pub within: Option<String>,
    /// True if stores belong to `late`, which stands behind the loads of other elements.
    pub defers: bool,
    pub late: String,
    /// Registers with the number of elements, the number of the thread, and the number of threads that share the elements.
    elements: String,
    thread: String,
    threads: String,
    /// Registers with the address of the fault word and the number of the step.
    fault: [String; 2],
    /// Number of loops, and the registers with the last one's end and step.
    loops: usize,
    end: String,
    step: String,
}

impl Writer {
    /// Returns a new register of a type.
    fn register(&mut self, kind: &'static str) -> String {
        let found = self.registers.iter().position(|(known, _)| *known == kind);
        let index = found.unwrap_or_else(|| {
            self.registers.push((kind, 0));
            self.registers.len() - 1
        });
        let (_, count) = &mut self.registers[index];
        *count += 1;
        format!("{}{}", prefix(kind), *count)
    }

    pub(super) fn line(&mut self, line: &str) {
        self.body += "\t";
        self.body += line;
        self.body += "\n";
    }

    /// Writes an instruction, and returns the new register with its result.
    pub(super) fn set(&mut self, kind: &'static str, instruction: &str, arguments: &[&str]) -> String {
        let register = self.register(kind);
        self.line(&format!("{instruction} \t{register}, {};", arguments.join(", ")));
        register
    }

    /// Reads a parameter of the kernel.
    pub(super) fn parameter(&mut self, kind: &'static str, memory: &str, name: &str) -> String {
        self.set(kind, &format!("ld.param.{memory}"), &[&format!("[{name}]")])
    }

    /// Returns from the kernel if an earlier step has refused its data.
    pub(super) fn guard(&mut self) {
        self.fault = [self.parameter("b64", "u64", "fault"), self.parameter("b32", "u32", "step")];
        let [fault, step] = self.fault.clone();
        let word = self.set("b64", "cvta.to.global.u64", &[&fault]);
        let refused = self.set("b32", "ld.volatile.global.u32", &[&format!("[{word}]")]);
        let earlier = self.set("pred", "setp.lt.u32", &[&refused, &step]);
        self.line(&format!("@{earlier} bra \tDONE;"));
    }

    /// Numbers the threads of all blocks, which share the elements.
    pub(super) fn share_elements(&mut self) {
        let [block, blocks] = ["%ctaid.x", "%nctaid.x"].map(|special| self.set("b32", "mov.u32", &[special]));
        self.elements = self.parameter("b64", "u64", "elements");
        self.number_threads(&block, &blocks);
    }

    /// Finds the segment of this block, and numbers the threads of its blocks. Each of the segments has `words` words of 64 bits: the
    /// numbers of its first block, of its blocks and of its elements, then addresses. Returns the register with the place of the segment.
    pub(super) fn share_segments(&mut self, segments: usize, words: usize) -> String {
        let (block, start) = (self.set("b32", "mov.u32", &["%ctaid.x"]), self.set("b64", "mov.b64", &["segments"]));
        let offset = self.set("b64", "mov.u64", &["0"]);
        for bytes in (1..segments).map(|segment| segment * words * 8) {
            let first = self.parameter("b32", "u32", &format!("segments+{bytes}"));
            let reached = self.set("pred", "setp.ge.u32", &[&block, &first]);
            self.line(&format!("@{reached} mov.u64 \t{offset}, {bytes};"));
        }
        let place = self.set("b64", "add.s64", &[&start, &offset]);
        let [first, blocks] = [0, 8].map(|at| self.parameter("b32", "u32", &format!("{place}+{at}")));
        self.elements = self.parameter("b64", "u64", &format!("{place}+16"));
        let block = self.set("b32", "sub.s32", &[&block, &first]);
        self.number_threads(&block, &blocks);
        place
    }

    fn number_threads(&mut self, block: &str, blocks: &str) {
        let [size, thread] = ["%ntid.x", "%tid.x"].map(|special| self.set("b32", "mov.u32", &[special]));
        let thread = self.set("b64", "cvt.u64.u32", &[&thread]);
        self.thread = self.set("b64", "mad.wide.u32", &[block, &size, &thread]);
        self.threads = self.set("b64", "mul.wide.u32", &[blocks, &size]);
    }

    /// Begins a loop in which each thread computes `lanes` neighbouring elements at a time, as long as there are so many. A second loop
    /// begins where the first one ends.
    pub(super) fn begin_loop(&mut self, lanes: usize) {
        let (elements, thread, threads, lanes) = (self.elements.clone(), self.thread.clone(), self.threads.clone(), lanes.to_string());
        self.element = match self.loops {
            0 => self.set("b64", "mul.lo.s64", &[&thread, &lanes]),
            _ => self.set("b64", "add.s64", &[&self.end.clone(), &thread]),
        };
        self.end = if lanes == "1" { elements } else { self.set("b64", "and.b64", &[&elements, &format!("-{lanes}")]) };
        self.step = self.set("b64", "mul.lo.s64", &[&threads, &lanes]);
        self.loops += 1;
        self.repeat("ge", "END");
        self.body += &format!("LOOP_{}:\n", self.loops);
    }

    /// Ends the loop.
    pub(super) fn end_loop(&mut self) {
        self.line(&format!("add.s64 \t{element}, {element}, {step};", element = self.element, step = self.step));
        self.repeat("lt", "LOOP");
        self.body += &format!("END_{}:\n", self.loops);
    }

    /// Jumps to a label of the loop if the current element compares like this with the loop's end.
    fn repeat(&mut self, comparison: &str, label: &str) {
        let (element, end) = (self.element.clone(), self.end.clone());
        let jumps = self.set("pred", &format!("setp.{comparison}.u64"), &[&element, &end]);
        self.line(&format!("@{jumps} bra \t{label}_{};", self.loops));
    }

    /// Returns the kernel with these parameters.
    pub(super) fn finish(self, parameters: &str) -> String {
        format!(".visible .entry {ENTRY}(\n\t{parameters}\n)\n{{\n{}{}DONE:\n\tret;\n}}\n", self.declarations(), self.body)
    }

    /// Returns the declarations of the registers.
    pub(super) fn declarations(&self) -> String {
        let mut text = String::new();
        for (kind, count) in &self.registers {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\t.reg .{kind} \t{}<{}>;", prefix(kind), count + 1);
        }
        text
    }

    /// Returns what was written since the last call, or since the beginning.
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.body)
    }

    /// Returns the address of an element of a tensor at `base`, or of its only element.
    fn address(&mut self, dtype: DType, base: &str, position: Option<&str>) -> String {
        match position {
            None => base.to_string(),
            Some(position) if dtype.size() == 1 => self.set("b64", "add.s64", &[base, position]),
            Some(position) => self.set("b64", "mad.lo.s64", &[position, &dtype.size().to_string(), base]),
        }
    }

    /// Loads `lanes` neighbouring elements from a position on. Returns a register for each of them.
    pub(super) fn load(&mut self, dtype: DType, base: &str, position: Option<&str>, lanes: usize) -> Vec<String> {
        let address = self.address(dtype, base, position);
        let (kind, memory, count) = pieces(dtype, lanes);
        let loaded: Vec<String> = (0..count).map(|_| self.register(kind)).collect();
        // A tensor without positions has its only element in any case.
        let guard = self.within.as_ref().filter(|_| position.is_some()).map_or(String::new(), |within| format!("@{within} "));
        for register in loaded.iter().filter(|_| !guard.is_empty()) {
            self.line(&format!("mov.{kind} \t{register}, {};", zero(kind)));
        }
        self.line(&format!("{guard}ld.global{memory} \t{}, [{address}];", vector(&loaded)));
        if count == lanes {
            return loaded;
        }
        let (bits, sign) = (8 * dtype.size(), if matches!(dtype, DType::I8 | DType::I16) { "s32" } else { "u32" });
        let field = |lane: usize| {
            self.set("b32", &format!("bfe.{sign}"), &[&loaded[lane * bits / 32], &(lane * bits % 32).to_string(), &bits.to_string()])
        };
        (0..lanes).map(field).collect()
    }

    /// Stores neighbouring elements, beginning at the current one.
    pub(super) fn store(&mut self, dtype: DType, base: &str, values: &[String]) {
        let address = self.address(dtype, base, Some(&self.element.clone()));
        let (_, memory, count) = pieces(dtype, values.len());
        let bits = 8 * dtype.size();
        let joined = values.chunks(values.len() / count).map(|fields| {
            let mut fields = fields.iter().zip((0..).step_by(bits));
            let first = fields.next().map_or(String::new(), |(value, _)| value.clone());
            fields.fold(first, |word, (value, at)| self.set("b32", "bfi.b32", &[value, &word, &at.to_string(), &bits.to_string()]))
        });
        let joined: Vec<String> = joined.collect();
        let guard = self.within.as_ref().map_or(String::new(), |within| format!("@{within} "));
        let start = self.body.len();
        self.line(&format!("{guard}st.global{memory} \t[{address}], {};", vector(&joined)));
        // The registers of the kernel may have other values later, so the address does not wait.
        if self.defers {
            self.late += &self.body.split_off(start);
        }
    }

    /// Calls the function of an op, and returns the register with its result.
    pub(super) fn call(&mut self, call: &Call, arguments: &[(String, DType)]) -> String {
        let mut arguments: Vec<(String, &'static str)> = arguments.iter().map(|(value, dtype)| (value.clone(), register(*dtype))).collect();
        if call.function.refuses {
            arguments.extend(self.fault.iter().cloned().zip(["b64", "b32"]));
        }
        self.invoke(&call.function.name(call.result), &arguments, register(call.result))
    }

    /// Calls a function with arguments of these types of registers, and returns the register with its result. The driver's compiler leaves
    /// calls as they are, so a function without branches stands in their place.
    pub(super) fn invoke(&mut self, name: &str, arguments: &[(String, &'static str)], result: &'static str) -> String {
        let registers: Vec<&str> = arguments.iter().map(|(value, _)| value.as_str()).collect();
        let own = self.register(result);
        if let Some(text) = super::functions().inlined(name, &registers, &own) {
            self.body += &text;
            return own;
        }
        let names: Vec<String> = (0..arguments.len()).map(|index| format!("argument_{index}")).collect();
        self.line("{");
        for (name, (value, kind)) in names.iter().zip(arguments) {
            self.line(&format!(".param .{} {name};", bits(kind)));
            self.line(&format!("st.param.{kind} \t[{name}], {value};"));
        }
        self.line(&format!(".param .{} result;", bits(result)));
        self.line(&format!("call.uni (result), {name}, ({});", names.join(", ")));
        self.line(&format!("ld.param.{result} \t{own}, [result];"));
        self.line("}");
        own
    }
}

/// Returns the beginning of the names of registers of a type. The compiler gives none of these names.
fn prefix(kind: &str) -> &'static str {
    match kind {
        "f32" => "%xf",
        "f64" => "%xfd",
        "b32" => "%xr",
        "b64" => "%xrd",
        _ => "%xp",
    }
}

/// Returns the zero of a type of registers.
fn zero(kind: &str) -> &'static str {
    match kind {
        "f32" => "0f00000000",
        "f64" => "0d0000000000000000",
        _ => "0",
    }
}

/// Returns the type of an argument that is passed in a register of type `kind`.
fn bits(kind: &str) -> &'static str {
    if kind.ends_with("64") { "b64" } else { "b32" }
}

/// Returns the type of the register that holds an element. Elements of 8 and 16 bits are widened.
fn register(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::I64 => "b64",
        _ => "b32",
    }
}

/// Returns how `lanes` neighbouring elements are accessed at once: the type of the registers, the access's type, and the number of
/// registers. Small elements share registers.
fn pieces(dtype: DType, lanes: usize) -> (&'static str, String, usize) {
    let bytes = lanes * dtype.size();
    let (memory, count) = match dtype.size() {
        1 | 2 if lanes > 1 => (if bytes == 2 { "u16" } else { "u32" }, bytes.div_ceil(4)),
        _ => (memory(dtype), lanes),
    };
    (register(dtype), if count == 1 { format!(".{memory}") } else { format!(".v{count}.{memory}") }, count)
}

/// Returns the operand that consists of these registers.
fn vector(registers: &[String]) -> String {
    if let [one] = registers { one.clone() } else { format!("{{{}}}", registers.join(", ")) }
}

/// Returns the type of an element in memory.
fn memory(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 | DType::Bf16 => "u16",
        DType::I8 => "s8",
        DType::U8 | DType::Bool => "u8",
        DType::I16 => "s16",
        DType::I32 => "u32",
        DType::I64 => "u64",
    }
}
