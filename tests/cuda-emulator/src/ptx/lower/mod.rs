//! From statements to a kernel: every routine that it calls, then the kernel itself.

mod builder;
mod compare;
mod control;
mod convert;
mod copies;
mod float;
mod integer;
mod matrix;
mod memory;
mod moves;
mod opcode;
mod packed;
mod tables;

use std::collections::HashMap;

use builder::{Builder, Result, Symbol};
use opcode::Opcode;

use super::{
    syntax::{File, Item, Operand, Routine, Statement, Variable},
    types::{Space, Type},
};
use crate::machine::{
    code::{Function, Operation, Parameter},
    registers::Register,
};

/// A routine that is lowered: where it begins, where it keeps the return address, its parameters and results.
struct Lowered {
    start: u32,
    link: Register,
    parameters: Vec<Symbol>,
    results: Vec<Symbol>,
}

type Routines<'t> = HashMap<&'t str, Lowered>;

/// Routines may call each other so deeply.
const DEPTH: usize = 32;

/// Makes a kernel.
pub fn lower<'t>(file: &File<'t>, kernel: &Routine<'t>, lines: &[&str]) -> Result<Function> {
    let mut builder = Builder::new(file);
    let mut routines = Routines::new();
    callees(&mut builder, kernel, &mut routines, &mut Vec::new())?;
    builder.kernel = true;
    builder.open();
    builder.function.name = kernel.name.to_string();
    builder.function.max_threads = kernel.max_threads.unwrap_or(1024).min(1024);
    let mut offset = 0u32;
    for parameter in &kernel.parameters {
        offset = offset.next_multiple_of(parameter.align);
        builder.define(parameter.name, Symbol::Variable(Space::Parameter, offset, parameter.size));
        builder.function.parameters.push(Parameter { size: parameter.size, align: parameter.align, offset });
        offset += parameter.size;
        if offset > 4096 {
            return Err(format!("line {}: more than 4096 bytes of parameters", parameter.line));
        }
    }
    builder.function.start = builder.function.code.len() as u32;
    body(&mut builder, kernel, &routines, None)?;
    builder.finish_shared();
    let mut function = builder.function;
    let mut source: Vec<u32> = function.code.iter().map(|i| i.line).collect();
    source.sort_unstable();
    source.dedup();
    let text = |line: u32| lines.get(line as usize - 1).map_or("", |text| text.trim()).into();
    function.source = source.into_iter().map(|line| (line, text(line))).collect();
    Ok(function)
}

/// Checks the functions that no kernel of the file reaches: another file may be meant to call them.
pub fn check<'t>(file: &File<'t>) -> Result<()> {
    let mut builder = Builder::new(file);
    let mut called = Vec::new();
    file.routines.iter().for_each(|routine| called.extend(calls(routine).map(|(name, _)| name)));
    for routine in file.routines.iter().filter(|routine| !routine.kernel && !called.contains(&routine.name)) {
        let mut routines = Routines::new();
        callees(&mut builder, routine, &mut routines, &mut vec![routine.name])?;
        function(&mut builder, routine, &mut routines)?;
        builder = Builder::new(file);
    }
    Ok(())
}

/// The functions that a routine calls, and in which lines.
fn calls<'r, 't>(routine: &'r Routine<'t>) -> impl Iterator<Item = (&'t str, u32)> + use<'r, 't> {
    routine.body.iter().filter_map(|item| match item {
        Item::Statement(statement) if matches!(statement.opcode, "call" | "call.uni") => {
            let name = statement.operands.iter().find_map(|o| if let Operand::Name(name) = o { Some(*name) } else { None });
            Some((name?, statement.line))
        }
        _ => None,
    })
}

/// Lowers what a routine calls, the innermost first: the machine lets the lanes with the smallest address go ahead.
fn callees<'t>(builder: &mut Builder<'_, 't>, routine: &Routine<'t>, done: &mut Routines<'t>, path: &mut Vec<&'t str>) -> Result<()> {
    for (name, line) in calls(routine).filter(|(name, _)| !done.contains_key(name)).collect::<Vec<_>>() {
        let file = builder.file;
        let callee = file.routines.iter().find(|r| r.name == name && !r.kernel);
        let callee = callee.ok_or_else(|| format!("line {line}: the function `{name}` is called but not there"))?;
        if path.contains(&name) || path.len() == DEPTH {
            return Err(format!("line {line}: `{name}` calls itself, or calls are nested more than {DEPTH} deep"));
        }
        path.push(name);
        callees(builder, callee, done, path)?;
        path.pop();
        function(builder, callee, done)?;
    }
    Ok(())
}

/// Lowers a routine that is no kernel, once.
fn function<'t>(builder: &mut Builder<'_, 't>, routine: &Routine<'t>, done: &mut Routines<'t>) -> Result<()> {
    if done.contains_key(routine.name) {
        return Ok(());
    }
    builder.open();
    let mut place = |list: &[Variable<'t>]| -> Result<Vec<Symbol>> {
        let placed = list.iter().map(|variable| builder.place(variable)).collect::<Result<_>>();
        placed.map_err(|what| format!("line {}: {what}", routine.line))
    };
    let (parameters, results) = (place(&routine.parameters)?, place(&routine.results)?);
    let link = builder.hidden(Type::U32)?;
    let start = builder.function.code.len() as u32;
    body(builder, routine, done, Some(link))?;
    builder.seal();
    done.insert(routine.name, Lowered { start, link, parameters, results });
    Ok(())
}

/// Lowers a body. `link` is where a routine that is no kernel keeps its return address.
fn body<'t>(builder: &mut Builder<'_, 't>, routine: &Routine<'t>, routines: &Routines<'t>, link: Option<Register>) -> Result<()> {
    let tables = tables(routine);
    let mut labels = HashMap::new();
    let mut jumps = Vec::new();
    for item in &routine.body {
        let (line, result) = match item {
            Item::Open => {
                builder.open();
                continue;
            }
            Item::Close => {
                builder.close();
                continue;
            }
            Item::Registers(kind, name, count) => (routine.line, builder.declare(*kind, name, *count)),
            Item::Variable(variable) => (variable.line, builder.place(variable).map(|_| ())),
            Item::Targets(_) => continue,
            Item::Label(name, line) => {
                let doubled = labels.insert(*name, builder.function.code.len() as u32).is_some();
                (*line, if doubled { Err(format!("the label `{name}` stands twice")) } else { Ok(()) })
            }
            Item::Statement(statement) => (statement.line, builder.statement(statement, routines, link, &tables, &mut jumps)),
        };
        result.map_err(|what| format!("line {line}: {what}"))?;
    }
    builder.begin((builder::TRUE, false), builder.line.max(routine.line));
    builder.emit(link.map_or(Operation::Exit, Operation::Return));
    for jump in jumps {
        let missing = |label: &str| format!("line {}: the label `{label}` is not there", jump.line);
        let find = |label: &&'t str| labels.get(label).copied().ok_or_else(|| missing(label));
        match &mut builder.function.code[jump.index].operation {
            Operation::Branch(target) => *target = find(&jump.labels[0])?,
            Operation::Switch(_, targets) => *targets = jump.labels.iter().map(find).collect::<Result<_>>()?,
            _ => {}
        }
    }
    Ok(())
}

/// A branch whose labels are resolved at the end.
struct Jump<'t> {
    index: usize,
    labels: Vec<&'t str>,
    line: u32,
}

type Tables<'t> = HashMap<&'t str, Vec<&'t str>>;

/// The labels of each `.branchtargets`.
fn tables<'t>(routine: &Routine<'t>) -> Tables<'t> {
    let pairs = routine.body.windows(2).filter_map(|pair| match pair {
        [Item::Label(name, _), Item::Targets(labels)] => Some((*name, labels.clone())),
        _ => None,
    });
    pairs.collect()
}

impl<'t> Builder<'_, 't> {
    fn statement(
        &mut self,
        statement: &Statement<'t>,
        routines: &Routines<'t>,
        link: Option<Register>,
        tables: &Tables<'t>,
        jumps: &mut Vec<Jump<'t>>,
    ) -> Result<()> {
        let guard = match statement.guard {
            None => (builder::TRUE, false),
            Some((name, negated)) => (self.predicate(&Operand::Name(name))?.0, negated),
        };
        self.begin(guard, statement.line);
        let mut op = Opcode::new(statement.opcode);
        self.flops = op.flops();
        let operands = &statement.operands[..];
        match op.base {
            "bra" | "brx" => {
                op.take("uni");
                let labels = match operands {
                    [Operand::Name(label)] if op.base == "bra" => vec![*label],
                    [_, Operand::Name(table)] if op.take("idx") => tables.get(table).cloned().unwrap_or_default(),
                    _ => return op.unsupported(),
                };
                if labels.is_empty() {
                    return op.unsupported();
                }
                op.finish()?;
                let operation =
                    if op.base == "bra" { Operation::Branch(0) } else { Operation::Switch(self.index(&operands[0])?, Box::default()) };
                jumps.push(Jump { index: self.function.code.len(), labels, line: statement.line });
                self.emit(operation);
                Ok(())
            }
            "call" => self.call(op, operands, routines),
            "ret" | "exit" | "trap" => {
                op.take("uni");
                op.finish()?;
                self.emit(match (op.base, link) {
                    ("trap", _) => Operation::Trap,
                    ("ret", Some(link)) => Operation::Return(link),
                    _ => Operation::Exit,
                });
                Ok(())
            }
            _ => self.plain(op, operands),
        }
    }

    /// An instruction without control flow.
    fn plain(&mut self, mut op: Opcode<'t>, operands: &[Operand<'t>]) -> Result<()> {
        match op.base {
            "mov" => self.mov(op, operands),
            "ld" | "ldu" | "st" => self.transfer(op, operands),
            "atom" | "red" => self.atomic(op, operands),
            "cvt" => self.convert(op, operands),
            "cvta" => self.convert_address(op, operands),
            "isspacep" => self.is_in_space(op, operands),
            "setp" => self.set_predicates(op, operands),
            "set" => self.set(op, operands),
            "selp" => self.select(op, operands),
            "slct" => self.select_by_sign(op, operands),
            "testp" => self.test_property(op, operands),
            "bar" | "barrier" => self.barrier(op, operands),
            "shfl" => self.shuffle(op, operands),
            "vote" => self.vote(op, operands),
            "match" => self.matching(op, operands),
            "activemask" => self.active_mask(op, operands),
            "prmt" | "lop3" | "dp4a" => self.bytes(op, operands),
            "elect" => self.elect(op, operands),
            "redux" => self.reduce(op, operands),
            "cp" => self.copy_async(op, operands),
            "membar" | "fence" => self.fence(op, operands),
            "ldmatrix" => self.load_matrix(op, operands),
            "mma" => self.matrix_product(op, operands),
            "wgmma" => self.warpgroup(op, operands),
            // The machine has no time and no caches.
            "nanosleep" | "prefetch" | "prefetchu" => Ok(()),
            _ => {
                let kind = op.kind()?;
                match op.base {
                    "and" | "or" | "xor" | "not" if kind == Type::Predicate => self.logic(op, operands),
                    "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "popc" | "clz" | "brev" | "bfind" | "bfe" | "bfi" | "shf" => {
                        self.bitwise(op, kind, operands)
                    }
                    _ if matches!(kind, Type::F16x2 | Type::BF16 | Type::BF16x2) => self.packed(op, kind, operands),
                    _ if kind.is_float() => self.float(op, kind, operands),
                    _ => self.integer(op, kind, operands),
                }
            }
        }
    }
}
