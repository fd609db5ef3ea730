//! Index of a text of PTX: its functions, entries and variables.

use std::collections::HashMap;

/// A text of PTX as the compiler writes it, divided into its items.
pub(crate) struct Source {
    /// The directives at the beginning, such as the version.
    header: &'static str,
    /// The items, in the order of the text, in which each one stands after those that it needs.
    items: Vec<&'static str>,
    /// The positions of the items with a name. A function can be declared before it is defined.
    positions: HashMap<&'static str, Vec<usize>>,
}

impl Source {
    /// Divides `text`.
    pub(crate) fn new(text: &'static str) -> Source {
        const LAST: &str = ".address_size 64\n";
        let (header, mut rest) = text.split_at(text.find(LAST).map_or(0, |at| at + LAST.len()));
        let mut source = Source { header, items: Vec::new(), positions: HashMap::new() };
        loop {
            rest = without_comments(rest);
            let (item, after) = rest.split_at(length(rest));
            if item.is_empty() {
                return source;
            }
            source.positions.entry(name(item)).or_default().push(source.items.len());
            // A module of one kernel has no use for visible functions. Hidden ones vanish after the driver has inlined their calls.
            source.items.push(item.strip_prefix(".visible ").filter(|item| item.starts_with(".func")).unwrap_or(item));
            rest = after;
        }
    }

    /// True if there is an item with this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.positions.contains_key(name)
    }

    /// Returns the body of a function without branches and calls, for its place in another body. The result goes to register `result`, and
    /// the arguments are in registers. Returns `None` for other functions, and for arguments of fewer than 32 bits.
    pub(crate) fn inlined(&self, name: &str, arguments: &[&str], result: &str) -> Option<String> {
        let item = self.items[*self.positions.get(name)?.last()?];
        let body = item.split_once('{')?.1.strip_suffix('}')?;
        if ["call", "bra", ".local", "$L", "{"].iter().any(|word| body.contains(word)) {
            return None;
        }
        let moved = |kind: &str| match kind {
            "f32" | "f64" => Some(format!("mov.{kind}")),
            "u32" | "s32" | "b32" => Some("mov.b32".to_string()),
            "u64" | "s64" | "b64" => Some("mov.b64".to_string()),
            _ => None,
        };
        let mut text = format!("\t{{ // {name}\n");
        for line in body.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "ret;") {
            if let Some(load) = line.strip_prefix("ld.param.") {
                let (kind, operands) = load.split_once(char::is_whitespace)?;
                let (register, parameter) = operands.trim().split_once(", [")?;
                let index: usize = parameter.strip_suffix("];")?.rsplit_once('_')?.1.parse().ok()?;
                let argument = arguments.get(index)?;
                // Registers of 64 bits have names such as `%rd1`.
                let wide = |register: &str| register.trim_start_matches("%x").trim_start_matches('%').contains('d');
                let instruction = match (wide(argument), wide(register)) {
                    (false, true) if kind == "s32" => "cvt.s64.s32".to_string(),
                    (false, true) if kind == "u32" => "cvt.u64.u32".to_string(),
                    (from, to) if from == to => moved(kind)?,
                    _ => return None,
                };
                text += &format!("\t{instruction} \t{register}, {argument};\n");
            } else if let Some(store) = line.strip_prefix("st.param.") {
                let (kind, operands) = store.split_once(char::is_whitespace)?;
                let register = operands.split_once("], ")?.1;
                text += &format!("\t{} \t{result}, {register}\n", moved(kind)?);
            } else {
                text += &format!("\t{line}\n");
            }
        }
        Some(text + "\t}\n")
    }

    /// Returns the names of the items, in no particular order.
    #[cfg(test)]
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.positions.keys().copied()
    }

    /// Returns a module that consists of the items with these names, and of all that they need.
    pub(crate) fn extract<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> String {
        let mut wanted = vec![false; self.items.len()];
        let mut names: Vec<&str> = names.into_iter().collect();
        while let Some(name) = names.pop() {
            for &position in self.positions.get(name).into_iter().flatten() {
                if !std::mem::replace(&mut wanted[position], true) {
                    names.extend(words(self.items[position]).filter(|word| self.has(word)));
                }
            }
        }
        let items = self.items.iter().zip(wanted).filter(|(_, wanted)| *wanted);
        items.fold(self.header.to_string(), |text, (item, _)| text + "\n" + item + "\n")
    }
}

/// Returns `text` without the space and the lines of comment at its beginning.
fn without_comments(text: &str) -> &str {
    let mut text = text.trim_start();
    while text.starts_with("//") {
        text = text.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
    }
    text
}

/// Returns the length of the item at the beginning of `text`. It ends with a semicolon, or with the brace at the end of a function.
fn length(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b';' if depth == 0 => return at + 1,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.saturating_sub(1);
                // The values of a variable stand in braces, too.
                if depth == 0 && !text[at + 1..].trim_start().starts_with(';') {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Returns the name of an item. That of a function stands after its result, which is in parentheses, and that of a variable before its
/// length or its values.
fn name(item: &'static str) -> &'static str {
    match item.split_once(".func").or(item.split_once(".entry")) {
        Some((_, signature)) => {
            let signature = signature.trim_start();
            let result = signature.strip_prefix('(').and_then(|result| result.split_once(')'));
            words(result.map_or(signature, |(_, rest)| rest)).next().unwrap_or("")
        }
        None => words(item.split(['[', '=', ';']).next().unwrap_or("")).last().unwrap_or(""),
    }
}

/// Returns the words of a text, among them all names of items.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$').filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
.version 7.4
.target sm_70
.address_size 64

\t// .globl\tone
.func  (.param .b64 func_retval0) helper
(
\t.param .b64 helper_param_0
)
;
.extern .shared .align 4 .b8 shared_bytes[];
.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.const .align 4 .u32 limit = 7;

.visible .func  (.param .b32 func_retval0) one(
\t.param .b32 one_param_0
)
{
\t{
\tmov.u64 \t%rd1, table;
\t}
\tret;

}
\t// .globl\ttwo
.visible .entry two(
\t.param .u64 two_param_0
)
.maxntid 256, 1, 1
{
\tcall.uni (retval0), \n\thelper, \n\t(\n\tparam0\n\t);
\tret;
}
.func  (.param .b64 func_retval0) helper(
\t.param .b64 helper_param_0
)
{
\tmov.u32 \t%r1, limit;
\tret;
}
";

    #[test]
    fn a_text_is_divided() {
        let source = Source::new(TEXT);
        let mut names: Vec<&str> = source.names().collect();
        names.sort();
        assert_eq!(names, ["helper", "limit", "one", "shared_bytes", "table", "two"]);
        assert_eq!(source.positions["helper"].len(), 2);
        assert!(source.items.iter().all(|item| item.starts_with('.') && item.ends_with([';', '}'])));
    }

    #[test]
    fn a_module_has_what_an_item_needs() {
        let source = Source::new(TEXT);
        let one = source.extract(["one"]);
        assert!(one.starts_with(".version 7.4\n.target sm_70\n.address_size 64\n"));
        assert!(one.contains("\n.func  (.param .b32 func_retval0) one(") && one.contains("table[4]"));
        assert!(!one.contains("two") && !one.contains("helper") && !one.contains("limit"));
        let two = source.extract(["two"]);
        assert!(two.contains(".visible .entry two(") && two.matches(") helper").count() == 2 && two.contains("limit = 7;"));
        assert!(!two.contains("table"));
    }

    #[test]
    fn the_index_of_the_functions_is_whole() {
        let functions = crate::ptx::functions();
        for name in functions.names() {
            let text = functions.extract([name]);
            assert!(text.contains(&format!(" {name}")), "{name}");
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name}");
        }
        assert!(functions.extract(["sin_f64"]).contains("__internal_trig_reduction_slowpathd"));
        assert!(functions.extract(["add_f32"]).len() < 1000);
    }
}
