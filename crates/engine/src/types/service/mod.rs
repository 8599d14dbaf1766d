//! `service`: the running state of a service, and its start at boot.

mod desired;
mod init_script;
mod manager;
mod spec;
mod supervisor;
mod systemd;
#[cfg(test)]
mod tests;

use serde_json::json;

use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StepError, StepResult, SystemObject, TypeSpec, WriteAccess,
};
use desired::DesiredService;

pub(crate) struct Service;

/// The current state of a service.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct ObservedService {
    running: bool,
    enabled: bool,
    masked: bool,
}

impl ResourceType for Service {
    type Desired = DesiredService;
    type Observed = ObservedService;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredService, Refusal> {
        DesiredService::read(declaration)
    }

    /// Returns the changes in the order in which they are made: a masked service cannot
    /// be enabled or started.
    fn changes(&self, desired: &DesiredService, observed: &ObservedService) -> Vec<Change> {
        let word = |running: bool| json!(if running { "running" } else { "stopped" });
        let mut changes = Vec::new();
        if let Some(masked) = desired.masked.filter(|masked| *masked != observed.masked) {
            changes.push(Change::new("masked", json!(observed.masked), json!(masked)));
        }
        if let Some(enabled) = desired
            .enabled
            .filter(|enabled| *enabled != observed.enabled)
        {
            changes.push(Change::new(
                "enable",
                json!(observed.enabled),
                json!(enabled),
            ));
        }
        if let Some(running) = desired
            .running
            .filter(|running| *running != observed.running)
        {
            changes.push(Change::new("ensure", word(observed.running), word(running)));
        }
        changes
    }

    fn refresh_change(
        &self,
        desired: &DesiredService,
        observed: &ObservedService,
    ) -> Option<Change> {
        // A service that this run stops, or has just started, needs no restart.
        let stays = observed.running && desired.running != Some(false);
        let verb = if desired.reload {
            "reloaded"
        } else {
            "restarted"
        };
        stays.then(|| Change::new("refresh", json!("running"), json!(verb)))
    }

    fn relations(&self, desired: &DesiredService, relations: &mut Relations) {
        let name = desired.short();
        relations.provides(SystemObject::Service(name.to_owned()));
        for package in packages(name) {
            relations.genius_needs(
                SystemObject::Package(package),
                "the package that provides it",
            );
        }
        for path in [
            format!("/etc/init.d/{name}"),
            format!("/etc/systemd/system/{name}.service"),
            format!("/lib/systemd/system/{name}.service"),
            format!("/usr/lib/systemd/system/{name}.service"),
        ] {
            relations.genius_needs(SystemObject::Path(path.into()), "what defines it");
        }
    }
}

/// Packages whose name differs from the service's.
const BROUGHT_BY: &[(&str, &[&str])] = &[
    ("ssh", &["openssh-server"]),
    ("sshd", &["openssh-server"]),
    ("httpd", &["httpd", "apache2"]),
    (
        "mysql",
        &["mysql-server", "mariadb-server", "default-mysql-server"],
    ),
    ("mariadb", &["mariadb-server"]),
    ("postgresql", &["postgresql-server"]),
    ("redis-server", &["redis"]),
    ("ntp", &["ntpsec"]),
    ("cron", &["cronie"]),
    ("crond", &["cronie"]),
    ("docker", &["docker.io", "docker-ce"]),
    ("named", &["bind9", "bind"]),
];

fn packages(service: &str) -> Vec<String> {
    let known = BROUGHT_BY.iter().find(|(name, _)| *name == service);
    let known = known.map_or(&[] as &[&str], |(_, packages)| packages);
    let own = [service, service.split('@').next().unwrap_or(service)];
    let server = format!("{service}-server");
    own.iter()
        .chain(known)
        .map(|name| (*name).to_owned())
        .chain([server])
        .collect()
}

/// Returns the services that read a file, guessed from its path: `/etc/nginx/…`,
/// `/etc/default/nginx`, `/etc/nginx.conf`.
pub(crate) fn readers(path: &std::path::Path) -> Vec<String> {
    let Ok(rest) = path.strip_prefix("/etc") else {
        return Vec::new();
    };
    let mut parts = rest.iter().map(|part| part.to_string_lossy());
    let name = match parts.next().as_deref() {
        Some("default" | "sysconfig" | "init.d" | "init" | "logrotate.d") => parts.next(),
        Some("systemd") => parts.nth(1),
        Some(first) => Some(first.to_owned().into()),
        None => None,
    };
    let Some(name) = name else {
        return Vec::new();
    };
    let endings = [".d", ".conf", ".cnf", ".service"];
    let mut name = name.as_ref();
    while let Some(shorter) = endings.iter().find_map(|ending| name.strip_suffix(ending)) {
        name = shorter;
    }
    // Services with another name.
    let others: &[&str] = match name {
        "ssh" => &["sshd"],
        "my" | "mysql" => &["mysql", "mariadb"],
        "bind" => &["bind9", "named"],
        "redis" => &["redis-server"],
        "crontab" | "cron" => &["cron", "crond"],
        _ => &[],
    };
    let others = others.iter().map(|other| (*other).to_owned());
    std::iter::once(name.to_owned()).chain(others).collect()
}

impl Provider for Service {
    fn observe(
        &self,
        desired: &DesiredService,
        access: &ReadAccess<'_>,
    ) -> StepResult<ObservedService> {
        match manager::of(desired, access)? {
            Some(keeper) => keeper.observe(desired, access),
            // A missing service is stopped, disabled and not masked.
            None if needs_it(desired) && !access.may_appear() => Err(StepError::new(format!(
                "no service `{}`: no unit, no init script, and no `command` to run",
                desired.name
            ))),
            None => Ok(ObservedService::default()),
        }
    }

    fn apply(&self, step: &Observation<'_, Self>) -> StepResult<ApplyResult> {
        let (desired, _, changes, write_access) = step.parts();
        let keeper = manager::of(desired, write_access)?
            .ok_or_else(|| StepError::new(format!("no service `{}`", desired.name)))?;
        for change in changes {
            match change.property.as_str() {
                "masked" => keeper.mask(desired, desired.masked == Some(true), write_access)?,
                "enable" => keeper.enable(desired, desired.enabled == Some(true), write_access)?,
                _ if desired.running == Some(true) => keeper.start(desired, write_access)?,
                _ => keeper.stop(desired, write_access)?,
            }
        }
        Ok(ApplyResult::default())
    }

    fn refresh(
        &self,
        desired: &DesiredService,
        _: &ObservedService,
        write_access: &WriteAccess<'_>,
    ) -> StepResult<ApplyResult> {
        let keeper = manager::of(desired, write_access)?
            .ok_or_else(|| StepError::new(format!("no service `{}`", desired.name)))?;
        match &desired.restart {
            Some(command) if !desired.reload => manager::shell(command, "restart", write_access)?,
            _ if desired.reload => keeper.reload(desired, write_access)?,
            _ => keeper.restart(desired, write_access)?,
        }
        Ok(ApplyResult::default())
    }
}

fn needs_it(desired: &DesiredService) -> bool {
    desired.running == Some(true) || desired.enabled == Some(true)
}
