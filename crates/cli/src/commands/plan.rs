//! `bunraku plan`: shows what a run over many nodes would do, and the reasons for its order.

use bunraku_plan::{RunPlan, Site, dot, plan_svg};
use clap::ValueEnum;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::plan_view;
use crate::site_source::{self, SiteArguments};
use crate::site_values;

#[derive(clap::Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    site: SiteArguments,
    /// Plan without a server; do not check the status of nodes
    #[arg(long)]
    offline: bool,
    /// Print the values of all components and capabilities as JSON instead of the plan
    #[arg(long, conflicts_with = "graph")]
    values: bool,
    /// Draw the plan as a graph
    #[arg(long, value_enum, value_name = "FORMAT")]
    graph: Option<GraphFormat>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    Svg,
    Dot,
}

pub(crate) fn run(arguments: &PlanArguments, context: &Context) -> Result<Exit, Failure> {
    if arguments.values {
        return values(arguments, context);
    }
    if arguments.offline {
        let plan = site_source::planned_offline(&arguments.site)?;
        return show(&plan, arguments, context.global.json);
    }
    context.with_client(|client| async move {
        let plan = site_source::planned(&arguments.site, &client).await?;
        show(&plan, arguments, context.global.json)
    })
}

/// The values that components receive. They are not part of the plan, which servers store and
/// show.
fn values(arguments: &PlanArguments, context: &Context) -> Result<Exit, Failure> {
    if arguments.offline {
        let site = site_source::site_offline(&arguments.site)?;
        return show_values(&site);
    }
    context.with_client(|client| async move {
        show_values(&site_source::site(&arguments.site, &client).await?)
    })
}

fn show_values(site: &Site) -> Result<Exit, Failure> {
    for note in &site.notes {
        note!("warning: {note}");
    }
    output::json(&site_values::of(site))?;
    Ok(Exit::Done)
}

fn show(plan: &RunPlan, arguments: &PlanArguments, json: bool) -> Result<Exit, Failure> {
    for warning in &plan.warnings {
        note!("warning: {warning}");
    }
    match arguments.graph {
        Some(GraphFormat::Svg) => output::write(&plan_svg(plan))?,
        Some(GraphFormat::Dot) => output::write(&dot(plan))?,
        None if json => output::json(plan)?,
        None => output::write(&plan_view::text(plan))?,
    }
    Ok(Exit::Done)
}
