//! Configuration: flags override the environment, which overrides the file, which overrides
//! defaults.
//!
//! The command line parser merges flags and environment. This module reads the file and has the
//! defaults. An unknown key is an error, because a misspelt one would silently do nothing.

mod cluster;
mod content;
mod file;
mod history;
mod puppet;
mod signer;

use std::path::{Path, PathBuf};

use crate::failure::Failure;

pub(crate) use cluster::{ClusterSection, ClusterSshSection};
pub(crate) use content::{ContentKind, ContentSection};
pub(crate) use file::{
    AgentSection, AuthorityKind, ConfigFile, GitSection, PuppetCompileSection, RunMethodKind,
    ServerSection, StoreKind, StoreSection,
};
pub(crate) use history::{HistoryKind, HistorySection};
pub(crate) use puppet::PuppetSection;
pub(crate) use signer::SignerSection;

/// The default path of the configuration file.
pub(crate) const DEFAULT_FILE: &str = "/etc/bunraku/bunraku.toml";

/// The default port of servers.
pub(crate) const DEFAULT_PORT: u16 = 8150;

/// The effective configuration, and the path it came from.
pub(crate) struct LoadedConfig {
    pub(crate) path: Option<PathBuf>,
    pub(crate) file: ConfigFile,
}

/// Reads the given file, or the default one if it exists.
pub(crate) fn load(named: Option<&Path>) -> Result<LoadedConfig, Failure> {
    let path = match named {
        Some(path) => path,
        None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
        None => {
            return Ok(LoadedConfig {
                path: None,
                file: ConfigFile::default(),
            });
        }
    };
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::new(format!("cannot read the configuration {}", path.display())).caused_by(&error)
    })?;
    let file = parse(&text).map_err(|error| {
        Failure::new(format!("the configuration {} is not valid", path.display()))
            .caused_by(&error)
            .hint(format!(
                "check it with `bunraku config check --config {}`",
                path.display()
            ))
    })?;
    Ok(LoadedConfig {
        path: Some(path.to_owned()),
        file,
    })
}

fn parse(text: &str) -> Result<ConfigFile, toml::de::Error> {
    toml::from_str(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check_error(text: &str, expected: Expect) {
        expected.assert_eq(&parse(text).expect_err("a wrong file").to_string());
    }

    #[test]
    fn an_empty_file_is_all_defaults() {
        let file = parse("").expect("an empty file");
        assert_eq!(file.server.listen.to_string(), "[::]:8150");
        assert_eq!(file.server.store.kind, StoreKind::Embedded);
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_line() {
        check_error(
            "[server]\nlisten = \"127.0.0.1:1\"\nliten = 1\n",
            expect![[r#"
                TOML parse error at line 3, column 1
                  |
                3 | liten = 1
                  | ^^^^^
                unknown field `liten`, expected one of `listen`, `name`, `names`, `data_dir`, `health_listen`, `agent_silence`, `store`, `content`, `authority`, `certificates`, `limits`, `cluster`, `facts`, `reports`, `history`, `compile`, `releases`, `queries`, `audit`
            "#]],
        );
    }

    #[test]
    fn a_span_of_time_that_is_none_is_refused_with_examples() {
        check_error(
            "[agent]\nfacts_interval = \"often\"\n",
            expect![[r#"
                TOML parse error at line 2, column 18
                  |
                2 | facts_interval = "often"
                  |                  ^^^^^^^
                `often` is not a duration; write for example `30s`, `15m`, `1h 30m` or `7d`
            "#]],
        );
    }
}
