//! The code of a site in two versions, and the state compiler for it.
//!
//! The new version differs for one node in N. Both versions have the same lines, so
//! that only the intended parts differ.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bunraku_model::{Catalog, CodeId, FactSet, NodeName};
use bunraku_server::backstage::{
    Compilation, CompileFailure, CompileRequest, Compiler, EnvironmentSlots,
};
use bunraku_states::{Function, Input, Lookup, OtherNodePolicy, Tree, World, WorldError, compile};

/// The number of files in each node's catalog.
const FILES: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Old,
    New,
}

impl Version {
    pub(crate) fn code_id(self) -> CodeId {
        let digit = match self {
            Self::Old => 1,
            Self::New => 2,
        };
        CodeId(format!("{digit:040x}"))
    }
}

/// State files in memory, and the only state function that they use.
struct Files {
    site: String,
}

impl World for Files {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        Ok(match (tree, path) {
            (Tree::States, "top.sls") => Some("base:\n  '*':\n    - site\n".to_owned()),
            (Tree::States, "site.sls") => Some(self.site.clone()),
            _ => None,
        })
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        Ok(match tree {
            Tree::States => vec!["site.sls".to_owned(), "top.sls".to_owned()],
            Tree::Pillar => Vec::new(),
        })
    }

    fn function(&self, name: &str) -> Lookup {
        match name {
            "file.managed" => Lookup::Known(Function {
                type_name: "file".to_owned(),
                arguments: vec![("contents".to_owned(), "content".to_owned())],
                name_parameter: "path".to_owned(),
                parameters: ["path", "content", "mode"].map(str::to_owned).to_vec(),
                ..Function::default()
            }),
            _ => Lookup::UnknownModule,
        }
    }
}

/// The handle; clones share their counts.
#[derive(Clone)]
pub(crate) struct SiteCode {
    old: Arc<dyn World>,
    new: Arc<dyn World>,
    compiles: Arc<AtomicU64>,
}

impl SiteCode {
    pub(crate) fn new(one_in: u64) -> Self {
        let differs =
            format!("{{% if grains['number'] % {one_in} == 0 %}}new{{% else %}}old{{% endif %}}");
        Self {
            old: Arc::new(Files { site: site("old") }),
            new: Arc::new(Files {
                site: site(&differs),
            }),
            compiles: Arc::default(),
        }
    }

    pub(crate) fn compiles(&self) -> u64 {
        self.compiles.load(Ordering::SeqCst)
    }

    /// Compiles all states of a node for real.
    pub(crate) fn compile(&self, version: Version, node: &NodeName, facts: &FactSet) -> Catalog {
        self.compiles.fetch_add(1, Ordering::SeqCst);
        let world = match version {
            Version::Old => &self.old,
            Version::New => &self.new,
        };
        let input = Input {
            node: node.to_string(),
            facts: facts.as_map().clone(),
            other_nodes: OtherNodePolicy::Keep,
            ..Input::default()
        };
        let compiled = compile(world, &input).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(compiled.catalog.resources.len(), FILES, "all of its files");
        compiled.catalog
    }
}

fn site(word: &str) -> String {
    let mut text = format!("{{% set word %}}{word}{{% endset %}}\n");
    for number in 0..FILES {
        let _ = write!(
            text,
            "/etc/site/{number}.conf:\n  file.managed:\n    - mode: '0644'\n    - contents: \"{{{{ word }}}} file {number} of {{{{ grains['id'] }}}}, {}\"\n",
            "as it has always been; ".repeat(4)
        );
        if number > 0 {
            let before = number - 1;
            let _ = write!(
                text,
                "    - require:\n      - file: /etc/site/{before}.conf\n"
            );
        }
    }
    text
}

#[async_trait]
impl Compiler for SiteCode {
    fn name(&self) -> &'static str {
        "states"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let _slot = slots.take().await.expect("nobody closes the slots");
        let version = if request.code_id == Version::New.code_id() {
            Version::New
        } else {
            Version::Old
        };
        let (code, request) = (self.clone(), request.clone());
        let work = move || SiteCode::compile(&code, version, &request.node, &request.facts);
        let made = tokio::task::spawn_blocking(work).await;
        Ok(made.expect("the code is right").into())
    }
}
