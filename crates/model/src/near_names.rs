//! Suggestions for misspelled names.

/// Returns up to three names that are most similar to the wanted one, the most similar first.
pub fn near_names<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let lower = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&lower, &name.to_lowercase()), name))
        .filter(|(score, _)| *score > 0.8)
        .collect();
    scored.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(other.1)));
    scored.dedup_by(|one, other| one.1 == other.1);
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested_and_each_once() {
        let names = ["production", "staging", "production", "prod", "x"];
        assert_eq!(near_names("prodution", names), ["production", "prod"]);
        assert_eq!(near_names("Staging", names), ["staging"]);
        assert!(near_names("qa", names).is_empty());
    }
}
