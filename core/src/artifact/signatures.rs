//! Signatures that read and set variables: checkpoints, which transfer an artifact's variables from one session to another, and setters of
//! single variables.

use crate::artifact::Artifact;
use crate::base::error::Result;
use crate::function::Function;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use alloc::format;
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
    /// Adds the signature `set_NAME`, which sets `variable` to its input `value`. With it, a parameter of a step can be changed on the
    /// device, where it would otherwise be a constant in flash. An example is the learning rate of an optimizer, which is one of the
    /// optimizer's variables.
    ///
    /// If the firmware loads the signature, the variable is in RAM. Running the signature sets it, and so does
    /// [`Session::set_variable`](crate::Session::set_variable). Checkpoints contain it.
    ///
    /// ```
    /// use gradlet_core::layers::Module;
    /// use gradlet_core::optimizers::{Optimizer, Sgd};
    /// use gradlet_core::{Artifact, Eager, Function, Program, Scope, Session, Tensor, Variable, ops};
    /// use gradlet_core::runtime::Aligned;
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let two = Tensor::new(&scope.device(), &[2.0f32], &[1])?;
    /// let (w, sgd) = (Variable::new(&scope, "w", &two)?, std::sync::Arc::new(Sgd::new(0.5)));
    /// sgd.build(&scope, &w)?;
    /// let (trained, optimizer) = (w.clone(), sgd.clone());
    /// let step = Function::new(move |scope: &dyn Scope, g: Tensor| {
    ///     optimizer.apply_gradients(scope, &[(trained.clone(), Some(g))])?;
    ///     scope.read(&trained)
    /// });
    /// let (_, rate) = sgd.named_variables().into_iter().find(|(name, _)| name == "learning_rate").unwrap();
    /// let mut artifact = Artifact::new();
    /// artifact.signature("step", &*step.concrete(&scope, &two)?, &["gradient"], &["w"])?;
    /// artifact.setter(&scope, "learning_rate", &rate)?;
    /// let bytes = artifact.to_bytes()?;
    /// let program = Program::load(&bytes, ops::KERNELS, &["step", "set_learning_rate"])?;
    /// let mut arena = Aligned([0; 256]);
    /// let mut session = Session::new(&program, &mut arena.0)?;
    /// let (step, set) = (program.signature("step")?, program.signature("set_learning_rate")?);
    /// session.set_input(set, 0, &[0.25f32])?;
    /// session.run(set)?;
    /// session.set_input(step, 0, &[4.0f32])?;
    /// session.run(step)?;
    /// assert_eq!(session.output::<f32>(step, 0)?, [1.0]); // 2 − 0.25 · 4
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails like [`Artifact::signature`], and if the variable has no value yet.
    pub fn setter(&mut self, scope: &dyn Scope, name: &str, variable: &Variable) -> Result<&mut Artifact> {
        let (own, value) = (variable.clone(), scope.read(variable)?);
        let set = Function::new(move |scope: &dyn Scope, value: Tensor| scope.assign(&own, &value));
        let signature = format!("set_{name}");
        self.signature(&signature, &*set.concrete(scope, &value)?, &["value"], &[])?.doc(&signature, "Sets the variable.")
    }
}
