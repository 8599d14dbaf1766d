//! Suggestions for misspelt names.

/// Returns the nearest name, if it is similar enough to be the intended one.
pub(crate) fn near<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wrong = wrong.to_lowercase();
    let scored = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&wrong, &name.to_lowercase()), name));
    let best = scored.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 > 0.8).then_some(best.1)
}
