//! The log of a program in TensorFlow, with which its port is compared.

use crate::function::python::Call;
use gradlet_core::device::Device;
use gradlet_core::{DType, Eager, Error, Result, Tensor, ops};
use gradlet_tests::golden::fixtures::number;
use gradlet_tests::golden::parsed_json::dtype;
use serde_json::Value as Json;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Returns the folder of the fixtures: the one that `GRADLET_FUNCTION_FIXTURES` names, or this package's.
pub fn folder() -> PathBuf {
    let own = || concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/function").into();
    std::env::var_os("GRADLET_FUNCTION_FIXTURES").unwrap_or_else(own).into()
}

pub fn read(file: &str) -> Json {
    serde_json::from_slice(&std::fs::read(folder().join(file)).unwrap()).unwrap()
}

/// Result of a call.
#[derive(Debug)]
pub enum Out {
    Tensor(Tensor),
    List(Vec<Out>),
    Named(Vec<(&'static str, Out)>),
    Json(Json),
}

impl From<Tensor> for Out {
    fn from(tensor: Tensor) -> Out {
        Out::Tensor(tensor)
    }
}

impl From<Option<Tensor>> for Out {
    fn from(tensor: Option<Tensor>) -> Out {
        tensor.map_or(Out::Json(Json::Null), Out::Tensor)
    }
}

impl From<()> for Out {
    fn from((): ()) -> Out {
        Out::Json(Json::Null)
    }
}

impl From<Json> for Out {
    fn from(json: Json) -> Out {
        Out::Json(json)
    }
}

impl<T: Into<Out>> From<Vec<T>> for Out {
    fn from(list: Vec<T>) -> Out {
        Out::List(list.into_iter().map(Into::into).collect())
    }
}

impl<A: Into<Out>, B: Into<Out>> From<(A, B)> for Out {
    fn from((a, b): (A, B)) -> Out {
        Out::List(vec![a.into(), b.into()])
    }
}

impl<A: Into<Out>, B: Into<Out>, C: Into<Out>> From<(A, B, C)> for Out {
    fn from((a, b, c): (A, B, C)) -> Out {
        Out::List(vec![a.into(), b.into(), c.into()])
    }
}

/// Outcome of a call in the port: the result, if it is compared, and flags for the other comparisons.
pub struct Outcome {
    result: Option<Result<Out>>,
    prints: bool,
    traces: bool,
}

/// Returns an outcome whose result, prints and traces are all compared with the log.
pub fn given<T: Into<Out>>(result: Result<T>) -> Outcome {
    Outcome { result: Some(result.map(Into::into)), prints: true, traces: true }
}

/// Returns the outcome of a call that differs from TensorFlow for this reason. Nothing is compared.
pub fn differs(reason: &str) -> Outcome {
    assert!(reason.len() > 20);
    Outcome { result: None, prints: false, traces: false }
}

impl Outcome {
    /// Excludes the prints from the comparison, for this reason.
    pub fn other_prints(self, reason: &str) -> Outcome {
        assert!(reason.len() > 20);
        Outcome { prints: false, ..self }
    }

    /// Excludes the number of traces from the comparison, for this reason.
    pub fn other_traces(self, reason: &str) -> Outcome {
        assert!(reason.len() > 20);
        Outcome { traces: false, ..self }
    }
}

/// Buffer for the text that a program prints.
#[derive(Clone, Default)]
pub struct Page(Arc<Mutex<String>>);

impl Page {
    pub fn say(&self, line: &str) {
        *self.0.lock().unwrap() += &format!("{line}\n");
    }

    fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Log of one program.
pub struct Log {
    id: String,
    entries: std::vec::IntoIter<Json>,
    pub page: Page,
    pub device: Device,
    pub scope: Eager,
}

/// Returns `None`, as the number of traces of a program without a function `f` whose traces could be counted.
pub fn none() -> Option<usize> {
    None
}

impl Log {
    pub fn of(id: &str) -> Log {
        let cases = read("transcripts.json")["cases"].take();
        let case = cases.as_array().unwrap().iter().find(|case| case["id"] == id).unwrap_or_else(|| panic!("no program {id}"));
        let page = Page::default();
        let sink = page.clone();
        let device = ops::portable_cpu().printing(move |part| *sink.0.lock().unwrap() += &part.to_string());
        let entries = case["log"].as_array().unwrap().clone().into_iter();
        Log { id: id.into(), entries, page, scope: Eager::new(&device), device }
    }

    /// Runs every call, and compares it with the log. If a call failed in TensorFlow, gradlet's error must contain the second text of a
    /// pair in `errors`. The first text of this pair is a part of TensorFlow's error. `traces` returns the number of traces of the
    /// program's function `f` so far.
    pub fn run(&mut self, errors: &[(&str, &str)], traces: impl Fn() -> Option<usize>, mut call: impl FnMut(&Call) -> Outcome) {
        for entry in self.entries.by_ref() {
            let text = entry["call"].as_str().unwrap();
            let (place, made) = (format!("{}: {text}", self.id), Call::new(text));
            let outcome = call(&made);
            let printed = self.page.take();
            let Some(result) = &outcome.result else { continue };
            compare(&place, &entry, result, errors);
            if outcome.prints {
                let wanted: Vec<&str> = entry["printed"].as_array().into_iter().flatten().map(|line| line.as_str().unwrap()).collect();
                assert_eq!(lines(&printed.lines().collect::<Vec<_>>()), lines(&wanted), "{place}");
            }
            if let (true, Some(wanted), Some(got)) = (outcome.traces, entry["traces_of_f"].as_u64(), traces()) {
                assert_eq!(got as u64, wanted, "{place}: traces");
            }
        }
    }
}

/// Separates the warnings from the other lines, because gradlet prints a warning before the call and TensorFlow after it. Returns the other
/// lines, and only the numbers in the warnings.
fn lines(all: &[&str]) -> (Vec<String>, Vec<String>) {
    let warns = |line: &&&str| line.to_lowercase().starts_with("warning");
    let numbers = |line: &&str| line.split([' ', ':']).filter(|word| word.parse::<u32>().is_ok()).take(2).collect::<Vec<_>>().join(" of ");
    let plain = all.iter().filter(|line| !warns(line)).map(|line| line.to_string()).collect();
    (plain, all.iter().filter(warns).map(numbers).collect())
}

fn compare(place: &str, entry: &Json, result: &Result<Out>, errors: &[(&str, &str)]) {
    match (entry.get("error"), result) {
        (Some(error), Err(ours)) => {
            let message = error["message"].as_str().unwrap();
            let known = errors.iter().find(|(theirs, _)| message.contains(theirs));
            let (_, wanted) = known.unwrap_or_else(|| {
                panic!("{place}: `errors` has no pair for {message:?}, for which gradlet's error is {:?}", ours.to_string())
            });
            assert!(ours.to_string().contains(wanted), "{place}: {ours}");
        }
        (Some(error), Ok(out)) => panic!("{place}: {out:?} instead of the error {error}"),
        (None, Err(error)) => panic!("{place}: {error}"),
        (None, Ok(out)) => assert!(same(out, &entry["result"]), "{place}: {} is {:?}", entry["result"], shown(out)),
    }
}

fn shown(out: &Out) -> String {
    match out {
        Out::Tensor(tensor) => tensor.to_string(),
        Out::List(list) => format!("{:?}", list.iter().map(shown).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

fn same(out: &Out, wanted: &Json) -> bool {
    let wanted = wanted.get("variable").unwrap_or(wanted);
    match out {
        Out::Tensor(tensor) => same_tensor(tensor, wanted).unwrap_or(false),
        Out::List(list) => {
            let Some(all) = wanted.as_array() else { return false };
            list.len() == all.len() && list.iter().zip(all).all(|(out, wanted)| same(out, wanted))
        }
        Out::Named(named) => {
            let Some(all) = wanted.as_object() else { return false };
            named.len() == all.len() && named.iter().all(|(name, out)| all.get(*name).is_some_and(|wanted| same(out, wanted)))
        }
        Out::Json(json) => {
            json == wanted
                || wanted.get("repr") == Some(json)
                || wanted["data"].as_array().is_some_and(|data| data == std::slice::from_ref(json))
        }
    }
}

/// Returns true if a tensor equals a logged one up to rounding, and false if it differs. Returns `None` if the logged value is not a
/// tensor.
fn same_tensor(tensor: &Tensor, wanted: &Json) -> Option<bool> {
    let dims: Vec<u32> = wanted["shape"].as_array()?.iter().map(|dim| dim.as_u64().unwrap() as u32).collect();
    let wanted_type = dtype(wanted["dtype"].as_str()?).ok()?;
    let near = |(got, wanted): (&f64, &Json)| {
        let wanted = number(wanted).or(wanted.as_bool().map(|truth| f64::from(u8::from(truth)))).unwrap();
        *got == wanted || got.is_nan() && wanted.is_nan() || (got - wanted).abs() <= 1e-6 + 1e-6 * wanted.abs()
    };
    let elements: Vec<f64> = tensor.cast(DType::F64).ok()?.to_vec().ok()?;
    let data = wanted["data"].as_array()?;
    Some(tensor.dims() == dims && tensor.dtype() == wanted_type && data.len() == elements.len() && elements.iter().zip(data).all(near))
}

/// Returns an error with this text, as a Rust program would return it.
pub fn fail<T>(text: &str) -> Result<T> {
    Err(Error::message(text.to_string()))
}
