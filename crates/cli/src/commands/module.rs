//! `bunraku module`: build, sign, install and publish extension modules.

mod published;
mod source;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bunraku_engine::modules::{ModuleStore, read_trust};
use bunraku_module::{EXTENSION, File, SigningKey, VerifiedModule, pack, sign, verify};
use clap::Subcommand;
use serde_json::{Value, json};

use self::source::{SourceArgs, read};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::machine_modules::KeyArgs;
use crate::output::{self, Table};
use crate::state_dir::StateDirArgs;

#[derive(Subcommand)]
pub(crate) enum ModuleCommand {
    /// Create a key for signing modules
    #[command(
        after_help = "Example:\n  bunraku module keygen ./release-key --comment 'Example Inc'"
    )]
    Keygen {
        /// File for the private key; the public key is written to PATH.pub
        path: PathBuf,
        /// Owner of the key, shown to those who trust it
        #[arg(long, default_value = "")]
        comment: String,
    },
    /// Pack a directory with a `module.json` into one file
    #[command(after_help = "Example:\n  bunraku module pack ./nginx")]
    Pack {
        /// Directory with a `module.json`
        directory: PathBuf,
        /// Output file [default: NAME-VERSION.bunraku-module]
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Sign a packed module
    #[command(
        after_help = "Example:\n  bunraku module sign nginx-1.0.0.bunraku-module --key ./release-key"
    )]
    Sign {
        /// Packed module
        file: PathBuf,
        /// Private key
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Verify a module's signature and all its files
    #[command(after_help = "Example:\n  bunraku module verify nginx-1.0.0.bunraku-module")]
    Verify {
        /// Packed module
        file: PathBuf,
        #[command(flatten)]
        keys: KeyArgs,
    },
    /// Verify a module and install it on this machine
    #[command(after_help = "Example:\n  bunraku module install nginx-1.0.0.bunraku-module")]
    Install {
        #[command(flatten)]
        source: SourceArgs,
        #[command(flatten)]
        keys: KeyArgs,
        #[command(flatten)]
        state: StateDirArgs,
    },
    /// List installed or published modules, and whether they are accepted
    #[command(after_help = "Examples:\n  bunraku module list\n  bunraku module list --published")]
    List {
        /// List the modules published on the server
        #[arg(long)]
        published: bool,
        #[command(flatten)]
        keys: KeyArgs,
        #[command(flatten)]
        state: StateDirArgs,
    },
    /// Publish a signed module on the server
    #[command(after_help = "Example:\n  bunraku module publish nginx-1.0.0.bunraku-module")]
    Publish {
        #[command(flatten)]
        source: SourceArgs,
    },
    /// Show the published versions of a module
    #[command(
        after_help = "Examples:\n  bunraku module show nginx\n  bunraku module show nginx 1.0.0"
    )]
    Show {
        /// Name of the module
        name: String,
        /// Only this version
        version: Option<String>,
    },
    /// Remove a published version
    #[command(after_help = "Example:\n  bunraku module remove nginx 1.0.0")]
    Remove {
        /// Name of the module
        name: String,
        /// Version to remove
        version: String,
    },
    /// Make servers trust a key (a `.pub` file); nodes have their own keys
    #[command(after_help = "Example:\n  bunraku module trust ./release-key.pub")]
    Trust {
        /// Public key
        file: PathBuf,
    },
    /// Revoke a key permanently, on servers and on all nodes
    #[command(
        after_help = "Example:\n  bunraku module revoke SHA256:3q2+7w --reason 'the key was published'"
    )]
    Revoke {
        /// Fingerprint, as printed by `keygen` and `keys`
        fingerprint: String,
        /// Reason, shown with the key
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// List the keys that servers trust
    #[command(after_help = "Example:\n  bunraku module keys")]
    Keys,
    /// Show who published, removed, trusted and revoked what, and what was refused
    #[command(after_help = "Example:\n  bunraku module log")]
    Log,
}

pub(crate) fn run(command: ModuleCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    match command {
        ModuleCommand::Keygen { path, comment } => keygen(&path, &comment, json),
        ModuleCommand::Pack { directory, output } => packed(&directory, output, json),
        ModuleCommand::Sign { file, key } => signed(&file, &key, json),
        ModuleCommand::Verify { file, keys } => {
            let trust = read_trust(&keys.module_keys)?;
            let module = verify(&read(&file)?, &trust).map_err(|error| {
                let hint = match error {
                    bunraku_module::VerifyError::UnknownKey(_) => Some(format!(
                        "to trust the key, copy its `.pub` file to {}",
                        keys.module_keys.display()
                    )),
                    _ => None,
                };
                Failure::new(format!("{} is refused", file.display()))
                    .caused_by(&error)
                    .hint_if(hint)
                    .exit(Exit::Refused)
            })?;
            print_module(&module, "verified", json)
        }
        ModuleCommand::Install {
            source,
            keys,
            state,
        } => {
            let trust = read_trust(&keys.module_keys)?;
            let shelf = ModuleStore::new(&state.state_dir);
            let (name, package) = source.package()?;
            let module = (shelf.install(&name, &package, &trust)).map_err(refused)?;
            print_module(&module, "installed", json)
        }
        ModuleCommand::List {
            published: true, ..
        } => published::list(context),
        ModuleCommand::List { keys, state, .. } => list(&keys.module_keys, &state.state_dir, json),
        ModuleCommand::Publish { source } => published::publish(&source, context),
        ModuleCommand::Show { name, version } => {
            published::show(&name, version.as_deref(), context)
        }
        ModuleCommand::Remove { name, version } => published::remove(&name, &version, context),
        ModuleCommand::Trust { file } => published::trust(&file, context),
        ModuleCommand::Revoke {
            fingerprint,
            reason,
        } => published::revoke(&fingerprint, &reason, context),
        ModuleCommand::Keys => published::keys(context),
        ModuleCommand::Log => published::log(context),
    }
}

fn refused(error: bunraku_engine::modules::ShelfError) -> Failure {
    use bunraku_engine::modules::ShelfError::{Known, Refused};
    let exit = match &error {
        Refused { .. } | Known { .. } => Exit::Refused,
        _ => Exit::Error,
    };
    Failure::from(error).exit(exit)
}

/// Never overwrites a file: it may be a key.
fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    bunraku_files::create(path, bytes, mode)
        .map_err(|error| Failure::new(format!("cannot write {}", path.display())).caused_by(&error))
}

/// Writes the whole file or nothing.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    bunraku_files::replace(path, bytes, 0o644)
        .map_err(|error| Failure::new(format!("cannot write {}", path.display())).caused_by(&error))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

fn keygen(path: &Path, comment: &str, json: bool) -> Result<Exit, Failure> {
    if comment.contains(char::is_control) {
        return Err(Failure::usage("the comment must be a single line"));
    }
    let key = SigningKey::generate()?;
    let public = key.public(comment);
    write_new(path, key.to_pem().as_bytes(), 0o600)?;
    let line = format!("{}\n", public.to_line());
    write_new(&beside(path), line.as_bytes(), 0o644)?;
    let fingerprint = public.fingerprint().to_string();
    if json {
        output::json(&json!({"fingerprint": fingerprint, "public": beside(path)}))?;
    } else {
        output::write(&format!("{fingerprint}\n"))?;
        note!(
            "\nhint: keep {} secret; machines that should trust this key need {}",
            path.display(),
            beside(path).display()
        );
    }
    Ok(Exit::Done)
}

fn packed(directory: &Path, output: Option<PathBuf>, json: bool) -> Result<Exit, Failure> {
    let manifest = read(&directory.join("module.json"))?;
    let mut files = Vec::new();
    collect(directory, "", &mut files)?;
    files.retain(|file| file.path != "module.json");
    let (manifest, package) = pack(&manifest, &files)?;
    let usual = format!("{}-{}.{EXTENSION}", manifest.name, manifest.version);
    let output = output.unwrap_or_else(|| PathBuf::from(usual));
    replace(&output, &package)?;
    if json {
        output::json(&json!({
            "file": output, "name": manifest.name, "version": manifest.version,
            "files": manifest.files.keys().collect::<Vec<_>>(),
        }))?;
    } else {
        output::write(&format!("{}\n", output.display()))?;
        note!(
            "\nhint: sign it with `bunraku module sign {}` and your key (`--key`)",
            output.display()
        );
    }
    Ok(Exit::Done)
}

/// Lists every file below a directory. Links and devices are errors: their targets on
/// the author's machine are not available to the module.
fn collect(directory: &Path, prefix: &str, files: &mut Vec<File>) -> Result<(), Failure> {
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::new(format!("cannot read {}", path.display())).caused_by(&error)
    };
    let entries = std::fs::read_dir(directory).map_err(|error| cannot(directory, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| cannot(directory, error))?;
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| {
            Failure::new(format!("the name of {} is not valid UTF-8", path.display()))
        })?;
        let kind = entry.file_type().map_err(|error| cannot(&path, error))?;
        let inside = format!("{prefix}{name}");
        if kind.is_dir() {
            collect(&path, &format!("{inside}/"), files)?;
        } else if kind.is_file() {
            let metadata = entry.metadata().map_err(|error| cannot(&path, error))?;
            files.push(File {
                path: inside,
                bytes: read(&path)?,
                executable: metadata.permissions().mode() & 0o111 != 0,
            });
        } else {
            return Err(Failure::new(format!(
                "{} is not a regular file; a module may contain only regular files",
                path.display()
            )));
        }
    }
    Ok(())
}

fn signed(file: &Path, key: &Path, json: bool) -> Result<Exit, Failure> {
    let pem = String::from_utf8(read(key)?).unwrap_or_default();
    let key = SigningKey::from_pem(&pem)
        .map_err(|error| Failure::new(format!("cannot use {}", key.display())).caused_by(&error))?;
    replace(file, &sign(&read(file)?, &key)?)?;
    let fingerprint = key.public("").fingerprint().to_string();
    if json {
        output::json(&json!({"file": file, "signed_by": fingerprint}))?;
    } else {
        output::write(&format!("{} signed by {fingerprint}\n", file.display()))?;
    }
    Ok(Exit::Done)
}

fn to_json(module: &VerifiedModule) -> Value {
    let manifest = module.manifest();
    json!({
        "name": manifest.name,
        "version": manifest.version,
        "types": manifest.types.iter().map(|one| &one.name).collect::<Vec<_>>(),
        "sha256": module.sha256(),
        "signed_by": module.signed_by().to_string(),
        "signer": module.signer(),
    })
}

fn print_module(module: &VerifiedModule, what: &str, json: bool) -> Result<Exit, Failure> {
    if json {
        output::json(&to_json(module))?;
        return Ok(Exit::Done);
    }
    let manifest = module.manifest();
    let types: Vec<&str> = manifest.types.iter().map(|one| one.name.as_str()).collect();
    output::write(&format!(
        "{what} {} {}\n  types      {}\n  sha256     {}\n  signed by  {}  {}\n",
        manifest.name,
        manifest.version,
        types.join(", "),
        module.sha256(),
        module.signed_by(),
        module.signer()
    ))?;
    Ok(Exit::Done)
}

/// Shows which modules would be refused. The exit code reports it, too.
fn list(keys: &Path, state_directory: &Path, json: bool) -> Result<Exit, Failure> {
    let trust = read_trust(keys)?;
    let mut table = Table::new(&["MODULE", "VERSION", "TYPES", "SIGNED BY", "STATUS"]);
    let mut all = Vec::new();
    let mut exit = Exit::Done;
    for path in ModuleStore::new(state_directory).packages()? {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        match verify(&read(&path)?, &trust) {
            Ok(module) => {
                let manifest = module.manifest();
                let types: Vec<&str> = manifest.types.iter().map(|one| one.name.as_str()).collect();
                let short = module.signed_by().to_string()[..16].to_owned();
                table.row(vec![
                    manifest.name.clone(),
                    manifest.version.to_string(),
                    types.join(", "),
                    short,
                    "verified".to_owned(),
                ]);
                all.push(to_json(&module));
            }
            Err(error) => {
                exit = Exit::Refused;
                let empty = String::new;
                let status = format!("refused: {error}");
                table.row(vec![stem.to_string(), empty(), empty(), empty(), status]);
                all.push(json!({"name": stem, "refused": error.to_string()}));
            }
        }
    }
    if json {
        output::json(&all)?;
    } else {
        table.print()?;
    }
    Ok(exit)
}
