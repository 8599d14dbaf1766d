//! `bunraku query`: queries over the whole fleet.

use bunraku_wire::api::{QueryReply, QueryRequest};
use bunraku_wire::endpoints::RunQuery;
use clap::Args;
use serde_json::Value;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Args)]
#[command(after_help = "Examples:
  bunraku query 'nodes[certname, facts.os.name] { facts.os.family = \"Debian\" }'
  bunraku query 'nodes { resources { type = \"Class\" and title = \"Profile::Loadbalancer\" } }'
  bunraku query 'resources[type, count()] { group by type order by count() desc }'
  bunraku query --json 'reports { status = \"failed\" order by start_time desc limit 10 }'

docs/queries.md describes the whole language.")]
pub(crate) struct QueryArguments {
    /// Query, such as: nodes { facts.os.family = "Debian" }
    #[arg(value_name = "TEXT")]
    query: String,
}

/// Longer cells are truncated; `--json` prints them completely.
const CELL: usize = 100;

pub(crate) fn run(arguments: QueryArguments, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        let request = QueryRequest {
            query: arguments.query,
        };
        let reply: QueryReply = client
            .call_with(RunQuery, &request)
            .await
            .map_err(|error| failed(&error))?;
        for warning in &reply.warnings {
            note!("warning: {warning}");
        }
        if json {
            output::json(&reply.rows)?;
        } else {
            print(&reply)?;
        }
        Ok(Exit::Done)
    })
}

fn print(reply: &QueryReply) -> Result<(), Failure> {
    if reply.rows.is_empty() {
        note!("no results");
        return Ok(());
    }
    let headings: Vec<String> = reply
        .columns
        .iter()
        .map(|name| name.to_uppercase())
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = Table::new(&headings);
    for row in &reply.rows {
        let cells = reply.columns.iter().map(|column| cell(row.get(column)));
        table.row(cells.collect());
    }
    table.print()
}

fn cell(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.replace(char::is_control, " "),
        Some(value) => value.to_string(),
    };
    match text.char_indices().nth(CELL) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
