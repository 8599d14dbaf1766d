//! `config_version` of `environment.conf`: a program of the commit that names its version.
//!
//! It runs in a sandbox like the compile, except that it may start programs: it reads the commit
//! and the system, writes nothing, and has no network. A commit never changes, so it runs once for
//! all nodes. If it fails, catalogs keep a version that is derived from their content.

use std::path::Path;
use std::time::Duration;

use bunraku_process::{CapturePart, OutputError, OutputLimits, Program, SYSTEM_PATH, describe};

use super::modulepath::setting;

/// Time limit of the program.
const TIME_LIMIT: Duration = Duration::from_secs(15);
/// Maximum number of bytes of a version.
const LONGEST: usize = 4 << 10;

/// Returns the command of a tree, in words. `$environment` and similar settings have their values.
pub(super) fn command(tree: &Path, environments: &Path, environment: &str) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(tree.join("environment.conf")).ok()?;
    let given = setting(&text, "config_version")?;
    let place = environments.join(environment);
    let values = [
        ("$environmentpath", environments.display().to_string()),
        ("${environmentpath}", environments.display().to_string()),
        ("$environment", environment.to_owned()),
        ("${environment}", environment.to_owned()),
    ];
    let mut words: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
    for word in &mut words {
        for (name, value) in &values {
            *word = word.replace(name, value);
        }
    }
    // Puppet takes a relative path from the environment's directory.
    let program = words.first_mut()?;
    if !program.starts_with('/') {
        *program = place.join(&*program).display().to_string();
    }
    Some(words)
}

/// Runs `config_version` in the sandbox `program`, a Ruby program that becomes the command.
pub(super) async fn run(
    ruby: &Path,
    program: &Path,
    config: &Path,
    tree: &Path,
    command: &[String],
) -> Result<String, String> {
    let output = Program::new(ruby)
        .arg(program)
        .arg(config)
        .args(command)
        .env_clear()
        .env("PATH", SYSTEM_PATH)
        .env("LANG", "C.UTF-8")
        // Git complains about files that it may not read.
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(tree)
        .output(OutputLimits {
            time: TIME_LIMIT,
            stdout: CapturePart::AtMost(LONGEST),
            stderr: CapturePart::First(LONGEST),
        })
        .await
        .map_err(|error| match error {
            OutputError::TimeOut(limit) => format!("it took longer than {} s", limit.as_secs()),
            OutputError::TooMuch => format!("its output has more than {LONGEST} bytes"),
            OutputError::Start(error) | OutputError::Follow(error) => error.to_string(),
        })?;
    let (text, said) = (output.stdout_text(), output.stderr_text());
    if !output.status.success() {
        let how = describe(output.status);
        return Err(format!("it exited with {how}: {}", said.trim()));
    }
    let version = text.trim();
    if version.is_empty() || version.chars().any(char::is_control) {
        return Err("its output is not one line of text".to_owned());
    }
    Ok(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_read_with_the_values_of_settings() {
        let tree = tempfile::TempDir::new().expect("a directory");
        let given = |text: &str| {
            std::fs::write(tree.path().join("environment.conf"), text).expect("a file");
            command(tree.path(), Path::new("/e"), "production")
        };
        assert_eq!(given("modulepath = modules\n"), None);
        assert_eq!(given("config_version =\n"), None);
        assert_eq!(
            given("config_version = 'scripts/v.sh $environmentpath $environment'\n"),
            Some(vec![
                "/e/production/scripts/v.sh".into(),
                "/e".into(),
                "production".into()
            ])
        );
        assert_eq!(
            given("config_version = /usr/bin/echo ${environment}-1\n"),
            Some(vec!["/usr/bin/echo".into(), "production-1".into()])
        );
    }
}
