//! Work that outlives the process that started it.
//!
//! `kill -9` of an agent leaves the programs of its run behind, and a program may leave further
//! processes behind that detached from it. Before the work starts again, all of that must end. So
//! each recorded program has a file while it runs, written before it starts. The file names the
//! owner and the program by process id and start time, and the boot in which both are valid: a
//! reused process id is never mistaken for the old process. The program and everything that it
//! starts inherit a variable in their environment that names the file.
//!
//! Rule: a program that ends normally leaves only what it was asked to start. Its file is removed,
//! and its background processes stay. A program whose end nobody saw, or that was ended, has to be
//! repeated. Its processes end first: the program, its descendants, and detached processes with its
//! variable. A detached process that a pid file below `/run` names is a service with its own
//! supervisor, and stays.
//!
//! Absent here: a detached process that also cleared its environment. Nothing tells it from a
//! daemon.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The beginning of the variable's name. The name of the record follows, so that a program inside
/// another one carries both.
const VARIABLE: &str = "BUNRAKU_WORK_";
/// The time that a killed process may take to end before it is reported as left.
const STUCK: Duration = Duration::from_secs(2);
/// The interval at which processes that have to end are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Pid files are read down to this depth below their directory.
const PID_FILE_DEPTH: usize = 3;
const MOST_PID_FILES: usize = 5_000;

/// The records of running programs, one file each, in one directory.
#[derive(Clone, Debug)]
pub struct WorkLog {
    directory: PathBuf,
    pid_files: PathBuf,
}

/// A process that an earlier owner left behind and that could not be ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftProcess {
    pub id: i32,
    /// The name of the process.
    pub name: String,
    /// The recorded program that started it.
    pub program: String,
}

impl std::fmt::Display for LeftProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, name, program } = self;
        write!(f, "process {id} (`{name}`, started by `{program}`)")
    }
}

/// A process, not only its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ProcessIdentity {
    id: i32,
    /// Clock ticks from the boot to its start.
    start: u64,
}

/// The record of one running program. Dropping it leaves the file: nobody saw the program's end.
#[derive(Debug)]
pub(crate) struct WorkRecord {
    log: WorkLog,
    name: String,
    program: String,
}

/// A record as read from its file.
struct StoredRecord {
    path: PathBuf,
    name: String,
    program: String,
    owner: ProcessIdentity,
    leader: Option<ProcessIdentity>,
}

impl WorkLog {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            pid_files: PathBuf::from("/run"),
        }
    }

    /// Looks for the pid files of services in another directory.
    pub fn with_pid_files(mut self, directory: impl Into<PathBuf>) -> Self {
        self.pid_files = directory.into();
        self
    }

    /// Writes the record of a program that is about to start.
    pub(crate) fn begin(&self, program: &OsStr) -> io::Result<WorkRecord> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let owner = own_identity()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let record = WorkRecord {
            name: format!("{}_{}_{number}", owner.id, owner.start),
            program: program.to_string_lossy().replace('\n', " "),
            log: self.clone(),
        };
        std::fs::create_dir_all(&self.directory)?;
        record.write(owner, None)?;
        Ok(record)
    }

    /// Ends the processes that earlier owners left behind: asks them to end, and kills them after
    /// `grace`. Returns those that are still there. Blocks.
    pub fn end_leftovers(&self, grace: Duration) -> io::Result<Vec<LeftProcess>> {
        let mut left = Vec::new();
        for record in self.abandoned()? {
            let rest = self.end(&record, grace);
            if rest.is_empty() {
                remove(&record.path)?;
            }
            left.extend(rest);
        }
        Ok(left)
    }

    /// Returns the records whose owner is gone, and removes those of an earlier boot.
    fn abandoned(&self) -> io::Result<Vec<StoredRecord>> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let boot = boot_id()?;
        let mut records = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let text = match std::fs::read_to_string(&path) {
                // Its program has just ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text?,
            };
            match parse(path.clone(), &text, &boot) {
                Some(record) if record.owner.is_alive() => {}
                Some(record) => records.push(record),
                // Of an earlier boot, or not completely written: its program never started.
                None => remove(&path)?,
            }
        }
        Ok(records)
    }

    fn end(&self, record: &StoredRecord, grace: Duration) -> Vec<LeftProcess> {
        let begun = Instant::now();
        let mut asked = HashSet::new();
        loop {
            let left = self.processes_of(record);
            if left.is_empty() || begun.elapsed() > grace + STUCK {
                return left;
            }
            let kills = begun.elapsed() >= grace;
            for process in &left {
                // Ask once. Killing again does no harm.
                if kills {
                    signal(process.id, Signal::KILL, record);
                } else if asked.insert(process.id) {
                    signal(process.id, Signal::TERM, record);
                }
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the processes that belong to a record's program.
    fn processes_of(&self, record: &StoredRecord) -> Vec<LeftProcess> {
        let all = processes();
        let leader = record.leader.filter(ProcessIdentity::is_alive);
        let attached = family(&all, leader.map(|leader| leader.id).into_iter().collect());
        let marked = all.values().filter(|it| it.carries(&record.name));
        let detached = family(&all, marked.map(|it| it.identity.id).collect());
        let detached: HashSet<i32> = detached.difference(&attached).copied().collect();
        let services = self.services_among(&all, &detached);
        let own = std::process::id().cast_signed();
        let mut left: Vec<LeftProcess> = (attached.union(&detached))
            .filter(|id| !services.contains(*id) && **id != own)
            .filter_map(|id| all.get(id))
            .map(|it| LeftProcess {
                id: it.identity.id,
                name: it.name.clone(),
                program: record.program.clone(),
            })
            .collect();
        left.sort_by_key(|left| left.id);
        left
    }

    /// Returns the detached processes that are services: those that a pid file names, their
    /// descendants, and the rest of their sessions.
    fn services_among(
        &self,
        all: &HashMap<i32, ProcessFacts>,
        detached: &HashSet<i32>,
    ) -> HashSet<i32> {
        if detached.is_empty() {
            return HashSet::new();
        }
        let mut named = HashSet::new();
        let mut files_left = MOST_PID_FILES;
        read_pid_files(&self.pid_files, PID_FILE_DEPTH, &mut files_left, &mut named);
        let named: HashSet<i32> = named.intersection(detached).copied().collect();
        let sessions: HashSet<i32> = (named.iter())
            .filter_map(|id| all.get(id))
            .map(|it| it.session)
            .collect();
        let in_session = (all.values())
            .filter(|it| detached.contains(&it.identity.id) && sessions.contains(&it.session));
        let roots = in_session.map(|it| it.identity.id).chain(named.clone());
        family(all, roots.collect())
    }
}

impl WorkRecord {
    /// Returns the variable that the program inherits.
    pub(crate) fn variable(&self) -> OsString {
        format!("{VARIABLE}{}", self.name).into()
    }

    /// Adds the program, which has started.
    pub(crate) fn started(&self, id: u32) {
        let leader = ProcessIdentity::of(id.cast_signed());
        if let (Ok(owner), Some(leader)) = (own_identity(), leader) {
            // Without this line, the variable still finds its processes.
            let _ = self.write(owner, Some(leader));
        }
    }

    /// The program ended normally. What it left behind stays.
    pub(crate) fn finished(self) {
        let _ = remove(&self.path());
    }

    /// The program was ended, so its detached processes end too.
    pub(crate) fn kill_rest(self) {
        let Ok(owner) = own_identity() else { return };
        let record = StoredRecord {
            path: self.path(),
            name: self.name.clone(),
            program: self.program.clone(),
            owner,
            leader: None,
        };
        if self.log.end(&record, Duration::ZERO).is_empty() {
            let _ = remove(&record.path);
        }
    }

    fn path(&self) -> PathBuf {
        self.log.directory.join(&self.name)
    }

    /// Writes the file in one step, for readers in other processes. It does not have to survive a
    /// crash of the machine, which ends all processes.
    fn write(&self, owner: ProcessIdentity, leader: Option<ProcessIdentity>) -> io::Result<()> {
        let leader = leader.map_or_else(|| "-".to_owned(), |it| it.text());
        let text = format!(
            "boot {}\nowner {}\nleader {leader}\nprogram {}\n",
            boot_id()?,
            owner.text(),
            self.program
        );
        let new = self.log.directory.join(format!(".{}", self.name));
        std::fs::write(&new, text)?;
        std::fs::rename(&new, self.path())
    }
}

impl ProcessIdentity {
    fn of(id: i32) -> Option<Self> {
        Some(ProcessFacts::read(id)?.identity)
    }

    fn is_alive(&self) -> bool {
        Self::of(self.id) == Some(*self)
    }

    fn text(&self) -> String {
        format!("{} {}", self.id, self.start)
    }

    fn parse(text: &str) -> Option<Self> {
        let (id, start) = text.split_once(' ')?;
        Some(Self {
            id: id.parse().ok()?,
            start: start.parse().ok()?,
        })
    }
}

fn parse(path: PathBuf, text: &str, boot: &str) -> Option<StoredRecord> {
    let mut lines = text.lines();
    let mut line = |word: &str| lines.next()?.strip_prefix(word)?.strip_prefix(' ');
    if line("boot")? != boot {
        return None;
    }
    let owner = ProcessIdentity::parse(line("owner")?)?;
    let leader = line("leader")?;
    let leader = match leader {
        "-" => None,
        known => Some(ProcessIdentity::parse(known)?),
    };
    Some(StoredRecord {
        program: line("program")?.to_owned(),
        name: path.file_name()?.to_str()?.to_owned(),
        path,
        owner,
        leader,
    })
}

/// What the kernel says about a process that has not ended.
struct ProcessFacts {
    identity: ProcessIdentity,
    name: String,
    parent: i32,
    session: i32,
}

impl ProcessFacts {
    fn read(id: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name is in parentheses and may itself contain parentheses.
        let (before, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let has_ended = matches!(*fields.first()?, "Z" | "X" | "x");
        (!has_ended).then_some(())?;
        Some(Self {
            identity: ProcessIdentity {
                id,
                start: fields.get(19)?.parse().ok()?,
            },
            name: before.split_once('(')?.1.to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
        })
    }

    fn carries(&self, record: &str) -> bool {
        let Ok(environment) = std::fs::read(format!("/proc/{}/environ", self.identity.id)) else {
            return false;
        };
        let variable = format!("{VARIABLE}{record}=");
        (environment.split(|byte| *byte == 0)).any(|it| it.starts_with(variable.as_bytes()))
    }
}

fn processes() -> HashMap<i32, ProcessFacts> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    let ids = entries.flatten().filter_map(|entry| {
        let id: i32 = entry.file_name().to_str()?.parse().ok()?;
        Some((id, ProcessFacts::read(id)?))
    });
    ids.collect()
}

/// Returns these processes with all their descendants.
fn family(all: &HashMap<i32, ProcessFacts>, roots: Vec<i32>) -> HashSet<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in all.values() {
        let siblings = children.entry(process.parent).or_default();
        siblings.push(process.identity.id);
    }
    let mut found = HashSet::new();
    let mut next = roots;
    while let Some(id) = next.pop() {
        if found.insert(id) {
            next.extend(children.get(&id).into_iter().flatten());
        }
    }
    found
}

/// Signals a process that belonged to the record a moment ago. It is held by a descriptor while
/// this is checked again, so that its id cannot pass to another process in between.
fn signal(id: i32, signal: Signal, record: &StoredRecord) {
    let Some(before) = ProcessFacts::read(id) else {
        return;
    };
    let Some(Ok(process)) = Pid::from_raw(id).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
    else {
        return;
    };
    let is_same = ProcessFacts::read(id).is_some_and(|now| now.identity == before.identity);
    // A record is younger than its owner, and its processes are younger still.
    if is_same && before.identity.start >= record.owner.start {
        let _ = pidfd_send_signal(&process, signal);
    }
}

fn read_pid_files(directory: &Path, depth: usize, left: &mut usize, named: &mut HashSet<i32>) {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            // The directories of users: what is in there is not a service of the machine.
            Ok(kind) if kind.is_dir() && entry.file_name() != "user" && depth > 1 => {
                read_pid_files(&path, depth - 1, left, named);
            }
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|it| it == "pid") => {
                let Some(rest) = left.checked_sub(1) else {
                    return;
                };
                *left = rest;
                let small = entry.metadata().is_ok_and(|it| it.len() < 64);
                let text = small.then(|| std::fs::read_to_string(&path).ok()).flatten();
                let id: Option<i32> =
                    text.and_then(|text| text.lines().next()?.trim().parse().ok());
                named.extend(id);
            }
            _ => {}
        }
    }
}

/// Read once: neither changes while this process lives.
fn own_identity() -> io::Result<ProcessIdentity> {
    static OWN: OnceLock<ProcessIdentity> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(*own);
    }
    let own = ProcessIdentity::of(std::process::id().cast_signed())
        .ok_or_else(|| io::Error::other("/proc does not show this process"))?;
    Ok(*OWN.get_or_init(|| own))
}

fn boot_id() -> io::Result<String> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot.clone());
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BOOT.get_or_init(|| boot.trim().to_owned()).clone())
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
