//! Compares a node's catalog with the one that plain Puppet compiles.
//!
//! Both get the same commit, facts and trusted data. Nothing is written.

use std::collections::BTreeSet;

use bunraku_model::catalog::{CatalogDiff, ListDiff};
use bunraku_model::{Catalog, NodeName};
use bunraku_wire::api::PuppetComparison;

use super::{CompileFailure, Compiles};
use bunraku_control::ServiceError;

impl Compiles {
    /// Compiles a node twice and compares resources, parameters, edges,
    /// classes and tags.
    pub async fn compare_with_puppet(
        &self,
        node: &NodeName,
    ) -> Result<PuppetComparison, ServiceError> {
        let environment = self.environment_of(node).await?;
        let deployed = self.deployed(&environment).await?.ok_or_else(|| {
            ServiceError::invalid(format!("environment {environment} has no code yet"))
        })?;
        let request = self
            // Both compiles share the answers to questions about other nodes.
            .request_for(node, &environment, &deployed.code_id, false)
            .await?
            .ok_or_else(|| ServiceError::invalid(format!("{node} has not sent facts yet")))?;
        let slots = self.inner.slots.of(&environment);
        let compilers = &self.inner.compilers;
        let ready = compilers.get(&environment, &deployed.code_id).await;
        let ready = ready.map_err(failed)?;
        let plain = ready.compiler.compile_plainly(&request, &slots).await;
        let plain = plain.ok_or_else(|| {
            let name = ready.compiler.name();
            ServiceError::invalid(format!(
                "environment {environment} is compiled by {name}, not by Puppet"
            ))
        })?;
        let ours = ready.compiler.compile(&request, &slots).await;
        match (plain, ours) {
            (Ok(plain), Ok(ours)) => Ok(compared(node, plain, ours.catalog)),
            (Err(plain), Ok(_)) => Err(failed(plain)),
            (Ok(_), Err(ours)) => Err(only_plain(ours)),
            // Both say the same. Ours has the place without temporary directories.
            (Err(_), Err(ours)) => Err(neither(ours)),
        }
    }
}

fn failed(failure: CompileFailure) -> ServiceError {
    failure.into_service_error("cannot compare the catalogs")
}

fn neither(failure: CompileFailure) -> ServiceError {
    with_prefix(
        failure,
        "neither Bunraku nor plain Puppet compiles a catalog",
    )
}

fn only_plain(failure: CompileFailure) -> ServiceError {
    with_prefix(
        failure,
        "plain Puppet compiles a catalog, and Bunraku does not",
    )
}

fn with_prefix(failure: CompileFailure, prefix: &str) -> ServiceError {
    match failure {
        CompileFailure::Problems(mut problems) => {
            for problem in &mut problems {
                if let Some(file) = &problem.file {
                    let line = problem.line.map(|line| format!(":{line}"));
                    let line = line.unwrap_or_default();
                    problem.message = format!("{file}{line}: {}", problem.message);
                }
            }
            if let Some(first) = problems.first_mut() {
                first.message = format!("{prefix}: {}", first.message);
            }
            failed(CompileFailure::Problems(problems))
        }
        other => failed(other),
    }
}

fn compared(node: &NodeName, mut plain: Catalog, mut ours: Catalog) -> PuppetComparison {
    // Puppet's name for the environment may differ from ours.
    plain.environment = None;
    ours.environment = None;
    PuppetComparison {
        node: node.clone(),
        resources: ours.resources.len(),
        diff: CatalogDiff::between(&plain, &ours),
        classes: names(&plain.classes, &ours.classes),
        tags: names(&plain.tags, &ours.tags),
    }
}

fn names(plain: &[String], ours: &[String]) -> ListDiff {
    let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
    let (plain, ours) = (set(plain), set(ours));
    ListDiff {
        added: ours.difference(&plain).cloned().collect(),
        removed: plain.difference(&ours).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn catalog(mode: &str, class: &str) -> Catalog {
        let text = json!({
            "name": "web-1",
            "classes": ["main", class],
            "tags": ["web"],
            "resources": [{"type": "File", "title": "/a", "parameters": {"mode": mode}}],
        });
        serde_json::from_value(text).expect("a catalog")
    }

    #[test]
    fn every_difference_is_found() {
        let node = NodeName::new("web-1").expect("a name");
        let check = |plain: Catalog, ours: Catalog| compared(&node, plain, ours);
        assert!(check(catalog("0644", "app"), catalog("0644", "app")).is_equal());
        let mode = check(catalog("0644", "app"), catalog("0600", "app"));
        assert_eq!(mode.diff.resources.len(), 1);
        let class = check(catalog("0644", "app"), catalog("0644", "other"));
        assert_eq!(
            (class.classes.added, class.classes.removed),
            (vec!["other".to_owned()], vec!["app".to_owned()])
        );
    }
}
