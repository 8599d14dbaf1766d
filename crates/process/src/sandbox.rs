//! Confines this process, before it handles anything from outside.
//!
//! A worker enters its [`Sandbox`] in the thread that does the work. From then on, that thread reads
//! the given paths and its open pipes. It cannot write files, start programs or processes, use a
//! network or signal others, and its memory is limited. Nothing of this can be undone.
//!
//! Absent on purpose: limits on time, except of the processor ([`limit_cpu`]). The process that
//! started this one ends it when it is late.

use std::collections::BTreeMap;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit, getpid, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use rustix::time::{ClockId, clock_gettime};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Compare,
    SeccompCondition as Condition, SeccompFilter, SeccompRule as Rule, TargetArch, apply_filter,
};

/// Address space besides [`Sandbox::memory`]: the program itself, and reserved but unused space.
const ADDRESS_SPACE: u64 = 4 << 30;

/// What a confined process may do.
#[derive(Clone, Debug)]
pub struct Sandbox {
    /// Files, and directories with everything below them.
    pub readable: Vec<PathBuf>,
    /// Bytes of memory.
    pub memory: u64,
    pub open_files: u64,
    /// Fails if the kernel cannot confine access to files. Otherwise, only the other limits apply.
    pub needs_landlock: bool,
}

/// The reason why a process is not confined.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("cannot set a resource limit")]
    Limit(#[source] rustix::io::Errno),
    #[error("cannot drop capabilities")]
    Capabilities(#[source] rustix::io::Errno),
    #[error("the kernel has no Landlock (Linux 5.13 or newer, enabled with lsm=landlock)")]
    NoLandlock,
    #[error("cannot confine access to files")]
    Files(#[source] landlock::RulesetError),
    #[error("cannot confine system calls")]
    Calls(#[source] seccompiler::Error),
    #[error("there is no sandbox for this processor")]
    Processor,
}

impl Sandbox {
    /// Confines the calling thread, and limits the whole process.
    pub fn enter(&self) -> Result<(), SandboxError> {
        prefer_for_the_memory_killer();
        for (resource, most) in [
            (Resource::Data, self.memory),
            (Resource::As, self.memory.saturating_add(ADDRESS_SPACE)),
            (Resource::Nofile, self.open_files),
            (Resource::Core, 0),
            (Resource::Fsize, 0),
        ] {
            limit(resource, most).map_err(SandboxError::Limit)?;
        }
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, none).map_err(SandboxError::Capabilities)?;
        self.confine_files()?;
        apply_filter(&filter()?).map_err(SandboxError::Calls)
    }

    fn confine_files(&self) -> Result<(), SandboxError> {
        let files = AccessFs::from_all(ABI::V5);
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(files)
            .and_then(|rules| rules.handle_access(AccessNet::from_all(ABI::V4)))
            .and_then(|rules| rules.scope(Scope::from_all(ABI::V6)))
            .and_then(Ruleset::create)
            .map_err(SandboxError::Files)?;
        for path in &self.readable {
            // A path that does not exist needs no permission.
            let Ok(opened) = PathFd::new(path) else {
                continue;
            };
            let allowed = if path.is_dir() {
                AccessFs::ReadFile | AccessFs::ReadDir
            } else {
                AccessFs::ReadFile.into()
            };
            rules = rules
                .add_rule(PathBeneath::new(opened, allowed))
                .map_err(SandboxError::Files)?;
        }
        let entered = rules.restrict_self().map_err(SandboxError::Files)?;
        if self.needs_landlock && entered.ruleset == RulesetStatus::NotEnforced {
            return Err(SandboxError::NoLandlock);
        }
        Ok(())
    }
}

/// Gives this process a number of seconds on the processor, from now on. The kernel ends it with
/// `SIGXCPU` when they are used up.
pub fn limit_cpu(seconds: u64) -> Result<(), SandboxError> {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    let used = u64::try_from(used.tv_sec).unwrap_or(0);
    let limit = Rlimit {
        // The limit counts whole seconds.
        current: Some(used + 1 + seconds),
        maximum: None,
    };
    setrlimit(Resource::Cpu, limit).map_err(SandboxError::Limit)
}

fn limit(resource: Resource, most: u64) -> rustix::io::Result<()> {
    let most = match rustix::process::getrlimit(resource).maximum {
        Some(allowed) => allowed.min(most),
        None => most,
    };
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    setrlimit(resource, limit)
}

/// If memory runs out on the machine, this process should end, and not the one that started it.
fn prefer_for_the_memory_killer() {
    // This is only a safeguard: some containers do not allow it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// System calls of a program that computes, reads files and talks through its pipes.
const CALLS: [libc::c_long; 48] = [
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
];

/// System calls that other processors do not have.
#[cfg(target_arch = "x86_64")]
const MORE_CALLS: [libc::c_long; 6] = [
    libc::SYS_access,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
];
#[cfg(not(target_arch = "x86_64"))]
const MORE_CALLS: [libc::c_long; 0] = [];

/// Allows the calls above. All others are refused, including those that the kernel gains later.
fn filter() -> Result<BpfProgram, SandboxError> {
    let wrong = |error: seccompiler::BackendError| SandboxError::Calls(error.into());
    let processor: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| SandboxError::Processor)?;
    let all = CALLS.iter().chain(&MORE_CALLS);
    let mut rules: BTreeMap<i64, Vec<Rule>> = all.map(|call| (*call, Vec::new())).collect();
    let is = |argument, value| Condition::new(argument, Length::Qword, Compare::Eq, value);
    let rule = |conditions: Vec<Condition>| Rule::new(conditions).map_err(wrong);
    // A process ends itself with a signal when it aborts.
    let own = u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    let to_itself = rule(vec![is(0, own).map_err(wrong)?])?;
    rules.insert(libc::SYS_tgkill, vec![to_itself]);
    // Limits may be read. The limit of the processor may be changed.
    let read = rule(vec![is(2, 0).map_err(wrong)?])?;
    let cpu = u64::from(libc::RLIMIT_CPU);
    let own_cpu = rule(vec![is(0, 0).map_err(wrong)?, is(1, cpu).map_err(wrong)?])?;
    rules.insert(libc::SYS_prlimit64, vec![read, own_cpu]);
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, processor);
    let program: Result<BpfProgram, _> = filter.map_err(wrong)?.try_into();
    program.map_err(wrong)
}
