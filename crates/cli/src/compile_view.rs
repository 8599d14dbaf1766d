//! Compile problems and progress as text.

use bunraku_wire::api::{CompileNote, CompileOutcome, CompileProblem, CompileProgress};

use crate::output::count;

/// Formats `file:line:column: message`, as far as the position is known.
pub(crate) fn place(problem: &CompileProblem) -> String {
    let mut text = String::new();
    if let Some(file) = &problem.file {
        text.push_str(file);
        for number in [problem.line, problem.column]
            .into_iter()
            .map_while(|number| number)
        {
            text.push_str(&format!(":{number}"));
        }
        text.push_str(": ");
    }
    text + &problem.message
}

/// Formats the outcome of a compile in a few words.
pub(crate) fn outcome_words(outcome: &CompileOutcome) -> &'static str {
    match outcome {
        CompileOutcome::Compiled { .. } => "compiled",
        CompileOutcome::Failed {
            quarantined: true, ..
        } => "quarantined",
        CompileOutcome::Failed { .. } => "failed",
        CompileOutcome::NoCode => "no code",
        CompileOutcome::NoFacts => "no facts",
    }
}

/// Formats the problems of a failed compile, with their hints. Other outcomes have none.
pub(crate) fn problem_lines(outcome: &CompileOutcome) -> Vec<String> {
    let CompileOutcome::Failed { problems, .. } = outcome else {
        return Vec::new();
    };
    let lines = problems.iter().flat_map(|problem| {
        let hint = problem.hint.iter().map(|hint| format!("hint: {hint}"));
        std::iter::once(place(problem)).chain(hint)
    });
    lines.collect()
}

pub(crate) fn progress(progress: &CompileProgress) -> String {
    let shown = progress_words(progress);
    if shown.is_empty() {
        progress.nodes.to_string()
    } else {
        format!("{}: {}", progress.nodes, shown.join(", "))
    }
}

/// Returns the number of nodes, and how many of them are compiled: `3 nodes, 3 compiled`.
pub(crate) fn compiled_words(progress: &CompileProgress) -> String {
    let mut words = vec![count(progress.nodes, "node")];
    words.extend(progress_words(progress));
    words.join(", ")
}

/// Returns the number of nodes in each state that some node is in.
fn progress_words(progress: &CompileProgress) -> Vec<String> {
    let parts = [
        (progress.compiled, "compiled"),
        (progress.failed, "failed"),
        (progress.quarantined, "of them quarantined"),
        (progress.waiting, "waiting"),
        (progress.without_facts, "without facts"),
    ];
    parts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect()
}

/// Formats a compiler message with its location.
pub(crate) fn note(note: &CompileNote) -> String {
    let message = format!("{}: {}", note.level, note.message);
    let placed = CompileProblem {
        message,
        file: note.file.clone(),
        line: note.line,
        column: note.column,
        hint: None,
    };
    format!("    {}\n", place(&placed))
}
