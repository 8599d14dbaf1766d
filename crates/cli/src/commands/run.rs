//! `bunraku run`: executes a plan over many nodes, and follows runs.

use std::io::{BufRead, IsTerminal, Write};

use bunraku_plan::run::{CheckResult, NewRun, RunOutcome, RunRecord};
use bunraku_wire::endpoints::{CancelRun, CreateRun, Endpoint, ListRuns, ReportRunCheck, StopRun};
use bunraku_wire::{Client, ClientError};
use clap::Subcommand;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::expected_plan::ExpectedPlan;
use crate::failure::Failure;
use crate::output;
use crate::plan_review;
use crate::plan_view;
use crate::run_due::DueArguments;
use crate::run_follow::{self, Interrupt};
use crate::run_hooks::HookArguments;
use crate::run_options::RunOptionArguments;
use crate::run_view;
use crate::site_source::{self, SiteArguments};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RunArguments {
    #[command(subcommand)]
    command: Option<RunCommand>,
    #[command(flatten)]
    site: SiteArguments,
    #[command(flatten)]
    how: ExecutionArguments,
}

#[derive(clap::Args, Clone)]
struct ExecutionArguments {
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    yes: bool,
    /// Return when the run is accepted; follow it with `bunraku run watch`
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    options: RunOptionArguments,
    /// Refuse if the plan is another one: its id (at least 8 characters), or a file with the output
    /// of `bunraku plan --json`, to see what changed
    #[arg(long, value_name = "ID|FILE")]
    expect_plan: Option<ExpectedPlan>,
    /// Reason, shown with the run
    #[arg(long)]
    reason: Option<String>,
    /// In an emergency, run without the approval that the environment requires, for this reason
    #[arg(long, value_name = "REASON")]
    override_approval: Option<String>,
    #[command(flatten)]
    due: DueArguments,
    #[command(flatten)]
    hooks: HookArguments,
}

#[derive(Subcommand)]
enum RunCommand {
    /// List runs, newest first
    #[command(after_help = "Example:\n  bunraku run list")]
    List,
    /// Show the state or result of a run
    #[command(
        after_help = "Examples:\n  bunraku run show 3f9a12cd --timeline\n  bunraku run show 3f9a12cd --svg > run.svg"
    )]
    Show {
        /// Run id, or a prefix of it
        run: String,
        /// Show when each node ran, and which chain took longest
        #[arg(long)]
        timeline: bool,
        /// Write the timeline as an SVG image
        #[arg(long, conflicts_with = "timeline")]
        svg: bool,
    },
    /// Follow a run until it ends
    #[command(after_help = "Example:\n  bunraku run watch 3f9a12cd")]
    Watch {
        /// Run id, or a prefix of it
        run: String,
    },
    /// Confirm the check that a run waits for, so that it continues
    #[command(
        after_help = "Examples:\n  bunraku run confirm 3f9a12cd\n  bunraku run confirm 3f9a12cd --fail --reason 'too many errors in the log'"
    )]
    Confirm {
        /// Run id, or a prefix of it
        run: String,
        /// The check failed: start no more nodes
        #[arg(long)]
        fail: bool,
        /// Reason, shown with the run
        #[arg(long)]
        reason: Option<String>,
    },
    /// Stop a run: start no more nodes, and let running nodes finish
    #[command(after_help = "Example:\n  bunraku run stop 3f9a12cd")]
    Stop {
        /// Run id, or a prefix of it
        run: String,
    },
    /// Cancel a run: stop running nodes as well
    #[command(after_help = "Example:\n  bunraku run cancel 3f9a12cd")]
    Cancel {
        /// Run id, or a prefix of it
        run: String,
    },
    /// Complete the plan of a run: run its failed and skipped nodes again
    #[command(
        after_help = "Examples:\n  bunraku run resume 3f9a12cd\n  bunraku run resume 3f9a12cd --replan --site site.pp"
    )]
    Resume {
        /// Run id, or a prefix of it
        run: String,
        /// Plan again from the same source, show the difference, and run what changed or did not
        /// succeed
        #[arg(long)]
        replan: bool,
        /// Source of the new plan [default: as before]
        #[arg(long = "site", short = 's', value_name = "FILE", requires = "replan")]
        files: Vec<std::path::PathBuf>,
        /// Do not ask for confirmation
        #[arg(long, short = 'y')]
        yes: bool,
    },
}

pub(crate) fn run(arguments: RunArguments, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match arguments.command {
            None => start(&client, &arguments.site, &arguments.how, json).await,
            Some(RunCommand::List) => list(&client, json).await,
            Some(RunCommand::Show { run, timeline, svg }) => {
                show(&client, &run, timeline, svg, json).await
            }
            Some(RunCommand::Watch { run }) => {
                let outcome =
                    run_follow::follow(&client, &run, json, Interrupt::Leave, &[]).await?;
                Ok(exit_of(outcome))
            }
            Some(RunCommand::Confirm { run, fail, reason }) => {
                let result = CheckResult {
                    gate: None,
                    check: None,
                    passed: !fail,
                    message: reason,
                };
                let reply = client.call_with(ReportRunCheck.at(&run), &result).await;
                print_requested(reply, &run)
            }
            Some(RunCommand::Stop { run }) => {
                print_requested(client.call(StopRun.at(&run)).await, &run)
            }
            Some(RunCommand::Cancel { run }) => {
                print_requested(client.call(CancelRun.at(&run)).await, &run)
            }
            Some(RunCommand::Resume {
                run,
                replan: false,
                yes,
                ..
            }) => resume(&client, &run, yes, json).await,
            Some(RunCommand::Resume {
                run, files, yes, ..
            }) => resume_replanned(&client, &run, files, yes, json).await,
        }
    })
}

async fn start(
    client: &Client,
    site: &SiteArguments,
    how: &ExecutionArguments,
    json: bool,
) -> Result<Exit, Failure> {
    let detach = how.detach || how.due.is_for_later();
    if detach {
        how.hooks.refuse_commands()?;
    }
    how.options.refuse_impossible(detach)?;
    let due = how.due.due(&jiff::Zoned::now())?;
    let plan = site_source::planned(site, client).await?;
    let plan = plan.with_options(how.options.options(), how.options.subject());
    let review = plan_review::review(client, plan, false).await?;
    let plan = &review.plan;
    if let Some(expected) = &how.expect_plan {
        expected.check(plan)?;
    }
    for warning in plan_review::warnings(&review) {
        note!("warning: {warning}");
    }
    if detach || json {
        // With these options, standard output contains only the id or JSON.
        note!("{}", plan_review::text(&review).trim_end());
    } else {
        output::write(&plan_review::text(&review))?;
    }
    if review.plan.steps.is_empty() {
        note!("the plan is empty: nothing to run");
        return Ok(Exit::Done);
    }
    if !how.yes {
        confirm("Are you sure you wish to run this plan?")?;
    }
    let new = NewRun {
        due,
        hooks: how.hooks.triggers(),
        reason: how.reason.clone(),
        site: Some(site.remember()?),
        override_approval: how.override_approval.clone(),
        ..NewRun::of(review.plan)
    };
    let commands = how.options.commands();
    let outcome = begin(client, &new, detach, json, &commands).await?;
    if let Some((record, outcome)) = &outcome {
        how.hooks.run_command(record, *outcome)?;
    }
    Ok(outcome.map_or(Exit::Done, |outcome| exit_of(outcome.1)))
}

/// Submits the run and follows it.
async fn begin(
    client: &Client,
    new: &NewRun,
    detach: bool,
    json: bool,
    commands: &[String],
) -> Result<Option<(RunRecord, RunOutcome)>, Failure> {
    let record: RunRecord = client
        .call_with(CreateRun, new)
        .await
        .map_err(|error| failed(&error))?;
    let id = record.id;
    if detach {
        if json {
            output::json(&record)?;
        } else {
            output::write(&format!("{id}\n"))?;
        }
        let short = run_view::short(id);
        if let Some(due) = record.due.not_before {
            note!("{}", run_view::scheduled(due, &record));
        }
        note!("\nhint: follow it with `bunraku run watch {short}`");
        return Ok(None);
    }
    let outcome =
        run_follow::follow(client, &id.to_string(), json, Interrupt::Stop, commands).await?;
    Ok(Some((record, outcome)))
}

/// Asks for confirmation. Fails without a terminal.
fn confirm(question: &str) -> Result<(), Failure> {
    let refused = |message: &str| Failure::new(message).exit(Exit::Refused);
    if !std::io::stdin().is_terminal() {
        return Err(refused("cannot ask for confirmation: no terminal")
            .hint("pass `--yes` to run without asking"));
    }
    let _terminal = crate::waiting::TerminalInUse::new();
    eprint!("{question} (y/n) ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(refused("nothing was run")),
    }
}

pub(crate) fn exit_of(outcome: RunOutcome) -> Exit {
    match outcome {
        RunOutcome::Succeeded => Exit::Done,
        // Nothing ran.
        RunOutcome::Refused | RunOutcome::Expired => Exit::Refused,
        RunOutcome::Failed | RunOutcome::Cancelled => Exit::SomeNodesFailed,
    }
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let runs: Vec<bunraku_plan::run::RunSummary> = client
        .call(ListRuns)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&runs)?;
    } else if runs.is_empty() {
        note!("no runs yet\n\nhint: `bunraku run -h` shows how to start one");
    } else {
        run_view::list_table(&runs).print()?;
    }
    Ok(Exit::Done)
}

async fn show(
    client: &Client,
    run: &str,
    timeline: bool,
    svg: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let (record, run) = run_follow::fetch(client, run).await?;
    let now = jiff::Timestamp::now();
    let of_times = || {
        run.timeline(now)
            .ok_or_else(|| Failure::new("the run has not started"))
    };
    if svg {
        let title = format!(
            "run {} in {}",
            run_view::short(record.id),
            record.environment
        );
        output::write(&bunraku_plan::run::timeline_svg(&title, &of_times()?))?;
    } else if timeline {
        if json {
            output::json(&of_times()?)?
        } else {
            output::write(&run_view::timeline_text(&of_times()?))?
        }
    } else if json {
        output::json(&run_follow::as_json(&record, &run))?;
    } else {
        output::write(&run_view::summary(&record, &run))?;
    }
    Ok(match run.outcome() {
        Some(outcome) => exit_of(outcome),
        None => Exit::Done,
    })
}

fn print_requested(reply: Result<(), ClientError>, run: &str) -> Result<Exit, Failure> {
    reply.map_err(|error| failed(&error))?;
    note!("Requested.\n\nhint: follow it with `bunraku run watch {run}`");
    Ok(Exit::Done)
}

/// Runs the rest of the same plan. The server refuses if that is no longer possible.
async fn resume(client: &Client, run: &str, yes: bool, json: bool) -> Result<Exit, Failure> {
    let (record, before) = run_follow::fetch(client, run).await?;
    let left = before.tally().all() - before.tally().succeeded;
    if left == 0 {
        let id = run_view::short(record.id);
        let failure = Failure::new(format!("run {id} succeeded: nothing is left to run"));
        return Err(failure.exit(Exit::Refused).hint(format!(
            "plan again from the same source with `bunraku run resume {id} --replan`"
        )));
    }
    if !json {
        output::write(&run_view::summary(&record, &before))?;
    }
    if !yes {
        let nodes = output::count(left, "node");
        confirm(&format!("Run the {nodes} that did not succeed?"))?;
    }
    let new = NewRun {
        hooks: record.hooks.clone(),
        reason: record.reason.clone(),
        site: record.site.clone(),
        resumes: Some(record.id),
        ..NewRun::of(before.plan().as_ref().clone())
    };
    let outcome = begin(client, &new, false, json, &[]).await?;
    Ok(outcome.map_or(Exit::Done, |outcome| exit_of(outcome.1)))
}

/// Plans again from the same source, and shows the difference before anything runs.
async fn resume_replanned(
    client: &Client,
    run: &str,
    files: Vec<std::path::PathBuf>,
    yes: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let (record, before) = run_follow::fetch(client, run).await?;
    let mut site = SiteArguments::remembered(record.site.as_ref())?;
    if !files.is_empty() {
        site.replace_files(files);
    }
    let plan = site_source::planned(&site, client).await?;
    let plan = plan.with_options(record.options.clone(), record.subject.clone());
    let review = plan_review::review(client, plan, false).await?;
    for warning in plan_review::warnings(&review) {
        note!("warning: {warning}");
    }
    let text = format!(
        "{}\n{}",
        plan_review::text(&review),
        plan_view::differences(before.plan(), &review.plan)
    );
    if json {
        note!("{}", text.trim_end());
    } else {
        output::write(&text)?;
    }
    if !yes {
        confirm("Are you sure you wish to run the new plan?")?;
    }
    let new = NewRun {
        hooks: record.hooks.clone(),
        reason: record.reason.clone(),
        site: Some(site.remember()?),
        resumes: Some(record.id),
        replanned: true,
        ..NewRun::of(review.plan)
    };
    let outcome = begin(client, &new, false, json, &[]).await?;
    Ok(outcome.map_or(Exit::Done, |outcome| exit_of(outcome.1)))
}
