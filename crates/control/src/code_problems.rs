//! Problems in files of an environment's code, with their place.
//!
//! Absent here: the meaning of the files. Compilers, modules and reactors each read their own.

use bunraku_states::{Node, Problem};
use bunraku_wire::api::CompileProblem;

/// A problem at this place of a file in an environment.
pub fn problem_at(file: &str, node: &Node, message: String) -> CompileProblem {
    CompileProblem {
        message,
        file: Some(file.to_owned()),
        line: Some(node.line as u64),
        column: Some(node.column as u64),
        hint: None,
    }
}

/// Converts a problem of the states front end to the API's terms.
pub fn problem_of_states(problem: &Problem) -> CompileProblem {
    let known = |number: usize| (number > 0).then_some(number as u64);
    let mut message = problem.message.clone();
    for (what, place) in &problem.also {
        message.push_str(&format!("; {what}: {place}"));
    }
    CompileProblem {
        message,
        file: Some(problem.at.file.clone()).filter(|file| !file.is_empty()),
        line: known(problem.at.line),
        column: known(problem.at.column),
        hint: problem.hint.clone(),
    }
}
