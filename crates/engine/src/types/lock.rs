//! `lock`: one node of the fleet holds it, for example to be the database master.
//!
//! Whoever asks first holds it; that somebody else does is fine. It is a
//! change, and notifies, only when this node comes to hold it or gives it
//! back. A run in which the node holds it renews the lease: looking does that,
//! because a run is a sign of life, in noop as well, and nothing changes by it.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::surroundings::Surroundings;
use crate::spec::{argument, parameter};
use crate::{
    Applied, Change, Declaration, Observation, Provider, Refusal, ResourceType, Sight,
    StateFunction, StepError, TypeSpec,
};

/// Others hold it: the program's exit code.
const BUSY: i32 = 11;
/// The token does not hold it any more.
const REFUSED: i32 = 4;

/// The same holder in every run.
const SESSION: &str = "engine";

/// A server that does not answer must not hold a run up for ever.
const PATIENCE: Duration = Duration::from_secs(120);

/// The type, with what its run is surrounded by.
#[derive(Default)]
pub struct Lock {
    surroundings: Surroundings,
}

impl Lock {
    pub fn within(surroundings: Surroundings) -> Self {
        Self { surroundings }
    }
}

static SPEC: TypeSpec = TypeSpec {
    name: "lock",
    aliases: &[],
    summary: "Holds a lock that the whole fleet shares, unless another node holds it. Use it to elect a leader.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`held` or `released`"),
        parameter(
            "lease",
            "how long the lock is held without a run, such as `2h`",
        ),
        parameter(
            "reason",
            "shown to everyone who looks at the lock or waits for it",
        ),
        parameter("program", "the program that is asked: `bunraku`"),
    ],
    states: &[
        StateFunction {
            function: "lock.held",
            implies: &[("ensure", "held")],
            arguments: &[argument("name", "name")],
        },
        StateFunction {
            function: "lock.released",
            implies: &[("ensure", "released")],
            arguments: &[argument("name", "name")],
        },
    ],
    example: r#"[{"type": "Lock", "title": "db-master", "parameters": {"ensure": "held", "lease": "2h"}}]"#,
};

pub struct Wish {
    name: String,
    held: bool,
    lease: String,
    reason: Option<String>,
    program: Option<String>,
}

/// Where the lock is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    Here { token: u64 },
    Elsewhere,
    Free,
}

/// What the program says of a lock.
#[derive(Deserialize)]
struct Told {
    name: String,
    slots: u32,
    holders: Vec<Holder>,
}

#[derive(Deserialize)]
struct Holder {
    session: String,
    token: u64,
    #[serde(default)]
    own: bool,
}

impl ResourceType for Lock {
    type Desired = Wish;
    type Observed = Standing;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Wish, Refusal> {
        let held = match declaration.text("ensure")?.as_deref() {
            None | Some("held") => true,
            Some("released") => false,
            Some(_) => return Err(declaration.refuse("ensure", "`held` or `released`")),
        };
        let lease = declaration.text("lease")?;
        Ok(Wish {
            name: declaration.name()?,
            held,
            lease: lease.unwrap_or_else(|| "2h".to_owned()),
            reason: declaration.text("reason")?,
            program: declaration.text("program")?,
        })
    }

    fn changes(&self, desired: &Wish, observed: &Standing) -> Vec<Change> {
        match (desired.held, observed) {
            (true, Standing::Free) => vec![Change::new("ensure", json!("released"), json!("held"))],
            (false, Standing::Here { .. }) => {
                vec![Change::new("ensure", json!("held"), json!("released"))]
            }
            _ => Vec::new(),
        }
    }
}

impl Provider for Lock {
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Standing, StepError> {
        let words = ["lock", "list", "--json"].map(str::to_owned);
        let run = self.surroundings.call(desired.program.as_ref(), &words);
        let done = run.quiet().timeout(PATIENCE).run(sight)?;
        if !done.succeeded() {
            let said = done.stderr_text();
            return Err(failed("the locks cannot be read", &done.ending(), &said));
        }
        let all: Vec<Told> = serde_json::from_str(&done.stdout_text())
            .map_err(|error| StepError::new(format!("the locks cannot be read: {error}")))?;
        let standing = standing(&all, &desired.name);
        match (desired.held, standing) {
            (true, Standing::Here { token }) => self.renewed(desired, token, sight),
            _ => Ok(standing),
        }
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError> {
        let (desired, observed, _, hands) = step.parts();
        let words = match observed {
            Standing::Here { token } => release(desired, *token),
            _ => acquire(desired),
        };
        let run = self.surroundings.call(desired.program.as_ref(), &words);
        let done = run.timeout(PATIENCE).run(hands)?;
        match (done.code, observed) {
            (Some(0), _) | (Some(REFUSED), Standing::Here { .. }) => Ok(Applied::default()),
            (Some(BUSY), _) => Err(StepError::new(format!(
                "somebody else took `{}` at the same moment",
                desired.name
            ))),
            _ => Err(failed("the lock", &done.ending(), &done.stderr_text())),
        }
    }
}

impl Lock {
    /// Starts the lease anew. One that was lost meanwhile is free, as far as
    /// this run knows: taking it says more.
    fn renewed(&self, wish: &Wish, token: u64, sight: &Sight<'_>) -> Result<Standing, StepError> {
        let token_text = token.to_string();
        let words = ["lock", "renew", &wish.name, "--token", &token_text].map(str::to_owned);
        let run = self.surroundings.call(wish.program.as_ref(), &words);
        let done = run.quiet().timeout(PATIENCE).run(sight)?;
        match done.code {
            Some(0) => Ok(Standing::Here { token }),
            Some(REFUSED) => Ok(Standing::Free),
            _ => Err(failed("the lock", &done.ending(), &done.stderr_text())),
        }
    }
}

fn standing(all: &[Told], name: &str) -> Standing {
    let Some(lock) = all.iter().find(|lock| lock.name == name) else {
        return Standing::Free;
    };
    let own = |holder: &&Holder| holder.own && holder.session == SESSION;
    match lock.holders.iter().find(own) {
        Some(holder) => Standing::Here {
            token: holder.token,
        },
        None if lock.holders.len() >= lock.slots as usize => Standing::Elsewhere,
        None => Standing::Free,
    }
}

fn acquire(wish: &Wish) -> Vec<String> {
    let words = [
        "lock",
        "acquire",
        &wish.name,
        "--as",
        SESSION,
        "--lease",
        &wish.lease,
    ];
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    if let Some(reason) = &wish.reason {
        words.extend(["--reason".to_owned(), reason.clone()]);
    }
    words
}

fn release(wish: &Wish, token: u64) -> Vec<String> {
    let token = token.to_string();
    let words = ["lock", "release", &wish.name, "--token", &token];
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn failed(what: &str, ending: &str, said: &str) -> StepError {
    StepError::new(format!("{what}: {ending}: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<Told> {
        serde_json::from_str(text).expect("locks")
    }

    #[test]
    fn a_lock_is_here_only_by_this_nodes_own_session() {
        let check = |text: &str, expected: Standing| {
            assert_eq!(standing(&told(text), "db"), expected, "{text}");
        };
        check("[]", Standing::Free);
        check(
            r#"[{"name": "db", "slots": 1, "holders": []}]"#,
            Standing::Free,
        );
        check(
            r#"[{"name": "db", "slots": 1, "holders": [{"session": "engine", "token": 3, "own": true}]}]"#,
            Standing::Here { token: 3 },
        );
        check(
            r#"[{"name": "db", "slots": 1, "holders": [{"session": "engine", "token": 3}]}]"#,
            Standing::Elsewhere,
        );
        check(
            r#"[{"name": "db", "slots": 2, "holders": [{"session": "puppet", "token": 3, "own": true}]}]"#,
            Standing::Free,
        );
    }
}
