//! States with `export`: resources for other nodes, which this node does not apply.

use bunraku_model::catalog::Resource;
use serde_json::{Value, json};

use super::Writer;
use crate::low::Chunk;
use crate::problem::Problem;

impl Writer<'_> {
    /// Returns the tags of each exported state. An exported state stands alone:
    /// the node that applies it knows no other state of this node.
    pub(super) fn exported(&self, problems: &mut Vec<Problem>) -> Vec<Option<Vec<String>>> {
        let mut exported = Vec::with_capacity(self.chunks.len());
        for chunk in self.chunks {
            exported.push(tags(chunk).unwrap_or_else(|problem| {
                problems.push(problem);
                None
            }));
        }
        for (number, chunk) in self.chunks.iter().enumerate() {
            let requisites = self.resolved.requisites[number].iter();
            let needed = requisites.flat_map(|(_, targets)| targets);
            let needed = needed.chain(&self.resolved.listens[number]);
            let needed: Vec<usize> = needed.map(|target| *target as usize).collect();
            if exported[number].is_some() && !needed.is_empty() {
                let message = format!("`{}` is exported and cannot have requisites", chunk.id);
                let problem = Problem::new(message, chunk.spot.location());
                problems.push(problem.hint("the node that collects it may add its own"));
                continue;
            }
            if let Some(target) = needed
                .into_iter()
                .find(|target| exported[*target].is_some())
            {
                let message = format!(
                    "`{}` needs `{}`, which is exported and not applied here",
                    chunk.id, self.chunks[target].id
                );
                problems.push(Problem::new(message, chunk.spot.location()));
            }
        }
        exported
    }

    /// Makes a resource an exported one. It keeps the state's arguments, so that
    /// another node can declare the same state.
    pub(super) fn export(
        &self,
        number: usize,
        mut resource: Resource,
        tags: &[String],
    ) -> Resource {
        resource.exported = true;
        resource.tags.extend(tags.iter().cloned());
        if let Some(state) = &mut resource.state {
            // The position in this node's run means nothing to others.
            state.order = None;
        }
        let arguments = json!(self.chunks[number].arguments);
        resource.other.insert("arguments".to_owned(), arguments);
        resource
    }
}

fn tags(chunk: &Chunk) -> Result<Option<Vec<String>>, Problem> {
    let wrong = || {
        let message = format!(
            "`export` of `{}` is not true, a tag, or a list of tags",
            chunk.id
        );
        Problem::new(message, chunk.spot.location())
    };
    Ok(match &chunk.export {
        Value::Null | Value::Bool(false) => None,
        Value::Bool(true) => Some(Vec::new()),
        Value::String(tag) => Some(vec![tag.clone()]),
        Value::Array(tags) => {
            let texts = tags.iter().map(|tag| tag.as_str().map(str::to_owned));
            Some(texts.collect::<Option<Vec<_>>>().ok_or_else(wrong)?)
        }
        _ => return Err(wrong()),
    })
}
