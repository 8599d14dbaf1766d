//! Everything that belongs to one commit of an environment: its submodules, the
//! modules of its Puppetfile, and its additional repositories.
//!
//! All of them are resolved to commits and hashes before anything is packed.
//! The result names each one, so the same code can be had again, whatever a
//! branch points to by then.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use bunraku_model::{CodeId, ContentId};
use bunraku_wire::api::{CompileProblem, DeployedModule};
use futures::{StreamExt, TryStreamExt};

use super::CodeError;
use super::additional::{self, AdditionalRepository};
use super::forge::Forge;
use super::git::{CommittedFile, FetchScope, GitError, is_commit};
use super::mirrors::{MOST_FETCHES, MirroredCommit, Mirrors};
use super::puppetfile::{self, GitReference, ModuleOrigin, PuppetfileModule};
use super::repository::{check_reference, check_url, is_local, masked};
use super::tree::{PartContent, TreePart};

/// Maximum nesting of submodules.
const DEEPEST: usize = 8;
/// Maximum number of submodules.
const MOST_SUBMODULES: usize = 500;
/// Maximum size of `.gitmodules` in bytes.
const LARGEST_GITMODULES: u64 = 1 << 20;

/// The code that is wanted.
#[derive(Clone, Debug)]
pub struct CodeRequest {
    pub url: String,
    pub wanted: FetchScope,
    /// The environment's branch, which modules can follow.
    pub branch: Option<String>,
}

/// A commit with everything that belongs to it.
pub(super) struct ResolvedCode {
    pub(super) id: CodeId,
    /// The commit, its submodules and the additional repositories.
    pub(super) own: Vec<TreePart>,
    /// The modules of the Puppetfile.
    pub(super) modules: Vec<TreePart>,
    pub(super) pins: Vec<DeployedModule>,
}

/// Resolves code with the repositories and archives of this server.
pub(super) struct Resolver<'a> {
    pub(super) mirrors: &'a Mirrors,
    pub(super) forge: &'a Forge,
    pub(super) request: &'a CodeRequest,
}

/// A module at one commit or version.
struct ResolvedModule {
    part: TreePart,
    pin: DeployedModule,
}

impl Resolver<'_> {
    pub(super) async fn resolve(&self) -> Result<ResolvedCode, CodeError> {
        let request = self.request;
        let main = self.mirrors.fetch(&request.url, &request.wanted).await?;
        let modules = self.puppetfile(&main).await?;
        let additional = self.additional(&main).await?;
        let branch = self.control_branch(&modules, &additional).await?;
        let branch = branch.as_deref();
        let modules: Vec<_> = modules
            .into_iter()
            .map(|module| self.module(module, branch))
            .collect();
        let modules: Vec<Option<ResolvedModule>> = futures::stream::iter(modules)
            .buffered(MOST_FETCHES)
            .try_collect()
            .await?;
        let modules: Vec<ResolvedModule> = modules.into_iter().flatten().collect();
        let additional: Vec<_> = additional
            .into_iter()
            .map(|repository| self.repository(repository, branch))
            .collect();
        let additional: Vec<ResolvedModule> = futures::stream::iter(additional)
            .buffered(MOST_FETCHES)
            .try_collect()
            .await?;
        let replaced: HashSet<PathBuf> = modules
            .iter()
            .map(|module| module.part.place.clone())
            .collect();
        let mut own = vec![TreePart {
            excluded: replaced.clone(),
            ..TreePart::new(git_part(&main, PathBuf::new()), PathBuf::new())
        }];
        self.submodules(&main, &request.url, &replaced, &mut own)
            .await?;
        let mut pins = Vec::new();
        for repository in additional {
            own.push(TreePart {
                excluded: replaced.clone(),
                ..repository.part
            });
            pins.push(repository.pin);
        }
        let mut parts = Vec::new();
        for module in modules {
            parts.push(module.part);
            pins.push(module.pin);
        }
        Ok(ResolvedCode {
            id: code_id(&main.commit, &pins),
            own,
            modules: parts,
            pins,
        })
    }

    async fn puppetfile(&self, main: &MirroredCommit) -> Result<Vec<PuppetfileModule>, CodeError> {
        let Some(text) = self
            .text(main, puppetfile::FILE, puppetfile::LARGEST)
            .await?
        else {
            return Ok(Vec::new());
        };
        puppetfile::parse(&text).map_err(|error| CodeError::Problem(error.into_problem()))
    }

    async fn additional(
        &self,
        main: &MirroredCommit,
    ) -> Result<Vec<AdditionalRepository>, CodeError> {
        let Some(text) = self
            .text(main, additional::FILE, additional::LARGEST)
            .await?
        else {
            return Ok(Vec::new());
        };
        additional::parse(&text).map_err(CodeError::Problem)
    }

    /// Returns the text of a file of the commit, if it exists.
    async fn text(
        &self,
        main: &MirroredCommit,
        file: &str,
        limit: u64,
    ) -> Result<Option<String>, CodeError> {
        let read = main
            .mirror
            .read_file(CommittedFile {
                url: &self.request.url,
                commit: &main.commit,
                path: file,
                limit,
            })
            .await;
        match read {
            Err(GitError::NoFile { .. }) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => Ok(Some(text)),
                Err(_) => Err(CodeError::Problem(CompileProblem {
                    message: "the file is not text in UTF-8".to_owned(),
                    file: Some(file.to_owned()),
                    ..CompileProblem::default()
                })),
            },
        }
    }

    /// Returns the environment's branch, if something follows it.
    async fn control_branch(
        &self,
        modules: &[PuppetfileModule],
        additional: &[AdditionalRepository],
    ) -> Result<Option<String>, CodeError> {
        let follows = |module: &PuppetfileModule| {
            let control = GitReference::ControlBranch;
            matches!(&module.source, ModuleOrigin::Git { reference, .. } if *reference == control)
        };
        let is_needed =
            modules.iter().any(follows) || additional.iter().any(|one| one.reference.is_none());
        if !is_needed || self.request.branch.is_some() {
            return Ok(self.request.branch.clone());
        }
        Ok(self.mirrors.branches(&self.request.url).await?.default)
    }

    /// Resolves one module; none for a module of the repository itself.
    async fn module(
        &self,
        module: PuppetfileModule,
        branch: Option<&str>,
    ) -> Result<Option<ResolvedModule>, CodeError> {
        let resolved = match &module.source {
            ModuleOrigin::Local => return Ok(None),
            ModuleOrigin::Forge {
                owner,
                name,
                version,
            } => {
                let release = self.forge.release(owner, name, version.as_deref()).await;
                release.map_err(CodeError::from).map(|release| {
                    let content = PartContent::Archive(release.archive);
                    let pin = DeployedModule {
                        name: module.name.clone(),
                        path: module.path.display().to_string(),
                        source: format!("{owner}/{name}"),
                        reference: version.clone(),
                        version: release.version,
                        sha256: Some(release.sha256.to_string()),
                    };
                    (content, pin)
                })
            }
            ModuleOrigin::Git {
                url,
                reference,
                fallbacks,
            } => {
                let wanted = match (reference, branch) {
                    (GitReference::DefaultBranch, _) => Some(FetchScope::DefaultBranch),
                    (GitReference::Named(name), _) => Some(FetchScope::Reference(name.clone())),
                    (GitReference::ControlBranch, branch) => {
                        branch.map(|branch| FetchScope::Branch(branch.to_owned()))
                    }
                };
                let fallbacks = fallbacks.iter().cloned().map(FetchScope::Reference);
                let wanted: Vec<FetchScope> = wanted.into_iter().chain(fallbacks).collect();
                let fetched = self.fetch(url, &wanted).await;
                fetched.map(|(found, used)| {
                    let pin = DeployedModule {
                        name: module.name.clone(),
                        path: module.path.display().to_string(),
                        source: masked(url),
                        reference: used,
                        version: found.commit.clone(),
                        sha256: None,
                    };
                    (git_part(&found, PathBuf::new()), pin)
                })
            }
        };
        let (content, pin) = resolved.map_err(|error| in_puppetfile(error, &module))?;
        let mut part = TreePart {
            skips_submodules: true,
            ..TreePart::new(content, module.path.clone())
        };
        if module.excludes_spec {
            part.excluded.insert(module.path.join("spec"));
        }
        Ok(Some(ResolvedModule { part, pin }))
    }

    async fn repository(
        &self,
        repository: AdditionalRepository,
        branch: Option<&str>,
    ) -> Result<ResolvedModule, CodeError> {
        let wanted: Vec<FetchScope> = match (&repository.reference, branch) {
            (Some(reference), _) => vec![FetchScope::Reference(reference.clone())],
            (None, Some(branch)) => {
                vec![
                    FetchScope::Branch(branch.to_owned()),
                    FetchScope::DefaultBranch,
                ]
            }
            (None, None) => vec![FetchScope::DefaultBranch],
        };
        let fetched = self.fetch(&repository.url, &wanted).await;
        let (found, used) = fetched.map_err(|error| {
            located(error, |message| CompileProblem {
                message,
                file: Some(additional::FILE.to_owned()),
                line: Some(repository.line),
                column: Some(repository.column),
                hint: None,
            })
        })?;
        let place = repository.mountpoint.clone();
        Ok(ResolvedModule {
            pin: DeployedModule {
                name: name_of(&repository.url),
                path: place.display().to_string(),
                source: masked(&repository.url),
                reference: used,
                version: found.commit.clone(),
                sha256: None,
            },
            part: TreePart {
                fills_gaps: true,
                skips_submodules: true,
                ..TreePart::new(git_part(&found, repository.root.clone()), place)
            },
        })
    }

    /// Resolves a repository that code names. Returns the reference that was used.
    async fn fetch(
        &self,
        url: &str,
        wanted: &[FetchScope],
    ) -> Result<(MirroredCommit, Option<String>), CodeError> {
        self.check_address(url)?;
        for one in wanted {
            if let FetchScope::Reference(name) | FetchScope::Branch(name) = one {
                check_reference(name).map_err(|error| problem(error.to_string(), None))?;
            }
        }
        let (found, used) = self.mirrors.resolve(url, wanted).await?;
        let used = match used {
            FetchScope::DefaultBranch => None,
            FetchScope::Branch(name) | FetchScope::Reference(name) => Some(name),
        };
        Ok((found, used))
    }

    /// Refuses addresses that code must not use. Code from another machine has
    /// no access to the repositories in this server's file system.
    fn check_address(&self, url: &str) -> Result<(), CodeError> {
        if let Err(error) = check_url(url) {
            let is_open = url.starts_with("git://") || url.starts_with("http://");
            let hint = is_open.then(|| {
                "use `https://…` or SSH: `git://` and `http://` are not protected against changes on the way"
                    .to_owned()
            });
            return Err(problem(error.to_string(), hint));
        }
        if is_local(url) && !is_local(&self.request.url) {
            let message = format!("`{url}` is a repository in the server's file system");
            let hint = "only environments whose own repository is there can use it";
            return Err(problem(message, Some(hint.to_owned())));
        }
        Ok(())
    }

    /// Adds the submodules of a commit, and theirs.
    async fn submodules(
        &self,
        main: &MirroredCommit,
        url: &str,
        replaced: &HashSet<PathBuf>,
        parts: &mut Vec<TreePart>,
    ) -> Result<(), CodeError> {
        let mut open = vec![(main.clone(), url.to_owned(), PathBuf::new(), 0)];
        while let Some((commit, url, place, depth)) = open.pop() {
            for submodule in self.listed_submodules(&commit, &url).await? {
                let below = place.join(&submodule.path);
                if below.ancestors().any(|one| replaced.contains(one)) {
                    continue;
                }
                let shown = below.display().to_string();
                if depth == DEEPEST || parts.len() > MOST_SUBMODULES {
                    let message = format!(
                        "the submodule `{shown}` is one too many: they are nested more than {DEEPEST} deep, or there are more than {MOST_SUBMODULES}"
                    );
                    return Err(problem(message, None));
                }
                let fetched = self.submodule(&submodule).await;
                let fetched = fetched.map_err(|error| {
                    located(error, |message| CompileProblem {
                        message: format!("cannot fetch the submodule `{shown}`: {message}"),
                        file: Some(".gitmodules".to_owned()),
                        ..CompileProblem::default()
                    })
                })?;
                parts.push(TreePart {
                    excluded: replaced.clone(),
                    ..TreePart::new(git_part(&fetched, PathBuf::new()), below.clone())
                });
                open.push((fetched, submodule.url, below, depth + 1));
            }
        }
        Ok(())
    }

    async fn submodule(&self, submodule: &Submodule) -> Result<MirroredCommit, CodeError> {
        self.check_address(&submodule.url)?;
        let wanted = [FetchScope::Reference(submodule.commit.clone())];
        let (found, _) = self.mirrors.resolve(&submodule.url, &wanted).await?;
        Ok(found)
    }

    /// Lists the submodules that `.gitmodules` of a commit names.
    async fn listed_submodules(
        &self,
        main: &MirroredCommit,
        url: &str,
    ) -> Result<Vec<Submodule>, CodeError> {
        let (mirror, commit) = (&main.mirror, &main.commit);
        let file = CommittedFile {
            url,
            commit,
            path: ".gitmodules",
            limit: LARGEST_GITMODULES,
        };
        match mirror.read_file(file).await {
            Err(GitError::NoFile { .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let blob = format!("{commit}:.gitmodules");
        let listed = mirror
            .run(&["config", "--blob", &blob, "--null", "--list"])
            .await?;
        let entries = read_gitmodules(&listed);
        let tree = mirror
            .run(&["ls-tree", "-r", "-z", "--full-tree", commit])
            .await?;
        let mut found = Vec::new();
        for line in String::from_utf8_lossy(&tree).split('\0') {
            let Some((path, commit)) = read_gitlink(line) else {
                continue;
            };
            let named = entries.iter().find(|(named, _)| named == path);
            // One that is not named is reported when the tree is packed.
            if let Some((_, relative)) = named {
                found.push(Submodule {
                    path: PathBuf::from(path),
                    url: absolute(url, relative),
                    commit: commit.to_owned(),
                });
            }
        }
        Ok(found)
    }
}

struct Submodule {
    path: PathBuf,
    url: String,
    commit: String,
}

/// Reads a line such as `160000 commit 3f2a…\tpath`.
fn read_gitlink(line: &str) -> Option<(&str, &str)> {
    let (head, path) = line.split_once('\t')?;
    let commit = head.strip_prefix("160000 commit ")?.trim();
    (is_commit(commit) && super::is_below(Path::new(path))).then_some((path, commit))
}

/// Reads paths and addresses from `git config --null --list`.
fn read_gitmodules(listed: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(listed);
    let values: Vec<(&str, &str)> = text
        .split('\0')
        .filter_map(|entry| entry.split_once('\n'))
        .collect();
    let mut found = Vec::new();
    for (key, path) in &values {
        let Some(name) = key.strip_suffix(".path") else {
            continue;
        };
        let address = format!("{name}.url");
        if let Some((_, url)) = values.iter().rev().find(|(key, _)| *key == address) {
            found.push(((*path).trim_end_matches('/').to_owned(), (*url).to_owned()));
        }
    }
    found
}

/// Resolves a relative address (`../other.git`) as git does.
fn absolute(base: &str, url: &str) -> String {
    if !url.starts_with("./") && !url.starts_with("../") {
        return url.to_owned();
    }
    let mut base = base.trim_end_matches('/').to_owned();
    let mut rest = url;
    loop {
        if let Some(below) = rest.strip_prefix("./") {
            rest = below;
        } else if let Some(above) = rest.strip_prefix("../") {
            rest = above;
            match base.rfind(['/', ':']) {
                Some(at) if base.as_bytes()[at] == b':' => base.truncate(at + 1),
                Some(at) => base.truncate(at),
                None => return url.to_owned(),
            }
        } else {
            break;
        }
    }
    if base.ends_with(':') {
        format!("{base}{rest}")
    } else {
        format!("{base}/{rest}")
    }
}

fn git_part(found: &MirroredCommit, from: PathBuf) -> PartContent {
    PartContent::Git {
        mirror: found.mirror.directory.clone(),
        commit: found.commit.clone(),
        from,
    }
}

/// Returns the last part of an address, without `.git`.
fn name_of(url: &str) -> String {
    let last = url.trim_end_matches('/').rsplit(['/', ':']).next();
    let last = last.unwrap_or(url);
    last.strip_suffix(".git").unwrap_or(last).to_owned()
}

/// The id of code: the commit, and a hash of everything that came with it.
fn code_id(commit: &str, pins: &[DeployedModule]) -> CodeId {
    if pins.is_empty() {
        return CodeId(commit.to_owned());
    }
    let mut text = String::new();
    for pin in pins {
        let sha256 = pin.sha256.as_deref().unwrap_or("");
        for word in [&pin.path, &pin.source, &pin.version, sha256] {
            text.push_str(word);
            text.push('\n');
        }
    }
    let hash = ContentId::of(text.as_bytes()).to_string();
    CodeId(format!("{commit}-{}", &hash[..12]))
}

fn problem(message: String, hint: Option<String>) -> CodeError {
    CodeError::Problem(CompileProblem {
        message,
        hint,
        ..CompileProblem::default()
    })
}

fn in_puppetfile(error: CodeError, module: &PuppetfileModule) -> CodeError {
    located(error, |message| CompileProblem {
        message: format!("cannot fetch the module `{}`: {message}", module.name),
        file: Some(puppetfile::FILE.to_owned()),
        line: Some(module.line),
        column: None,
        hint: None,
    })
}

/// Gives an error the place of its cause. Errors of the server itself keep theirs.
fn located(error: CodeError, place: impl FnOnce(String) -> CompileProblem) -> CodeError {
    match error {
        CodeError::Problem(inner) => {
            let outer = place(inner.message);
            let hint = inner.hint.or(outer.hint.clone());
            CodeError::Problem(CompileProblem { hint, ..outer })
        }
        CodeError::Git(error) => CodeError::Problem(place(bunraku_control::error::chain(&error))),
        CodeError::Forge(error) => CodeError::Problem(place(bunraku_control::error::chain(&error))),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_addresses_are_those_that_git_finds() {
        for (base, url, expected) in [
            ("https://h/a/b.git", "../c.git", "https://h/a/c.git"),
            ("https://h/a/b.git", "../../x/c.git", "https://h/x/c.git"),
            ("https://h/a/b.git", "./c.git", "https://h/a/b.git/c.git"),
            ("git@h:a/b.git", "../c.git", "git@h:a/c.git"),
            ("git@h:b.git", "../c.git", "git@h:c.git"),
            ("/srv/a", "../b", "/srv/b"),
            ("https://h/a", "https://other/x", "https://other/x"),
        ] {
            assert_eq!(absolute(base, url), expected, "{base} {url}");
        }
    }

    #[test]
    fn the_id_of_code_changes_with_every_pin() {
        let pin = DeployedModule {
            name: "ntp".to_owned(),
            path: "modules/ntp".to_owned(),
            source: "https://h/ntp".to_owned(),
            reference: Some("main".to_owned()),
            version: "1".repeat(40),
            sha256: None,
        };
        let commit = "c".repeat(40);
        assert_eq!(code_id(&commit, &[]).0, commit);
        let one = code_id(&commit, std::slice::from_ref(&pin));
        assert!(one.0.starts_with(&format!("{commit}-")), "{one}");
        let moved = DeployedModule {
            version: "2".repeat(40),
            ..pin.clone()
        };
        assert_ne!(code_id(&commit, &[moved]), one);
        // The name of a branch does not matter, only where it leads.
        let renamed = DeployedModule {
            reference: None,
            ..pin
        };
        assert_eq!(code_id(&commit, &[renamed]), one);
    }
}
