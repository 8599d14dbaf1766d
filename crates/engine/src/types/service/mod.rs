//! `service`: the running state of a service, and its start at boot.

mod init_script;
mod keeper;
mod spec;
mod supervised;
mod systemd;
#[cfg(test)]
mod tests;
mod wish;

use serde_json::json;

use crate::{
    Applied, Change, Declaration, Hands, Observation, Provider, Refusal, Relations, ResourceType,
    Sight, StepError, Thing, TypeSpec,
};
use wish::Wish;

pub(crate) struct Service;

/// The current state of a service.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Seen {
    running: bool,
    enabled: bool,
    masked: bool,
}

impl ResourceType for Service {
    type Desired = Wish;
    type Observed = Seen;

    fn spec(&self) -> &'static TypeSpec {
        &spec::SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<Wish, Refusal> {
        Wish::read(declaration)
    }

    /// Returns the changes in the order in which they are made: a masked service cannot
    /// be enabled or started.
    fn changes(&self, desired: &Wish, observed: &Seen) -> Vec<Change> {
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

    fn refresh_change(&self, desired: &Wish, observed: &Seen) -> Option<Change> {
        // A service that this run stops, or has just started, needs no restart.
        let stays = observed.running && desired.running != Some(false);
        let verb = if desired.reload {
            "reloaded"
        } else {
            "restarted"
        };
        stays.then(|| Change::new("refresh", json!("running"), json!(verb)))
    }

    fn relations(&self, desired: &Wish, relations: &mut Relations) {
        let name = desired.short();
        relations.provides(Thing::Service(name.to_owned()));
        for package in packages(name) {
            relations.genius_needs(Thing::Package(package), "the package that brings it");
        }
        for path in [
            format!("/etc/init.d/{name}"),
            format!("/etc/systemd/system/{name}.service"),
            format!("/lib/systemd/system/{name}.service"),
            format!("/usr/lib/systemd/system/{name}.service"),
        ] {
            relations.genius_needs(Thing::Path(path.into()), "what defines it");
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
    fn observe(&self, desired: &Wish, sight: &Sight<'_>) -> Result<Seen, StepError> {
        match keeper::of(desired, sight)? {
            Some(keeper) => keeper.observe(desired, sight),
            // A missing service is stopped, disabled and not masked.
            None if needs_it(desired) && !sight.may_appear() => Err(StepError::new(format!(
                "there is no service `{}`: no unit, no init script, and no `command` to run",
                desired.name
            ))),
            None => Ok(Seen::default()),
        }
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<Applied, StepError> {
        let (desired, _, changes, hands) = step.parts();
        let keeper = keeper::of(desired, hands)?
            .ok_or_else(|| StepError::new(format!("there is no service `{}`", desired.name)))?;
        for change in changes {
            match change.property.as_str() {
                "masked" => keeper.mask(desired, desired.masked == Some(true), hands)?,
                "enable" => keeper.enable(desired, desired.enabled == Some(true), hands)?,
                _ if desired.running == Some(true) => keeper.start(desired, hands)?,
                _ => keeper.stop(desired, hands)?,
            }
        }
        Ok(Applied::default())
    }

    fn refresh(&self, desired: &Wish, _: &Seen, hands: &Hands<'_>) -> Result<Applied, StepError> {
        let keeper = keeper::of(desired, hands)?
            .ok_or_else(|| StepError::new(format!("there is no service `{}`", desired.name)))?;
        match &desired.restart {
            Some(command) if !desired.reload => keeper::shell(command, "restart", hands)?,
            _ if desired.reload => keeper.reload(desired, hands)?,
            _ => keeper.restart(desired, hands)?,
        }
        Ok(Applied::default())
    }
}

fn needs_it(desired: &Wish) -> bool {
    desired.running == Some(true) || desired.enabled == Some(true)
}
