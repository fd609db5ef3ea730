//! Checks of source rules that the compiler does not check: the order of folders, `unsafe`, lints, and file lengths.

use std::fs;
use std::path::{Path, PathBuf};

/// Source folders of the crates with ordered modules, and the headings in `ARCHITECTURE.md` above the tables of their order.
const CRATES: [(&str, &str); 4] = [
    ("core/src", "## The folders of core"),
    ("std-host/src", "## The folders of std-host"),
    ("cpu-backend/src", "## The folders of cpu-backend"),
    ("cuda-backend/src", "## The folders of cuda-backend"),
];
/// Folder of generated sources.
const GENERATED: &str = "std-host/src/formats/proto";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every file below `folder` whose name ends with `ending`, without build outputs.
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

/// Returns the cells of each row of the first table below `heading`.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let below = text.lines().skip_while(|line| *line != heading).skip(1);
    let rows = below.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()).collect()
}

/// Returns the modules in a table's first column, in order. They are folders, or files beside `lib.rs`.
fn order(text: &str, heading: &str) -> Vec<String> {
    table(text, heading).iter().map(|row| module(row[0].trim_matches(['`', '/'])).to_string()).collect()
}

/// Returns the name of the module that a file or folder has.
fn module(name: &str) -> &str {
    name.strip_suffix(".rs").unwrap_or(name)
}

/// Returns the source without comments, and without the tests at its end.
fn code(source: &str) -> String {
    let end = source.find("#[cfg(test)]\nmod").or(source.find("#[cfg(test)]\npub(")).unwrap_or(source.len());
    let uncommented = |line: &str| line.split("//").next().unwrap_or_default().to_string() + "\n";
    source[..end].lines().map(uncommented).collect()
}

/// Returns the first segments of the paths that begin at the crate's root, in a file that is `depth` modules deep. These are the `a` of
/// `crate::a`, the `a` and `c` of `crate::{a::b, c}`, and the `a` of `super::…::a` with as many `super` as there are enclosing modules.
fn named_modules(code: &str, depth: usize) -> Vec<String> {
    let begins = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'));
    let paths = |start: &'static str| code.match_indices(start).map(|(at, _)| at).filter(move |&at| begins(at));
    let absolute = paths("crate::").map(|at| &code[at + "crate::".len()..]);
    let relative = paths("super::").filter_map(|at| code[at..].strip_prefix(&"super::".repeat(depth + inline_modules(&code[..at]))));
    absolute.chain(relative).flat_map(first_segments).filter(|name| !name.is_empty()).collect()
}

/// Counts the blocks `mod name {` that are still open at the end of `code`.
fn inline_modules(code: &str) -> usize {
    let mut open = Vec::new();
    for (at, brace) in code.match_indices(['{', '}']) {
        match brace {
            "{" => open.push(code[..at].trim_end().rsplit([';', '}', '{', ']']).next().is_some_and(|head| head.contains("mod "))),
            _ => drop(open.pop()),
        }
    }
    open.into_iter().filter(|&module| module).count()
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

/// Returns the imports of a file from a folder that comes later in `order`, or from an unknown folder. `path` is relative to `src`.
fn wrong_imports(order: &[String], path: &Path, source: &str) -> Vec<String> {
    let folders: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
    let place = |folder: &str| order.iter().position(|other| other == folder);
    let first = module(folders[0]);
    let Some(own) = place(first) else { return vec![format!("{} is in no folder of the table", path.display())] };
    let depth = folders.len() - usize::from(path.ends_with("mod.rs"));
    let mut wrong = Vec::new();
    for named in named_modules(&code(source), depth) {
        match place(&named) {
            Some(other) if other <= own => (),
            Some(_) => wrong.push(format!("{}: {first} comes before {named}, and imports it", path.display())),
            None => wrong.push(format!("{}: crate::{named} is no folder", path.display())),
        }
    }
    wrong
}

#[test]
fn paths_are_found() {
    let code = code("use crate::{\n    a::{b, c},\n    d,\n}; // crate::e\nuse crate::f::G;\n#[cfg(test)]\nmod tests { use crate::h; }");
    assert_eq!(named_modules(&code, 2), ["a", "d", "f"]);
    assert_eq!(named_modules("super::super::a::b; super::c; $crate::d; gradlet_crate::e", 2), ["a"]);
    assert_eq!(named_modules("pub mod inner { use super::super::a; } fn f() { super::b }", 1), ["a", "b"]);
}

#[test]
fn planted_imports_are_seen() {
    let order = ["base", "tensor", "ops"].map(String::from);
    let wrong = |path: &str, source: &str| wrong_imports(&order, Path::new(path), source);
    assert!(wrong("tensor/device.rs", "use crate::base::error::Error;\nuse super::scope::Scope;").is_empty());
    assert_eq!(wrong("tensor/device.rs", "use crate::ops::relu;"), ["tensor/device.rs: tensor comes before ops, and imports it"]);
    assert_eq!(wrong("tensor/mod.rs", "fn f() { super::ops::relu::F32; }"), ["tensor/mod.rs: tensor comes before ops, and imports it"]);
    assert_eq!(wrong("base/error.rs", "use crate::{base::dtype::DType, tensor::Tensor};").len(), 1);
    assert_eq!(wrong("base/error.rs", "use crate::Tensor;"), ["base/error.rs: crate::Tensor is no folder"]);
    assert_eq!(wrong("other/file.rs", ""), ["other/file.rs is in no folder of the table"]);
}

/// Imports between modules go only to those above in the table of `ARCHITECTURE.md`, which has all modules.
#[test]
fn imports_go_one_way() {
    let text = read("ARCHITECTURE.md");
    for (source, heading) in CRATES {
        let (order, source) = (order(&text, heading), root().join(source));
        let mut folders: Vec<String> =
            fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        folders.retain(|name| name != "lib.rs" && name != "bin");
        folders.iter_mut().for_each(|name| *name = module(name).to_string());
        let mut named = order.clone();
        folders.sort();
        named.sort();
        assert_eq!(named, folders, "{heading} of ARCHITECTURE.md (left), and the folders (right)");
        let paths = files(&source, ".rs").into_iter().map(|path| path.strip_prefix(&source).unwrap().to_path_buf());
        let inner = paths.filter(|path| !path.starts_with("bin") && path.as_os_str() != "lib.rs");
        let wrong: Vec<String> = inner.flat_map(|path| wrong_imports(&order, &path, &read(source.join(&path)))).collect();
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    }
}

/// The list of modules in each `lib.rs` has the order of its table.
#[test]
fn the_crates_begin_with_their_map() {
    let text = read("ARCHITECTURE.md");
    for (source, heading) in CRATES {
        let lib = read(Path::new(source).join("lib.rs"));
        let modules = lib.lines().filter_map(|line| line.strip_prefix("pub mod ").or(line.strip_prefix("mod "))?.strip_suffix(';'));
        assert_eq!(modules.collect::<Vec<_>>(), order(&text, heading), "{source}/lib.rs (left), and {heading} (right)");
    }
}

/// Each `file::function` of the entry points exists.
#[test]
fn entry_points_exist() {
    let rows = table(&read("ARCHITECTURE.md"), "## Entry points");
    assert!(rows.len() >= 5);
    let stations = rows.iter().flat_map(|row| row[1].split('`').skip(1).step_by(2));
    for station in stations.collect::<Vec<_>>() {
        let (file, function) = station.rsplit_once("::").unwrap_or_else(|| panic!("{station} is not of the form file::function"));
        let defined = |start: &str| read(file).contains(&format!("{start}{function}"));
        assert!(["fn ", "macro_rules! "].iter().any(|start| defined(start)), "{file} has no {function}");
    }
}

#[test]
fn core_has_no_unsafe_code() {
    for path in files(&root().join("core/src"), ".rs") {
        let code = code(&fs::read_to_string(&path).unwrap());
        let word = |word: &str| word == "unsafe";
        assert!(!code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(word), "{} has unsafe code", path.display());
    }
}

/// The workspaces deny missing docs, and every package in them uses the workspace's lints.
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
fn no_file_is_long_and_no_line_is_wide() {
    for path in files(&root(), ".rs").into_iter().filter(|path| !path.starts_with(root().join(GENERATED))) {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines: divide it", path.display());
        for (number, line) in (1..).zip(text.lines()) {
            let columns = line.chars().count();
            assert!(columns <= 140, "{}:{number} has {columns} columns", path.display());
        }
    }
}
