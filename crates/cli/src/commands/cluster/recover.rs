//! `bunraku cluster recover`: on a server of a cluster that lost its majority.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};

use bunraku_cluster::datastore::Program;
use bunraku_cluster::directory::Directory;
use bunraku_cluster::operator::Operator;
use bunraku_cluster::recover::{self, DatastoreAnswer, RecoveryDecision};
use bunraku_cluster::transport::DataProgress;
use bunraku_model::NodeName;
use clap::Args;

use super::super::member;
use super::data_dir;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku cluster recover                        # asks all servers and shows the consequences; changes nothing
  bunraku cluster recover --gone db-2 --gone db-3
  bunraku cluster recover --snapshot /var/lib/bunraku/server/cluster/snapshots/20261116T020000Z.db

Run this as root on a member of the cluster. Switch off lost servers first: they
must never return with their old data while this one runs without them.")]
pub(crate) struct RecoverArguments {
    /// Server that is permanently lost; repeatable
    #[arg(long = "gone", value_name = "SERVER")]
    gone: Vec<NodeName>,

    /// Recover from this snapshot, if no datastore is left; the local server must be stopped
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// Data directory of the server
    #[arg(long, env = "BUNRAKU_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &RecoverArguments, context: &Context) -> Result<Exit, Failure> {
    let data_dir = data_dir(arguments.data_dir.as_ref(), context);
    let directory = Directory::of(&data_dir);
    let operator = Operator::of(&directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let heard = operator.ask_all().await;
        print_answers(&heard);
        match &arguments.snapshot {
            Some(snapshot) => from_snapshot(arguments, context, &data_dir, &heard, snapshot).await,
            None => from_survivor(arguments, &operator, &heard).await,
        }
    })
}

fn progress_text(progress: DataProgress) -> String {
    format!(
        "revision {}, raft term {} index {}{}",
        progress.revision,
        progress.raft_term,
        progress.raft_index,
        if progress.has_leader {
            ", has a leader"
        } else {
            ", no leader"
        }
    )
}

fn print_answers(heard: &[DatastoreAnswer]) {
    for one in heard {
        let text = match &one.report {
            None => "unreachable".to_owned(),
            Some(report) if !report.ordered => "reachable; stores no data".to_owned(),
            Some(report) => match report.progress {
                Some(progress) => format!("reachable; {}", progress_text(progress)),
                None => "reachable; its datastore does not answer".to_owned(),
            },
        };
        note!("  {}  {text}", one.name);
    }
    note!();
}

fn confirmed(arguments: &RecoverArguments) -> Result<bool, Failure> {
    if arguments.yes {
        return Ok(true);
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::new("cannot ask for confirmation: no terminal")
            .exit(Exit::Refused)
            .hint("read the text above, then pass `--yes`"));
    }
    let _terminal = crate::waiting::TerminalInUse::new();
    eprint!("Type `recover` to continue: ");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim() == "recover")
}

async fn from_survivor(
    arguments: &RecoverArguments,
    operator: &Operator,
    heard: &[DatastoreAnswer],
) -> Result<Exit, Failure> {
    let decision = recover::decide(heard, &arguments.gone).map_err(|refusal| {
        let hint = match &refusal {
            recover::RecoveryRefusal::MajorityLives => {
                "wait until they have elected a leader; see `bunraku cluster status`".to_owned()
            }
            recover::RecoveryRefusal::NobodyLeft => {
                "pass a snapshot with `--snapshot FILE`".to_owned()
            }
            recover::RecoveryRefusal::MayLive(names) => {
                let flags: Vec<String> = names.iter().map(|name| format!("--gone {name}")).collect();
                format!(
                    "switch them off for good, make sure that they are off, then run `bunraku cluster recover {}`",
                    flags.join(" ")
                )
            }
        };
        Failure::from(refusal).exit(Exit::Refused).hint(hint)
    })?;
    print_decision(&decision);
    if !confirmed(arguments)? {
        return Err(Failure::new("nothing was changed").exit(Exit::Refused));
    }
    let unfenced = operator.recover(&decision).await?;
    note!(
        "Recovery started: {} restarts with its data in epoch {}.",
        decision.from,
        decision.epoch
    );
    for name in unfenced {
        note!("{name} was unreachable: its old data is set aside when it returns");
    }
    note!("\nhint: watch the other servers return with `bunraku cluster status`");
    Ok(Exit::Done)
}

fn print_decision(decision: &RecoveryDecision) {
    note!(
        "{} has the newest data of the reachable servers ({})",
        decision.from,
        progress_text(decision.progress)
    );
    note!(
        "it becomes the only datastore (epoch {}); others are added afterwards",
        decision.epoch
    );
    for (name, progress) in &decision.fenced {
        let text = progress.map_or_else(String::new, |it| format!(" ({})", progress_text(it)));
        note!("the data of {name}{text} is set aside and never used again");
    }
    for name in &decision.lost {
        note!("{name} is considered lost");
    }
    note!(
        "possible data loss: writes after revision {revision} that {from} had not received\n",
        revision = decision.progress.revision,
        from = decision.from
    );
}

async fn from_snapshot(
    arguments: &RecoverArguments,
    context: &Context,
    data_dir: &Path,
    heard: &[DatastoreAnswer],
    snapshot: &Path,
) -> Result<Exit, Failure> {
    let refuse = |text: String| Err(Failure::new(text).exit(Exit::Refused));
    if let Some(one) = heard
        .iter()
        .find(|one| one.report.as_ref().is_some_and(|it| it.progress.is_some()))
    {
        return refuse(format!(
            "the datastore of {} answers: its data is newer than any snapshot",
            one.name
        ));
    }
    let directory = Directory::of(data_dir);
    let Some(me) = directory.local_member()? else {
        return refuse("this server is not a member of a cluster".to_owned());
    };
    let unnamed: Vec<String> = heard
        .iter()
        .filter(|one| one.name != me.record.name && !arguments.gone.contains(&one.name))
        .filter(|one| one.report.is_none())
        .map(|one| format!("--gone {}", one.name))
        .collect();
    if !unnamed.is_empty() {
        return Err(
            Failure::new("servers that do not answer may still store data")
                .exit(Exit::Refused)
                .hint(format!(
                    "switch them off for good, then pass {}",
                    unnamed.join(" ")
                )),
        );
    }
    if heard
        .iter()
        .any(|one| one.name == me.record.name && one.report.is_some())
    {
        return refuse("the server on this machine is running: stop it first".to_owned());
    }
    note!(
        "possible data loss: all writes after the snapshot {}\n",
        snapshot.display()
    );
    if !confirmed(arguments)? {
        return refuse("nothing was changed".to_owned());
    }
    let options = member::options(&context.loaded.file.server.cluster, data_dir);
    let program = Program {
        flags: Vec::new(),
        ..options.program(&me)
    };
    let reports = heard.iter().filter_map(|one| one.report.as_ref());
    let newest = reports.map(|report| report.epoch).max().unwrap_or_default();
    let epoch = newest.max(directory.counters()?.epoch) + 1;
    recover::from_snapshot(&directory, &me, &program, snapshot, epoch).await?;
    note!(
        "Data restored in epoch {epoch}.\n\nhint: start the server here with `bunraku server`, then the others"
    );
    Ok(Exit::Done)
}
