//! Suggestions for misspelled names.

/// Suggests the name that is most similar to the wanted one.
pub(super) fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    names
        .map(|name| (distance(wanted, name), name))
        .filter(|(distance, name)| *distance <= 2.max(name.chars().count() / 4))
        .min_by(|one, other| one.cmp(other))
        .map(|(_, name)| format!("did you mean `{name}`?"))
}

/// Returns the number of single-character edits between two names. Compares only the first
/// 100 characters.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().take(100).collect();
    let other: Vec<char> = other.chars().take(100).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, character) in one.iter().enumerate() {
        let mut corner = row[0];
        row[0] = at + 1;
        for (column, candidate) in other.iter().enumerate() {
            let same = corner + usize::from(character != candidate);
            corner = row[column + 1];
            row[column + 1] = same.min(corner + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}
