//! `host`: an entry of `/etc/hosts`.

use serde_json::json;

use super::config_file::{self, LineEdit, NewFile};
use super::{presence, single_line};
use crate::spec::{argument, parameter};
use crate::{
    ApplyResult, Change, Declaration, Observation, Provider, ReadAccess, Refusal, Relations,
    ResourceType, StateFunction, StepError, SystemObject, TypeSpec,
};

pub(crate) struct Host;

static SPEC: TypeSpec = TypeSpec {
    name: "host",
    aliases: &[],
    summary: "An entry of `/etc/hosts`, identified by its canonical name. Other lines are not changed.",
    name_parameter: "name",
    parameters: &[
        parameter("ensure", "`present` (the default) or `absent`"),
        parameter("ip", "the IP address; required unless absent"),
        parameter(
            "host_aliases",
            "other names of the host; not managed by default",
        ),
        parameter("comment", "the comment after `#` on the line"),
        parameter("target", "the file; `/etc/hosts` by default"),
    ],
    states: &[
        StateFunction {
            function: "host.present",
            implies: &[("ensure", "present")],
            arguments: &[argument("aliases", "host_aliases")],
        },
        StateFunction {
            function: "host.absent",
            implies: &[("ensure", "absent")],
            arguments: &[],
        },
    ],
    example: r#"[{"type": "Host", "title": "db.example.com", "parameters": {
  "ip": "192.0.2.10", "host_aliases": ["db"], "target": "@ROOT@/hosts"}}]"#,
};

pub(crate) struct DesiredHost {
    name: String,
    present: bool,
    ip: String,
    aliases: Option<Vec<String>>,
    comment: Option<String>,
    target: String,
}

/// A line of the file.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Entry {
    ip: String,
    name: String,
    aliases: Vec<String>,
    comment: String,
}

impl Entry {
    fn read(line: &str) -> Option<Self> {
        let (fields, comment) = line.split_once('#').unwrap_or((line, ""));
        let mut fields = fields.split_whitespace().map(str::to_owned);
        Some(Self {
            ip: fields.next()?,
            name: fields.next()?,
            aliases: fields.collect(),
            comment: comment.trim().to_owned(),
        })
    }

    fn line(&self) -> String {
        let mut line = format!("{}\t{}", self.ip, self.name);
        for alias in &self.aliases {
            line.push_str(&format!(" {alias}"));
        }
        if !self.comment.is_empty() {
            line.push_str(&format!("\t# {}", self.comment));
        }
        line
    }
}

impl DesiredHost {
    fn entry(&self, old: Option<&Entry>) -> Entry {
        Entry {
            ip: self.ip.clone(),
            name: self.name.clone(),
            aliases: (self.aliases.clone())
                .unwrap_or_else(|| old.map(|old| old.aliases.clone()).unwrap_or_default()),
            comment: (self.comment.clone())
                .unwrap_or_else(|| old.map(|old| old.comment.clone()).unwrap_or_default()),
        }
    }

    /// Returns the file with the desired entry exactly once.
    fn put(&self, content: &[u8]) -> Vec<u8> {
        let old = find(content, &self.name);
        let entry = self.present.then(|| self.entry(old.as_ref()).line());
        let mut first = entry.clone();
        config_file::rewrite(content, entry, |line| match Entry::read(line) {
            Some(found) if found.name == self.name => match first.take() {
                Some(line) => LineEdit::Become(line),
                None => LineEdit::Remove,
            },
            _ => LineEdit::Keep,
        })
    }
}

fn find(content: &[u8], name: &str) -> Option<Entry> {
    config_file::lines(content)
        .filter_map(|line| Entry::read(&config_file::text(line)))
        .find(|entry| entry.name == name)
}

impl ResourceType for Host {
    type Desired = DesiredHost;
    type Observed = Option<Entry>;

    fn spec(&self) -> &'static TypeSpec {
        &SPEC
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredHost, Refusal> {
        let present = presence::present(declaration)?;
        let ip = single_line::word(declaration, "ip")?;
        if ip
            .as_deref()
            .is_some_and(|ip| ip.parse::<std::net::IpAddr>().is_err())
        {
            return Err(declaration.refuse("ip", "an address"));
        }
        let ip = match ip {
            None if present => return Err(Refusal::Missing("ip")),
            ip => ip.unwrap_or_default(),
        };
        Ok(DesiredHost {
            name: single_line::name_word(declaration)?,
            present,
            ip,
            aliases: single_line::words(declaration, "host_aliases")?,
            comment: single_line::line(declaration, "comment")?,
            target: (declaration.text("target")?).unwrap_or_else(|| "/etc/hosts".to_owned()),
        })
    }

    fn changes(&self, desired: &DesiredHost, observed: &Option<Entry>) -> Vec<Change> {
        presence::changes(desired.present, observed.as_ref(), |old| {
            let new = desired.entry(Some(old));
            presence::differing([
                ("ip", json!(old.ip), json!(new.ip)),
                ("host_aliases", json!(old.aliases), json!(new.aliases)),
                ("comment", json!(old.comment), json!(new.comment)),
            ])
        })
    }

    fn relations(&self, desired: &DesiredHost, relations: &mut Relations) {
        relations.provides(SystemObject::Other("host", desired.name.clone()));
        relations.needs(
            SystemObject::Path(desired.target.clone().into()),
            "its file",
        );
    }
}

impl Provider for Host {
    fn observe(
        &self,
        desired: &DesiredHost,
        access: &ReadAccess<'_>,
    ) -> Result<Option<Entry>, StepError> {
        let content = config_file::read(&access.path(&desired.target))?;
        Ok(find(content.as_deref().unwrap_or_default(), &desired.name))
    }

    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let Observation {
            desired,
            write_access,
            ..
        } = *step;
        let path = write_access.path(&desired.target);
        config_file::edit(&path, NewFile::PUBLIC, write_access, |content| {
            desired.put(content)
        })?;
        Ok(ApplyResult::default())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing_root::Machine;
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;

    #[test]
    fn an_entry_is_added_changed_and_removed_and_other_lines_stay() {
        let machine = Machine::new();
        machine.write(
            "/etc/hosts",
            "127.0.0.1 localhost # here\n\n# mine\n10.0.0.1  db old",
        );
        let transcript = machine.converges(json!([
            {"type": "Host", "title": "db", "parameters": {"ip": "10.0.0.2", "host_aliases": ["db1", "db2"]}},
            {"type": "Host", "title": "web", "parameters": {"ip": "fd00::1", "comment": "the web"}},
        ]));
        expect![[r#"
            Host[db] changed
              ip: 10.0.0.1 -> 10.0.0.2
              host_aliases: ["old"] -> ["db1","db2"]
            Host[web] changed
              ensure: - -> present
        "#]]
        .assert_eq(&transcript);
        let mut lines: Vec<_> = machine
            .read("/etc/hosts")
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        expect![[r#"

            # mine
            10.0.0.2	db db1 db2
            127.0.0.1 localhost # here
            fd00::1	web	# the web"#]]
        .assert_eq(&lines.join("\n"));
        machine.converges(
            json!([{"type": "Host", "title": "db", "parameters": {"ensure": "absent"}}]),
        );
        assert!(!machine.read("/etc/hosts").contains("db"));
    }

    #[test]
    fn two_hundred_entries_at_once_lose_none() {
        let machine = Machine::new();
        let hosts: Vec<_> = (0..200)
            .map(|n| json!({"type": "Host", "title": format!("n{n}"), "parameters": {"ip": format!("10.0.0.{n}")}}))
            .collect();
        machine.apply(json!(hosts));
        assert_eq!(machine.read("/etc/hosts").lines().count(), 200);
    }

    proptest! {
        #[test]
        fn putting_an_entry_twice_is_putting_it_once(
            lines in proptest::collection::vec("[ -~]{0,20}|10.0.0.1 name( [a-z]{1,3}){0,2}", 0..6),
            present: bool,
        ) {
            let desired = DesiredHost {
                name: "name".to_owned(),
                present,
                ip: "10.1.1.1".to_owned(),
                aliases: Some(vec!["a".to_owned()]),
                comment: None,
                target: String::new(),
            };
            let content = lines.join("\n");
            let once = desired.put(content.as_bytes());
            let found = find(&once, "name");
            prop_assert!(Host.changes(&desired, &found).is_empty());
            prop_assert_eq!(&desired.put(&once), &once);
            for line in lines.iter().filter(|line| Entry::read(line).is_none_or(|entry| entry.name != "name")) {
                prop_assert!(String::from_utf8_lossy(&once).contains(line.as_str()));
            }
        }
    }
}
