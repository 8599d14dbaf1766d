//! Renders the selected files and their includes.

use std::collections::HashSet;

use serde_json::json;

use super::read::{self, Part};
use super::{Argument, ArgumentValue, Exclude, HighState, IdDeclaration, Item};
use crate::matcher::{is_pattern, matches_glob};
use crate::problem::Problem;
use crate::sls::{Files, Sls, Spot, root_map};

const DEEPEST_INCLUDE: usize = 100;
/// The first number of declarations in Salt, so that `order: 1` comes before all.
const FIRST_ORDER: i64 = 10_000;

/// Reads files into one [`HighState`].
pub(crate) struct Loader<'a> {
    files: &'a Files<'a>,
    seen: HashSet<String>,
    next_order: i64,
    names: Option<Vec<String>>,
    pub(crate) problems: Vec<Problem>,
    pub(crate) high: HighState,
}

/// The declarations of one file and its includes.
#[derive(Default)]
struct Batch {
    declared: Vec<IdDeclaration>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(files: &'a Files<'a>) -> Self {
        Self {
            files,
            seen: HashSet::new(),
            next_order: FIRST_ORDER,
            names: None,
            problems: Vec::new(),
            high: HighState::default(),
        }
    }

    /// Reads one selected file, unless it was already read.
    pub(crate) fn take(&mut self, sls: &str, from: Option<&Spot>, ignore_missing: bool) {
        if self.seen.contains(sls) {
            return;
        }
        let found = match self.files.find(sls) {
            Ok(found) => found,
            Err(problem) => return self.problems.push(problem),
        };
        match found {
            None if ignore_missing => {}
            None => self.missing(sls, from),
            Some((path, source)) => {
                let file = self.files.read(sls, &path, source);
                self.take_file(file);
            }
        }
    }

    /// Adds a file that was already read.
    pub(crate) fn take_file(&mut self, file: Result<Sls, Problem>) {
        let mut batch = Batch::default();
        match file {
            Ok(file) => {
                self.seen.insert(file.name.clone());
                self.file(&file, &mut batch, 0);
            }
            Err(problem) => self.problems.push(problem),
        }
        for declared in batch.declared {
            self.merge(declared);
        }
    }

    fn merge(&mut self, declared: IdDeclaration) {
        if let Some(first) = self.high.get(&declared.id) {
            let problem = Problem::new(
                format!("the id `{}` is declared twice", declared.id),
                declared.spot.location(),
            )
            .also("first declared here", first.spot.location())
            .hint("ids must be unique across all files: change one of them and set its `name`");
            self.problems.push(problem);
            return;
        }
        self.high.insert(declared);
    }

    fn missing(&mut self, sls: &str, from: Option<&Spot>) {
        let names = self.names().to_vec();
        let at = from.map_or_else(|| crate::place::Location::of_file(sls), Spot::location);
        let problem = Problem::new(format!("no state file `{sls}`"), at);
        self.problems
            .push(problem.near(sls, names.iter().map(String::as_str)));
    }

    fn names(&mut self) -> &[String] {
        let files = self.files;
        self.names
            .get_or_insert_with(|| files.names().unwrap_or_default())
    }

    fn file(&mut self, file: &Sls, batch: &mut Batch, depth: usize) {
        self.high.files.push(file.name.clone());
        let pairs = match root_map(file) {
            Ok(pairs) => pairs,
            Err(problem) => return self.problems.push(problem),
        };
        let mut includes = Vec::new();
        let mut own: Vec<IdDeclaration> = Vec::new();
        for (key, value) in pairs {
            match read::part(file, key, value) {
                Ok(Part::Includes(found)) => includes = found,
                Ok(Part::Extends(found)) => self.high.extends.extend(found),
                Ok(Part::Excludes(found)) => self.exclude(found),
                Ok(Part::Declared(declared)) => own.push(declared),
                Err(problem) => self.problems.push(problem),
            }
        }
        let mut included = Vec::new();
        for (name, spot) in includes {
            self.include(file, &name, &spot, &mut included, depth);
        }
        for declared in &mut included {
            declared.included_from.push(file.name.clone());
        }
        for declared in &mut own {
            self.number(declared);
        }
        for declared in own {
            // Included declarations may clash with those of this file.
            batch.declared.push(declared);
        }
        batch.declared.extend(included);
    }

    fn exclude(&mut self, found: Vec<Exclude>) {
        self.high.excludes.extend(found);
    }

    fn include(
        &mut self,
        file: &Sls,
        name: &str,
        spot: &Spot,
        included: &mut Vec<IdDeclaration>,
        depth: usize,
    ) {
        if depth > DEEPEST_INCLUDE {
            return self.problems.push(Problem::new(
                "includes are nested too deeply",
                spot.location(),
            ));
        }
        let name = match absolute(file, name, spot) {
            Ok(name) => name,
            Err(problem) => return self.problems.push(problem),
        };
        let mut targets = vec![name.clone()];
        if is_pattern(&name) {
            let found: Vec<String> = self
                .names()
                .iter()
                .filter(|known| matches_glob(&name, known))
                .cloned()
                .collect();
            if !found.is_empty() {
                targets = found;
            }
        }
        for target in targets {
            if !self.seen.insert(target.clone()) {
                continue;
            }
            match self.files.find(&target) {
                Err(problem) => self.problems.push(problem),
                Ok(None) => self.missing(&target, Some(spot)),
                Ok(Some((path, source))) => match self.files.read(&target, &path, source) {
                    Err(problem) => self.problems.push(problem),
                    Ok(sls) => {
                        let mut batch = Batch::default();
                        self.file(&sls, &mut batch, depth + 1);
                        included.extend(batch.declared);
                    }
                },
            }
        }
    }

    /// Gives the next number to a state without `order`.
    fn number(&mut self, declared: &mut IdDeclaration) {
        for state in &mut declared.states {
            let given = state.items.iter().any(|item| {
                matches!(item, Item::Arguments(arguments) if arguments.first().is_some_and(|first| first.name == "order"))
            });
            if !given {
                let argument = Argument {
                    name: "order".to_owned(),
                    value: ArgumentValue::Plain(json!(self.next_order)),
                    spot: state.spot.clone(),
                };
                self.next_order += 1;
                state.items.push(Item::Arguments(vec![argument]));
            }
        }
    }
}

/// Resolves the name of an include: `.x` is beside the file, `..x` above.
pub(crate) fn absolute(file: &Sls, name: &str, spot: &Spot) -> Result<String, Problem> {
    let levels = name.len() - name.trim_start_matches('.').len();
    if levels == 0 {
        return Ok(name.to_owned());
    }
    let mut parts: Vec<&str> = file.name.split('.').collect();
    if file.is_init {
        parts.push("init");
    }
    if levels > parts.len() {
        return Err(Problem::new(
            format!("the include `{name}` goes above the top of the tree"),
            spot.location(),
        ));
    }
    parts.truncate(parts.len() - levels);
    parts.push(&name[levels..]);
    Ok(parts.join("."))
}
