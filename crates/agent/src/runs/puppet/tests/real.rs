//! Released catalogs applied by real Puppet, without a Puppet server.

use std::net::{IpAddr, Ipv4Addr};

use bunraku_model::catalog::{CatalogSource, SourceFile};
use bunraku_model::{Catalog, ContentId, NodeName, ReleaseNumber, Role};
use bunraku_wire::api::Target;
use bunraku_wire::key::{KeyKind, PrivateKey};
use bunraku_wire::request::{Grant, Request};
use bunraku_wire::tls::ClientTls;
use bunraku_wire::{Authority, Client, ClientOptions, ReloadableClientTls, ServerAddress};
use serde_json::json;

use super::*;
use crate::catalogs::CatalogOptions;
use crate::plugins::{PluginOptions, Plugins};

const NAME: &str = "dev1.example.com";
const ADDRESS: &str = "puppet:///modules/shop/motd";

struct RealNode {
    directory: TempDir,
    authority: Authority,
}

impl RealNode {
    fn new() -> Self {
        let installed = Path::new("/usr/bin/puppet").is_file();
        assert!(installed, "no Puppet here; scripts/setup test installs it");
        let authority = Authority::create("Puppet CA", Timestamp::now()).expect("an authority");
        let node = Self {
            directory: TempDir::new().expect("a directory"),
            authority,
        };
        node.write_certificates();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes certificates. Puppet's agent requires them, although it contacts nobody.
    fn write_certificates(&self) {
        let key = PrivateKey::generate(KeyKind::EcdsaP256).expect("a key");
        let grant = Grant {
            name: NodeName::new(NAME).expect("a name"),
            role: Role::Node,
            groups: std::collections::BTreeSet::new(),
            lifetime: jiff::SignedDuration::from_hours(24),
            dns_names: Vec::new(),
            ip_addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            serial: None,
        };
        let request = Request::create(&grant.name, &key).expect("a request");
        let request = Request::from_pem(&request).expect("a request");
        let signed = self.authority.sign(&request, &grant, Timestamp::now());
        let files = [
            ("certs/ca.pem", self.authority.certificates_pem()),
            (&format!("certs/{NAME}.pem"), signed.expect("signed").pem),
            (&format!("private_keys/{NAME}.pem"), key.to_pem()),
        ];
        for (name, text) in files {
            let path = self.path("ssl").join(name);
            std::fs::create_dir_all(path.parent().expect("below")).expect("made");
            std::fs::write(path, text).expect("written");
        }
    }

    fn options(&self, form: PuppetForm) -> PuppetOptions {
        let arguments = ["--certificate_revocation", "false"];
        PuppetOptions {
            form,
            programs: vec!["/usr/bin/puppet".into()],
            released: true,
            certname: Some(NAME.to_owned()),
            confdir: Some(self.path("conf")),
            vardir: Some(self.path("var")),
            publicdir: Some(self.path("public")),
            ssldir: Some(self.path("ssl")),
            arguments: arguments.map(str::to_owned).to_vec(),
            ..PuppetOptions::new(self.path("data"))
        }
    }

    /// Returns the node's released catalog, as if a server had delivered it.
    fn catalogs(&self, resources: serde_json::Value, mode: RunMode) -> Catalogs {
        let text = json!({
            "name": NAME, "version": 7, "code_id": "c0de", "environment": "production",
            "resources": resources,
        });
        let mut catalog = Catalog::from_json(text.to_string().as_bytes()).expect("a catalog");
        let content = ContentId::of(b"from a module\n");
        let file = SourceFile { content, size: 14 };
        (catalog.sources).insert(ADDRESS.to_owned(), CatalogSource::File(file));
        // There is no server, so the known target applies.
        let tls = ReloadableClientTls::new(&ClientTls {
            authority_pem: self.authority.certificates_pem(),
            revocation_lists_pem: String::new(),
            identity: None,
        });
        let address = ServerAddress::new("127.0.0.1", 1).expect("an address");
        let client = Client::new(ClientOptions::new(vec![address], tls.expect("usable")));
        let name = NodeName::new(NAME).expect("a name");
        let options = CatalogOptions::default();
        let data = self.path("data");
        let catalogs = Catalogs::open(&data, &name, client, options).expect("a cache");
        let text = serde_json::to_vec(&catalog).expect("plain data");
        catalogs.cache.store(catalog.id(), &text).expect("kept");
        std::fs::write(catalogs.cache.content(content), "from a module\n").expect("written");
        catalogs.targets.receive_from_stream(Some(Target {
            environment: "production".parse().expect("a name"),
            release: ReleaseNumber(3),
            catalog: catalog.id(),
            code_id: None,
            mode,
        }));
        catalogs
    }

    async fn run(&self, form: PuppetForm, resources: serde_json::Value, mode: RunMode) -> Outcome {
        let options = self.options(form);
        let catalogs = self.catalogs(resources, mode);
        let plugins = PluginOptions::default();
        let plugins = Plugins::open(&self.path("data"), catalogs.clone(), plugins);
        let method = PuppetMethod::new(options, catalogs, plugins.expect("plugins"));
        let stop = CancellationToken::new();
        execute_with(&method, self.directory.path(), RunMode::Enforce, stop).await
    }

    fn resources(&self) -> serde_json::Value {
        json!([
            {"type": "File", "title": self.path("written"), "parameters": {"content": "released\n"}},
            {"type": "File", "title": self.path("copied"), "parameters": {"source": ADDRESS}},
        ])
    }

    fn check_enforced(&self) {
        let text = |name: &str| std::fs::read_to_string(self.path(name)).expect("there");
        assert_eq!(text("written"), "released\n");
        assert_eq!(text("copied"), "from a module\n");
        let cached = self
            .path("var/client_data/catalog")
            .join(format!("{NAME}.json"));
        assert!(!cached.exists(), "Puppet's own cache is left alone");
        let left = self.path("data/puppet-run");
        assert!(!left.exists(), "nothing of the run is left");
    }
}

#[tokio::test]
async fn puppet_agent_enforces_the_released_catalog_and_nothing_else() {
    let node = RealNode::new();
    // The catalog is for noop only: changes are reported, and not made.
    let outcome = node
        .run(PuppetForm::Agent, node.resources(), RunMode::Noop)
        .await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded, "{outcome:#?}");
    assert!(!node.path("written").exists());
    let outcome = node
        .run(PuppetForm::Agent, node.resources(), RunMode::Enforce)
        .await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded, "{outcome:#?}");
    assert_eq!(outcome.resources(), 2);
    assert!(node.path("var/state/last_run_report.yaml").is_file());
    node.check_enforced();
}

#[tokio::test]
async fn a_catalog_that_puppet_does_not_take_ends_as_that() {
    let node = RealNode::new();
    let resources = json!([{"type": "Nonsense", "title": "x", "kind": "compilable_type"}]);
    let outcome = node
        .run(PuppetForm::Agent, resources, RunMode::Enforce)
        .await;
    assert_eq!(
        outcome.end.failure,
        Some(RunFailure::OtherCatalog),
        "{outcome:#?}"
    );
    let why = outcome.end.message.as_deref().unwrap_or_default();
    assert!(why.contains("Nonsense"), "{outcome:#?}");
}

#[tokio::test]
async fn puppet_apply_enforces_the_released_catalog_without_certificates() {
    let node = RealNode::new();
    std::fs::remove_dir_all(node.path("ssl")).expect("removed");
    let form = PuppetForm::Apply { manifest: None };
    let outcome = node.run(form, node.resources(), RunMode::Enforce).await;
    assert_eq!(outcome.end.ending, RunEnding::Succeeded, "{outcome:#?}");
    assert_eq!(outcome.resources(), 2);
    node.check_enforced();
}
