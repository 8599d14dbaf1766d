//! How many certificates were signed in the last hour.
//!
//! The count survives a restart, because it is read from the log: nobody gets more by killing
//! the signer.

use std::collections::VecDeque;

use bunraku_model::Role;
use jiff::{SignedDuration, Timestamp};

use crate::message::{Refusal, RefusalKind};
use crate::policy::LimitPerRole;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

#[derive(Default)]
pub(crate) struct SigningRate {
    node: VecDeque<Timestamp>,
    operator: VecDeque<Timestamp>,
    server: VecDeque<Timestamp>,
}

impl SigningRate {
    fn of(&mut self, role: Role) -> &mut VecDeque<Timestamp> {
        match role {
            Role::Node => &mut self.node,
            Role::Operator => &mut self.operator,
            Role::Server => &mut self.server,
        }
    }

    pub(crate) fn count(&mut self, role: Role, at: Timestamp) {
        self.of(role).push_back(at);
    }

    pub(crate) fn check(
        &mut self,
        role: Role,
        limit: &LimitPerRole,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let most = limit.of(role);
        let recent = self.of(role);
        // A clock that was set back must not stop the signer for longer than an hour.
        recent.retain(|at| now.duration_since(*at).abs() < HOUR);
        if i64::try_from(recent.len()).unwrap_or(i64::MAX) < most {
            return Ok(());
        }
        Err(Refusal {
            kind: RefusalKind::Busy,
            message: format!(
                "the signer has signed {most} certificates of the role `{role}` in the last hour, its limit"
            ),
            hint: Some("wait, or raise `most_per_hour` of the signer".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_has_its_own_limit_and_an_hour_later_it_is_free_again() {
        let limit = LimitPerRole {
            node: 2,
            operator: 0,
            server: 1,
        };
        let (mut rate, now) = (SigningRate::default(), Timestamp::UNIX_EPOCH);
        rate.count(Role::Node, now);
        assert!(rate.check(Role::Node, &limit, now).is_ok());
        rate.count(Role::Node, now);
        assert!(rate.check(Role::Node, &limit, now).is_err());
        assert!(rate.check(Role::Operator, &limit, now).is_err());
        assert!(rate.check(Role::Server, &limit, now).is_ok());
        assert!(rate.check(Role::Node, &limit, now + HOUR).is_ok());
    }
}
