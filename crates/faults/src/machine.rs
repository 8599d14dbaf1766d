//! One server: its namespace, its disk, its clock, and its processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bunraku_cluster::directory::Directory;
use rustix::process::{Pid, Signal, kill_process};

use crate::history::Server;
use crate::network::{Names, address};
use crate::plant::RemovedGuard;
use crate::tool::{ToolError, run};

/// Enough for etcd's logs, which it allocates 64 MB at a time, and little else.
const DISK: &str = "size=400m";

/// Shifts the clock of a process that preloads it. Debian's `libfaketime`.
const FAKE_CLOCK: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

pub(crate) struct Machine {
    pub(crate) number: Server,
    pub(crate) name: String,
    place: PathBuf,
    space: String,
    plant: RemovedGuard,
    process: Option<Child>,
    /// True if the server should run: a process that exits is then restarted.
    wanted: bool,
}

impl Machine {
    /// Creates a machine with its own empty disk.
    pub(crate) async fn new(
        number: Server,
        place: &Path,
        names: &Names,
        plant: RemovedGuard,
    ) -> Result<Self, ToolError> {
        let machine = Self {
            number,
            name: format!("s{}", number + 1),
            place: place.to_owned(),
            space: names.server(number),
            plant,
            process: None,
            wanted: false,
        };
        let disk = machine.data_dir().display().to_string();
        run(&["mkdir", "-p", &disk]).await?;
        run(&["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", &disk]).await?;
        machine.set_clock(0);
        Ok(machine)
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.place.join(&self.name)
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory::of(&self.data_dir())
    }

    pub(crate) fn api(&self) -> String {
        format!("{}:8150", address(self.number))
    }

    pub(crate) fn client_url(&self) -> String {
        format!("https://{}:8152", address(self.number))
    }

    /// Creates a Bunraku command that runs on this machine.
    pub(crate) fn bunraku(&self, arguments: &[String]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space]);
        command
            .arg(std::env::current_exe().expect("this program has a path"))
            .arg(self.plant.name())
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null());
        command
    }

    fn clock_file(&self) -> PathBuf {
        self.place.join(format!("{}.clock", self.name))
    }

    /// Sets its clock wrong by this many seconds.
    pub(crate) fn set_clock(&self, offset: i64) {
        std::fs::write(self.clock_file(), format!("{offset:+}\n")).expect("a file for the clock");
    }

    fn late_file(&self) -> PathBuf {
        self.place.join(format!("{}.late", self.name))
    }

    /// Makes it handle every message late, with delays from this seed, or on time.
    pub(crate) fn set_late(&self, seed: Option<u64>) {
        let text = seed.map_or(String::new(), |seed| seed.to_string());
        std::fs::write(self.late_file(), text).expect("a file for the delays");
    }

    /// Returns the number of messages that its process has delayed so far.
    pub(crate) fn late_messages(&self) -> u64 {
        let text = std::fs::read_to_string(self.late_file().with_extension("delayed"));
        text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Starts the server, as a service manager would.
    pub(crate) fn start(&mut self) {
        self.wanted = true;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.place.join(format!("{}.log", self.name)))
            .expect("a file for the log");
        let arguments = [
            "server".to_owned(),
            format!("--config={}", self.place.join("cluster.toml").display()),
            format!("--data-dir={}", self.data_dir().display()),
            "--listen=0.0.0.0:8150".to_owned(),
            format!("--end-with-parent={}", std::process::id()),
        ];
        let mut command = self.bunraku(&arguments);
        with_clock(&mut command, &self.clock_file());
        let child = command
            .env(crate::late::FILE, self.late_file())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("`ip` can be started");
        self.process = Some(child);
    }

    /// Restarts processes that exited.
    pub(crate) fn restart_dead_processes(&mut self) {
        let ended = self
            .process
            .as_mut()
            .is_none_or(|process| matches!(process.try_wait(), Ok(Some(_))));
        if self.wanted && ended {
            self.start();
        }
    }

    /// Kills the server with `kill -9`; its datastore ends with it.
    pub(crate) fn kill(&mut self) {
        self.wanted = false;
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.process.as_ref().map(|it| it.id().cast_signed());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Sends a signal to its etcd, if it runs one.
    pub(crate) fn signal_datastore(&self, signal: Signal) {
        let directory = self.directory();
        let pid = std::fs::read_to_string(directory.datastore_pid()).ok();
        let Some(pid) = pid.and_then(|text| text.trim().parse::<i32>().ok()) else {
            return;
        };
        // The file may be older than the process that has this id now.
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let own = self.data_dir().display().to_string();
        let is_ours = String::from_utf8_lossy(&line).contains(&format!("--data-dir={own}"));
        if let (true, Some(pid)) = (is_ours, Pid::from_raw(pid)) {
            let _ = kill_process(pid, signal);
        }
    }

    fn filler(&self) -> PathBuf {
        self.data_dir().join("filler")
    }

    /// Fills its disk completely.
    pub(crate) fn fill_disk(&self) {
        fill(&self.filler());
    }

    pub(crate) fn empty_disk(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    /// Overwrites part of the last record that its datastore wrote, as a crash of
    /// the machine would. Returns false if it keeps no data.
    pub(crate) fn damage(&self) -> bool {
        let Some(log) = self.newest_log() else {
            return false;
        };
        let Ok(mut data) = std::fs::read(&log) else {
            return false;
        };
        let Some(end) = data.iter().rposition(|byte| *byte != 0) else {
            return false;
        };
        data[end.saturating_sub(8)..=end].fill(0);
        std::fs::write(&log, data).is_ok()
    }

    fn newest_log(&self) -> Option<PathBuf> {
        let directory = self.directory();
        let order = directory.order().ok()??;
        let logs = directory
            .datastores()
            .join(order.generation)
            .join("data/member/wal");
        let entries = std::fs::read_dir(logs).ok()?.flatten();
        let logs = entries.map(|entry| entry.path());
        logs.filter(|path| path.extension().is_some_and(|kind| kind == "wal"))
            .max()
    }

    /// Copies the log of its etcd to where it can be read afterwards.
    pub(crate) fn save_logs(&self) {
        let kept = self.place.join(format!("{}.etcd.log", self.name));
        let _ = std::fs::copy(self.directory().datastore_log(), kept);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Fills the disk of this file with it.
pub(crate) fn fill(filler: &Path) {
    use std::io::Write;
    let Ok(mut file) = File::create(filler) else {
        return;
    };
    for size in [1 << 20, 4096, 1] {
        let block = vec![0_u8; size];
        while file.write_all(&block).is_ok() {}
    }
}

/// Gives the process of a machine the machine's clock, which is in a file.
fn with_clock(command: &mut Command, file: &Path) {
    command
        .env("LD_PRELOAD", FAKE_CLOCK)
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_CACHE_DURATION", "1")
        // Only the time of day is shifted; timers continue unchanged.
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

/// Starts this program again with the clock of its machine, unless it has that. For processes that
/// servers start without their own environment. Such a process works in a directory of the
/// machine's data directory, beside which the clock is.
pub fn adopt_clock() {
    use std::os::unix::process::CommandExt;
    if std::env::var_os("LD_PRELOAD").is_some() {
        return;
    }
    let (Ok(directory), Ok(program)) = (std::env::current_dir(), std::env::current_exe()) else {
        return;
    };
    let clock = directory.parent().map(|data| data.with_extension("clock"));
    if let Some(clock) = clock.filter(|clock| clock.exists()) {
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1));
        with_clock(&mut command, &clock);
        // Returns only if that fails; then the clock is right, which is no fault.
        let _ = command.exec();
    }
}

/// Returns true if clocks can be shifted here.
pub(crate) fn has_fake_clock() -> bool {
    Path::new(FAKE_CLOCK).exists()
}
