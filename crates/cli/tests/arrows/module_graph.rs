//! The graph of a crate's top-level modules, read from its source.
//!
//! An edge is a path that begins with `crate`, `super` or `self`, in a `use` (including nested
//! groups), in code, or in the arguments of a macro. A name that the crate root re-exports counts
//! as the module that it comes from. Tests (`#[cfg(test)]`) may use anything and are left out.
//!
//! Absent here: cycles inside one top-level module, and paths that a macro constructs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The crate root as a node of the graph: the items that `lib.rs` itself defines.
const ROOT: &str = "lib.rs";

/// The source of one file, and its module.
struct Source {
    module: Vec<String>,
    file: String,
    tokens: TokenStream,
}

/// The modules, the modules that each uses, and the files of each use.
#[derive(Default)]
pub(crate) struct ModuleGraph {
    edges: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// A path as written, one for each name of a group.
type Written = Vec<String>;

impl ModuleGraph {
    /// Reads the graph of the library below a `src` directory.
    pub(crate) fn read(src: &Path) -> Self {
        let files = files_below(src).into_iter().map(|path| {
            let inside = path.strip_prefix(src).expect("a file below src");
            let text = std::fs::read_to_string(&path).expect("a source file");
            (inside.to_string_lossy().into_owned(), text)
        });
        Self::from_files(files)
    }

    fn from_files(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let sources: Vec<Source> = (files.into_iter())
            .filter_map(|(file, text)| {
                let tokens = text
                    .parse()
                    .unwrap_or_else(|_| panic!("cannot read {file}"));
                let module = module_of(&file)?;
                Some(Source {
                    module,
                    file,
                    tokens,
                })
            })
            .collect();
        let mut declared = Declared::default();
        for source in &sources {
            declared.note(&source.module, source.tokens.clone());
        }
        let mut graph = Self::default();
        for source in &sources {
            if !declared.is_test(&source.module) {
                graph.add(source, &declared);
            }
        }
        graph
    }

    fn add(&mut self, source: &Source, declared: &Declared) {
        let mut found = Vec::new();
        paths_in(&source.module, source.tokens.clone(), &mut found);
        let from = source.module.first().map_or(ROOT, String::as_str);
        for path in found {
            let Some(first) = path.first() else { continue };
            let to = declared.top_level_of(first);
            // A re-export is not a use.
            if to != from && !(from == ROOT && to != ROOT && declared.reexports.contains_key(first))
            {
                let files = self.edges.entry(from.to_owned()).or_default();
                let files = files.entry(to.to_owned()).or_default();
                files.insert(source.file.clone());
            }
        }
    }

    /// Returns a cycle, edge by edge, if there is one.
    pub(crate) fn cycle(&self) -> Option<String> {
        let mut done = BTreeSet::new();
        self.edges
            .keys()
            .find_map(|module| self.cycle_from(module, &mut Vec::new(), &mut done))
    }

    fn cycle_from<'a>(
        &'a self,
        module: &'a str,
        above: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
    ) -> Option<String> {
        if let Some(at) = above.iter().position(|it| *it == module) {
            return Some(self.describe_cycle(&above[at..]));
        }
        if done.contains(module) {
            return None;
        }
        above.push(module);
        let used = self.edges.get(module).into_iter().flat_map(BTreeMap::keys);
        for next in used {
            if let Some(cycle) = self.cycle_from(next, above, done) {
                return Some(cycle);
            }
        }
        above.pop();
        done.insert(module);
        None
    }

    fn describe_cycle(&self, cycle: &[&str]) -> String {
        let next = cycle.iter().cycle().skip(1);
        let edges = cycle.iter().zip(next).map(|(from, to)| {
            let files: Vec<&str> = self.edges[*from][*to].iter().map(String::as_str).collect();
            format!("  {from} uses {to} ({})", files.join(", "))
        });
        edges.collect::<Vec<_>>().join("\n")
    }
}

/// The declarations of the crate root, and the modules that are tests.
#[derive(Default)]
struct Declared {
    top_level: BTreeSet<String>,
    /// The top-level module that the root re-exports each name from.
    reexports: BTreeMap<String, String>,
    tests: BTreeSet<Vec<String>>,
}

impl Declared {
    fn note(&mut self, module: &[String], tokens: TokenStream) {
        for item in items(tokens) {
            if let Some(name) = declared_module(&item.tokens) {
                if item.test {
                    self.tests.insert(below(module, &name));
                } else if module.is_empty() {
                    self.top_level.insert(name);
                }
            }
            if module.is_empty() && !item.test {
                self.note_reexports(&item.tokens);
            }
        }
    }

    fn note_reexports(&mut self, item: &[TokenTree]) {
        let Some(at) = item.iter().position(|token| is_word(token, "use")) else {
            return;
        };
        if at > 2 {
            return;
        }
        let mut leaves = Vec::new();
        use_tree(&item[at + 1..], &mut Vec::new(), &mut leaves);
        for (path, name) in leaves {
            let path: Vec<String> = (path.into_iter())
                .skip_while(|part| part == "crate" || part == "self")
                .collect();
            if let [module, _, ..] = path.as_slice() {
                self.reexports.insert(name, module.clone());
            }
        }
    }

    fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|parts| self.tests.contains(&module[..parts]))
    }

    fn top_level_of<'a>(&'a self, name: &'a str) -> &'a str {
        if self.top_level.contains(name) {
            return name;
        }
        self.reexports.get(name).map_or(ROOT, String::as_str)
    }
}

/// One item of a module, or any tokens between two semicolons or blocks.
struct Item {
    tokens: Vec<TokenTree>,
    test: bool,
}

fn items(tokens: TokenStream) -> Vec<Item> {
    let mut all = Vec::new();
    let mut current = Vec::new();
    let mut test = false;
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        if is_sign(&token, '#') {
            let inner = tokens.next_if(|next| is_sign(next, '!')).is_some();
            if let Some(TokenTree::Group(attribute)) = tokens.next() {
                test |= !inner && is_test_attribute(&attribute);
                current.push(TokenTree::Group(attribute));
            }
            continue;
        }
        let in_use = current.iter().any(|token| is_word(token, "use"));
        let ends = is_sign(&token, ';') || (is_block(&token) && !in_use);
        current.push(token);
        if ends {
            let tokens = std::mem::take(&mut current);
            all.push(Item {
                tokens: without_attributes(tokens),
                test: std::mem::take(&mut test),
            });
        }
    }
    all.push(Item {
        tokens: current,
        test,
    });
    all
}

/// Removes attributes: groups in brackets before anything else of an item.
fn without_attributes(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let attribute = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket);
    tokens.into_iter().skip_while(attribute).collect()
}

/// Returns true for `#[cfg(test)]` and `#[cfg(any(test, …))]`, not for `#[cfg(not(test))]`.
fn is_test_attribute(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    let named = |word: &str| {
        text.split(|sign: char| !sign.is_alphanumeric() && sign != '_')
            .any(|part| part == word)
    };
    text == "test" || (text.starts_with("cfg(") && named("test") && !named("not"))
}

/// Returns the name in `mod NAME;` or `mod NAME { … }`.
fn declared_module(item: &[TokenTree]) -> Option<String> {
    let at = item.iter().position(|token| is_word(token, "mod"))?;
    match (at, item.get(at + 1)) {
        (0..=2, Some(TokenTree::Ident(name))) => Some(name.to_string()),
        _ => None,
    }
}

/// Collects all paths of a module that begin at the crate root, relative to it.
fn paths_in(module: &[String], tokens: TokenStream, found: &mut Vec<Written>) {
    for item in items(tokens) {
        if item.test {
            continue;
        }
        match (declared_module(&item.tokens), item.tokens.last()) {
            (Some(name), Some(TokenTree::Group(body))) => {
                paths_in(&below(module, &name), body.stream(), found);
            }
            _ => paths_of_item(module, &item.tokens, found),
        }
    }
}

fn paths_of_item(module: &[String], tokens: &[TokenTree], found: &mut Vec<Written>) {
    let mut at = 0;
    while at < tokens.len() {
        let starts = ["crate", "super", "self"]
            .iter()
            .any(|word| is_word(&tokens[at], word));
        let continues = at > 0 && is_sign(&tokens[at - 1], ':');
        if starts && !continues && tokens.get(at + 1).is_some_and(|next| is_sign(next, ':')) {
            let mut leaves = Vec::new();
            at += use_tree(&tokens[at..], &mut Vec::new(), &mut leaves);
            found.extend(
                leaves
                    .into_iter()
                    .filter_map(|(path, _)| resolved(module, path)),
            );
            continue;
        }
        if let TokenTree::Group(group) = &tokens[at] {
            paths_in(module, group.stream(), found);
        }
        at += 1;
    }
}

/// Resolves `super::a::B` in a module to `a::B` at the crate root.
fn resolved(module: &[String], path: Written) -> Option<Written> {
    let mut base = module.to_vec();
    let mut rest = path.as_slice();
    while let [first, after @ ..] = rest {
        match first.as_str() {
            "crate" => base.clear(),
            "super" => {
                base.pop()?;
            }
            "self" => {}
            _ => break,
        }
        rest = after;
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// Collects the leaves of a path or of a `use` tree, each with its new name. Returns the number of
/// tokens.
fn use_tree(
    tokens: &[TokenTree],
    above: &mut Vec<String>,
    leaves: &mut Vec<(Written, String)>,
) -> usize {
    let depth = above.len();
    let mut at = 0;
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(part)) => above.push(part.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                group_of(group, above, leaves);
                above.truncate(depth);
                return at + 1;
            }
            Some(token) if is_sign(token, '*') => above.push("*".to_owned()),
            _ => break,
        }
        at += 1;
        let colons = tokens.get(at).is_some_and(|next| is_sign(next, ':'))
            && tokens.get(at + 1).is_some_and(|next| is_sign(next, ':'));
        if !colons {
            break;
        }
        at += 2;
    }
    let mut name = above.last().cloned().unwrap_or_default();
    if tokens.get(at).is_some_and(|next| is_word(next, "as"))
        && let Some(TokenTree::Ident(alias)) = tokens.get(at + 1)
    {
        name = alias.to_string();
        at += 2;
    }
    leaves.push((above.clone(), name));
    above.truncate(depth);
    at
}

fn group_of(group: &Group, above: &mut Vec<String>, leaves: &mut Vec<(Written, String)>) {
    let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
    for part in tokens.split(|token| is_sign(token, ',')) {
        if !part.is_empty() {
            use_tree(part, above, leaves);
        }
    }
}

fn below(module: &[String], name: &str) -> Vec<String> {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(found) if found == word)
}

fn is_sign(token: &TokenTree, sign: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == sign)
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Returns the module of a file: `a/b.rs` and `a/b/mod.rs` are `a::b`. Programs are not modules.
fn module_of(file: &str) -> Option<Vec<String>> {
    let path = file.strip_suffix(".rs")?;
    if path == "main" || path.starts_with("bin/") {
        return None;
    }
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] {
        parts.pop();
    }
    Some(parts)
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

fn cycle_of(files: &[(&str, &str)]) -> Option<String> {
    let files = files
        .iter()
        .map(|(file, text)| ((*file).to_owned(), (*text).to_owned()));
    ModuleGraph::from_files(files).cycle()
}

#[test]
fn a_cycle_through_nested_groups_and_macros_is_found() {
    let cycle = cycle_of(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        (
            "a.rs",
            "use crate::{std_like, b::{self, inner::{Deep, Other as O}}};",
        ),
        ("b/mod.rs", "mod inner;"),
        (
            "b/inner.rs",
            "fn f() { log!(\"{}\", super::super::c::name()); }",
        ),
        ("c.rs", "pub fn name() -> &'static str { crate::a::NAME }"),
    ]);
    let cycle = cycle.expect("a cycle");
    for edge in [
        "a uses b (a.rs)",
        "b uses c (b/inner.rs)",
        "c uses a (c.rs)",
    ] {
        assert!(cycle.contains(edge), "{cycle}");
    }
}

#[test]
fn names_that_the_root_reexports_count_as_their_module() {
    let with = |root: &str| {
        cycle_of(&[
            ("lib.rs", root),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b.rs", "pub struct B(crate::Renamed);"),
        ])
    };
    assert!(with("mod a; mod b; pub use a::A as Renamed; pub use b::{B};").is_some());
    assert!(with("mod a; mod b; pub use b::B; pub struct Renamed;").is_none());
    // The root's definitions count together with its uses.
    assert!(with("mod a; mod b; pub use b::B; pub struct Renamed(crate::a::A);").is_some());
}

#[test]
fn tests_may_use_anything() {
    let files = |test: &'static str, own: &'static str| {
        cycle_of(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; #[cfg(test)] mod tests;"),
            ("a/tests.rs", "use super::*;"),
            ("b.rs", own),
            ("b/helper.rs", test),
        ])
    };
    let uses_a = "use crate::a::A;";
    assert!(files(uses_a, "#[cfg(test)] mod helper;").is_none());
    assert!(files("", "#[cfg(test)] mod tests { use crate::a::A; }").is_none());
    assert!(files(uses_a, "mod helper;").is_some());
    assert!(files("", "#[cfg(not(test))] use crate::a::A;").is_some());
    assert!(files("", "mod inside { use super::super::a::A; }").is_some());
}
