//! `bunraku audit`: list, follow, verify and export the audit log.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Duration;

use bunraku_model::{
    AuditChainCheck, AuditChainPlace, AuditChainSummary, BrokenAuditChain, parse_span,
};
use bunraku_wire::api::{AuditOutcome, AuditPage, AuditRecord};
use bunraku_wire::client::{BackOff, Lines};
use bunraku_wire::endpoints::{
    AuditLinesQuery, AuditQuery, Endpoint, ExportAudit, FollowAudit, ListAudit, ShowAuditHead,
};
use bunraku_wire::{Client, ClientError};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::json;

use crate::audit_view::words;
use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, count};

#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// List audit records, newest first
    #[command(after_help = "Examples:
  bunraku audit list --who alice --since 2d
  bunraku audit list --action 'create-*' --object production
  bunraku audit list --outcome refused --json | jq -r '.[].message'")]
    List(ListArguments),
    /// Print new audit records as they are written
    #[command(after_help = "Examples:
  bunraku audit follow
  bunraku audit follow --after 1207 --json")]
    Follow {
        /// Begin after this record
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
    },
    /// Check that no record was changed, removed or added
    #[command(after_help = "Examples:
  bunraku audit verify
  bunraku audit verify --anchor 1207:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  bunraku audit verify --file audit.jsonl

Exit code 1: the log is not intact.")]
    Verify {
        /// Verify an exported file instead of the server's log
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// A record that has to have this hash, from an earlier `verify`; repeatable
        #[arg(long = "anchor", value_name = "NUMBER:HASH")]
        anchors: Vec<Anchor>,
    },
    /// Print all audit records, oldest first, as JSON lines
    #[command(after_help = "Examples:
  bunraku audit export --out audit.jsonl
  bunraku audit export --after 1207 --out newer.jsonl")]
    Export {
        /// Only records after this one
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
        /// Write to this file
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct ListArguments {
    /// Only records of this person, node or server; `*` matches any text
    #[arg(long, value_name = "NAME")]
    who: Option<String>,
    /// Only this action, such as `create-release`; `*` matches any text
    #[arg(long)]
    action: Option<String>,
    /// Only this object, such as `production` or `node/web-1`; `*` matches any text
    #[arg(long)]
    object: Option<String>,
    /// Only this outcome
    #[arg(long, value_enum)]
    outcome: Option<Outcome>,
    /// Only the request with this id
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// Only records from this time on: `2d` ago, or a time such as `2026-01-31T08:00:00Z`
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only records before this time
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Maximum number of records
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum Outcome {
    Succeeded,
    Refused,
    Failed,
    Unknown,
}

impl From<Outcome> for AuditOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Succeeded => Self::Succeeded,
            Outcome::Refused => Self::Refused,
            Outcome::Failed => Self::Failed,
            Outcome::Unknown => Self::Unknown,
        }
    }
}

/// A time, or a span before now.
#[derive(Clone, Copy)]
struct Moment(Timestamp);

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(time) = text.parse() {
            return Ok(Self(time));
        }
        let span = parse_span(text).map_err(|_| {
            format!("`{text}` is neither a span such as 2d nor a time such as 2026-01-31T08:00:00Z")
        })?;
        let before = Timestamp::now().checked_sub(span);
        before
            .map(Self)
            .map_err(|_| format!("`{text}` is too long ago"))
    }
}

/// A record with its hash.
#[derive(Clone)]
pub(crate) struct Anchor(AuditChainPlace);

impl std::str::FromStr for Anchor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(number, hash)| {
            let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = number.parse().ok()?;
            is_hash.then(|| AuditChainPlace {
                number,
                hash: hash.to_ascii_lowercase(),
            })
        });
        parsed.map(Self).ok_or_else(|| {
            "expected NUMBER:HASH, with a hash of 64 hexadecimal digits, as `bunraku audit verify` prints it".to_owned()
        })
    }
}

pub(crate) fn run(command: AuditCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    match command {
        AuditCommand::Verify {
            file: Some(file),
            anchors,
        } => verify_file(&file, anchors, json),
        AuditCommand::Verify {
            file: None,
            anchors,
        } => context.with_client(|client| async move { verify(&client, anchors, json).await }),
        AuditCommand::List(arguments) => {
            context.with_client(|client| async move { list(&client, arguments, json).await })
        }
        AuditCommand::Follow { after } => {
            context.with_client(|client| async move { follow(&client, after, json).await })
        }
        AuditCommand::Export { after, out } => {
            context.with_client(|client| async move { export(&client, after, out).await })
        }
    }
}

async fn list(client: &Client, arguments: ListArguments, json: bool) -> Result<Exit, Failure> {
    let limit = arguments.limit;
    let mut query = AuditQuery {
        who: arguments.who,
        action: arguments.action,
        object: arguments.object,
        outcome: arguments.outcome.map(AuditOutcome::from),
        request_id: arguments.request,
        since: arguments.since.map(|moment| moment.0),
        until: arguments.until.map(|moment| moment.0),
        limit: None,
        before: None,
    };
    let mut records: Vec<AuditRecord> = Vec::new();
    while records.len() < limit {
        query.limit = Some((limit - records.len()).min(1_000));
        let page = client.call(ListAudit.with_query((), &query)).await;
        let page: AuditPage = page.map_err(|error| failed(&error))?;
        records.extend(page.records);
        match page.next {
            Some(next) => query.before = Some(next),
            None => break,
        }
    }
    records.truncate(limit);
    if !output::has_rows(&records, json, "no matching audit records")? {
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        "NUMBER", "TIME", "WHO", "FROM", "ACTION", "OBJECT", "OUTCOME", "REASON",
    ]);
    for record in &records {
        table.row(cells(record));
    }
    table.print()?;
    Ok(Exit::Done)
}

fn cells(record: &AuditRecord) -> Vec<String> {
    let (shown, entry) = (words(record), &record.entry);
    vec![
        shown.number,
        format!("{:.0}", entry.at),
        entry.who.clone(),
        shown.from,
        entry.action.clone(),
        shown.object,
        shown.outcome,
        shown.reason,
    ]
}

async fn follow(client: &Client, mut after: Option<u64>, json: bool) -> Result<Exit, Failure> {
    let back_off = BackOff {
        first: Duration::from_millis(200),
        longest: Duration::from_secs(10),
    };
    let mut failures = 0;
    loop {
        if after.is_none() {
            // From here on, a broken connection loses nothing.
            let head = client.call(ShowAuditHead).await;
            after = Some(head.map_err(|error| failed(&error))?.number);
        }
        let at = FollowAudit.with_query((), &AuditLinesQuery { after });
        let broke = match client.follow(at).await {
            Ok(lines) => {
                failures = 0;
                print_records(lines, &mut after, json).await?
            }
            Err(error) => Some(error),
        };
        if let Some(error) = broke
            && !error.is_passing()
        {
            return Err(failed(&error));
        }
        tokio::time::sleep(back_off.random_wait(failures)).await;
        failures += 1;
    }
}

/// Prints records until the stream breaks. Returns the reason.
async fn print_records(
    mut lines: Lines<AuditRecord>,
    after: &mut Option<u64>,
    json: bool,
) -> Result<Option<ClientError>, Failure> {
    while let Some(record) = lines.next().await {
        let record = match record {
            Ok(record) => record,
            Err(error) => return Ok(Some(error)),
        };
        if json {
            output::json_line(&record)?;
        } else {
            let cells = cells(&record);
            let texts = cells.iter().filter(|cell| !cell.is_empty());
            let line: Vec<&str> = texts.map(String::as_str).collect();
            output::write(&format!("{}\n", line.join("  ")))?;
        }
        *after = record.number.or(*after);
    }
    Ok(None)
}

async fn export(
    client: &Client,
    after: Option<u64>,
    out: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let mut file: Box<dyn Write> = match &out {
        None => Box::new(std::io::stdout().lock()),
        Some(path) => {
            let file = std::fs::File::create(path);
            let file = file.map_err(|error| {
                Failure::new(format!("cannot create {}", path.display())).caused_by(&error)
            })?;
            Box::new(std::io::BufWriter::new(file))
        }
    };
    let at = ExportAudit.with_query((), &AuditLinesQuery { after });
    let mut lines: Lines<AuditRecord> = client.follow(at).await.map_err(|error| failed(&error))?;
    let mut exported = 0_u64;
    while let Some(line) = lines.next_line().await {
        let line = line.map_err(|error| failed(&error))?;
        file.write_all(&line)?;
        file.write_all(b"\n")?;
        exported += 1;
    }
    file.flush()?;
    if let Some(path) = out {
        note!(
            "Exported {} to {}.",
            count(exported, "record"),
            path.display()
        );
    }
    Ok(Exit::Done)
}

async fn verify(client: &Client, anchors: Vec<Anchor>, json: bool) -> Result<Exit, Failure> {
    let head = client.call(ShowAuditHead).await;
    let head = head.map_err(|error| failed(&error))?;
    let mut lines: Lines<AuditRecord> = client
        .follow(ExportAudit)
        .await
        .map_err(|error| failed(&error))?;
    let mut check = check_with(anchors);
    while let Some(line) = lines.next_line().await {
        let line = line.map_err(|error| failed(&error))?;
        check.add(&line).map_err(|error| broken(&error))?;
    }
    let head = AuditChainPlace {
        number: head.number,
        hash: head.hash,
    };
    report(
        &check.finish(Some(&head)).map_err(|error| broken(&error))?,
        json,
    )
}

fn verify_file(file: &PathBuf, anchors: Vec<Anchor>, json: bool) -> Result<Exit, Failure> {
    let unreadable = |error: &std::io::Error| {
        Failure::new(format!("cannot read {}", file.display())).caused_by(error)
    };
    let content = std::fs::File::open(file).map_err(|error| unreadable(&error))?;
    let mut check = check_with(anchors);
    for line in std::io::BufReader::new(content).split(b'\n') {
        let line = line.map_err(|error| unreadable(&error))?;
        check.add(&line).map_err(|error| broken(&error))?;
    }
    report(&check.finish(None).map_err(|error| broken(&error))?, json)
}

fn check_with(anchors: Vec<Anchor>) -> AuditChainCheck {
    let check = AuditChainCheck::default();
    anchors
        .into_iter()
        .fold(check, |check, anchor| check.with_anchor(anchor.0))
}

fn report(summary: &AuditChainSummary, json: bool) -> Result<Exit, Failure> {
    let AuditChainSummary {
        first,
        last,
        unknown,
    } = summary;
    if json {
        output::json(&json!({
            "intact": true,
            "first": first,
            "last": last.number,
            "hash": last.hash,
            "unknown_outcomes": unknown,
        }))?;
        return Ok(Exit::Done);
    }
    if last.number == 0 {
        output::write("The audit log is empty.\n")?;
        return Ok(Exit::Done);
    }
    let mut text = format!(
        "The audit log is intact: records {first} to {}.\n",
        last.number
    );
    if *unknown > 0 {
        let records = count(*unknown, "record");
        text.push_str(&format!(
            "{records} with an unknown outcome: list with `bunraku audit list --outcome unknown`.\n"
        ));
    }
    text.push_str(&format!("newest: {}:{}\n", last.number, last.hash));
    output::write(&text)?;
    note!(
        "\nhint: keep the newest record's number and hash elsewhere, and pass them next time as `--anchor {}:{}`",
        last.number,
        last.hash
    );
    Ok(Exit::Done)
}

fn broken(error: &BrokenAuditChain) -> Failure {
    Failure::new("the audit log is not intact")
        .caused_by(error)
        .hint("compare it with an earlier export, and find out who can write to the datastores")
}
