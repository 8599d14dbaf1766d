//! The plan that somebody reviewed, and that a run has to have.

use std::path::PathBuf;

use bunraku_plan::RunPlan;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::plan_view;

/// The shortest beginning of an id. A shorter one, such as an empty variable, proves nothing.
const SHORTEST: usize = 8;

/// A plan by its id, or as `bunraku plan --json` printed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ExpectedPlan {
    Id(String),
    File(PathBuf),
}

impl std::str::FromStr for ExpectedPlan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex && text.len() >= SHORTEST {
            return Ok(Self::Id(text.to_ascii_lowercase()));
        }
        let path = PathBuf::from(text);
        if path.is_file() {
            return Ok(Self::File(path));
        }
        Err(format!(
            "`{text}` is neither a plan id of at least {SHORTEST} characters nor a file with the output of `bunraku plan --json`"
        ))
    }
}

impl ExpectedPlan {
    /// Refuses another plan than the expected one.
    pub(crate) fn check(&self, plan: &RunPlan) -> Result<(), Failure> {
        let now = plan.id.0.short();
        match self {
            Self::Id(id) if plan.id.to_string().starts_with(id.as_str()) => Ok(()),
            Self::Id(id) => Err(Failure::new(format!(
                "the plan has changed: it is now {now}, not {id}"
            ))
            .exit(Exit::Refused)
            .hint(
                "review it with `bunraku plan`, then pass its new id. To see what changed, save the output of \
                 `bunraku plan --json`, and pass the file instead of the id",
            )),
            Self::File(path) => {
                let unreadable = |error: &dyn std::error::Error| {
                    Failure::new(format!("{} is not a plan", path.display()))
                        .caused_by(error)
                        .hint("pass a file with the output of `bunraku plan --json`")
                };
                let text = std::fs::read(path).map_err(|error| unreadable(&error))?;
                let expected: RunPlan =
                    serde_json::from_slice(&text).map_err(|error| unreadable(&error))?;
                if expected.id == plan.id {
                    return Ok(());
                }
                let differences = plan_view::differences(&expected, plan);
                Err(Failure::new(format!(
                    "the plan has changed since it was made\n{}",
                    differences.trim_end()
                ))
                .exit(Exit::Refused)
                .hint("review it with `bunraku plan`, and save it again"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_says_too_little_is_refused() {
        for bad in ["", "7e0f", "not-an-id", "/nonexistent/plan.json"] {
            assert!(bad.parse::<ExpectedPlan>().is_err(), "{bad}");
        }
        assert_eq!(
            "7E0F5D0A".parse(),
            Ok(ExpectedPlan::Id("7e0f5d0a".to_owned()))
        );
    }
}
