//! `bunraku token`: one-time tokens with which nodes join.

use bunraku_model::NodeName;
use bunraku_wire::api::{NewToken, TokenEntry, TokenRequest};
use bunraku_wire::endpoints::{CreateToken, Endpoint, ListTokens, RevokeToken};
use clap::Subcommand;

use crate::connection::{failed, reachable_server};
use crate::context::Context;
use crate::duration::HumanDuration;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token; it is shown once and valid for one node
    #[command(after_help = "Example:\n  bunraku token create --node web-1.example.com --ttl 1h")]
    Create {
        /// How long the token is valid
        #[arg(long, default_value = "1h")]
        ttl: HumanDuration,
        /// Valid only for this node
        #[arg(long)]
        node: Option<NodeName>,
    },
    /// List valid tokens
    #[command(after_help = "Example:\n  bunraku token list")]
    List,
    /// Revoke a token
    #[command(after_help = "Example:\n  bunraku token revoke 4f1c2a90")]
    Revoke {
        /// Id, as shown by `token list`
        id: String,
    },
}

pub(crate) fn run(command: TokenCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    context.with_client(|client| async move {
        match command {
            TokenCommand::Create { ttl, node } => {
                let request = TokenRequest {
                    ttl_seconds: ttl.0.as_secs(),
                    node: node.clone(),
                };
                let token: NewToken = client
                    .call_with(CreateToken, &request)
                    .await
                    .map_err(|error| failed(&error))?;
                if json {
                    output::json(&token)?;
                } else {
                    output::write(&format!("{}\n", token.token))?;
                    let server = reachable_server(&client).await;
                    note!("\nhint: on the node, as root, run");
                    let name = node.map_or_else(String::new, |node| format!(" --name {node}"));
                    note!(
                        "  BUNRAKU_TOKEN={} bunraku agent{name} --server {server} --ca-fingerprint {}",
                        token.token,
                        token.ca_fingerprint
                    );
                }
                Ok(Exit::Done)
            }
            TokenCommand::List => {
                let tokens: Vec<TokenEntry> = client
                    .call(ListTokens)
                    .await
                    .map_err(|error| failed(&error))?;
                if json {
                    output::json(&tokens)?;
                    return Ok(Exit::Done);
                }
                let mut table = Table::new(&["ID", "NODE", "EXPIRES", "CREATED BY"]);
                for token in tokens {
                    let node = token
                        .node
                        .map_or_else(|| "any".to_owned(), |node| node.to_string());
                    table.row(vec![
                        token.id,
                        node,
                        output::time(token.expires),
                        token.created_by,
                    ]);
                }
                table.print()?;
                Ok(Exit::Done)
            }
            TokenCommand::Revoke { id } => {
                client
                    .call(RevokeToken.at(&id))
                    .await
                    .map_err(|error| failed(&error))?;
                note!("Token revoked.");
                Ok(Exit::Done)
            }
        }
    })
}
