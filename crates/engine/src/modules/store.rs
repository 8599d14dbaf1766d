//! The modules of a machine: installed below the state directory, or in a directory
//! that the user specifies.
//!
//! Everything is verified each time that it is read, against the keys that are trusted
//! at that time: a key that was revoked after a module was installed stops the module.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bunraku_model::Catalog;
use bunraku_module::{
    EXTENSION, KnownVersionError, KnownVersions, Trust, TrustError, VerifiedModule, VerifyError,
    verify,
};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

/// The largest package that is read.
const LARGEST: u64 = 64 << 20;
const KNOWN: &str = "known.json";

/// The reason why modules cannot be used. None of them was run.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    #[error("cannot use {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} exceeds the maximum size of a module")]
    TooLarge { path: PathBuf },
    #[error("the module {path} is refused")]
    Refused {
        path: PathBuf,
        #[source]
        source: VerifyError,
    },
    #[error("the module {path} is refused")]
    Known {
        path: PathBuf,
        #[source]
        source: KnownVersionError,
    },
    #[error("the module `{name}` exists twice: {first} and {second}")]
    Twice {
        name: String,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("cannot use the trusted key {path}")]
    Trust {
        path: PathBuf,
        #[source]
        source: TrustError,
    },
}

/// The reason why the available modules are not those that a catalog was made with.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    #[error("the catalog's `modules` is not a map of names to hashes")]
    Shape,
    #[error("the catalog needs the module `{0}`, which is not installed")]
    Missing(String),
    #[error("the module `{name}` differs from the one that the catalog was compiled with")]
    Other {
        name: String,
        #[source]
        source: VerifyError,
    },
    #[error("the catalog uses `{type_name}` of the module `{module}`, which it does not pin")]
    Unpinned { type_name: String, module: String },
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ShelfError {
    let path = path.to_owned();
    move |source| ShelfError::Io { path, source }
}

/// Reads the keys in a directory. Every `*.pub` is trusted, and `revoked` lists those
/// that are no longer trusted. Without the directory, no key is trusted.
pub fn read_trust(directory: &Path) -> Result<Trust, ShelfError> {
    let mut trust = Trust::default();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(trust),
        Err(error) => return Err(failed(directory)(error)),
    };
    for entry in entries {
        let path = entry.map_err(failed(directory))?.path();
        let wrong = |source| ShelfError::Trust {
            path: path.clone(),
            source,
        };
        let is_list = path.file_name().is_some_and(|name| name == "revoked");
        let is_key = path.extension().is_some_and(|extension| extension == "pub");
        if !is_list && !is_key {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(failed(&path))?;
        if is_list {
            trust.revoke(&text).map_err(wrong)?;
        } else {
            trust.add(&text).map_err(wrong)?;
        }
    }
    Ok(trust)
}

/// The modules of a machine.
#[derive(Clone, Debug)]
pub struct ModuleStore {
    directory: PathBuf,
}

impl ModuleStore {
    pub fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.join("modules"),
        }
    }

    /// Verifies a package and stores it. It replaces an older version. `from` is for messages.
    pub fn install(
        &self,
        from: &Path,
        package: &[u8],
        trust: &Trust,
    ) -> Result<VerifiedModule, ShelfError> {
        let module = verified(from, package, trust)?;
        self.remember([(from, &module)])?;
        let name = format!("{}.{EXTENSION}", module.manifest().name);
        write(&self.installed(), &name, package)?;
        Ok(module)
    }

    /// Verifies packages that came with a catalog, under the names that messages use.
    /// One refused package refuses all. `remember` is false for a run that must not
    /// change anything.
    pub fn admit(
        &self,
        packages: &[(PathBuf, Vec<u8>)],
        trust: &Trust,
        remember: bool,
    ) -> Result<Vec<VerifiedModule>, ShelfError> {
        let mut admitted = Vec::with_capacity(packages.len());
        for (name, package) in packages {
            admitted.push(verified(name, package, trust)?);
        }
        let names = packages.iter().map(|(name, _)| name.as_path());
        let all = names.zip(&admitted);
        if remember {
            self.remember(all)?;
        } else {
            check(&mut self.known()?, all)?;
        }
        Ok(admitted)
    }

    fn installed(&self) -> PathBuf {
        self.directory.join("installed")
    }

    /// Returns the installed packages.
    pub fn packages(&self) -> Result<Vec<PathBuf>, ShelfError> {
        packages(&self.installed())
    }

    /// Returns every module that a run may use: those in the given directories, and
    /// installed ones whose name is not in any of these directories. One refused module
    /// refuses all. `remember` is false for a run that must not change anything.
    pub fn load(
        &self,
        directories: &[PathBuf],
        trust: &Trust,
        remember: bool,
    ) -> Result<Vec<VerifiedModule>, ShelfError> {
        let mut loaded: Vec<(PathBuf, VerifiedModule)> = Vec::new();
        for directory in directories {
            // A specified directory that does not exist is a mistake.
            fs::metadata(directory).map_err(failed(directory))?;
            for path in packages(directory)? {
                let module = verified(&path, &read(&path)?, trust)?;
                if let Some((first, _)) = find(&loaded, &module) {
                    return Err(ShelfError::Twice {
                        name: module.manifest().name.clone(),
                        first: first.clone(),
                        second: path,
                    });
                }
                loaded.push((path, module));
            }
        }
        for path in self.packages()? {
            let module = verified(&path, &read(&path)?, trust)?;
            if find(&loaded, &module).is_none() {
                loaded.push((path, module));
            }
        }
        let all = || loaded.iter().map(|(path, module)| (path.as_path(), module));
        if remember {
            self.remember(all())?;
        } else {
            check(&mut self.known()?, all())?;
        }
        Ok(loaded.into_iter().map(|(_, module)| module).collect())
    }

    fn known(&self) -> Result<KnownVersions, ShelfError> {
        let path = self.directory.join(KNOWN);
        match fs::read(&path) {
            Ok(bytes) => {
                KnownVersions::parse(&bytes).map_err(|source| ShelfError::Known { path, source })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(KnownVersions::default()),
            Err(error) => Err(failed(&path)(error)),
        }
    }

    /// Records modules, one process at a time.
    fn remember<'a>(
        &self,
        modules: impl IntoIterator<Item = (&'a Path, &'a VerifiedModule)>,
    ) -> Result<(), ShelfError> {
        let mut modules = modules.into_iter().peekable();
        if modules.peek().is_none() {
            return Ok(());
        }
        let made = bunraku_files::create_private_directory(&self.directory);
        made.map_err(failed(&self.directory))?;
        let path = self.directory.join("lock");
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(&path).map_err(failed(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(&path)(error.into()))?;
        let mut known = self.known()?;
        if check(&mut known, modules)? {
            write(&self.directory, KNOWN, &known.to_bytes())?;
        }
        Ok(())
    }
}

/// Refuses modules that are older than recorded. Returns true if there is something new.
fn check<'a>(
    known: &mut KnownVersions,
    modules: impl Iterator<Item = (&'a Path, &'a VerifiedModule)>,
) -> Result<bool, ShelfError> {
    let mut news = false;
    for (path, module) in modules {
        news |= known.take(module).map_err(|source| ShelfError::Known {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(news)
}

fn find<'a>(
    loaded: &'a [(PathBuf, VerifiedModule)],
    module: &VerifiedModule,
) -> Option<&'a (PathBuf, VerifiedModule)> {
    let name = &module.manifest().name;
    loaded
        .iter()
        .find(|(_, known)| known.manifest().name == *name)
}

fn packages(directory: &Path) -> Result<Vec<PathBuf>, ShelfError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(directory)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed(directory))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == EXTENSION)
        {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, ShelfError> {
    let file = fs::File::open(path).map_err(failed(path))?;
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(failed(path))?;
    if bytes.len() as u64 > LARGEST {
        let path = path.to_owned();
        return Err(ShelfError::TooLarge { path });
    }
    Ok(bytes)
}

fn verified(path: &Path, package: &[u8], trust: &Trust) -> Result<VerifiedModule, ShelfError> {
    verify(package, trust).map_err(|source| ShelfError::Refused {
        path: path.to_owned(),
        source,
    })
}

/// Writes a file atomically. It survives a power failure.
fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), ShelfError> {
    let path = directory.join(name);
    bunraku_files::create_private_directory(directory)
        .and_then(|()| bunraku_files::replace(&path, bytes, 0o600))
        .map_err(failed(&path))
}

/// Checks that the modules are those that the catalog was made with. A catalog may have
/// a member `modules` that maps each name to the hash of its package.
pub fn check_pins(catalog: &Catalog, modules: &[VerifiedModule]) -> Result<(), PinError> {
    let pins = match catalog.other.get("modules") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(pins)) => pins,
        Some(_) => return Err(PinError::Shape),
    };
    for (name, pin) in pins {
        let pin = pin.as_str().ok_or(PinError::Shape)?;
        let module = modules.iter().find(|one| one.manifest().name == *name);
        let module = module.ok_or_else(|| PinError::Missing(name.clone()))?;
        module.check_pin(pin).map_err(|source| PinError::Other {
            name: name.clone(),
            source,
        })?;
    }
    let unpinned = (modules.iter().map(VerifiedModule::manifest))
        .filter(|manifest| !pins.contains_key(&manifest.name));
    for manifest in unpinned {
        let adds = |name: &str| (manifest.types.iter()).any(|one| one.name == name.to_lowercase());
        let used = (catalog.resources.iter()).find(|resource| adds(&resource.type_name));
        if let Some(used) = used {
            return Err(PinError::Unpinned {
                type_name: used.type_name.clone(),
                module: manifest.name.clone(),
            });
        }
    }
    Ok(())
}
