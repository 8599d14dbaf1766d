//! A plan with the work of every node, and what it would change there.

use bunraku_plan::{PlanReview, PlannedWork, ReviewPlan, RunPlan};
use bunraku_wire::Client;
use bunraku_wire::endpoints::BindPlan;

use crate::connection::failed;
use crate::diff_view;
use crate::failure::Failure;
use crate::output::count;
use crate::plan_view;

/// Asks the server for the work of every node. With `held`, for the newest compiled catalogs,
/// released or not.
pub(crate) async fn review(
    client: &Client,
    plan: RunPlan,
    held: bool,
) -> Result<PlanReview, Failure> {
    let request = ReviewPlan { plan, held };
    let reply = client.call_with(BindPlan, &request).await;
    reply.map_err(|error| failed(&error))
}

/// Returns the warnings of a plan: those about the site and its nodes, and those about the work.
pub(crate) fn warnings(review: &PlanReview) -> Vec<String> {
    let mut warnings = review.plan.warnings.clone();
    if !review.held.is_empty() {
        warnings.push(format!(
            "{} not released, and not part of this plan: {}. Release with `bunraku release create`, or see the \
             changes with `bunraku plan --held`",
            match review.held.len() {
                1 => "the newest catalog of 1 node is".to_owned(),
                number => format!("the newest catalogs of {number} nodes are"),
            },
            diff_view::names(&review.held),
        ));
    }
    warnings
}

/// Formats the order of the nodes, and the changes on them.
pub(crate) fn text(review: &PlanReview) -> String {
    let mut out = plan_view::text(&review.plan);
    if review.plan.steps.is_empty() {
        return out;
    }
    let changes = &review.changes;
    let applying =
        (review.plan.steps.iter()).any(|step| matches!(step.work, Some(PlannedWork::Catalog(_))));
    if !applying {
        return out;
    }
    out.push_str("\nChanges since the last run of each node:\n");
    for line in diff_view::fleet(changes).lines() {
        out.push_str(format!("   {line}").trim_end());
        out.push('\n');
    }
    let changed = changes.compared - changes.unchanged;
    let mut parts = vec![format!(
        "{} with another catalog than before, {} unchanged",
        count(changed, "node"),
        changes.unchanged
    )];
    if !changes.without_catalog.is_empty() {
        parts.push(format!(
            "first known run of {}",
            diff_view::names(&changes.without_catalog)
        ));
    }
    out.push_str(&format!("   {}\n", parts.join("; ")));
    out
}
