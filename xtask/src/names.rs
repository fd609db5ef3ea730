//! The public names of gradlet, as rustdoc lists them. The committed list shows every change of the API in a diff.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use xtask::shell::root;

const LIST: &str = "tests/public-names.txt";
/// Prefixes of the ids that rustdoc's HTML gives an item's own members. The members of trait implementations come after them.
const IDS: [&str; 6] = ["method", "tymethod", "variant", "structfield", "associatedconstant", "associatedtype"];
/// Beginnings of the ids of the parts of a page that are not the item's own.
const OTHERS: [&str; 2] = ["deref-methods", "trait-implementations"];

/// Compares the names in `target/doc` with the committed list.
pub fn check() -> Result<()> {
    let (found, listed) = (names()?, fs::read_to_string(root().join(LIST)).unwrap_or_default());
    let listed: BTreeSet<String> = listed.lines().map(Into::into).collect();
    let lines = |sign: &str, names: Vec<&String>| names.iter().map(|name| format!("{sign} {name}\n")).collect::<String>();
    let difference = lines("+", found.difference(&listed).collect()) + &lines("-", listed.difference(&found).collect());
    ensure!(difference.is_empty(), "the public names differ from {LIST} (run `cargo xtask names` to update it):\n{difference}");
    let outside: Vec<&String> = found.iter().filter(|name| name.matches("::").count() == 1).collect();
    ensure!(outside.is_empty(), "these public names are at the crate's root, not in a module: {outside:?}");
    Ok(())
}

/// Writes the committed list.
pub fn update() -> Result<()> {
    let names = names()?;
    fs::write(root().join(LIST), names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
    println!("{LIST}: {} names", names.len());
    Ok(())
}

/// Returns the paths of all items, and of their methods, variants and fields.
fn names() -> Result<BTreeSet<String>> {
    let folder = root().join("target/doc/gradlet");
    let all = fs::read_to_string(folder.join("all.html")).context("there is no documentation: run `cargo doc --no-deps --workspace`")?;
    let mut names = BTreeSet::new();
    for href in attributes(&all, "href") {
        let Some((module, file)) = href.rsplit_once('/').or(Some(("", href))).filter(|(module, _)| !module.starts_with("..")) else {
            continue;
        };
        let Some(item) = file.strip_suffix(".html").and_then(|file| file.split_once('.')).map(|(_, item)| item) else { continue };
        let module = module.split('/').filter(|part| !part.is_empty()).map(|part| format!("{part}::")).collect::<String>();
        let path = format!("gradlet::{module}{item}");
        names.extend(members(&folder.join(href))?.into_iter().map(|member| format!("{path}::{member}")));
        names.insert(path);
    }
    Ok(names)
}

/// Returns the names of an item's own methods, variants, fields and constants.
fn members(page: &Path) -> Result<Vec<String>> {
    let html = fs::read_to_string(page).with_context(|| page.display().to_string())?;
    let end = OTHERS.iter().filter_map(|id| html.find(&format!("id=\"{id}"))).min();
    let own = &html[..end.unwrap_or(html.len())];
    let member = |id: &str| {
        let (kind, name) = id.split_once('.')?;
        // Rustdoc numbers the later ones of several items with the same name.
        let name = name.split('-').next()?;
        // The id of a field of a variant is `variant.NAME.field.FIELD`.
        (IDS.contains(&kind)).then(|| name.replace(".field.", "::"))
    };
    Ok(attributes(own, "id").filter_map(member).collect())
}

fn attributes<'h>(html: &'h str, name: &str) -> impl Iterator<Item = &'h str> {
    let start = format!("{name}=\"");
    html.split(' ').filter_map(move |part| part.strip_prefix(&start)?.split('"').next())
}
