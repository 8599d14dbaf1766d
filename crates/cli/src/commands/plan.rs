//! `bunraku plan`: shows what a run over many nodes would do, and the reasons for its order.

use bunraku_model::NodeName;
use bunraku_plan::{PlanReview, RunPlan, Site, dot, plan_svg};
use bunraku_wire::api::FleetDiff;
use clap::ValueEnum;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::plan_review;
use crate::plan_view;
use crate::run_options::RunOptionArguments;
use crate::site_source::{self, SiteArguments};
use crate::site_values;

#[derive(clap::Args)]
pub(crate) struct PlanArguments {
    #[command(flatten)]
    site: SiteArguments,
    #[command(flatten)]
    options: RunOptionArguments,
    /// Show what the newest compiled catalogs would change, released or not
    #[arg(long, conflicts_with_all = ["offline", "release"])]
    held: bool,
    /// Plan only the order, without a server: without catalogs, changes and the status of nodes
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
    arguments.options.refuse_impossible(false)?;
    let (options, subject) = (arguments.options.options(), arguments.options.subject());
    if arguments.offline {
        let plan = site_source::planned_offline(&arguments.site)?;
        let plan = plan.with_options(options, subject);
        print_warnings(&plan.warnings);
        return match arguments.graph {
            None if context.global.json => print_json(&plan),
            None => print_text(&plan_view::text(&plan)),
            Some(format) => print_graph(&plan, format),
        };
    }
    context.with_client(|client| async move {
        let plan = site_source::planned(&arguments.site, &client).await?;
        let plan = plan.with_options(options, subject);
        let review = plan_review::review(&client, plan, arguments.held).await?;
        print_warnings(&plan_review::warnings(&review));
        match arguments.graph {
            None if context.global.json => print_json(&ReviewJson::of(&review)),
            None => print_text(&plan_review::text(&review)),
            Some(format) => print_graph(&review.plan, format),
        }
    })
}

/// A reviewed plan as JSON: the members of the plan, and the changes.
#[derive(serde::Serialize)]
struct ReviewJson<'r> {
    #[serde(flatten)]
    plan: &'r RunPlan,
    changes: &'r FleetDiff,
    held: &'r [NodeName],
}

impl<'r> ReviewJson<'r> {
    fn of(review: &'r PlanReview) -> Self {
        Self {
            plan: &review.plan,
            changes: &review.changes,
            held: &review.held,
        }
    }
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

fn print_warnings(warnings: &[String]) {
    for warning in warnings {
        note!("warning: {warning}");
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<Exit, Failure> {
    output::json(value)?;
    Ok(Exit::Done)
}

fn print_text(text: &str) -> Result<Exit, Failure> {
    output::write(text)?;
    Ok(Exit::Done)
}

fn print_graph(plan: &RunPlan, format: GraphFormat) -> Result<Exit, Failure> {
    output::write(&match format {
        GraphFormat::Svg => plan_svg(plan),
        GraphFormat::Dot => dot(plan),
    })?;
    Ok(Exit::Done)
}
