//! The module path of an environment, as far as the server follows it.
//!
//! Puppet reads `environment.conf` itself. The server reads it as well, to find
//! the files behind `puppet:///modules/…`. It searches only below the commit
//! and in the server's own module directories, whatever the file contains.

use std::path::{Component, Path, PathBuf};

/// Returns the module directories of a tree, in the order of the path.
pub(crate) fn module_directories(tree: &Path, base: &[PathBuf]) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(tree.join("environment.conf")).unwrap_or_default();
    let given = setting(&text, "modulepath").unwrap_or("modules:$basemodulepath");
    let mut found = Vec::new();
    for part in given.split(':').map(str::trim) {
        if part == "$basemodulepath" || part == "${basemodulepath}" {
            found.extend(base.iter().cloned());
            continue;
        }
        let path = Path::new(part.strip_prefix("./").unwrap_or(part));
        let is_known = base.iter().any(|base| path == base);
        let is_below = path
            .components()
            .all(|one| matches!(one, Component::Normal(_)));
        if is_known || (is_below && !part.is_empty()) {
            found.push(tree.join(path));
        }
    }
    found
}

/// Returns a setting of `environment.conf`, which has no sections. As in Puppet, a quote at either
/// end is not part of the value.
pub(super) fn setting<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    const QUOTES: [char; 2] = ['\'', '"'];
    text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        let value = value.trim();
        let value = value.strip_prefix(QUOTES).unwrap_or(value);
        (key.trim() == name).then(|| value.strip_suffix(QUOTES).unwrap_or(value).trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let tree = tempfile::TempDir::new().expect("a directory");
        std::fs::write(tree.path().join("environment.conf"), text).expect("a file");
        let base = [PathBuf::from("/usr/share/puppet/modules")];
        let all = module_directories(tree.path(), &base).into_iter();
        let shown = |path: PathBuf| match path.strip_prefix(tree.path()) {
            Ok(below) => below.display().to_string(),
            Err(_) => path.display().to_string(),
        };
        all.map(shown).collect()
    }

    #[test]
    fn the_usual_path_is_the_commits_modules_and_then_the_servers() {
        assert_eq!(found(""), ["modules", "/usr/share/puppet/modules"]);
    }

    #[test]
    fn a_path_of_its_own_is_followed_below_the_commit() {
        let text = "# ours\nmodulepath = site-modules:./vendor/modules:$basemodulepath\n";
        assert_eq!(
            found(text),
            [
                "site-modules",
                "vendor/modules",
                "/usr/share/puppet/modules"
            ]
        );
    }

    #[test]
    fn a_quoted_path_is_the_path_between_the_quotes() {
        let text = "modulepath = \"./modules:./site-modules:$basemodulepath\"\n";
        let expected = ["modules", "site-modules", "/usr/share/puppet/modules"];
        assert_eq!(found(text), expected);
    }

    #[test]
    fn paths_elsewhere_on_the_server_are_left_out() {
        assert_eq!(found("modulepath = /etc:../other:modules\n"), ["modules"]);
    }
}
