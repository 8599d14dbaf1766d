//! The rules by which the signer decides. They are the signer's own configuration: no server can
//! change them.

use bunraku_model::Role;
use bunraku_model::access::{ADMINISTRATORS, GroupName};
use bunraku_wire::{Certificate, RequestedCertificate};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::caller::Caller;
use crate::message::{Refusal, SignAsk};
use crate::revoked::RevokedSerials;

/// One number for each role.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LimitPerRole {
    pub node: i64,
    pub operator: i64,
    pub server: i64,
}

impl LimitPerRole {
    pub fn of(&self, role: Role) -> i64 {
        match role {
            Role::Node => self.node,
            Role::Operator => self.operator,
            Role::Server => self.server,
        }
    }
}

/// What the signer signs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SigningPolicy {
    /// The longest lifetimes, in seconds. A request for more is refused.
    pub longest_lifetime: LimitPerRole,
    /// The most certificates per hour. 0 disables a role.
    pub most_per_hour: LimitPerRole,
    /// Operators that servers may name without an operator's proof, such as the first one. Each
    /// of these names belongs to the first key that asked for it.
    pub operators_without_proof: Vec<String>,
    /// Names and addresses that a server's certificate may have without an operator's proof.
    /// `*.example.com` allows all names below it, `*` all.
    pub server_names: Vec<String>,
    /// Give the key to a server that joins the cluster.
    pub shares_key: bool,
}

const DAY: i64 = 24 * 3600;

impl Default for SigningPolicy {
    fn default() -> Self {
        Self {
            longest_lifetime: LimitPerRole {
                node: 400 * DAY,
                operator: 400 * DAY,
                server: 90 * DAY,
            },
            most_per_hour: LimitPerRole {
                node: 20_000,
                operator: 100,
                server: 1_000,
            },
            operators_without_proof: Vec::new(),
            server_names: Vec::new(),
            shares_key: false,
        }
    }
}

impl SigningPolicy {
    /// Returns a policy that allows everything, for a signer inside a test's own process.
    pub fn permissive() -> Self {
        let all = LimitPerRole {
            node: i64::MAX,
            operator: i64::MAX,
            server: i64::MAX,
        };
        Self {
            longest_lifetime: all,
            most_per_hour: all,
            operators_without_proof: vec!["*".to_owned()],
            server_names: vec!["*".to_owned()],
            shares_key: true,
        }
    }

    /// Decides on a request, except for its rate. Returns the operator who proved to want it.
    pub(crate) fn check(
        &self,
        ask: &SignAsk,
        name: &str,
        caller: &Caller,
        authorities: &[&Certificate],
        revoked: &RevokedSerials,
        now: Timestamp,
    ) -> Result<Option<String>, Refusal> {
        self.check_lifetime(ask)?;
        if ask.role != Role::Server && !ask.server_names.is_empty() {
            return Err(Refusal::forbidden(
                "only a server's certificate may have server names",
                "request the role `server`",
            ));
        }
        if ask.role != Role::Operator && !ask.groups.is_empty() {
            return Err(Refusal::forbidden(
                "only an operator's certificate may have groups",
                "request the role `operator`",
            ));
        }
        if let Some(proof) = &ask.proof {
            let requested = RequestedCertificate {
                certificate_request: &ask.certificate_request,
                role: ask.role,
                server_names: &ask.server_names,
                groups: &ask.groups,
            };
            let operator = proof.check(authorities, &requested, now).map_err(|error| {
                Refusal::forbidden(
                    format!("the operator's proof is not valid: {error}"),
                    "repeat the command with valid operator credentials",
                )
            })?;
            if revoked.contains(&operator.serial) {
                return Err(Refusal::forbidden(
                    format!("the operator `{}` is revoked", operator.common_name),
                    "use other operator credentials",
                ));
            }
            check_requester(&operator, ask, name)?;
            return Ok(Some(operator.common_name));
        }
        self.check_without_proof(ask, name, caller).map(|()| None)
    }

    fn check_lifetime(&self, ask: &SignAsk) -> Result<(), Refusal> {
        let longest = self.longest_lifetime.of(ask.role);
        if ask.lifetime_seconds > longest {
            return Err(Refusal::forbidden(
                format!(
                    "the signer signs certificates of the role `{}` for at most {}, not {}",
                    ask.role,
                    days(longest),
                    days(ask.lifetime_seconds)
                ),
                "reduce the lifetime under [server.certificates], or raise the signer's limit",
            ));
        }
        Ok(())
    }

    fn check_without_proof(
        &self,
        ask: &SignAsk,
        name: &str,
        caller: &Caller,
    ) -> Result<(), Refusal> {
        let hint = "use `bunraku cert issue` of this version with operator credentials";
        match ask.role {
            Role::Node => Ok(()),
            // Their names are known, but nobody vouches for their groups.
            Role::Operator
                if !ask.groups.is_empty()
                    && !self.operators_without_proof.iter().any(|it| it == "*") =>
            {
                Err(Refusal::forbidden(
                    format!("the groups of `{name}` need the proof of an operator"),
                    hint,
                ))
            }
            Role::Operator if matches_any(&self.operators_without_proof, name) => Ok(()),
            Role::Operator => Err(Refusal::forbidden(
                format!("the operator `{name}` needs the proof of an operator"),
                hint,
            )),
            Role::Server => {
                let allowed = caller.server_names.as_ref().unwrap_or(&self.server_names);
                let mut wanted = ask.server_names.iter().map(String::as_str).chain([name]);
                match wanted.find(|wanted| !matches_any(allowed, wanted)) {
                    None => Ok(()),
                    Some(refused) => Err(Refusal::forbidden(
                        format!("`{}` may not serve under the name `{refused}`", caller.name),
                        format!("allow the name in the signer's configuration, or {hint}"),
                    )),
                }
            }
        }
    }
}

/// Decides what an operator may request. The signer does not know the access rules of servers, so
/// it goes by the certificate: groups limit their holder to renewing it unchanged, unless
/// `administrators` is one of them.
fn check_requester(operator: &Certificate, ask: &SignAsk, name: &str) -> Result<(), Refusal> {
    let is_administrator = |group: &GroupName| group.as_str() == ADMINISTRATORS;
    if operator.groups.is_empty() || operator.groups.iter().any(is_administrator) {
        return Ok(());
    }
    let is_renewal =
        ask.role == Role::Operator && operator.common_name == name && operator.groups == ask.groups;
    if is_renewal || ask.role == Role::Node {
        return Ok(());
    }
    Err(Refusal::forbidden(
        format!(
            "the groups of `{}` only allow renewing that certificate unchanged",
            operator.common_name
        ),
        format!("use operator credentials without groups, or with the group `{ADMINISTRATORS}`"),
    ))
}

fn days(seconds: i64) -> String {
    let length = SignedDuration::from_secs(seconds);
    if seconds >= 2 * DAY {
        format!("{} days", length.as_hours() / 24)
    } else {
        format!("{length:#}")
    }
}

/// Returns `true` if a pattern names it. Every server may use the names of its own machine.
fn matches_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| {
        pattern == "*"
            || pattern.eq_ignore_ascii_case(name)
            || pattern.strip_prefix("*.").is_some_and(|below| {
                name.to_ascii_lowercase()
                    .strip_suffix(&below.to_ascii_lowercase())
                    .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_names_below_it_and_nothing_else() {
        let patterns = ["*.example.com".to_owned(), "s1".to_owned()];
        for name in ["a.example.com", "a.b.Example.com", "S1"] {
            assert!(matches_any(&patterns, name), "{name}");
        }
        for name in ["example.com", "aexample.com", ".example.com", "s2", ""] {
            assert!(!matches_any(&patterns, name), "{name}");
        }
    }
}
