//! The rules of the house that a compiler does not check: floors, `unsafe`, lints, file lengths.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of `core/src` by floor. A module imports from its own floor or from below.
const FLOORS: [(u32, &[&str]); 9] = [
    (1, &["error", "dtype", "shape", "sync", "quant", "random"]),
    (2, &["view", "format"]),
    (3, &["op"]),
    (4, &["device", "tensor", "display", "nested", "structure", "scope", "graph", "names", "profile", "sources", "variable"]),
    (5, &["ops"]),
    (6, &["replay", "eager", "verify"]),
    (7, &["tracing", "control", "autograph", "tensor_array", "scan", "rewind", "autodiff", "observe"]),
    (8, &["prune", "optimize", "bodies", "layout", "plan", "fuse", "group", "steps", "program", "check", "arena", "exec"]),
    (
        9,
        &[
            "artifact",
            "checkpoint",
            "compat",
            "branches",
            "executable",
            "describe",
            "function",
            "layers",
            "losses",
            "metrics",
            "optimizers",
            "schedules",
            "signatures",
            "slots",
            "telemetry",
            "model",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn floor(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// Every file with this ending below `folder`, build outputs aside.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(files(&path, ending));
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The source without comments, and without the tests at its end.
fn code(source: &str) -> String {
    let end = source.find("#[cfg(test)]\nmod").unwrap_or(source.len());
    let uncommented = |line: &str| line.split("//").next().unwrap_or_default().to_string() + "\n";
    source[..end].lines().map(uncommented).collect()
}

/// The first segments of the paths that begin with `crate::`, those of a group `crate::{a::b, c}` each.
fn named_modules(code: &str) -> Vec<String> {
    code.match_indices("crate::").flat_map(|(at, start)| first_segments(&code[at + start.len()..])).collect()
}

fn first_segments(path: &str) -> Vec<String> {
    let identifier = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![identifier(path)] };
    let (mut depth, mut member, mut members) = (0, String::new(), Vec::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => members.push(std::mem::take(&mut member)),
            _ => (),
        }
        member.push(c);
    }
    members.push(member);
    let names = members.iter().map(|member| identifier(member.trim_start_matches(|c: char| c == ',' || c.is_whitespace())));
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn paths_are_found() {
    let code = code("use crate::{\n    a::{b, c},\n    d,\n}; // crate::e\nuse crate::f::G;\n#[cfg(test)]\nmod tests { use crate::h; }");
    assert_eq!(named_modules(&code), ["a", "d", "f"]);
}

/// No module imports from a floor above its own; every path through the crate's root names a module.
#[test]
fn imports_go_down() {
    let source = root().join("core/src");
    let mut wrong = Vec::new();
    for path in files(&source, ".rs") {
        let relative = path.strip_prefix(&source).unwrap();
        let module = relative.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let Some(own) = floor(module) else {
            wrong.push(format!("{module} stands on no floor"));
            continue;
        };
        for named in named_modules(&code(&fs::read_to_string(&path).unwrap())) {
            match floor(&named) {
                Some(other) if other <= own => (),
                Some(other) => wrong.push(format!("{}: floor {own} imports {named} from floor {other}", relative.display())),
                None => wrong.push(format!("{}: crate::{named} is no module on a floor", relative.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The table in ARCHITECTURE.md (`| 4 | \`device.rs\` … |`) is the one above.
#[test]
fn the_map_is_true() {
    let Ok(text) = fs::read_to_string(root().join("ARCHITECTURE.md")) else { return };
    let mut drawn: BTreeMap<String, u32> = BTreeMap::new();
    for line in text.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(Ok(floor)), Some(names)) = (cells.next().map(str::parse), cells.next()) else { continue };
        let words = names.split(|c: char| !(c.is_alphanumeric() || "_./…".contains(c)));
        let modules = words.filter_map(|word| word.strip_suffix(".rs").or(word.split_once('/').map(|(folder, _)| folder)));
        drawn.extend(modules.map(|module| (module.to_string(), floor)));
    }
    if drawn.is_empty() {
        return;
    }
    let source = root().join("core/src");
    let exists = |module: &str| source.join(module).is_dir() || source.join(format!("{module}.rs")).exists();
    let ours = FLOORS.iter().flat_map(|(floor, modules)| modules.iter().map(|module| (module.to_string(), *floor)));
    let ours: BTreeMap<String, u32> = ours.filter(|(module, _)| exists(module)).collect();
    drawn.retain(|module, _| exists(module) && module != "lib");
    assert_eq!(drawn, ours, "ARCHITECTURE.md (left) and FLOORS (right) differ");
}

#[test]
fn core_has_no_unsafe_code() {
    for path in files(&root().join("core/src"), ".rs") {
        let code = code(&fs::read_to_string(&path).unwrap());
        let word = |word: &str| word == "unsafe";
        assert!(!code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(word), "{} has unsafe code", path.display());
    }
}

/// The workspaces deny missing docs, and every package in them takes their lints.
#[test]
fn every_package_takes_the_lints() {
    for path in files(&root(), "Cargo.toml") {
        let text = fs::read_to_string(&path).unwrap();
        let manifest = text.replace(' ', "");
        if manifest.contains("[workspace]") && manifest.contains("members=") {
            assert!(manifest.contains("missing_docs=\"deny\""), "{} does not deny missing docs", path.display());
        }
        if manifest.contains("[package]") {
            let takes = manifest.contains("[lints]\nworkspace=true") || manifest.contains("missing_docs=\"deny\"");
            assert!(takes, "{} does not take the workspace's lints", path.display());
        }
    }
}

#[test]
fn no_file_is_long() {
    for path in files(&root(), ".rs") {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 600, "{} has {lines} lines: divide it", path.display());
    }
}
