//! The objects of a program as a tree of names, which checkpoints save and restore.

use gradlet_core::layers::{Later, Module, State, Visitor};
use gradlet_core::{Error, Result, Tensor, Variable};

/// A tree of objects, found by visiting modules. Object 0 is the root. The others are numbered in the order of the first visit.
/// Another visit finds the same numbers as long as no object was added.
pub struct Objects {
    pub all: Vec<Object>,
}

/// An object: its named children and its value.
#[derive(Default)]
pub struct Object {
    pub children: Vec<(String, usize)>,
    pub value: Option<Value>,
}

/// The value of a single object.
pub enum Value {
    Variable(Variable),
    State(Tensor),
}

/// Callbacks of a visit for objects that are not variables.
pub trait Walker {
    /// Called for object number `object`, which holds `state`.
    fn state(&mut self, object: usize, state: &dyn State) -> Result<()> {
        let _ = (object, state);
        Ok(())
    }

    /// Called for object number `object`, which will get more children later.
    fn later(&mut self, object: usize, later: &Later) {
        let _ = (object, later);
    }
}

impl Walker for () {}

impl Objects {
    /// Finds the objects in `root`: under TensorFlow's names, or under gradlet's own paths if `own_paths` is true.
    ///
    /// Fails if two values have the same path, if a state has no value, or if `walker` fails.
    pub fn of(root: &dyn Module, own_paths: bool, walker: &mut dyn Walker) -> Result<Objects> {
        let mut walk = Walk { objects: vec![Object::default()], own_paths, at: 0, path: Vec::new(), walker, result: Ok(()) };
        root.visit(&mut walk);
        walk.result.map(|()| Objects { all: walk.objects })
    }

    /// Returns the path of object number `object`: the names from the root, separated by `/`.
    pub fn path(&self, object: usize) -> String {
        let mut names: Vec<&str> = Vec::new();
        let mut at = object;
        // A parent always has a lower number than its children.
        while at > 0 {
            let parent = (0..at).find_map(|parent| {
                let named = self.all[parent].children.iter().find(|(_, child)| *child == at)?;
                Some((parent, named.0.as_str()))
            });
            let Some((parent, name)) = parent else { break };
            names.push(name);
            at = parent;
        }
        names.reverse();
        names.join("/")
    }
}

struct Walk<'w> {
    objects: Vec<Object>,
    own_paths: bool,
    at: usize,
    path: Vec<String>,
    walker: &'w mut dyn Walker,
    result: Result<()>,
}

impl Walk<'_> {
    fn hold(&mut self, value: Value) {
        let object = &mut self.objects[self.at];
        match (&object.value, &value) {
            (None, _) => object.value = Some(value),
            (Some(Value::Variable(held)), Value::Variable(variable)) if held == variable => {}
            _ => self.fail(Error::message("two values have this path in the checkpoint; give them different names")),
        }
    }

    /// Keeps the first error, with the path of its object.
    fn fail(&mut self, error: Error) {
        if self.result.is_ok() {
            self.result = Err(error.context(format!("object {:?}", self.path.join("/"))));
        }
    }
}

impl Visitor for Walk<'_> {
    fn variable(&mut self, variable: &Variable) {
        self.hold(Value::Variable(variable.clone()));
    }

    fn module(&mut self, name: &str, module: &dyn Module) {
        if name.is_empty() {
            return module.visit(self);
        }
        let outer = self.at;
        let known = self.objects[outer].children.iter().find(|(known, _)| known == name);
        self.at = known.map_or(self.objects.len(), |(_, child)| *child);
        if self.at == self.objects.len() {
            self.objects[outer].children.push((name.into(), self.at));
            self.objects.push(Object::default());
        }
        self.path.push(name.into());
        module.visit(self);
        self.path.pop();
        self.at = outer;
    }

    fn state(&mut self, state: &dyn State) {
        match state.value() {
            Ok(value) => self.hold(Value::State(value)),
            Err(error) => self.fail(error),
        }
        if let Err(error) = self.walker.state(self.at, state) {
            self.fail(error);
        }
    }

    fn later(&mut self, later: &Later) {
        self.walker.later(self.at, later);
    }

    fn tracks(&self) -> bool {
        !self.own_paths
    }
}
