//! Names of tensors, and the matching of tensors of two checkpoints.

use super::source::Item;
use anyhow::{Result, bail};
use gradlet::checkpoint::variable_path;
use gradlet::io::proto::TrackableObjectGraph;
use std::collections::{BTreeMap, VecDeque};

/// Returns a key without TensorFlow's suffix and escapes.
pub fn plain(key: &str) -> String {
    variable_path(key).map_or_else(|| key.into(), |path| path.join("/"))
}

/// Maximum length, in bytes, of a path to which further names are appended. Objects below a longer path get no alias.
const LONGEST: usize = 4096;

/// Returns, for each key, the other names of its variable. These are the variable's own name and its paths in the object graph.
/// There is one path for each parent: the shortest path to that parent, then the variable's name in it.
pub fn aliases(graph: &TrackableObjectGraph) -> BTreeMap<String, Vec<String>> {
    let mut paths: Vec<Option<String>> = vec![None; graph.nodes.len()];
    let mut queue = VecDeque::from([0]);
    let mut names: Vec<Vec<String>> = vec![Vec::new(); graph.nodes.len()];
    if let Some(root) = paths.first_mut() {
        *root = Some(String::new());
    }
    while let Some(index) = queue.pop_front() {
        let Some((node, path)) = graph.nodes.get(index).zip(paths[index].clone()) else { continue };
        for child in &node.children {
            let (Ok(id), dot) = (usize::try_from(child.node_id), if path.is_empty() { "" } else { "/" }) else { continue };
            let Some(known) = paths.get_mut(id).filter(|_| path.len() < LONGEST) else { continue };
            let name = format!("{path}{dot}{}", child.local_name);
            names[id].push(name.clone());
            if known.is_none() {
                *known = Some(name);
                queue.push_back(id);
            }
        }
    }
    let mut aliases: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, names) in graph.nodes.iter().zip(names) {
        for attribute in &node.attributes {
            let all = aliases.entry(attribute.checkpoint_key.clone()).or_default();
            all.extend(names.iter().cloned());
            all.extend((!attribute.full_name.is_empty()).then(|| attribute.full_name.clone()));
        }
    }
    aliases
}

/// Reason for matching two tensors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Because {
    Said,
    Name,
    Path,
    Shape,
}

impl Because {
    /// Returns a description of the reason, for use in messages. The description is empty if the names are equal.
    pub fn words(self) -> &'static str {
        match self {
            Because::Said => " (by --map)",
            Because::Name => "",
            Because::Path => " (by its path)",
            Because::Shape => " (the only one of its shape)",
        }
    }
}

/// Condition under which a source tensor, the first argument, matches a target tensor, the second.
type Fits = fn(&Item, &Item) -> bool;

/// A value of `--map`: two names of tensors, `FROM=TO`.
pub type Map = (String, String);

pub fn parse_map(text: &str) -> Result<Map, String> {
    let (from, to) = text.split_once('=').ok_or("expected FROM=TO")?;
    Ok((from.into(), to.into()))
}

/// Finds, for each target, the index of the source tensor that matches it, and the reason for the match. The entry of a target
/// without an unambiguous match is `None`. The criteria are, in this order: `map`; the same name; a path that ends with the other
/// tensor's path; the same type and shape, if only one unmatched tensor has them.
pub fn matched(sources: &[Item], targets: &[Item], map: &[Map]) -> Result<Vec<Option<(usize, Because)>>> {
    let mut found: Vec<Option<(usize, Because)>> = vec![None; targets.len()];
    let mut used = vec![false; sources.len()];
    let named = |items: &[Item], name: &str| items.iter().position(|item| item.name == name || item.key == name);
    for (from, to) in map {
        let (Some(source), Some(target)) = (named(sources, from), named(targets, to)) else {
            bail!("--map {from}={to}: there is no tensor {:?}", if named(sources, from).is_none() { from } else { to });
        };
        if !alike(&sources[source], &targets[target]) {
            bail!("--map {from}={to}: the types and shapes differ: {} and {}", sources[source].describe(), targets[target].describe());
        }
        found[target] = Some((source, Because::Said));
        used[source] = true;
    }
    let ways: [(Because, Fits); 3] =
        [(Because::Name, |source, target| source.name == target.name), (Because::Path, same_path), (Because::Shape, |_, _| true)];
    for (because, fits) in ways {
        // A tensor with two candidates, or a candidate of two tensors, is ambiguous and is not matched.
        let fits = |source: usize, target: usize| alike(&sources[source], &targets[target]) && fits(&sources[source], &targets[target]);
        let free: Vec<usize> = (0..targets.len()).filter(|target| found[*target].is_none()).collect();
        let unused: Vec<usize> = (0..sources.len()).filter(|source| !used[*source]).collect();
        for &target in &free {
            let mut candidates = unused.iter().copied().filter(|&source| fits(source, target));
            if let (Some(source), None) = (candidates.next(), candidates.next())
                && free.iter().filter(|&&other| fits(source, other)).count() == 1
            {
                found[target] = Some((source, because));
                used[source] = true;
            }
        }
    }
    Ok(found)
}

fn alike(source: &Item, target: &Item) -> bool {
    source.dtype == target.dtype && source.dims == target.dims
}

/// True if a name of one tensor ends with a name of the other, part by part. Underscores in front of a part, which Keras uses for
/// private attributes, are ignored.
fn same_path(source: &Item, target: &Item) -> bool {
    let names = |item: &Item| item.aliases.iter().chain([&item.name]).map(|name| parts(name)).collect::<Vec<_>>();
    let targets = names(target);
    names(source).iter().any(|one| targets.iter().any(|other| one.ends_with(other) || other.ends_with(one)))
}

fn parts(name: &str) -> Vec<String> {
    let name = name.strip_suffix(":0").unwrap_or(name);
    name.split(['/', '.']).filter(|part| !part.is_empty()).map(|part| part.trim_start_matches('_').to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet::checkpoint::variable_key;
    use gradlet::io::proto::DataType;

    fn item(name: &str, aliases: &[&str], dims: &[u64]) -> Item {
        let aliases = aliases.iter().map(|name| name.to_string()).collect();
        Item { key: variable_key([name]), name: name.into(), aliases, dtype: DataType::DtFloat, dims: dims.into(), bytes: 0 }
    }

    #[test]
    fn names_then_paths_then_shapes() {
        let sources = [
            item("optimizer/_trainable_variables/0", &["model/_operations/1/_kernel", "sequential/dense/kernel"], &[4, 4]),
            item("optimizer/_trainable_variables/1", &["sequential/dense_1/kernel"], &[4, 4]),
            item("optimizer/_trainable_variables/2", &["sequential/dense_1/bias"], &[4]),
            item("step", &[], &[]),
            item("x", &[], &[2]),
        ];
        let targets = [item("dense_1/kernel", &[], &[4, 4]), item("dense/kernel", &[], &[4, 4]), item("step", &[], &[])];
        let found = matched(&sources, &targets, &[]).unwrap();
        assert_eq!(found, [Some((1, Because::Path)), Some((0, Because::Path)), Some((3, Because::Name))]);
        let found = matched(&sources, &[item("b", &[], &[4]), item("c", &[], &[4, 4])], &[]).unwrap();
        assert_eq!(found, [Some((2, Because::Shape)), None]);
        let map = |from: &str, to: &str| matched(&sources, &targets, &[(from.into(), to.into())]);
        assert_eq!(map("optimizer/_trainable_variables/0", "dense_1/kernel").unwrap()[0], Some((0, Because::Said)));
        assert!(map("y", "step").unwrap_err().to_string().contains("no tensor \"y\""));
        assert!(map("x", "step").unwrap_err().to_string().contains("the types and shapes differ"));
    }

    #[test]
    fn keys_are_escaped() {
        assert_eq!(variable_key(["a.b", "c/d"]), "a..b/c.Sd/.ATTRIBUTES/VARIABLE_VALUE");
        assert_eq!(plain("a..b/c.Sd/.ATTRIBUTES/VARIABLE_VALUE"), "a.b/c/d");
        assert_eq!(plain("scope/w"), "scope/w");
    }
}
