//! Puppet's command line. Pure.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bunraku_wire::api::RunMode;

use super::super::method::RunOrder;
use super::places::PuppetPaths;
use super::{PuppetForm, PuppetOptions};

/// Settings that point to a port on which nobody listens, so that Puppet cannot fetch anything in
/// place of the catalog and files that it was given.
const NO_SERVER: [&str; 6] = [
    "--server",
    "127.0.0.1",
    "--serverport",
    "1",
    "--server_list",
    "",
];

/// The files of one run, in their own directory.
#[derive(Clone, Debug)]
pub(super) struct RunFiles {
    pub(super) directory: PathBuf,
}

impl RunFiles {
    pub(super) fn report(&self) -> PathBuf {
        self.directory.join("report.yaml")
    }

    /// Returns the path of the log. With this extension, Puppet writes JSON lines.
    pub(super) fn log(&self) -> PathBuf {
        self.directory.join("log.jsonl")
    }

    /// Returns the directory that replaces Puppet's `client_data`, so that Puppet's own is not
    /// touched.
    pub(super) fn client_data(&self) -> PathBuf {
        self.directory.join("client_data")
    }

    /// Returns the directory of the directories that files in the catalog are copied from.
    pub(super) fn sources(&self) -> PathBuf {
        self.directory.join("sources")
    }

    pub(super) fn catalog(&self, certificate_name: &str) -> PathBuf {
        let name = format!("{certificate_name}.json");
        self.client_data().join("catalog").join(name)
    }
}

/// The source of the catalog to apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PuppetInput {
    /// Puppet's server or the manifest.
    Own,
    /// The catalog in the run's files.
    Delivered,
}

/// Returns Puppet's arguments for one run.
pub(super) fn arguments(
    options: &PuppetOptions,
    order: &RunOrder,
    what: PuppetInput,
    files: &RunFiles,
    places: &PuppetPaths,
    plugins: Option<&Path>,
) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    match &options.form {
        PuppetForm::Agent => {
            arguments.all(["agent", "--onetime", "--no-daemonize"]);
            // The report contains the job id again.
            arguments.pair("--job-id", order.id.to_string());
            // A cached catalog of an earlier run is not what was requested.
            arguments.all(["--no-usecacheonfailure"]);
            let mut destination = OsString::from("syslog,");
            destination.push(files.log());
            arguments.pair("--logdest", destination);
        }
        PuppetForm::Apply { .. } => {
            arguments.all(["apply"]);
            arguments.pair("--logdest", files.log());
        }
    }
    arguments.all([
        "--detailed-exitcodes",
        "--report",
        "--no-splay",
        "--color=false",
    ]);
    arguments.pair("--lastrunreport", files.report());
    arguments.0.extend(identity(options));
    if let Some(environment) = order.environment().or(options.environment.as_ref()) {
        arguments.pair("--environment", environment.as_str());
    }
    // Never pass `--no-noop`: a node that Puppet's own settings keep at noop stays at noop.
    if order.mode == RunMode::Noop {
        arguments.all(["--noop"]);
    }
    if !order.tags.is_empty() {
        arguments.pair("--tags", order.tags.join(","));
    }
    if let Some(plugins) = plugins {
        arguments.pair("--libdir", plugins.join("lib"));
        arguments.pair("--pluginfactdest", plugins.join("facts.d"));
        // The agent finds functions in `libdir`, and apply only in modules.
        if options.form != PuppetForm::Agent {
            arguments.pair("--modulepath", plugins.join("modules"));
        }
    }
    if what == PuppetInput::Delivered && options.form == PuppetForm::Agent {
        arguments.all(["--use_cached_catalog", "--catalog_cache_terminus", "json"]);
        arguments.pair("--client_datadir", files.client_data());
        arguments.all(NO_SERVER);
        arguments.pair("--report_server", &places.report_server);
        arguments.pair("--report_port", &places.report_port);
    }
    arguments.all(options.arguments.iter());
    match (&options.form, what) {
        (PuppetForm::Agent, _) => {}
        (PuppetForm::Apply { .. }, PuppetInput::Delivered) => {
            arguments.pair("--catalog", files.catalog(&places.certificate_name));
        }
        (PuppetForm::Apply { manifest }, PuppetInput::Own) => {
            arguments.0.extend(manifest.iter().map(OsString::from));
        }
    }
    arguments.0
}

/// Returns the arguments for the certname and the directories, if they differ from the defaults.
pub(super) fn identity(options: &PuppetOptions) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    if let Some(name) = &options.certname {
        arguments.pair("--certname", name);
    }
    let directories: [(&str, &Option<PathBuf>); 4] = [
        ("--confdir", &options.confdir),
        ("--vardir", &options.vardir),
        ("--ssldir", &options.ssldir),
        ("--publicdir", &options.publicdir),
    ];
    for (name, directory) in directories {
        if let Some(directory) = directory {
            arguments.pair(name, Path::new(directory));
        }
    }
    arguments.0
}

/// Checks that text is a single tag. Puppet takes several tags as one argument, so each must be
/// a single one.
pub(super) fn is_tag(tag: &str) -> bool {
    let mut characters = tag.chars();
    let first = characters.next();
    first.is_some_and(|first| first.is_alphanumeric() || first == '_')
        && characters.all(|next| next.is_alphanumeric() || "_:.-".contains(next))
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn all(&mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) {
        self.0.extend(arguments.into_iter().map(Into::into));
    }

    fn pair(&mut self, name: &str, value: impl Into<OsString>) {
        self.0.push(name.into());
        self.0.push(value.into());
    }
}

#[cfg(test)]
mod tests {
    use bunraku_model::NodeRunId;
    use bunraku_wire::api::RunSubject;
    use expect_test::{Expect, expect};
    use uuid::Uuid;

    use super::*;

    fn order(mode: RunMode, tags: &[&str]) -> RunOrder {
        RunOrder {
            id: NodeRunId(Uuid::from_u128(7)),
            mode,
            subject: RunSubject::configured(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
            causes: Vec::new(),
            more_causes: 0,
            work: bunraku_process::WorkLog::new("/nonexistent/work"),
        }
    }

    fn files() -> RunFiles {
        RunFiles {
            directory: "/run".into(),
        }
    }

    fn check(form: PuppetForm, mode: RunMode, tags: &[&str], what: PuppetInput, expected: Expect) {
        let options = PuppetOptions {
            form,
            confdir: Some("/c".into()),
            environment: Some("staging".parse().expect("a name")),
            arguments: vec!["--modulepath".to_owned(), "/m".to_owned()],
            ..PuppetOptions::new("/data".into())
        };
        let (order, files) = (order(mode, tags), files());
        let places = PuppetPaths {
            certificate_name: "dev1".to_owned(),
            report_server: "puppet".to_owned(),
            report_port: "8140".to_owned(),
            ..PuppetPaths::default()
        };
        let plugins = (what == PuppetInput::Delivered).then_some(Path::new("/plugins"));
        let arguments = arguments(&options, &order, what, &files, &places, plugins);
        let text: Vec<_> = arguments.iter().map(|one| one.to_string_lossy()).collect();
        expected.assert_eq(&text.join(" "));
    }

    #[test]
    fn an_agent_run_carries_its_id_and_asks_for_what_was_asked() {
        check(
            PuppetForm::Agent,
            RunMode::Noop,
            &["lamp::mysql", "app1"],
            PuppetInput::Own,
            expect![
                "agent --onetime --no-daemonize --job-id 00000000-0000-0000-0000-000000000007 --no-usecacheonfailure --logdest syslog,/run/log.jsonl --detailed-exitcodes --report --no-splay --color=false --lastrunreport /run/report.yaml --confdir /c --environment staging --noop --tags lamp::mysql,app1 --modulepath /m"
            ],
        );
    }

    #[test]
    fn a_delivered_catalog_leaves_the_agent_no_server_to_ask() {
        check(
            PuppetForm::Agent,
            RunMode::Enforce,
            &[],
            PuppetInput::Delivered,
            expect![
                "agent --onetime --no-daemonize --job-id 00000000-0000-0000-0000-000000000007 --no-usecacheonfailure --logdest syslog,/run/log.jsonl --detailed-exitcodes --report --no-splay --color=false --lastrunreport /run/report.yaml --confdir /c --environment staging --libdir /plugins/lib --pluginfactdest /plugins/facts.d --use_cached_catalog --catalog_cache_terminus json --client_datadir /run/client_data --server 127.0.0.1 --serverport 1 --server_list  --report_server puppet --report_port 8140 --modulepath /m"
            ],
        );
    }

    #[test]
    fn without_a_server_a_manifest_or_the_delivered_catalog_is_applied() {
        let form = PuppetForm::Apply {
            manifest: Some("/site.pp".into()),
        };
        check(
            form.clone(),
            RunMode::Enforce,
            &[],
            PuppetInput::Own,
            expect![
                "apply --logdest /run/log.jsonl --detailed-exitcodes --report --no-splay --color=false --lastrunreport /run/report.yaml --confdir /c --environment staging --modulepath /m /site.pp"
            ],
        );
        check(
            form,
            RunMode::Enforce,
            &[],
            PuppetInput::Delivered,
            expect![
                "apply --logdest /run/log.jsonl --detailed-exitcodes --report --no-splay --color=false --lastrunreport /run/report.yaml --confdir /c --environment staging --libdir /plugins/lib --pluginfactdest /plugins/facts.d --modulepath /plugins/modules --modulepath /m --catalog /run/client_data/catalog/dev1.json"
            ],
        );
    }

    #[test]
    fn an_environment_that_the_request_names_counts_before_the_settings() {
        let options = PuppetOptions {
            environment: Some("staging".parse().expect("a name")),
            ..PuppetOptions::new("/data".into())
        };
        let mut order = order(RunMode::Enforce, &[]);
        order.subject = RunSubject::Configured {
            environment: Some("testing".parse().expect("a name")),
            planned: None,
        };
        let (files, places) = (files(), PuppetPaths::default());
        let arguments = arguments(&options, &order, PuppetInput::Own, &files, &places, None);
        let at = arguments.iter().position(|word| word == "--environment");
        assert_eq!(arguments[at.expect("it is there") + 1], "testing");
    }

    #[test]
    fn a_tag_cannot_be_an_option_or_two_tags() {
        for tag in ["lamp::mysql", "_x", "a-b.c", "ä"] {
            assert!(is_tag(tag), "{tag}");
        }
        for tag in ["", "--no-noop", "a,b", "a b", "a\n", "-x", "a/b"] {
            assert!(!is_tag(tag), "{tag}");
        }
    }
}
