//! Performs tasks on the files of one commit.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_control::code_problems::problem_of_states;
use bunraku_states::{FactTrust, Input, Lookup, OtherNodePolicy, World, compile};
use bunraku_wire::api::CompileProblem;

use super::super::settings::{self, Settings};
use super::super::static_files::StaticSite;
use super::questions::{AskServer, AskedAnswers, AskedFunctions};
use super::{CodeTask, InspectedCode, TaskResult};
use crate::modules;
use crate::state_world::{StateDirectories, StateWorld};

/// The files of one commit, and what is already known about them.
pub(in super::super) struct CodeTasks {
    tree: PathBuf,
    functions: Arc<Mutex<HashMap<String, Lookup>>>,
    sites: Mutex<HashMap<String, Arc<StaticSite>>>,
}

impl CodeTasks {
    pub(super) fn new(tree: &Path) -> Self {
        Self {
            tree: tree.to_owned(),
            functions: Arc::default(),
            sites: Mutex::default(),
        }
    }

    /// Performs a task. Blocks.
    pub(super) fn perform(&self, task: &CodeTask<'_>, server: Arc<dyn AskServer>) -> TaskResult {
        match task {
            CodeTask::Inspect => TaskResult::Inspected(Box::new(self.inspect())),
            CodeTask::Static { node, facts, site } => {
                let made = self.site(site).and_then(|site| site.catalog(node, facts));
                match made {
                    Ok(catalog) => TaskResult::Catalog(Box::new(catalog)),
                    Err(problem) => TaskResult::Errors(vec![problem]),
                }
            }
            CodeTask::States(task) => {
                let (root, pillar) = (&*task.root, task.pillar.as_deref());
                let directories = StateDirectories {
                    states: vec![self.tree.join(root)],
                    pillar: pillar.iter().map(|one| self.tree.join(one)).collect(),
                };
                let input = Input {
                    node: task.node.to_string(),
                    facts: task.facts.as_map().clone(),
                    other_nodes: OtherNodePolicy::Keep,
                    fact_trust: FactTrust::Sent {
                        may_target: task.fact_targeting,
                    },
                    ..Input::default()
                };
                self.states(directories, &input, &prefix(root), server)
            }
        }
    }

    fn inspect(&self) -> InspectedCode {
        let settings = settings::read(&self.tree);
        InspectedCode {
            // A site that no node can be compiled with fails the deploy.
            settings: settings.and_then(|settings| match &settings {
                Settings::Static { site } => self.site(site).map(|_| settings),
                _ => Ok(settings),
            }),
            modules: modules::read_named(&self.tree),
            reactors: bunraku_cues::reactors::read_all(&self.tree),
        }
    }

    fn site(&self, name: &str) -> Result<Arc<StaticSite>, CompileProblem> {
        let sites = || self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sites().get(name) {
            return Ok(Arc::clone(known));
        }
        let site = Arc::new(StaticSite::read(&self.tree, name)?);
        sites().insert(name.to_owned(), Arc::clone(&site));
        Ok(site)
    }

    fn states(
        &self,
        directories: StateDirectories,
        input: &Input,
        prefix: &str,
        server: Arc<dyn AskServer>,
    ) -> TaskResult {
        let world: Arc<dyn World> = Arc::new(StateWorld {
            directories: Arc::new(directories),
            functions: Arc::new(AskedFunctions {
                server: Arc::clone(&server),
                known: Arc::clone(&self.functions),
            }),
            answers: Arc::new(AskedAnswers(server)),
        });
        match compile(&world, input) {
            Ok(compiled) => {
                let mut catalog = compiled.catalog;
                for resource in catalog.resources.iter_mut().chain(&mut catalog.exports) {
                    if let Some(file) = &mut resource.file {
                        file.insert_str(0, prefix);
                    }
                }
                TaskResult::Catalog(Box::new(catalog))
            }
            Err(error) => {
                let problems = error.0.iter().map(|problem| {
                    let mut problem = problem_of_states(problem);
                    if let Some(file) = &mut problem.file {
                        file.insert_str(0, prefix);
                    }
                    problem
                });
                TaskResult::Errors(problems.collect())
            }
        }
    }
}

/// Returns the prefix of the names of state files, so that places start at the tree's root.
fn prefix(root: &str) -> String {
    match root {
        "." => String::new(),
        root => format!("{}/", root.trim_end_matches('/')),
    }
}
