//! Which nodes may take part in a once task.
//!
//! An operator permits it in a definition (`init_on`, `contributors`, `expected_hosts`) or with
//! `bunraku once permit`. A definition that a node wrote permits nobody.

use bunraku_control::ServiceError;
use bunraku_control::document::{self, Decision};
use bunraku_control::keys;
use bunraku_model::{AppName, NodeMatcher, Role};
use bunraku_wire::api::once::{OncePermissions, PermitOnce};

use super::Once;
use super::definition::{Definition, Expected};
use super::record::Parts;
use crate::permission::{self, CueCaller};

/// What a caller may do with one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OnceRole {
    /// Define it and run it.
    Initialiser,
    /// Add a fragment, and see whether it is done.
    Contributor,
    /// Nothing. The task does not exist for it.
    Stranger,
}

impl Once {
    /// Lets nodes take part in a task, whether it is defined yet or not.
    pub async fn permit(&self, app: &AppName, request: &PermitOnce) -> Result<(), ServiceError> {
        let more = &request.permissions;
        self.permissions.check(&more.init_on)?;
        self.permissions.check(&more.contributors)?;
        let key = keys::once_parts(app);
        document::update(&*self.store, &key, |current: Option<Parts>| {
            let mut parts = current.unwrap_or_default();
            let OncePermissions {
                init_on,
                contributors,
            } = &mut parts.permissions;
            permission::extend(init_on, &more.init_on, request.replace);
            permission::extend(contributors, &more.contributors, request.replace);
            self.permissions.check(init_on)?;
            self.permissions.check(contributors)?;
            Ok(Decision::Write(parts))
        })
        .await?;
        Ok(())
    }

    /// Returns what this caller may do with the task.
    pub(super) async fn role(
        &self,
        parts: &Parts,
        caller: CueCaller<'_>,
    ) -> Result<OnceRole, ServiceError> {
        if caller.is_operator() {
            return Ok(OnceRole::Initialiser);
        }
        let (init_on, contributors) = permitted_by(parts);
        if self.permissions.contain(&init_on, caller).await? {
            return Ok(OnceRole::Initialiser);
        }
        if self.permissions.contain(&contributors, caller).await? {
            return Ok(OnceRole::Contributor);
        }
        Ok(OnceRole::Stranger)
    }

    pub(super) async fn check_initialiser(
        &self,
        app: &AppName,
        caller: CueCaller<'_>,
    ) -> Result<(), ServiceError> {
        let parts = self.read(app).await?.record.parts;
        match self.role(&parts, caller).await? {
            OnceRole::Initialiser => Ok(()),
            OnceRole::Contributor | OnceRole::Stranger => Err(may_not_init(app, caller)),
        }
    }

    pub(super) async fn check_contributor(
        &self,
        app: &AppName,
        caller: CueCaller<'_>,
    ) -> Result<(), ServiceError> {
        if caller.is_operator() {
            return Ok(());
        }
        let parts = self.read(app).await?.record.parts;
        let (_, contributors) = permitted_by(&parts);
        if self.permissions.contain(&contributors, caller).await? {
            return Ok(());
        }
        let what = format!("contribute to `{app}`");
        let command = format!("bunraku once permit {app} --contributors {}", caller.name);
        Err(permission::refusal(caller, &what, &command))
    }
}

/// The nodes that operators let run a task, and those that they let contribute to it.
fn permitted_by(parts: &Parts) -> (Vec<NodeMatcher>, Vec<NodeMatcher>) {
    let OncePermissions {
        mut init_on,
        mut contributors,
    } = parts.permissions.clone();
    let defined = parts.definition.as_ref();
    let by_operator = defined.filter(|defined| defined.role == Role::Operator);
    let definition = by_operator.map(|defined| Definition::parse(defined.document.clone()));
    if let Some(Ok(definition)) = definition {
        init_on.extend(definition.init_on);
        contributors.extend(definition.contributors);
        match definition.expected {
            Expected::Nobody | Expected::Number(_) => {}
            Expected::Hosts(hosts) => contributors.extend(hosts.into_iter().map(Into::into)),
            Expected::Query(query) => contributors.push(NodeMatcher::Query(query)),
        }
    }
    (init_on, contributors)
}

/// What a caller without permission misses. The same for every task.
pub(super) fn missing(caller: CueCaller<'_>) -> String {
    format!(
        "a permission (`bunraku once permit … --init-on {}`)",
        caller.name
    )
}

pub(super) fn may_not_init(app: &AppName, caller: CueCaller<'_>) -> ServiceError {
    let command = format!("bunraku once permit {app} --init-on {}", caller.name);
    permission::refusal(caller, &format!("initialise `{app}`"), &command)
}
