//! The sites of a definition and their hosts. Pure.
//!
//! Definitions have them in several forms: site → hosts, host → site, and
//! `{"user": …, "nodes": {host: site}}`. A host is a name, or an object with
//! `hostname` and `user`. All of them are converted to one form, the one that
//! moku itself writes and reads: site → hosts, with the default `user` beside the
//! sites.

use bunraku_model::NodeName;
use serde_json::{Map, Value};

use super::definition::{DefinitionError, invalid};

/// A host of a site, and its login user if it differs from the default.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Host {
    name: String,
    user: Option<String>,
}

/// Sites in the order of the definition: moku uses the first host of the first one as the primary.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sites {
    user: Option<String>,
    sites: Vec<(String, Vec<Host>)>,
}

impl Sites {
    /// Parses any of the forms. `place` is their position in the definition, for messages.
    pub(super) fn parse(value: &Value, place: &str) -> Result<Self, DefinitionError> {
        let Value::Object(entries) = value else {
            return Err(invalid(place, "must be an object"));
        };
        let mut sites = Self {
            user: user(entries.get("user"), place)?,
            sites: Vec::new(),
        };
        for (key, value) in entries.iter().filter(|(key, _)| *key != "user") {
            match value {
                Value::Object(nodes) if key == "nodes" => {
                    for (host, site) in nodes {
                        sites.add_by_host(host, site, place)?;
                    }
                }
                Value::Array(hosts) => {
                    sites.site(key);
                    for host in hosts {
                        sites.add(key, host_of(host, place)?, place)?;
                    }
                }
                site => sites.add_by_host(key, site, place)?,
            }
        }
        Ok(sites)
    }

    fn add_by_host(
        &mut self,
        host: &str,
        site: &Value,
        place: &str,
    ) -> Result<(), DefinitionError> {
        let Value::String(site) = site else {
            return Err(invalid(
                place,
                "must map hosts to a site, or a site to hosts",
            ));
        };
        let host = Host {
            name: host.to_owned(),
            user: None,
        };
        self.add(site, host, place)
    }

    fn add(&mut self, site: &str, host: Host, place: &str) -> Result<(), DefinitionError> {
        NodeName::new(&*host.name)
            .map_err(|error| invalid(place, format!("is invalid: {error}")))?;
        let holds = |hosts: &[Host]| hosts.iter().any(|one| one.name == host.name);
        let known = self.sites.iter().find(|(_, hosts)| holds(hosts));
        match known.map(|(other, _)| other.clone()) {
            Some(other) if other != site => {
                let why = format!("has `{}` in both `{other}` and `{site}`", host.name);
                Err(invalid(place, why))
            }
            Some(_) => Ok(()),
            None => {
                self.site(site).push(host);
                Ok(())
            }
        }
    }

    /// Adds a host that contributed itself, and removes it from its previous site.
    pub(super) fn move_to(&mut self, host: &NodeName, site: &str) {
        for (_, hosts) in &mut self.sites {
            hosts.retain(|one| one.name != host.as_str());
        }
        self.site(site).push(Host {
            name: host.to_string(),
            user: None,
        });
        self.sites.retain(|(_, hosts)| !hosts.is_empty());
    }

    fn site(&mut self, name: &str) -> &mut Vec<Host> {
        let at = self.sites.iter().position(|(site, _)| site == name);
        let at = at.unwrap_or_else(|| {
            self.sites.push((name.to_owned(), Vec::new()));
            self.sites.len() - 1
        });
        &mut self.sites[at].1
    }

    /// Returns the sites in the standard form.
    pub(super) fn to_value(&self) -> Value {
        let user = self.user.iter();
        let user = user.map(|user| ("user".to_owned(), Value::from(user.clone())));
        let sites = self.sites.iter().map(|(site, hosts)| {
            let hosts = hosts.iter().map(|host| self.host_value(host));
            (site.clone(), hosts.collect())
        });
        Value::Object(user.chain(sites).collect())
    }

    /// Returns the host: only its name if the default user logs in.
    fn host_value(&self, host: &Host) -> Value {
        match &host.user {
            Some(user) if self.user.as_ref() != Some(user) => Value::Object(Map::from_iter([
                ("hostname".to_owned(), host.name.clone().into()),
                ("user".to_owned(), user.clone().into()),
            ])),
            _ => host.name.clone().into(),
        }
    }
}

fn user(value: Option<&Value>, place: &str) -> Result<Option<String>, DefinitionError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(user)) if !user.is_empty() => Ok(Some(user.clone())),
        Some(_) => Err(invalid(format!("{place}.user"), "must be a string")),
    }
}

fn host_of(value: &Value, place: &str) -> Result<Host, DefinitionError> {
    match value {
        Value::String(name) => Ok(Host {
            name: name.clone(),
            user: None,
        }),
        Value::Object(host) => match host.get("hostname") {
            Some(Value::String(name)) => Ok(Host {
                name: name.clone(),
                user: user(host.get("user"), place)?,
            }),
            _ => Err(invalid(place, "has a host without `hostname`")),
        },
        _ => Err(invalid(
            place,
            "must be a list of names, or of objects with `hostname`",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(value: Value, expected: Value) {
        let sites = Sites::parse(&value, "sites").expect("valid");
        assert_eq!(sites.to_value(), expected, "{value}");
        let again = Sites::parse(&expected, "sites").expect("valid");
        assert_eq!(again.to_value(), expected, "the one form stays as it is");
    }

    #[test]
    fn every_form_becomes_the_one_that_moku_reads() {
        let by_site = json!({"user": "deploy", "macc": ["m1", "m2"], "ictc": ["i1"]});
        check(by_site.clone(), by_site.clone());
        check(
            json!({"user": "deploy", "nodes": {"m1": "macc", "i1": "ictc", "m2": "macc"}}),
            by_site.clone(),
        );
        check(json!({"nodes": {"m1": "macc"}}), json!({"macc": ["m1"]}));
        check(
            json!({"m1": "macc", "m2": "macc", "i1": "ictc"}),
            json!({"macc": ["m1", "m2"], "ictc": ["i1"]}),
        );
    }

    #[test]
    fn hosts_keep_a_user_of_their_own_only() {
        check(
            json!({
                "user": "deploy",
                "macc": ["m1", {"hostname": "m2"}, {"hostname": "m3", "user": "deploy"}],
                "ictc": [{"hostname": "i1", "user": "other"}],
            }),
            json!({
                "user": "deploy",
                "macc": ["m1", "m2", "m3"],
                "ictc": [{"hostname": "i1", "user": "other"}],
            }),
        );
    }

    #[test]
    fn slips_are_named_with_their_place() {
        for (sites, why) in [
            (json!([]), "the definition's `sites` must be an object"),
            (
                json!({"user": 1}),
                "the definition's `sites.user` must be a string",
            ),
            (
                json!({"macc": [{"user": "x"}]}),
                "the definition's `sites` has a host without `hostname`",
            ),
            (
                json!({"macc": [1]}),
                "the definition's `sites` must be a list of names, or of objects with `hostname`",
            ),
            (
                json!({"nodes": {"m1": 1}}),
                "the definition's `sites` must map hosts to a site, or a site to hosts",
            ),
            (
                json!({"a": ["h"], "b": ["h"]}),
                "the definition's `sites` has `h` in both `a` and `b`",
            ),
        ] {
            let error = Sites::parse(&sites, "sites").expect_err("wrong");
            assert_eq!(error.to_string(), why, "{sites}");
        }
    }

    #[test]
    fn a_host_that_contributes_itself_is_where_it_says() {
        let sites = json!({"user": "deploy", "macc": ["m1", "m2"]});
        let mut sites = Sites::parse(&sites, "sites").expect("valid");
        sites.move_to(&NodeName::new("m2").expect("a name"), "ictc");
        assert_eq!(
            sites.to_value(),
            json!({"user": "deploy", "macc": ["m1"], "ictc": ["m2"]})
        );
    }
}
