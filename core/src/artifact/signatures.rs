//! Checkpoints as signatures: they transfer an artifact's variables from one session to another.

use crate::artifact::Artifact;
use crate::base::error::Result;
use crate::function::Function;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::string::String;
use alloc::vec::Vec;

impl Artifact {
    /// Adds two signatures: `save` returns the values of `variables`, and `restore` sets the variables to its inputs. Outputs and inputs
    /// have the names of the variables. One session can save values as tensors, without files, and another can restore them.
    ///
    /// The inputs of `restore` are all in scratch memory at the same time. Firmware without that much memory loads only the other
    /// signatures, and reads and writes the variables with [`Session::variable_mut`](crate::Session::variable_mut).
    ///
    /// ```
    /// use gradlet_core::{Artifact, Eager, Program, Session, Tensor, Variable, ops};
    /// use gradlet_core::artifact::describe::Description;
    /// use gradlet_core::runtime::Aligned;
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let w = Variable::new(&scope, "w", &Tensor::new(&ops::portable_cpu(), &[1.0f32, 2.0], &[2])?)?;
    /// let mut artifact = Artifact::new();
    /// artifact.checkpoint_signatures(&scope, &[("model/w".into(), w)])?;
    /// let bytes = artifact.to_bytes()?;
    /// let program = Program::load(&bytes, ops::KERNELS, &["save", "restore"])?;
    /// let (save, restore) = (program.signature("save")?, program.signature("restore")?);
    /// let mut arena = Aligned([0; 256]);
    /// let mut session = Session::new(&program, &mut arena.0)?;
    /// session.input_mut::<f32>(restore, 0)?.copy_from_slice(&[3.0, 4.0]);
    /// session.run(restore)?;
    /// session.run(save)?;
    /// assert_eq!(session.output::<f32>(save, 0)?, [3.0, 4.0]);
    /// assert_eq!(Description::read(&bytes)?.signatures[0].outputs[0].0, "model/w");
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails like [`Artifact::signature`], and if a variable has no value yet.
    pub fn checkpoint_signatures(&mut self, scope: &dyn Scope, variables: &[(String, Variable)]) -> Result<&mut Artifact> {
        let values = variables.iter().map(|(_, variable)| scope.read(variable)).collect::<Result<Vec<Tensor>>>()?;
        let all = || variables.iter().map(|(_, variable)| variable.clone()).collect::<Vec<_>>();
        let own = all();
        let save = Function::new(move |scope: &dyn Scope, ()| own.iter().map(|variable| scope.read(variable)).collect::<Result<Vec<_>>>());
        let own = all();
        let restore = Function::new(move |scope: &dyn Scope, values: Vec<Tensor>| {
            own.iter().zip(&values).try_for_each(|(variable, value)| scope.assign(variable, value))
        });
        self.variables(variables.to_vec());
        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        self.signature("save", &*save.concrete(scope, &())?, &[], &names)?.doc("save", "Gives the values of the variables.")?;
        self.signature("restore", &*restore.concrete(scope, &values)?, &names, &[])?.doc("restore", "Sets the variables.")
    }
}
