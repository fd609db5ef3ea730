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
    /// Register with the number of the current element.
    pub element: String,
    /// Registers with the number of elements and the number of threads.
    ends: [String; 2],
    /// Registers with the address of the fault word and the number of the step.
    fault: [String; 2],
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

    fn line(&mut self, line: &str) {
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

    /// Begins the loop over the elements of a thread, unless an earlier step has refused its data.
    pub(super) fn begin_loop(&mut self) {
        self.fault = [self.parameter("b64", "u64", "fault"), self.parameter("b32", "u32", "step")];
        let [fault, step] = self.fault.clone();
        let word = self.set("b64", "cvta.to.global.u64", &[&fault]);
        let refused = self.set("b32", "ld.volatile.global.u32", &[&format!("[{word}]")]);
        let earlier = self.set("pred", "setp.lt.u32", &[&refused, &step]);
        self.line(&format!("@{earlier} bra \tDONE;"));
        let [block, size, thread, blocks] =
            ["%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x"].map(|special| self.set("b32", "mov.u32", &[special]));
        let thread = self.set("b64", "cvt.u64.u32", &[&thread]);
        self.element = self.set("b64", "mad.wide.u32", &[&block, &size, &thread]);
        self.ends = [self.parameter("b64", "u64", "elements"), self.set("b64", "mul.wide.u32", &[&blocks, &size])];
        let (element, [elements, _]) = (self.element.clone(), self.ends.clone());
        let none = self.set("pred", "setp.ge.u64", &[&element, &elements]);
        self.line(&format!("@{none} bra \tDONE;"));
        self.body += "NEXT:\n";
    }

    /// Ends the loop, and returns the kernel with these parameters.
    pub(super) fn finish(mut self, parameters: &str) -> String {
        let (element, [elements, threads]) = (self.element.clone(), self.ends.clone());
        self.line(&format!("add.s64 \t{element}, {element}, {threads};"));
        let more = self.set("pred", "setp.lt.u64", &[&element, &elements]);
        self.line(&format!("@{more} bra \tNEXT;"));
        let mut text = format!(".visible .entry {ENTRY}(\n\t{parameters}\n)\n{{\n");
        for (kind, count) in &self.registers {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\t.reg .{kind} \t{}<{}>;", prefix(kind), count + 1);
        }
        text + &self.body + "DONE:\n\tret;\n}\n"
    }

    /// Returns the address of an element of a tensor at `base`, or of its only element.
    fn address(&mut self, dtype: DType, base: &str, position: Option<&str>) -> String {
        match position {
            None => base.to_string(),
            Some(position) if dtype.size() == 1 => self.set("b64", "add.s64", &[base, position]),
            Some(position) => self.set("b64", "mad.lo.s64", &[position, &dtype.size().to_string(), base]),
        }
    }

    pub(super) fn load(&mut self, dtype: DType, base: &str, position: Option<&str>) -> String {
        let address = self.address(dtype, base, position);
        self.set(register(dtype), &format!("ld.global.{}", memory(dtype)), &[&format!("[{address}]")])
    }

    pub(super) fn store(&mut self, dtype: DType, base: &str, value: &str) {
        let address = self.address(dtype, base, Some(&self.element.clone()));
        self.line(&format!("st.global.{} \t[{address}], {value};", memory(dtype)));
    }

    /// Calls the function of an op, and returns the register with its result.
    pub(super) fn call(&mut self, call: &Call, arguments: &[(String, DType)]) -> String {
        let mut arguments: Vec<(String, &'static str)> = arguments.iter().map(|(value, dtype)| (value.clone(), register(*dtype))).collect();
        if call.function.refuses {
            arguments.extend(self.fault.iter().cloned().zip(["b64", "b32"]));
        }
        self.invoke(&call.function.name(call.result), &arguments, register(call.result))
    }

    /// Calls a function with arguments of these types of registers, and returns the register with its result.
    pub(super) fn invoke(&mut self, name: &str, arguments: &[(String, &'static str)], result: &'static str) -> String {
        let names: Vec<String> = (0..arguments.len()).map(|index| format!("argument_{index}")).collect();
        self.line("{");
        for (name, (value, kind)) in names.iter().zip(arguments) {
            self.line(&format!(".param .{} {name};", bits(kind)));
            self.line(&format!("st.param.{kind} \t[{name}], {value};"));
        }
        self.line(&format!(".param .{} result;", bits(result)));
        self.line(&format!("call.uni (result), {name}, ({});", names.join(", ")));
        let register = self.set(result, &format!("ld.param.{result}"), &["[result]"]);
        self.line("}");
        register
    }
}

/// Returns the beginning of the names of registers of a type.
fn prefix(kind: &str) -> &'static str {
    match kind {
        "f32" => "%f",
        "f64" => "%fd",
        "b32" => "%r",
        "b64" => "%rd",
        _ => "%p",
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

/// Returns the type of an element in memory.
fn memory(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::F16 | DType::Bf16 => "u16",
        DType::I8 => "s8",
        DType::U8 | DType::Bool => "u8",
        DType::I32 => "u32",
        DType::I64 => "u64",
    }
}
