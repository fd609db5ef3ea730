//! Checks of the Markdown pages: their links resolve, their figures are the committed ones, and the names that they mention exist.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every Markdown page below `folder`, without golden data and build outputs.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "fixtures"].contains(&&*name) {
            found.extend(pages(&path));
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    found
}

/// Returns the lines of a page, without its fenced code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let outside = |line: &&str| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    };
    text.lines().filter(outside).collect()
}

/// Returns the targets of a page's links: `[text](target)`. Skips links inside code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let outside: String = line.split('`').enumerate().map(|(place, part)| if place % 2 == 0 { part } else { "x" }).collect();
        let targets = outside.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(targets.map(Into::into));
    }
    found
}

/// Returns the anchors of a page's headings, in the form that GitHub and mdBook use.
fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_resolve() {
    let (mut broken, mut count) = (Vec::new(), 0);
    for page in pages(&root()) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            let anchored = || anchor.is_empty() || anchors(&fs::read_to_string(&target).unwrap_or_default()).contains(anchor);
            if !target.exists() || !anchored() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 50, "only {count} links were found");
}

/// The README's table of the demo is what `cargo xtask demo --update` wrote, with the flash that `cargo xtask size` measures.
#[test]
fn figures_are_the_committed_ones() {
    let (demo, sizes) = (read("docs/demo.txt"), read("tests/sizes.json"));
    assert!(read("README.md").contains(&demo), "the README's table differs from docs/demo.txt");
    let row = demo.lines().find_map(|line| line.strip_prefix("flash without weights, bytes")).unwrap();
    let sizes: serde_json::Value = serde_json::from_str(&sizes).unwrap();
    assert_eq!(row.trim(), sizes["demo.flash_code"].to_string(), "`cargo xtask demo --update` and `cargo xtask size --update`");
}

/// The table of processors in boards/README.md has the figures that `cargo xtask size --update` wrote.
#[test]
fn figures_of_processors_are_the_committed_ones() {
    let sizes: serde_json::Value = serde_json::from_str(&read("tests/sizes.json")).unwrap();
    let page = read("boards/README.md");
    let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
    for target in &xtask::boards::TARGETS {
        let row = rows.iter().find(|row| row.len() == 9 && row[1] == format!("`{}`", target.name));
        let figures = row.unwrap_or_else(|| panic!("no row of {}", target.name))[4..8].iter().map(|figure| figure.replace(',', ""));
        let committed = ["flash_code", "ram", "instructions_load", "instructions_train_step"]
            .map(|key| sizes[format!("{}.train.{key}", target.name)].to_string());
        assert_eq!(figures.collect::<Vec<_>>(), committed, "{}: `cargo xtask size --update` writes tests/sizes.json", target.name);
    }
    for model in ["kws", "vww", "resnet", "ad01", "person", "transformer"] {
        let row = rows.iter().find(|row| row.len() == 8 && row[1] == format!("`{model}`"));
        let figures = row.unwrap_or_else(|| panic!("no row of {model}"))[2..6].iter().map(|figure| figure.replace(',', ""));
        let committed = ["m4.instructions_infer", "m55.instructions_infer", "m4.arena_planned", "m4.flash_code"]
            .map(|key| sizes[format!("{model}.{key}")].to_string());
        assert_eq!(figures.collect::<Vec<_>>(), committed, "{model}: `cargo xtask size --update` writes tests/sizes.json");
    }
    let code: Vec<_> = rows.iter().filter(|row| row.len() == 5 && sizes.get(row[3].trim_matches('`')).is_some()).collect();
    assert_eq!(code.len(), 6);
    for row in code {
        assert_eq!(row[2].replace(',', ""), sizes[row[3].trim_matches('`')].to_string(), "{}", row[3]);
    }
}

/// Each row of the table of TensorFlow's calls names public items, or gives a reason why there is none.
#[test]
fn every_call_has_an_item_or_a_reason() {
    let (page, names) = (read("book/src/tensorflow.md"), read("tests/public-names.txt"));
    let names: HashSet<&str> = names.lines().collect();
    let (mut wrong, mut calls) = (Vec::new(), HashSet::new());
    for line in prose(&page).into_iter().filter(|line| line.starts_with("| `")) {
        let line = line.replace("\\|", "\0");
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[call, items, example] = &cells[..] else {
            wrong.push(format!("not three cells: {line}"));
            continue;
        };
        if !calls.insert(call.to_string()) {
            wrong.push(format!("twice: {call}"));
        }
        match items {
            "–" if example.split_whitespace().count() >= 2 => (),
            "–" => wrong.push(format!("no reason: {line}")),
            _ => {
                let items = items.split(", ").map(|item| item.trim_matches('`'));
                wrong.extend(items.filter(|item| !names.contains(item)).map(|item| format!("{call}: there is no {item}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows: {wrong:#?}", wrong.len(), calls.len());
    assert!(calls.len() > 300, "only {} calls", calls.len());
}

/// The noun comes first in a block of documentation.
#[test]
fn documentation_begins_with_a_noun_or_a_verb() {
    let mut found = Vec::new();
    for (path, text) in sources(&root()) {
        let mut before = "";
        for line in text.lines().map(str::trim_start) {
            let first =
                line.strip_prefix("///").or(line.strip_prefix("//!")).map(|rest| rest.split_whitespace().next().unwrap_or_default());
            let begins = !before.starts_with("///") && !before.starts_with("//!");
            if begins && first.is_some_and(|word| ["What", "Who", "So"].contains(&word)) {
                found.push(format!("{}: {line}", path.display()));
            }
            before = line;
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            found.extend(sources(&path));
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
    found
}
