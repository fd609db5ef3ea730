//! Ported programs that print values.

use crate::function::log::{Log, Outcome, differs, given, none};
use crate::function::python::{Arg, Call, eval, scalar};
use gradlet_core::layers::Module;
use gradlet_core::ops::print::PrintOptions;
use gradlet_core::{Print, Result, Scope, Tensor, Variable};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

const NO_TEXTS: &str = "there are no tensors of texts: texts stand in what is printed";

/// Returns the text that `tf.print` prints for an argument, with `{}` in place of each tensor. Adds these tensors to `tensors`. Strings are
/// quoted if `inner` is true, which means that the argument is an item of a list or tuple. Returns `None` for a kind of argument that only
/// some programs have.
fn template(arg: &Arg, inner: bool, tensors: &mut Vec<Tensor>) -> Option<String> {
    let mut all = |args: &[Arg]| Some(args.iter().map(|arg| template(arg, true, tensors)).collect::<Option<Vec<_>>>()?.join(", "));
    Some(match arg {
        Arg::Tensor(tensor) => {
            tensors.push(tensor.clone());
            "{}".into()
        }
        Arg::List(args) => format!("[{}]", all(args)?),
        Arg::Tuple(args) => format!("({})", all(args)?),
        Arg::Text(text) if inner => format!("'{text}'"),
        Arg::Text(text) => text.clone(),
        Arg::None => "None".into(),
        Arg::Raw(_) | Arg::Variable(_) => return None,
        number => number.repr(),
    })
}

fn print(scope: &dyn Scope, call: &Call) -> Option<Result<()>> {
    let text = |name: &str| match call.named.get(name) {
        Some(Arg::Text(text)) => Some(text.replace("\\n", "\n")),
        _ => None,
    };
    let mut tensors = Vec::new();
    let parts = call.args.iter().map(|arg| template(arg, false, &mut tensors)).collect::<Option<Vec<_>>>()?;
    let parts = parts.join(&text("sep").unwrap_or(" ".into()));
    let summarize = call.named.get("summarize").map_or(3, |number| number.number() as i64);
    let end = text("end").unwrap_or("\n".into());
    let options = PrintOptions { summarize: u32::try_from(summarize).unwrap_or(u32::MAX), end: &end };
    Some(scope.print_with(options, &parts, &tensors.iter().collect::<Vec<_>>()))
}

pub fn tf_print_format(log: &mut Log) {
    let scope = log.scope.clone();
    log.run(&[], none, |call| {
        // Values with a syntax that only this program's calls have.
        let read = |text: &str| match text {
            "tf.constant(np.array(-0.0, np.float32))" => Arg::Tensor(eval("tf.constant(-0.0)").tensor()),
            "tf.Variable(3.0)" => {
                let v = Variable::new(&scope, "v", &eval("tf.constant(3.0)").tensor()).unwrap();
                Arg::Tensor(scope.read(&v).unwrap())
            }
            text => eval(text),
        };
        let inner = call.text.strip_prefix("tf.print(").and_then(|text| text.strip_suffix(')')).unwrap();
        let mut call = call.clone();
        if call.args.len() == 1 && matches!(call.args[0], Arg::Raw(_)) {
            call.args[0] = read(inner);
        }
        if inner.starts_with("{'k': ") {
            // The keys of a map are texts in the program.
            let value = eval("tf.constant(2)").tensor();
            return given(scope.print("{{'k': {}}}", &[&value]));
        }
        match print(&scope, &call) {
            Some(result) => given(result),
            None => differs(NO_TEXTS),
        }
    });
}

pub fn repr_and_str(log: &mut Log) {
    let scope = log.scope.clone();
    log.run(&[], none, |call| -> Outcome {
        let shown = match &call.args[0] {
            Arg::Tensor(tensor) if call.name == "str" => tensor.to_string(),
            Arg::Tensor(tensor) => {
                // Rust's `Debug` prints only the type.
                assert_eq!(format!("{tensor:?}"), format!("Tensor({})", tensor.tensor_type()));
                return differs("repr is Python's: Debug gives the type, Display the values");
            }
            Arg::Raw(text) if text.starts_with("tf.Variable") => {
                let variable = Call::new(text);
                let Some(Arg::Text(name)) = variable.named.get("name") else { panic!("no name") };
                Variable::new(&scope, name, &variable.tensor(0)).unwrap().to_string()
            }
            _ => return differs(NO_TEXTS),
        };
        given(Ok(json!(shown)))
    });
}

/// A module whose fields are in the order in which TensorFlow sorts attributes.
#[derive(Module)]
struct Leaf {
    frozen: Variable,
    w: Variable,
}

impl Leaf {
    fn new(scope: &dyn Scope, dim: u32) -> Result<Leaf> {
        let frozen = Variable::untrained("frozen");
        frozen.create(scope, &scalar(0.0f32))?;
        Ok(Leaf { frozen, w: Variable::new(scope, "w", &Tensor::full(&scope.device(), 1.0f32, &[dim])?)? })
    }
}

#[derive(Module)]
struct Tree {
    own: Variable,
    alias: Arc<Leaf>,
    d: BTreeMap<String, Leaf>,
    layers: Vec<Leaf>,
    z: Arc<Leaf>,
}

impl Tree {
    fn new(scope: &dyn Scope) -> Result<Tree> {
        let leaf = |dim| Leaf::new(scope, dim);
        let z = Arc::new(leaf(1)?);
        let d = BTreeMap::from([("b".to_string(), leaf(5)?), ("a".to_string(), leaf(6)?)]);
        Ok(Tree { own: Variable::new(scope, "own", &scalar(1i32))?, alias: z.clone(), d, layers: vec![leaf(2)?, leaf(3)?], z })
    }
}

pub fn module_variable_collection(log: &mut Log) {
    let n = Tree::new(&log.scope).unwrap();
    log.run(&[], none, |call| match call.text.as_str() {
        "[v.name for v in n.variables]" => given(Ok(json!(n.variables().iter().map(|v| format!("{}:0", v.name())).collect::<Vec<_>>()))),
        "[v.shape.as_list() for v in n.trainable_variables]" => {
            let dims = |v: &Variable| v.tensor_type().unwrap().shape.dims().to_vec();
            given(Ok(json!(n.trainable_variables().iter().map(dims).collect::<Vec<_>>())))
        }
        _ => differs("modules have no names of their own here, and no list: a field's path names a variable, as n.d[\"a\"].w is d/a/w"),
    });
    let paths: Vec<String> = n.named_variables().into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths[..4], ["own", "alias/frozen", "alias/w", "d/a/frozen"]);
}
