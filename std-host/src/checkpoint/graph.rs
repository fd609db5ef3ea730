//! The object graph of a checkpoint: the saved objects, and the key of each object's value.

use super::bundle::BundleReader;
use super::objects::{Object, Objects, Value};
use crate::files::{FileError, FileResult};
use crate::formats::proto::TrackableObjectGraph;
use crate::formats::proto::trackable_object_graph::TrackableObject;
use crate::formats::proto::trackable_object_graph::trackable_object::{ObjectReference, SerializedTensor};
use prost::Message;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

/// Key under which a checkpoint stores its object graph.
pub const OBJECT_GRAPH: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";
/// Name of the saved value of every variable, in gradlet and in TensorFlow.
const VARIABLE_VALUE: &str = "VARIABLE_VALUE";
/// The part of a key between an object's path and the name of its saved value.
const ATTRIBUTES: &str = ".ATTRIBUTES";

/// Maximum length of an object's path, in bytes. An object with a longer path is named by its number.
const LONGEST_PATH: usize = 4096;

/// The objects of a checkpoint, with the references between them.
pub struct Graph {
    objects: TrackableObjectGraph,
    /// True for a name-based checkpoint, which TensorFlow 1 wrote. It has no object graph; its keys serve as paths.
    by_names: bool,
}

impl Graph {
    /// Reads the object graph of a checkpoint. If the checkpoint has none, its keys serve as the paths of variables.
    pub fn read(reader: &BundleReader, prefix: &Path) -> FileResult<Graph> {
        if reader.entry(OBJECT_GRAPH).is_none() {
            return Ok(Graph { objects: by_names(reader), by_names: true });
        }
        let strings = reader.strings(OBJECT_GRAPH)?;
        let damaged = |text: &str| FileError::new(prefix, format!("its object graph {text}"));
        let bytes = strings.values().first().ok_or_else(|| damaged("is empty"))?;
        let objects = TrackableObjectGraph::decode(bytes.as_ref()).map_err(|error| damaged(&format!("cannot be decoded: {error}")))?;
        let count = objects.nodes.len();
        let mut named = objects.nodes.iter().flat_map(|node| &node.children);
        match named.find(|child| usize::try_from(child.node_id).is_ok_and(|id| id >= count) || child.node_id < 0) {
            Some(child) => Err(damaged(&format!("refers to object {}, but has only {count} objects", child.node_id))),
            None if count == 0 => Err(damaged("has no objects")),
            None => Ok(Graph { objects, by_names: false }),
        }
    }

    /// True if the keys of the checkpoint are matched with gradlet's own paths of the program's objects, because the checkpoint
    /// is name-based. False if TensorFlow's names of the objects are used.
    pub fn own_paths(&self) -> bool {
        self.by_names
    }

    /// Returns the key of an object's value, or `None` if the object has no value.
    pub fn key(&self, object: usize) -> Option<&str> {
        let attributes = &self.objects.nodes.get(object)?.attributes;
        let value = attributes.iter().find(|attribute| attribute.name == VARIABLE_VALUE);
        value.map(|attribute| attribute.checkpoint_key.as_str())
    }

    /// Returns the objects that have values, each with its path, such as `(root).model.layers.0.w`.
    pub fn valued(&self) -> impl Iterator<Item = (usize, String)> {
        let paths = self.paths();
        let valued = self.objects.nodes.iter().enumerate().filter(|(_, node)| !node.attributes.is_empty());
        valued.map(move |(object, _)| (object, paths.get(&object).cloned().unwrap_or_else(|| format!("object {object}"))))
    }

    fn paths(&self) -> HashMap<usize, String> {
        let mut paths = HashMap::from([(0, String::from("(root)"))]);
        let mut next = VecDeque::from([0]);
        while let Some(object) = next.pop_front() {
            for child in &self.objects.nodes[object].children {
                let id = child.node_id as usize;
                if !paths.contains_key(&id) && paths[&object].len() < LONGEST_PATH {
                    paths.insert(id, format!("{}.{}", paths[&object], child.local_name));
                    next.push_back(id);
                }
            }
        }
        paths
    }

    fn child(&self, object: usize, name: &str) -> Option<usize> {
        let named_in = |object: usize, name: &str| {
            let children = &self.objects.nodes.get(object)?.children;
            children.iter().find(|child| child.local_name == name).map(|child| child.node_id as usize)
        };
        let named = |name: &str| named_in(object, name);
        // Keras's `Sequential` contains a functional model. Operations of the inner model are also found in the outer one, and vice versa.
        let alike = || match name {
            "_functional" => named("_operations").map(|_| object),
            "_operations" => named_in(named("_functional")?, name),
            _ => None,
        };
        named(name).or_else(alike)
    }

    /// Finds, for each of `objects`, the number of the saved object at the same place in the tree, or `None` if there is none. `root` is
    /// the number of the saved object that corresponds to the root object.
    pub fn matching(&self, objects: &Objects, root: usize) -> Vec<Option<usize>> {
        let mut matching = vec![None; objects.all.len()];
        let mut bound: HashMap<usize, usize> = HashMap::new();
        let mut next = VecDeque::from([(0, root)]);
        while let Some((own, saved)) = next.pop_front() {
            // A variable that occurs in several places matches the saved object of the place that is visited first.
            let saved = match &objects.all[own].value {
                Some(Value::Variable(variable)) => *bound.entry(variable.id()).or_insert(saved),
                _ => saved,
            };
            matching[own] = Some(saved);
            let children = objects.all[own].children.iter();
            next.extend(children.filter_map(|(name, child)| Some((*child, self.child(saved, name)?))));
        }
        matching
    }

    /// Builds the object graph with which `objects` are saved. Returns its encoded message, and each value with its key in the
    /// order of the graph. Variables without a value are left out.
    pub fn of(objects: &Objects) -> (Vec<u8>, Vec<(String, &Value)>) {
        let mut ids: HashMap<usize, usize> = HashMap::from([(0, 0)]);
        let mut variables: HashMap<usize, usize> = HashMap::new();
        let mut order = vec![(0, String::new())];
        let mut at = 0;
        while let Some((object, path)) = order.get(at).cloned() {
            for (name, child) in objects.all[object].children.iter().filter(|(_, child)| saved(&objects.all[*child])) {
                let next = order.len();
                let id = match &objects.all[*child].value {
                    Some(Value::Variable(variable)) => *variables.entry(variable.id()).or_insert(next),
                    _ => next,
                };
                ids.insert(*child, id);
                if id == next {
                    let separator = if path.is_empty() { "" } else { "/" };
                    order.push((*child, format!("{path}{separator}{}", escape(name))));
                }
            }
            at += 1;
        }
        let mut nodes: Vec<TrackableObject> = order.iter().map(|(object, path)| node(&objects.all[*object], path, &ids)).collect();
        tell_values(&mut nodes);
        let values = order.iter().filter_map(|(object, path)| Some((key(path), objects.all[*object].value.as_ref()?))).collect();
        (TrackableObjectGraph { nodes }.encode_to_vec(), values)
    }
}

/// True if an object is saved. A variable without a value is not.
fn saved(object: &Object) -> bool {
    !matches!(&object.value, Some(Value::Variable(variable)) if !variable.is_built())
}

fn node(object: &Object, path: &str, ids: &HashMap<usize, usize>) -> TrackableObject {
    let reference = |(name, child): &(String, usize)| {
        Some(ObjectReference { node_id: i32::try_from(*ids.get(child)?).ok()?, local_name: name.clone() })
    };
    let full_name = || match &object.value {
        Some(Value::Variable(variable)) => variable.name().to_string(),
        _ => path.rsplit('/').next().unwrap_or_default().to_string(),
    };
    let attribute = || SerializedTensor { name: VARIABLE_VALUE.into(), full_name: full_name(), checkpoint_key: key(path) };
    TrackableObject {
        children: object.children.iter().filter_map(reference).collect(),
        attributes: object.value.iter().map(|_| attribute()).collect(),
        ..TrackableObject::default()
    }
}

/// Sets `has_checkpoint_values` of each node: true if the node or one of its descendants has a value.
fn tell_values(nodes: &mut [TrackableObject]) {
    let mut holding: HashSet<usize> = (0..nodes.len()).filter(|&node| !nodes[node].attributes.is_empty()).collect();
    loop {
        let known = holding.len();
        for (index, node) in nodes.iter().enumerate().rev() {
            if node.children.iter().any(|child| holding.contains(&(child.node_id as usize))) {
                holding.insert(index);
            }
        }
        if holding.len() == known {
            break;
        }
    }
    nodes.iter_mut().enumerate().for_each(|(index, node)| node.has_checkpoint_values = Some(holding.contains(&index)));
}

/// Returns the key of the value of the object at `path`. The names in `path` are already escaped.
fn key(path: &str) -> String {
    format!("{path}/{ATTRIBUTES}/{VARIABLE_VALUE}")
}

/// Escapes a name for use as a part of a key.
fn escape(name: &str) -> String {
    name.replace('.', "..").replace('/', ".S")
}

/// Returns the key under which a TensorFlow checkpoint stores the variable at a path of its object graph.
///
/// ```
/// use gradlet::checkpoint::{variable_key, variable_path};
/// let key = variable_key(["layer.1", "kernel"]);
/// assert_eq!(key, "layer..1/kernel/.ATTRIBUTES/VARIABLE_VALUE");
/// assert_eq!(variable_path(&key).unwrap(), ["layer.1", "kernel"]);
/// assert_eq!(variable_path("scope/w"), None);
/// ```
pub fn variable_key<'n>(path: impl IntoIterator<Item = &'n str>) -> String {
    key(&path.into_iter().map(escape).collect::<Vec<_>>().join("/"))
}

/// Returns the path of the variable whose value has this key, or `None` if `key` is not the key of a variable. The inverse of
/// [`variable_key`].
pub fn variable_path(key: &str) -> Option<Vec<String>> {
    let path = key.strip_suffix(VARIABLE_VALUE)?.strip_suffix('/')?.strip_suffix(ATTRIBUTES)?.strip_suffix('/')?;
    // A zero byte stands for an unescaped dot meanwhile, so that the dot is not taken for the beginning of `.S`.
    Some(path.split('/').map(|name| name.replace("..", "\0").replace(".S", "/").replace('\0', ".")).collect())
}

/// Builds an object graph for a name-based checkpoint: each key is the path of a variable.
fn by_names(reader: &BundleReader) -> TrackableObjectGraph {
    let mut nodes = vec![TrackableObject::default()];
    for (name, _) in reader.entries() {
        let mut at = 0;
        for part in name.split('/') {
            let known = nodes[at].children.iter().find(|child| child.local_name == part).map(|child| child.node_id as usize);
            at = known.unwrap_or_else(|| {
                let node_id = nodes.len() as i32;
                nodes[at].children.push(ObjectReference { node_id, local_name: part.into() });
                nodes.push(TrackableObject::default());
                nodes.len() - 1
            });
        }
        let attribute = SerializedTensor { name: VARIABLE_VALUE.into(), full_name: name.to_string(), checkpoint_key: name.to_string() };
        nodes[at].attributes.push(attribute);
    }
    TrackableObjectGraph { nodes }
}
