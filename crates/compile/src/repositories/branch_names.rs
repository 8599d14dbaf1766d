//! From branches to environments: patterns, prefixes and valid names.
//!
//! Pure. The rules are those of r10k, except that names are in lower case.

use bunraku_model::{EnvironmentName, Glob};
use bunraku_wire::api::repositories::{BranchRules, InvalidBranchNames};

/// Returns whether a branch is to be an environment.
pub(super) fn is_selected(rules: &BranchRules, branch: &str) -> bool {
    let matches = |pattern: &String| Glob::with_wildcards(pattern).matches(branch);
    (rules.branches.is_empty() || rules.branches.iter().any(matches))
        && !rules.exclude.iter().any(matches)
}

/// A branch's environment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BranchName {
    pub(super) environment: EnvironmentName,
    pub(super) is_corrected: bool,
}

/// Returns the environment of a branch, or why it cannot have one.
pub(super) fn environment_of(rules: &BranchRules, branch: &str) -> Result<BranchName, String> {
    let corrected: String = branch
        .chars()
        .map(|character| match character {
            'a'..='z' | '0'..='9' | '_' => character,
            'A'..='Z' => character.to_ascii_lowercase(),
            _ => '_',
        })
        .collect();
    let is_corrected = corrected != branch;
    if is_corrected && rules.invalid_names == InvalidBranchNames::Error {
        return Err(format!(
            "`{branch}` cannot be the name of an environment: only a-z, 0-9 and `_` are allowed"
        ));
    }
    let name = match &rules.prefix {
        None => corrected,
        Some(prefix) => format!("{prefix}_{corrected}"),
    };
    let environment = EnvironmentName::new(name).map_err(|error| error.to_string())?;
    Ok(BranchName {
        environment,
        is_corrected,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> BranchRules {
        serde_json::from_str(text).expect("rules")
    }

    #[test]
    fn names_are_corrected_as_r10k_does() {
        let usual = rules("{}");
        let named = |rules: &BranchRules, branch: &str| {
            environment_of(rules, branch).map(|name| name.environment.to_string())
        };
        for (branch, expected) in [
            ("main", "main"),
            ("feature/x-1", "feature_x_1"),
            ("release-1.2", "release_1_2"),
            ("JIRA-42", "jira_42"),
            ("ümlaut", "_mlaut"),
        ] {
            assert_eq!(named(&usual, branch).as_deref(), Ok(expected), "{branch}");
        }
        let strict = rules(r#"{"invalid_names": "error", "prefix": "web"}"#);
        assert_eq!(named(&strict, "main").as_deref(), Ok("web_main"));
        assert!(named(&strict, "feature/x").is_err());
        assert!(named(&usual, &"x".repeat(300)).is_err());
    }

    #[test]
    fn patterns_select_and_exclude() {
        let rules = rules(r#"{"branches": ["main", "feature/*"], "exclude": ["*/wip*"]}"#);
        for (branch, selected) in [
            ("main", true),
            ("feature/x", true),
            ("feature/wip-y", false),
            ("other", false),
        ] {
            assert_eq!(is_selected(&rules, branch), selected, "{branch}");
        }
    }
}
