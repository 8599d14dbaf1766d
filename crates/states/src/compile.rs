//! The whole path from a tree to a catalog.

use std::sync::Arc;

use bunraku_model::Catalog;
use serde_json::{Map, Value, json};

use crate::grains::grains;
use crate::high::Loader;
use crate::jinja::{Renderer, Scope};
use crate::low::{self, LowState, ResolvedStates};
use crate::matcher::Subject;
use crate::place::Location;
use crate::problem::{CompileError, Problem};
use crate::resource::{OtherNodePolicy, Writer};
use crate::sls::Files;
use crate::top;
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
    let grains = grains(&input.node, &input.facts);
    let pillar = crate::pillar::read(world, &input.node, &grains, &input.pillar)?;
    let scope = Arc::new(Scope::new(
        Arc::clone(world),
        &input.node,
        grains.clone(),
        pillar.clone(),
    ));
    let mut renderer = Renderer::new(Tree::States, Arc::clone(&scope));
    renderer.set_facts(&input.facts);
    let files = Files {
        tree: Tree::States,
        world: &**world,
        renderer: &renderer,
    };
    let mut loader = Loader::new(&files);
    choose(&mut loader, &files, input, &grains, &pillar)?;
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

fn choose(
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
