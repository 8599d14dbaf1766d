//! `bunraku plan`: what a run over many nodes would do, and why in this order.

use bunraku_plan::{Plan, dot, plan_svg};
use clap::ValueEnum;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::plan_view;
use crate::site_source::{self, SiteArguments};

#[derive(clap::Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    site: SiteArguments,
    /// Ask no server: what nodes are like is not looked at
    #[arg(long)]
    offline: bool,
    /// Draw the plan
    #[arg(long, value_enum, value_name = "FORMAT")]
    graph: Option<GraphFormat>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    Svg,
    Dot,
}

pub(crate) fn run(arguments: &PlanArguments, context: &Context) -> Result<Exit, Failure> {
    if arguments.offline {
        let plan = site_source::planned_offline(&arguments.site)?;
        return show(&plan, arguments, context.global.json);
    }
    context.with_client(|client| async move {
        let plan = site_source::planned(&arguments.site, &client).await?;
        show(&plan, arguments, context.global.json)
    })
}

fn show(plan: &Plan, arguments: &PlanArguments, json: bool) -> Result<Exit, Failure> {
    for warning in &plan.warnings {
        anstream::eprintln!("warning: {warning}");
    }
    match arguments.graph {
        Some(GraphFormat::Svg) => output::write(&plan_svg(plan))?,
        Some(GraphFormat::Dot) => output::write(&dot(plan))?,
        None if json => output::json(plan)?,
        None => output::write(&plan_view::text(plan))?,
    }
    Ok(Exit::Done)
}
