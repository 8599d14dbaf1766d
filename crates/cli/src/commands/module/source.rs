//! The source of a package: a local file, an address with a hash, or git.

use std::path::{Path, PathBuf};

use bunraku_compile::modules::{LARGEST_PACKAGE, ModuleReach, ModuleSource, fetch};

use crate::exit::Exit;
use crate::failure::Failure;

#[derive(clap::Args, Clone, Debug)]
#[group(id = "source", required = true, args = ["file", "url", "git"])]
pub(crate) struct SourceArgs {
    /// Package file on this machine
    file: Option<PathBuf>,
    /// URL of a package (https, http, file); requires `--sha256`
    #[arg(long, value_name = "URL", requires = "sha256", conflicts_with_all = ["file", "git"])]
    url: Option<String>,
    /// SHA-256 hash of the package
    #[arg(long, value_name = "HASH", requires = "url")]
    sha256: Option<String>,
    /// Git repository with the package; requires `--commit` and `--path`
    #[arg(long, value_name = "URL", requires_all = ["commit", "path"], conflicts_with = "file")]
    git: Option<String>,
    /// Full commit id
    #[arg(long, value_name = "COMMIT", requires = "git")]
    commit: Option<String>,
    /// Path of the package in the repository
    #[arg(long, value_name = "PATH", requires = "git")]
    path: Option<String>,
}

impl SourceArgs {
    /// The bytes, and how to speak of them. Nothing of them is unpacked.
    pub(crate) fn package(&self) -> Result<(PathBuf, Vec<u8>), Failure> {
        let Some(source) = self.remote_source()? else {
            let file = self.file.clone().unwrap_or_default();
            return Ok((file.clone(), read(&file)?));
        };
        let scratch = tempfile::tempdir()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let package = runtime.block_on(fetch(&source, scratch.path(), ModuleReach::Local));
        let package = package.map_err(|error| {
            Failure::new(format!("cannot fetch {source}"))
                .caused_by(&error)
                .exit(Exit::Refused)
        })?;
        Ok((PathBuf::from(source.to_string()), package))
    }

    fn remote_source(&self) -> Result<Option<ModuleSource>, Failure> {
        let given = |one: &Option<String>| one.clone().unwrap_or_default();
        if let Some(url) = &self.url {
            let sha256 = given(&self.sha256).parse();
            let wrong = |_| Failure::usage("`--sha256` must be 64 hexadecimal digits");
            return Ok(Some(ModuleSource::Url {
                url: url.clone(),
                sha256: sha256.map_err(wrong)?,
            }));
        }
        Ok(self.git.as_ref().map(|url| ModuleSource::Git {
            url: url.clone(),
            commit: given(&self.commit),
            path: given(&self.path),
        }))
    }
}

/// Reads a file, unless it is too large for a package.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    use std::io::Read;
    let cannot = |error| Failure::new(format!("cannot read {}", path.display())).caused_by(&error);
    let file = std::fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    let read = file.take(LARGEST_PACKAGE + 1).read_to_end(&mut bytes);
    read.map_err(cannot)?;
    if bytes.len() as u64 > LARGEST_PACKAGE {
        Err(Failure::new(format!(
            "{} exceeds the maximum size of a module",
            path.display()
        )))
    } else {
        Ok(bytes)
    }
}
