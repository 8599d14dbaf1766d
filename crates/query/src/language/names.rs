//! Suggestions for misspelt names.

/// Returns the nearest name, if it is similar enough to be the intended one.
pub(crate) fn near<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    bunraku_model::near_names(wrong, names).into_iter().next()
}
