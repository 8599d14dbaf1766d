//! `bunraku access`: who may do what, on what.

use bunraku_model::EnvironmentName;
use bunraku_model::access::{
    AccessGrant, AccessScope, AccessTarget, AccessVerb, GroupName, RuleId, Subject,
};
use bunraku_wire::Client;
use bunraku_wire::api::{
    AccessDecision, AccessRuleEntry, CheckAccessRequest, GrantAccessReply, GrantAccessRequest,
    OwnAccess, RevokeAccessReply,
};
use bunraku_wire::endpoints::{
    CheckAccess, Endpoint, GrantAccess, ListAccessRules, RevokeAccess, RevokeAccessQuery,
    ShowOwnAccess,
};
use clap::Subcommand;
use serde_json::json;

use crate::connection::failed;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Subcommand)]
pub(crate) enum AccessCommand {
    /// List all access rules, or those about yourself
    #[command(after_help = "Examples:\n  bunraku access list\n  bunraku access list --mine")]
    List {
        /// Only the rules about the credentials in use
        #[arg(long)]
        mine: bool,
    },
    /// Add an access rule
    #[command(
        after_help = "Examples:\n  bunraku access grant alice administrator\n  bunraku access grant group:web operator --environment production\n  bunraku access grant bob noop-run,view --nodes 'nodes { certname ~ \"^web-\" }'\n\nRoles: viewer (view), operator (view, noop-run, run), releaser (operator, deploy, release), administrator (all verbs).\nVerbs: view, view-secrets, noop-run, run, deploy, release, approve, sign, administer."
    )]
    Grant {
        /// Name in a certificate, `group:NAME`, `@everyone` or `@ungrouped`
        who: Subject,
        /// Role, or verbs with commas between them
        what: AccessGrant,
        /// Only in this environment, and on its nodes
        #[arg(long, conflicts_with = "nodes")]
        environment: Option<EnvironmentName>,
        /// Only on the nodes that this query finds
        #[arg(long, value_name = "QUERY")]
        nodes: Option<String>,
        /// Reason, shown with the rule
        #[arg(long)]
        reason: Option<String>,
    },
    /// Revoke an access rule
    #[command(after_help = "Example:\n  bunraku access revoke 3")]
    Revoke {
        /// Number, as shown by `access list`
        rule: RuleId,
        /// Revoke it even if nobody can change rules after that
        #[arg(long)]
        allow_lockout: bool,
    },
    /// Check whether somebody may do something, and which rule decides (exit code)
    #[command(
        after_help = "Examples:\n  bunraku access check alice run node:web-1\n  bunraku access check group:web release environment:production\n  bunraku access check bob administer\n\nExit code 0: allowed. Exit code 4: not allowed."
    )]
    Check {
        /// Name in a certificate, or `group:NAME`
        who: Subject,
        /// Verb, such as `run`
        verb: AccessVerb,
        /// `node:NAME`, `environment:NAME` or `everything`
        #[arg(default_value = "everything")]
        thing: AccessTarget,
    },
}

pub(crate) fn run(command: AccessCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            AccessCommand::List { mine: false } => list(&client, json).await,
            AccessCommand::List { mine: true } => list_mine(&client, json).await,
            AccessCommand::Grant {
                who,
                what,
                environment,
                nodes,
                reason,
            } => {
                let scope = match (environment, nodes) {
                    (Some(environment), _) => AccessScope::Environment(environment),
                    (None, Some(query)) => AccessScope::Nodes(query),
                    (None, None) => AccessScope::Everything,
                };
                let request = GrantAccessRequest {
                    subject: who,
                    grants: what,
                    scope,
                    reason,
                };
                grant(&client, &request, json).await
            }
            AccessCommand::Revoke {
                rule,
                allow_lockout,
            } => revoke(&client, rule, allow_lockout, json).await,
            AccessCommand::Check { who, verb, thing } => {
                let request = CheckAccessRequest {
                    who: Some(who),
                    verb,
                    target: thing,
                };
                check(&client, &request, json).await
            }
        }
    })
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let rules = client.call(ListAccessRules).await;
    let rules = rules.map_err(|error| failed(&error))?;
    if json {
        output::json(&rules)?;
    } else {
        print_rules(&rules)?;
    }
    Ok(Exit::Done)
}

async fn list_mine(client: &Client, json: bool) -> Result<Exit, Failure> {
    let own: OwnAccess = client
        .call(ShowOwnAccess)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&own)?;
        return Ok(Exit::Done);
    }
    note!("{}, groups: {}\n", own.name, group_list(own.groups.iter()));
    if own.rules.is_empty() {
        note!("No rule allows you anything. Ask an administrator for access.");
    } else {
        print_rules(&own.rules)?;
    }
    Ok(Exit::Done)
}

fn group_list<'a>(groups: impl Iterator<Item = &'a GroupName>) -> String {
    let groups: Vec<&str> = groups.map(GroupName::as_str).collect();
    match groups.as_slice() {
        [] => "none".to_owned(),
        groups => groups.join(", "),
    }
}

fn print_rules(rules: &[AccessRuleEntry]) -> Result<(), Failure> {
    let mut table = Table::new(&["RULE", "WHO", "MAY", "ON", "GRANTED BY", "SINCE", "REASON"]);
    for rule in rules {
        let since = rule
            .since
            .map(|since| since.strftime("%Y-%m-%d").to_string());
        table.row(vec![
            rule.id.to_string(),
            rule.subject.to_string(),
            rule.grants.to_string(),
            rule.scope.to_string(),
            rule.by.clone(),
            since.unwrap_or_else(|| "-".to_owned()),
            rule.reason.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.print()?;
    for rule in rules {
        if let Some(problem) = &rule.problem {
            note!("warning: rule {} allows nothing: {problem}", rule.id);
        }
    }
    Ok(())
}

/// A rule in one line.
fn in_words(rule: &AccessRuleEntry) -> String {
    format!(
        "rule {}: {} for {} on {}",
        rule.id, rule.grants, rule.subject, rule.scope
    )
}

async fn grant(client: &Client, request: &GrantAccessRequest, json: bool) -> Result<Exit, Failure> {
    let reply: GrantAccessReply = client
        .call_with(GrantAccess, request)
        .await
        .map_err(|error| failed(&error))?;
    for warning in &reply.warnings {
        note!("warning: {warning}");
    }
    if json {
        output::json(&reply)?;
    } else if reply.is_new {
        note!("Granted {}.", in_words(&reply.rule));
    } else {
        note!("Nothing changed: this is {}.", in_words(&reply.rule));
    }
    Ok(Exit::Done)
}

async fn revoke(
    client: &Client,
    rule: RuleId,
    allow_lockout: bool,
    json: bool,
) -> Result<Exit, Failure> {
    let query = RevokeAccessQuery { allow_lockout };
    let reply: RevokeAccessReply = client
        .call(RevokeAccess.with_query(&rule, &query))
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&reply)?;
    } else {
        note!("Revoked {}.", in_words(&reply.rule));
    }
    if !reply.may_administer {
        note!("warning: you can no longer change access rules");
    }
    Ok(Exit::Done)
}

async fn check(client: &Client, request: &CheckAccessRequest, json: bool) -> Result<Exit, Failure> {
    let decision: AccessDecision = client
        .call_with(CheckAccess, request)
        .await
        .map_err(|error| failed(&error))?;
    let exit = if decision.is_allowed {
        Exit::Done
    } else {
        Exit::Refused
    };
    if json {
        output::json(&json!({"request": request, "decision": decision}))?;
        return Ok(exit);
    }
    output::write(&explained(request, &decision))?;
    for note in &decision.notes {
        note!("note: {note}");
    }
    Ok(exit)
}

/// The decision in words.
fn explained(request: &CheckAccessRequest, decision: &AccessDecision) -> String {
    let who = request.who.as_ref().map_or_else(
        || "The holder of these credentials".to_owned(),
        ToString::to_string,
    );
    let (verb, target) = (request.verb, &request.target);
    let mut text = match &decision.rule {
        Some(rule) => format!(
            "{who} may {verb} on {target}.\n  allowed by {}\n",
            in_words(rule)
        ),
        None => format!("{who} may not {verb} on {target}.\n"),
    };
    if decision.rule.is_none() && decision.others.is_empty() {
        text.push_str("  no rule is about this subject\n");
    }
    if decision.rule.is_none() {
        for other in &decision.others {
            text.push_str(&format!("  not {}: {}\n", in_words(&other.rule), other.why));
        }
    }
    if matches!(request.who, Some(Subject::Name(_)) | None) {
        let groups = group_list(decision.groups.iter());
        text.push_str(&format!("  groups: {groups}\n"));
    }
    if let Some(environment) = &decision.environment {
        text.push_str(&format!("  environment of the node: {environment}\n"));
    }
    text
}
