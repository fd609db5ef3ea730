//! PTX: the parser, and the compact form that the machine executes.

mod body;
mod lexer;
mod lower;
mod parser;
mod syntax;
mod types;

use std::{collections::HashMap, sync::Arc};

use crate::machine::code::{Space, Word};
pub use crate::machine::{Function, Parameter};
use syntax::{Initial, Variable};

/// A parsed PTX file.
pub struct Module {
    functions: Vec<Arc<Function>>,
    globals: Vec<Global>,
    target: u32,
}

/// A variable of the module in device memory: `.global` or `.const`.
///
/// The loader allocates `bytes.len()` bytes for each, calls [`Module::link`] with the addresses, and copies `bytes` afterwards.
#[derive(Clone, Debug)]
pub struct Global {
    /// Its name.
    pub name: String,
    /// Alignment in bytes.
    pub align: u32,
    /// Whether no kernel may write it.
    pub constant: bool,
    /// The initial value; addresses of other variables are zero before [`Module::link`].
    pub bytes: Vec<u8>,
    /// Where in it addresses of other variables stand, with something added.
    addresses: Vec<(usize, String, i64)>,
}

impl Module {
    /// Parses a file. A `.version` above the maximum is an error, as is an unknown instruction.
    pub fn parse(text: &str, max_ptx_version: (u32, u32)) -> Result<Module, String> {
        let file = parser::parse(text)?;
        let ((major, minor), (highest, highest_minor)) = (file.version, max_ptx_version);
        if file.version > max_ptx_version {
            return Err(format!("the PTX version is {major}.{minor}, but this driver knows only up to {highest}.{highest_minor}"));
        }
        if file.version == (0, 0) || file.target == 0 {
            return Err("`.version` or `.target` is missing".into());
        }
        let lines: Vec<&str> = text.lines().collect();
        let kernels = file.routines.iter().filter(|routine| routine.kernel);
        let functions = kernels.map(|kernel| lower::lower(&file, kernel, &lines).map(Arc::new)).collect::<Result<_, _>>()?;
        lower::check(&file)?;
        let device = file.variables.iter().filter(|v| matches!(v.space, Space::Global | Space::Constant));
        Ok(Module { functions, globals: device.map(Global::new).collect(), target: file.target })
    }

    /// The kernels' names.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.functions.iter().map(|f| f.name())
    }

    /// A kernel.
    pub fn function(&self, name: &str) -> Option<Arc<Function>> {
        self.functions.iter().find(|f| f.name() == name).cloned()
    }

    /// The target: 70 for `sm_70`.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// The variables in device memory.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Tells the kernels and initial values where the variables lie. Call it before [`Module::function`].
    pub fn link(&mut self, addresses: &HashMap<String, u64>) -> Result<(), String> {
        let find = |name: &str| addresses.get(name).copied().ok_or_else(|| format!("the variable `{name}` has no address"));
        for global in &mut self.globals {
            for (place, name, offset) in &global.addresses {
                let address = find(name)?.wrapping_add_signed(*offset);
                global.bytes[*place..*place + 8].copy_from_slice(&address.to_le_bytes());
            }
        }
        for function in &mut self.functions {
            for constant in &mut Arc::make_mut(function).constants {
                if let Word::Address(name, offset) = &constant.value {
                    constant.value = Word::Linked(find(name)?.wrapping_add_signed(*offset));
                }
            }
        }
        Ok(())
    }
}

impl Global {
    fn new(variable: &Variable<'_>) -> Self {
        let mut bytes = Vec::with_capacity(variable.size as usize);
        let mut addresses = Vec::new();
        for initial in &variable.initial {
            match initial {
                Initial::Bytes(value, size) => bytes.extend_from_slice(&value[..usize::from(*size).min(8)]),
                Initial::Address(name, offset) => {
                    addresses.push((bytes.len(), name.to_string(), *offset));
                    bytes.extend_from_slice(&[0; 8]);
                }
            }
        }
        bytes.resize(variable.size as usize, 0);
        Self { name: variable.name.to_string(), align: variable.align, constant: variable.space == Space::Constant, bytes, addresses }
    }
}
