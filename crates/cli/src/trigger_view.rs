//! The history of triggers and reactors in words.

use bunraku_agent::chain_text;
use bunraku_wire::api::triggers::TriggerNews;

use crate::output;
use crate::run_view;

fn after_colon(text: Option<&str>) -> String {
    text.map_or_else(String::new, |text| format!(": {text}"))
}

/// Describes one entry.
pub(crate) fn describe_event(news: &TriggerNews) -> String {
    match news {
        TriggerNews::Fired {
            by,
            count,
            unknown,
            reason,
            chain,
            ..
        } => {
            let mut text = format!("fired by {by} for {}", output::count(*count, "host"));
            if let Some(reason) = reason {
                text.push_str(&format!(": {reason}"));
            }
            if !unknown.is_empty() {
                let names: Vec<&str> = unknown
                    .iter()
                    .map(bunraku_model::NodeName::as_str)
                    .collect();
                text.push_str(&format!("; unknown: {}", names.join(", ")));
            }
            if chain.len() > 1 {
                text.push_str(&format!("; {}", chain_text(chain)));
            }
            text
        }
        TriggerNews::Stopped { why, chain, .. } => {
            format!("stopped: {}; {}", why.as_str(), chain_text(chain))
        }
        TriggerNews::Expired { node } => format!("expired: {node} did not connect in time"),
        TriggerNews::Refused { node, message } => format!("refused by {node}: {message}"),
        TriggerNews::NoHosts { by, reason, tried } => {
            let mut text = format!("no host for {by}{}", after_colon(reason.as_deref()));
            if !tried.is_empty() {
                text.push_str(&format!("; {}", tried.join("; ")));
            }
            text
        }
        TriggerNews::RunStarted {
            by,
            run,
            nodes,
            reason,
        } => format!(
            "{by} started run {} over {}{}",
            run_view::short(*run),
            output::count(*nodes, "node"),
            after_colon(reason.as_deref())
        ),
        TriggerNews::RunRefused {
            by,
            reason,
            message,
        } => format!(
            "the run of {by} was refused: {message}{}",
            match reason {
                Some(reason) => format!(" ({reason})"),
                None => String::new(),
            }
        ),
        TriggerNews::RunEnded {
            by,
            run,
            outcome,
            failed,
        } => {
            let run = run_view::short(*run);
            let outcome = run_view::outcome_word(*outcome);
            match failed {
                0 => format!("run {run} of {by} {outcome}"),
                failed => format!(
                    "run {run} of {by} {outcome}: {} did not succeed",
                    output::count(*failed, "node")
                ),
            }
        }
    }
}
