//! The whole path from a tree to a catalog.

use std::sync::Arc;

use bunraku_model::Catalog;
use serde_json::{Map, Value, json};

use crate::grains::grains;
use crate::high::Loader;
use crate::jinja::{Renderer, Scope, taint};
use crate::low::{self, LowState, ResolvedStates};
use crate::matcher::Subject;
use crate::place::Location;
use crate::problem::{CompileError, Problem};
use crate::resource::{OtherNodePolicy, Writer};
use crate::sls::{Files, Shadow};
use crate::top::{self, SelectedSls};
use crate::world::{Tree, World};

/// The input of a compilation: the target and the node.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The node's name; Salt's minion id.
    pub node: String,
    /// The facts, under Facter's names.
    pub facts: Map<String, Value>,
    /// Data that wins over the data files.
    pub pillar: Map<String, Value>,
    pub target: Target,
    pub other_nodes: OtherNodePolicy,
    pub fact_trust: FactTrust,
}

/// How far facts are trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FactTrust {
    /// They are of this machine.
    #[default]
    Own,
    /// A node sent them. They never create structure.
    Sent {
        /// Facts may decide which data and state files a node gets.
        may_target: bool,
    },
}

/// The state files to compile.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Target {
    /// The files that the top file selects.
    #[default]
    Highstate,
    /// These files, by name.
    Files(Vec<String>),
    /// This text, under its own name.
    Text { name: String, source: String },
}

/// A catalog, and details of its compilation.
pub struct CompiledStates {
    pub catalog: Catalog,
    /// Every state in the order of the run.
    pub low: Vec<LowState>,
    pub pillar: Map<String, Value>,
    pub grains: Map<String, Value>,
    /// Notes that did not prevent a catalog.
    pub notes: Vec<Problem>,
    /// The state files that were read.
    pub files: Vec<String>,
}

/// Compiles. There is a catalog only if everything is valid.
pub fn compile(world: &Arc<dyn World>, input: &Input) -> Result<CompiledStates, CompileError> {
    let facts = &match input.fact_trust {
        FactTrust::Own => input.facts.clone(),
        FactTrust::Sent { .. } => taint::clean(&input.facts),
    };
    let grains = grains(&input.node, facts);
    let data = PillarData::read(world, input, facts, &grains)?;
    let pillar = data.pillar;
    let scope = Arc::new(Scope::new(
        Arc::clone(world),
        &input.node,
        grains.clone(),
        pillar.clone(),
    ));
    let mut renderer = Renderer::new(Tree::States, Arc::clone(&scope));
    renderer.set_facts(facts);
    let shadow = data.shadow.map(|pillar| {
        let scope = scope.shadow(taint::encoded(&grains), pillar);
        Renderer::shadow(Tree::States, Arc::new(scope), facts)
    });
    let may_target = input.fact_trust != FactTrust::Sent { may_target: false };
    let files = Files {
        tree: Tree::States,
        world: &**world,
        renderer: &renderer,
        shadow: shadow.as_ref().map(|renderer| Shadow {
            renderer,
            may_target,
        }),
    };
    let mut loader = Loader::new(&files);
    choose(world, &mut loader, &files, input, &grains, &pillar)?;
    if !loader.problems.is_empty() {
        return Err(CompileError(loader.problems));
    }
    let mut notes = Vec::new();
    let read = loader.high.files.clone();
    let high = loader.high.settle(&mut notes).map_err(CompileError)?;
    let chunks = low::chunks(&high);
    let resolved = low::resolve(&chunks).map_err(CompileError)?;
    let writer = Writer {
        world: &**world,
        renderer: &renderer,
        scope: &scope,
        chunks: &chunks,
        resolved: &resolved,
        other_nodes: input.other_nodes,
    };
    let written = writer.resources(&mut notes).map_err(CompileError)?;
    let catalog = Catalog {
        name: input.node.clone(),
        catalog_format: Some(json!(2)),
        environment: Some(json!("base")),
        resources: written.applied,
        exports: written.exported,
        classes: read.clone(),
        ..Catalog::default()
    };
    let low = described(&chunks, &resolved);
    Ok(CompiledStates {
        catalog,
        low,
        pillar,
        grains,
        notes,
        files: read,
    })
}

/// The data of a node, and the same with stand-ins for facts if facts are not trusted.
struct PillarData {
    pillar: Map<String, Value>,
    shadow: Option<Map<String, Value>>,
}

impl PillarData {
    fn read(
        world: &Arc<dyn World>,
        input: &Input,
        facts: &Map<String, Value>,
        grains: &Map<String, Value>,
    ) -> Result<Self, CompileError> {
        let (node, over) = (&input.node, &input.pillar);
        let read = |grains, facts| crate::pillar::read(world, node, grains, over, facts);
        match input.fact_trust {
            FactTrust::Own => Ok(Self {
                pillar: read(grains, None)?,
                shadow: None,
            }),
            FactTrust::Sent { may_target: true } => Ok(Self {
                pillar: read(grains, Some(facts))?,
                shadow: Some(read(&taint::encoded(grains), None)?),
            }),
            FactTrust::Sent { may_target: false } => {
                let pillar = read(grains, Some(facts))?;
                let without = read(&certificate_grains(node), None);
                if without.as_ref().is_ok_and(|without| *without == pillar) {
                    return Ok(Self {
                        shadow: Some(pillar.clone()),
                        pillar,
                    });
                }
                Err(decided_by_facts(
                    format!("the data (pillar) of `{node}` depends on its facts"),
                    without.err(),
                ))
            }
        }
    }
}

/// The grains that follow from the node's certificate.
fn certificate_grains(node: &str) -> Map<String, Value> {
    grains(node, &Map::new())
}

fn decided_by_facts(message: String, why: Option<CompileError>) -> CompileError {
    let mut problem = Problem::new(message, Location::of_file("top.sls"));
    for other in why.into_iter().flat_map(|error| error.0) {
        problem = problem.also(format!("without facts: {}", other.message), other.at);
    }
    let hint = "facts are what the node says. Select by name, or run `bunraku environment set NAME --fact-targeting on` to let facts decide what nodes get";
    problem.hint(hint).into()
}

/// Refuses a selection of state files that the node could change with its facts.
fn check_selection(
    world: &Arc<dyn World>,
    node: &str,
    pillar: &Map<String, Value>,
    chosen: &[SelectedSls],
) -> Result<(), CompileError> {
    let grains = &certificate_grains(node);
    let scope = Scope::new(Arc::clone(world), node, grains.clone(), pillar.clone());
    let renderer = Renderer::new(Tree::States, Arc::new(scope));
    let without_facts = Files {
        tree: Tree::States,
        world: &**world,
        renderer: &renderer,
        shadow: None,
    };
    let subject = Subject {
        node,
        grains,
        pillar,
    };
    let names = |chosen: &[SelectedSls]| -> Vec<String> {
        chosen.iter().map(|one| one.sls.clone()).collect()
    };
    let (with, without) = (names(chosen), top::read(&without_facts, subject));
    let without = without.map(|chosen| names(&chosen.unwrap_or_default()));
    match without {
        Ok(without) if without == with => Ok(()),
        Ok(without) => {
            let differs = |name: &&String| !without.contains(name);
            let first = with.iter().find(differs).or(without.first());
            let name = first.map_or("something", String::as_str);
            Err(decided_by_facts(
                format!("facts decide whether `{node}` gets `{name}`"),
                None,
            ))
        }
        Err(problem) => Err(decided_by_facts(
            format!("the state files of `{node}` depend on its facts"),
            Some(problem.into()),
        )),
    }
}

fn choose(
    world: &Arc<dyn World>,
    loader: &mut Loader<'_>,
    files: &Files<'_>,
    input: &Input,
    grains: &Map<String, Value>,
    pillar: &Map<String, Value>,
) -> Result<(), CompileError> {
    match &input.target {
        Target::Files(names) => names.iter().for_each(|name| loader.take(name, None, false)),
        Target::Text { name, source } => {
            let path = format!("{}.sls", name.replace('.', "/"));
            loader.take_file(files.read(name, &path, source.clone()));
        }
        Target::Highstate => {
            let subject = Subject {
                node: &input.node,
                grains,
                pillar,
            };
            let Some(chosen) = top::read(files, subject)? else {
                let problem = Problem::new("no top file", Location::of_file("top.sls"));
                return Err(problem
                    .hint("create one, or pass the state files to apply")
                    .into());
            };
            if input.fact_trust == (FactTrust::Sent { may_target: false }) {
                check_selection(world, &input.node, pillar, &chosen)?;
            }
            if chosen.is_empty() {
                let problem = Problem::new(
                    format!("the top file has nothing for `{}`", input.node),
                    Location::of_file("top.sls"),
                );
                return Err(problem
                    .hint("add a target that matches, such as `'*'`")
                    .into());
            }
            for one in chosen {
                loader.take(&one.sls, Some(&one.spot), one.ignore_missing);
            }
        }
    }
    Ok(())
}

fn described(chunks: &[low::Chunk], resolved: &ResolvedStates) -> Vec<LowState> {
    let mut position = vec![0; chunks.len()];
    for (at, number) in resolved.order.iter().enumerate() {
        position[*number as usize] = at;
    }
    let one = |at: usize, number: u32| {
        let chunk = &chunks[number as usize];
        let mut requisites: Vec<(String, Vec<usize>)> = (resolved.requisites[number as usize]
            .iter())
        .map(|(kind, targets)| {
            (
                kind.name().to_owned(),
                targets
                    .iter()
                    .map(|target| position[*target as usize])
                    .collect(),
            )
        })
        .collect();
        let listens = &resolved.listens[number as usize];
        if !listens.is_empty() {
            let heard = listens
                .iter()
                .map(|target| position[*target as usize])
                .collect();
            requisites.push(("listen".to_owned(), heard));
        }
        LowState {
            id: chunk.id.clone(),
            name: chunk.name.clone(),
            function: chunk.full_function(),
            sls: chunk.sls.clone(),
            at: chunk.spot.location(),
            position: at,
            arguments: chunk.arguments.clone(),
            requisites,
        }
    };
    resolved
        .order
        .iter()
        .enumerate()
        .map(|(at, number)| one(at, *number))
        .collect()
}
