//! Facts that modules define in Ruby, evaluated by the installed Facter.
//!
//! A small program loads the facts in `lib/facter` and prints the value of each fact that they
//! define, and of no other. It runs with a minimal environment and a time limit.

use std::path::Path;

use bunraku_process::{CapturePart, OutputError, OutputLimits, Program, SYSTEM_PATH, describe};
use serde_json::{Map, Value};

use super::PluginOptions;

const PROGRAM: &str = include_str!("custom_facts.rb");
/// Maximum size of all values as JSON.
const MOST_BYTES: usize = 4 << 20;

/// Returns the values of all facts that define one. Blocks.
pub(super) fn collect(
    plugins: &Path,
    options: &PluginOptions,
) -> Result<Map<String, Value>, String> {
    let has_facts = |directory: std::fs::ReadDir| {
        (directory.flatten()).any(|entry| entry.path().extension().is_some_and(|end| end == "rb"))
    };
    if !std::fs::read_dir(plugins.join("lib/facter")).is_ok_and(has_facts) {
        return Ok(Map::new());
    }
    let Some(ruby) = options.rubies.iter().find(|ruby| ruby.is_file()) else {
        tracing::info!("modules define facts in Ruby, and Ruby is not installed on this node");
        return Ok(Map::new());
    };
    let output = Program::new(ruby)
        .args(["-e", PROGRAM, "--"])
        .arg(plugins)
        .args(&options.puppet_arguments)
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .env("LC_ALL", "C.UTF-8")
        .env("LANG", "C.UTF-8")
        .env("HOME", "/root")
        .current_dir("/")
        .output_blocking(OutputLimits {
            time: options.facts_timeout,
            stdout: CapturePart::AtMost(MOST_BYTES),
            stderr: CapturePart::First(16 << 10),
        })
        .map_err(|error| match error {
            OutputError::TimeOut(limit) => {
                format!("they took longer than {} s", limit.as_secs())
            }
            OutputError::TooMuch => format!("they have more than {MOST_BYTES} bytes"),
            OutputError::Start(error) | OutputError::Follow(error) => error.to_string(),
        })?;
    let said = output.stderr_text();
    let first = said.lines().find(|line| !line.trim().is_empty());
    if !output.status.success() {
        let how = describe(output.status);
        return Err(format!(
            "Ruby ended with {how}: {}",
            first.unwrap_or("no message")
        ));
    }
    if let Some(first) = first {
        tracing::warn!(message = first, "facts of modules complain");
    }
    read(&output.stdout)
}

/// Reads lines of the form `["name", value]`.
fn read(output: &[u8]) -> Result<Map<String, Value>, String> {
    let mut facts = Map::new();
    for line in output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let (name, value): (String, Value) = serde_json::from_slice(line)
            .map_err(|error| format!("Ruby printed an invalid line: {error}"))?;
        facts.insert(name.to_lowercase(), value);
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    fn plugins(facts: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::TempDir::new().expect("a directory");
        for (name, text) in facts {
            let path = directory.path().join("lib").join(name);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        directory
    }

    #[test]
    fn facts_are_evaluated_by_facter_with_the_libraries_of_modules() {
        let plugins = plugins(&[
            (
                "facter/site.rb",
                "require 'site/names'\nFacter.add(:site) { setcode { {'name' => Site::NAME, 'kernel' => Facter.value(:kernel)} } }",
            ),
            (
                "facter/elsewhere.rb",
                "Facter.add(:elsewhere) { confine kernel: 'SunOS'; setcode { 1 } }",
            ),
            (
                "facter/broken.rb",
                "Facter.add(:broken) { setcode { raise 'no' } }",
            ),
            ("facter/syntax.rb", "Facter.add(:syntax) {"),
            (
                "facter/loud.rb",
                "puts '[\"forged\", 1]'\nFacter.add(:loud) { setcode { :yes } }",
            ),
            ("site/names.rb", "module Site; NAME = 'north'; end"),
        ]);
        let found = collect(plugins.path(), &PluginOptions::default()).expect("collected");
        assert_eq!(
            Value::Object(found),
            json!({"site": {"name": "north", "kernel": "Linux"}, "loud": "yes"})
        );
    }

    #[test]
    fn facts_that_hang_or_end_ruby_are_an_error() {
        let hangs = plugins(&[("facter/a.rb", "Facter.add(:a) { setcode { sleep } }")]);
        let options = PluginOptions {
            facts_timeout: Duration::from_secs(2),
            ..PluginOptions::default()
        };
        let reason = collect(hangs.path(), &options).expect_err("too late");
        assert_eq!(reason, "they took longer than 2 s");
        let ends = plugins(&[("facter/a.rb", "exit! 3")]);
        let reason = collect(ends.path(), &PluginOptions::default()).expect_err("ended");
        assert!(reason.contains("exit code 3"), "{reason}");
    }
}
