//! The text of a crontab: jobs, their markers and their environment.

use crate::types::config_file;

const PUPPET: &str = "# Puppet Name: ";
const SALT: &str = "SALT_CRON_IDENTIFIER:";

/// A job with its environment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Job {
    /// `30 3 * * *` or `@daily`. Empty if any schedule matches.
    pub(super) schedule: String,
    pub(super) command: String,
    pub(super) environment: Vec<String>,
}

impl Job {
    fn lines(&self, name: &str) -> Vec<String> {
        let mut lines = vec![format!("{PUPPET}{name}")];
        lines.extend(self.environment.iter().cloned());
        lines.push(format!("{} {}", self.schedule, self.command));
        lines
    }
}

/// A job in the table: the lines from its marker (or itself) to itself.
struct Block {
    lines: std::ops::Range<usize>,
    name: Option<String>,
    job: Job,
}

/// Returns the name in a marker line.
fn marker(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(name) = line.strip_prefix(PUPPET) {
        return Some(name.trim().to_owned());
    }
    let comment = line.strip_prefix('#')?;
    let (_, name) = comment.split_once(SALT)?;
    Some(name.trim().to_owned())
}

/// Returns the schedule and the command of a job's line.
fn job(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    if line.starts_with('#') || line.is_empty() {
        return None;
    }
    let fields = if line.starts_with('@') { 1 } else { 5 };
    let mut rest = line;
    let mut schedule = Vec::new();
    for _ in 0..fields {
        let end = rest.find([' ', '\t'])?;
        schedule.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    if is_assignment(line)
        && fields == 5
        && !schedule[0].starts_with(|c: char| c.is_ascii_digit() || c == '*')
    {
        return None;
    }
    (!rest.is_empty()).then(|| (schedule.join(" "), rest.to_owned()))
}

fn is_assignment(line: &str) -> bool {
    let name_end = line
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(line.len());
    name_end > 0
        && !line.starts_with(|c: char| c.is_ascii_digit())
        && line[name_end..].trim_start().starts_with('=')
}

fn blocks(lines: &[String]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (index, line) in lines.iter().enumerate() {
        if let Some(name) = marker(line) {
            open = Some((index, name));
            continue;
        }
        if let Some((schedule, command)) = job(line) {
            let (start, name) = match open.take() {
                Some((start, name)) => (start, Some(name)),
                None => (index, None),
            };
            let environment = lines[start..index]
                .iter()
                .filter(|line| is_assignment(line))
                .cloned()
                .collect();
            blocks.push(Block {
                lines: start..index + 1,
                name,
                job: Job {
                    schedule,
                    command,
                    environment,
                },
            });
        } else if !is_assignment(line) {
            // A marker is followed by assignments only.
            open = None;
        }
    }
    blocks
}

/// Finds the job of this name, or else the same job without a name.
fn position(blocks: &[Block], name: &str, job: &Job) -> Option<usize> {
    let named = blocks
        .iter()
        .position(|block| block.name.as_deref() == Some(name));
    named.or_else(|| {
        blocks.iter().position(|block| {
            block.name.is_none()
                && block.job.command == job.command
                && (job.schedule.is_empty() || block.job.schedule == job.schedule)
        })
    })
}

fn texts(table: &[u8]) -> Vec<String> {
    config_file::lines(table).map(config_file::text).collect()
}

pub(super) fn find(table: &[u8], name: &str, job: &Job) -> Option<Job> {
    let blocks = blocks(&texts(table));
    position(&blocks, name, job).map(|at| blocks[at].job.clone())
}

/// Returns the table with the job as declared, or without it.
pub(super) fn put(table: &[u8], name: &str, job: &Job, present: bool) -> Vec<u8> {
    let raw: Vec<&[u8]> = config_file::lines(table).collect();
    let blocks = blocks(&texts(table));
    let at = position(&blocks, name, job);
    let old = at.map(|at| blocks[at].lines.clone());
    let mut out = Vec::with_capacity(table.len() + 128);
    for (index, line) in raw.iter().enumerate() {
        let inside = old.as_ref().is_some_and(|old| old.contains(&index));
        if !inside {
            out.extend_from_slice(line);
        } else if present && old.as_ref().is_some_and(|old| old.start == index) {
            write(&mut out, &job.lines(name));
        }
    }
    if present && old.is_none() {
        write(&mut out, &job.lines(name));
    }
    out
}

fn write(out: &mut Vec<u8>, lines: &[String]) {
    if !out.is_empty() && out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
    for line in lines {
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn desired() -> Job {
        Job {
            schedule: "30 3 * * *".to_owned(),
            command: "backup --all".to_owned(),
            environment: vec!["MAILTO=ops".to_owned()],
        }
    }

    /// Returns the jobs that are not ours, in their order.
    fn others(table: &[u8]) -> Vec<Job> {
        let blocks = blocks(&texts(table));
        let ours = position(&blocks, "mine", &desired());
        let others = blocks
            .into_iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != ours);
        others.map(|(_, block)| block.job).collect()
    }

    proptest! {
        #[test]
        fn a_job_is_put_once_and_other_lines_stay(
            lines in proptest::collection::vec(
                "[ -~]{0,16}|# Puppet Name: (mine|other)|30 3 \\* \\* \\* backup --all|[A-Z]{2}=x|@daily x", 0..8),
        ) {
            let table = lines.join("\n");
            let once = put(table.as_bytes(), "mine", &desired(), true);
            prop_assert_eq!(find(&once, "mine", &desired()), Some(desired()));
            prop_assert_eq!(put(&once, "mine", &desired(), true), once.clone());
            prop_assert_eq!(others(table.as_bytes()), others(&once));
        }
    }
}
