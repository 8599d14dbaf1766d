//! `bunraku cert`: list, sign, issue, revoke.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bunraku_model::access::GroupName;
use bunraku_model::{NodeName, Role};
use bunraku_wire::api::{
    CertificateEntry, CertificateState, IssueRequest, IssuedCertificate, PendingRequest,
    RevokeRequest, SignRequest,
};
use bunraku_wire::endpoints::{
    Endpoint, IssueCertificate, ListCertificateRequests, ListCertificates,
    RejectCertificateRequest, RevokeCertificates, SignCertificateRequest,
};
use bunraku_wire::{Client, Credentials, OperatorProof, Request, RequestedCertificate};
use clap::Subcommand;
use jiff::Timestamp;

use crate::connection::{failed, operator_proof};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{self, Table, ago};

#[derive(Subcommand)]
pub(crate) enum CertCommand {
    /// List all signed certificates
    #[command(after_help = "Example:\n  bunraku cert list")]
    List,
    /// List pending certificate requests
    #[command(after_help = "Example:\n  bunraku cert requests")]
    Requests,
    /// Sign a pending request
    #[command(
        after_help = "Example:\n  bunraku cert sign web-1.example.com --fingerprint SHA256:…   # as the node printed it"
    )]
    Sign {
        /// Node, as shown by `cert requests`
        node: NodeName,
        /// The fingerprint that the node printed; another request is not signed
        #[arg(long)]
        fingerprint: String,
    },
    /// Reject a pending request
    #[command(after_help = "Example:\n  bunraku cert reject web-1.example.com")]
    Reject {
        /// Node, as shown by `cert requests`
        node: NodeName,
    },
    /// Create credentials in a directory
    #[command(
        after_help = "Examples:\n  bunraku cert issue alice --role operator --out ./alice\n  bunraku cert issue bob --role operator --group dba --out ./bob"
    )]
    Issue {
        /// Name in the certificate
        name: NodeName,
        /// Role: node, operator or server
        #[arg(long)]
        role: Role,
        /// Directory for ca.pem, cert.pem and key.pem; must not contain them yet
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Additional name or address of a server; repeatable
        #[arg(long = "server-name", value_name = "NAME")]
        server_names: Vec<String>,
        /// Group of an operator, for access rules; repeatable
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<GroupName>,
    },
    /// Revoke the certificates of a name and close its connections
    #[command(
        after_help = "Example:\n  bunraku cert revoke web-1.example.com --reason 'machine was stolen'"
    )]
    Revoke {
        /// Name in the certificates, as shown by `cert list`
        name: NodeName,
        /// Reason, shown with the certificate
        #[arg(long)]
        reason: String,
        /// Revoke only the certificate with this serial number
        #[arg(long)]
        serial: Option<String>,
    },
}

pub(crate) fn run(command: CertCommand, context: &Context) -> Result<Exit, Failure> {
    let json = context.global.json;
    let prove = |requested: &RequestedCertificate<'_>| {
        operator_proof(&context.global, &context.loaded, requested)
    };
    context.with_client(|client| async move {
        match command {
            CertCommand::List => list(&client, json).await,
            CertCommand::Requests => requests(&client, json).await,
            CertCommand::Sign { node, fingerprint } => {
                let request = SignRequest { fingerprint };
                client
                    .call_with(SignCertificateRequest.at(&node), &request)
                    .await
                    .map_err(|error| failed(&error))?;
                note!("Certificate of {node} signed.");
                Ok(Exit::Done)
            }
            CertCommand::Reject { node } => {
                client
                    .call(RejectCertificateRequest.at(&node))
                    .await
                    .map_err(|error| failed(&error))?;
                note!("Request of {node} rejected.");
                Ok(Exit::Done)
            }
            CertCommand::Issue {
                name,
                role,
                out,
                server_names,
                groups,
            } => {
                let certificate = WantedCertificate {
                    name,
                    role,
                    server_names,
                    groups: groups.into_iter().collect(),
                };
                issue(&client, certificate, &Credentials::new(out), prove).await
            }
            CertCommand::Revoke {
                name,
                reason,
                serial,
            } => {
                let request = RevokeRequest { reason, serial };
                client
                    .call_with(RevokeCertificates.at(&name), &request)
                    .await
                    .map_err(|error| failed(&error))?;
                note!("Certificate of {name} revoked.");
                Ok(Exit::Done)
            }
        }
    })
}

async fn list(client: &Client, json: bool) -> Result<Exit, Failure> {
    let entries: Vec<CertificateEntry> = client
        .call(ListCertificates)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&entries)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(&[
        "NAME",
        "ROLE",
        "GROUPS",
        "STATE",
        "ENDS",
        "SIGNED BY",
        "SERIAL",
    ]);
    for entry in entries {
        let state = match entry.state {
            CertificateState::Valid => "valid".to_owned(),
            CertificateState::Expired => "expired".to_owned(),
            CertificateState::Revoked { reason, .. } => format!("revoked: {reason}"),
        };
        let ends = entry.not_after.strftime("%Y-%m-%d").to_string();
        let (name, role) = (entry.name.to_string(), entry.role.to_string());
        let groups: Vec<&str> = entry.groups.iter().map(GroupName::as_str).collect();
        let groups = match groups.as_slice() {
            [] => "-".to_owned(),
            groups => groups.join(","),
        };
        let (by, serial) = (entry.signed_by, entry.serial);
        table.row(vec![name, role, groups, state, ends, by, serial]);
    }
    table.print()?;
    Ok(Exit::Done)
}

async fn requests(client: &Client, json: bool) -> Result<Exit, Failure> {
    let pending: Vec<PendingRequest> = client
        .call(ListCertificateRequests)
        .await
        .map_err(|error| failed(&error))?;
    if json {
        output::json(&pending)?;
        return Ok(Exit::Done);
    }
    if pending.is_empty() {
        note!("no pending requests");
        return Ok(Exit::Done);
    }
    let now = Timestamp::now();
    let mut table = Table::new(&["NODE", "WAITS", "FROM", "FINGERPRINT"]);
    for request in pending {
        table.row(vec![
            request.name.to_string(),
            ago(request.received, now),
            request.from,
            request.fingerprint,
        ]);
    }
    table.print()?;
    note!(
        "\nhint: compare the fingerprint with the one that the node printed, then sign it with `bunraku cert sign`"
    );
    Ok(Exit::Done)
}

/// The contents of a certificate to issue.
struct WantedCertificate {
    name: NodeName,
    role: Role,
    server_names: Vec<String>,
    groups: BTreeSet<GroupName>,
}

/// The key is created here; only the request leaves this machine. The signer accepts it because
/// the operator's own key signs it.
async fn issue(
    client: &Client,
    WantedCertificate {
        name,
        role,
        server_names,
        groups,
    }: WantedCertificate,
    credentials: &Credentials,
    prove: impl Fn(&RequestedCertificate<'_>) -> Result<Option<OperatorProof>, Failure>,
) -> Result<Exit, Failure> {
    if role != Role::Operator && !groups.is_empty() {
        return Err(Failure::usage("`--group` is only for the role `operator`"));
    }
    if credentials.certificate_path().exists() || credentials.key_path().exists() {
        let place = credentials.directory().display();
        return Err(
            Failure::new(format!("{place} already contains credentials"))
                .hint("pass a new directory with `--out`"),
        );
    }
    let key = credentials.load_or_create_key()?;
    let certificate_request = Request::create(&name, &key)?;
    let proof = prove(&RequestedCertificate {
        certificate_request: &certificate_request,
        role,
        server_names: &server_names,
        groups: &groups,
    })?;
    let request = IssueRequest {
        certificate_request,
        role,
        server_names,
        groups,
        proof,
    };
    let issued: IssuedCertificate = client
        .call_with(IssueCertificate, &request)
        .await
        .map_err(|error| failed(&error))?;
    credentials.save(&issued.certificate, &issued.ca)?;
    let place = credentials.directory().display();
    note!(
        "Credentials of {role} {name} written to {place}.\n\nhint: use them with `bunraku --credentials {place} …`"
    );
    Ok(Exit::Done)
}
