//! Reports that real Puppet 7.23 wrote, and malformed ones.

use bunraku_wire::api::{EventStatus, ReportEvent, ResourceEvent};
use expect_test::{Expect, expect};
use jiff::Timestamp;

use super::*;

const FAILED: &str = include_str!("fixtures/failed.yaml");
const NOOP: &str = include_str!("fixtures/noop.yaml");
const CORRECTIVE: &str = include_str!("fixtures/corrective.yaml");

fn parse(text: &str) -> PuppetReport {
    PuppetReport::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn resources(report: &PuppetReport) -> Vec<ResourceEvent> {
    let events = report.resources(Timestamp::UNIX_EPOCH);
    events
        .map(|event| match event {
            ReportEvent::Resource(resource) => *resource,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn check(text: &str, expected: Expect) {
    let mut shown = String::new();
    for resource in resources(&parse(text)) {
        let place = match (&resource.file, resource.line) {
            (Some(file), Some(line)) => format!(" {file}:{line}"),
            _ => String::new(),
        };
        let flags = [
            (resource.corrective, " corrective"),
            (resource.refreshed, " refreshed"),
        ];
        let flags: String = flags
            .iter()
            .filter(|flag| flag.0)
            .map(|flag| flag.1)
            .collect();
        let (kind, title) = (&resource.type_name, &resource.title);
        shown.push_str(&format!(
            "{kind}[{title}] {:?}{flags}{place}\n",
            resource.status
        ));
        for change in &resource.changes {
            let (from, to) = (&change.from, &change.to);
            shown.push_str(&format!("  {}: {from:?} -> {to:?}\n", change.property));
        }
        for text in resource.reasons.iter().chain(&resource.message) {
            shown.push_str(&format!("  {text}\n"));
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn changed_failed_and_skipped_resources_are_reported_with_reasons_and_without_secrets() {
    check(
        FAILED,
        expect![[r#"
        File[/tmp/shop/motd] Changed /tmp/shop/site.pp:1
          ensure: Some("absent") -> Some("file")
        Exec[/bin/echo refreshed] Changed refreshed /tmp/shop/site.pp:2
          Triggered 'refresh' from 1 event
        Exec[bad] Failed /tmp/shop/site.pp:3
          returns: Some("notrun") -> Some("[\"0\"]")
          change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]
        Notify[never] Skipped /tmp/shop/site.pp:4
          Dependency Exec[bad] has failures: true
          Skipping because of failed dependencies
        File[/tmp/shop/secret] Changed /tmp/shop/site.pp:5
          ensure: Some("[secret]") -> Some("[secret]")
        File[/tmp/shop/gone] Unchanged /tmp/shop/site.pp:6
    "#]],
    );
    let report = parse(FAILED);
    assert_eq!(
        report.failure().as_deref(),
        Some(
            "Exec[bad] failed: change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]"
        )
    );
    assert!(!format!("{report:?}").contains("geheim"));
    assert!(
        resources(&report)
            .iter()
            .all(|one| one.at > Timestamp::UNIX_EPOCH)
    );
    let about = report.about();
    assert!(
        about.starts_with("Puppet 7.23.0, environment production, "),
        "{about}"
    );
    assert!(about.contains("config_retrieval "), "{about}");
}

#[test]
fn a_noop_report_says_what_would_change() {
    check(
        NOOP,
        expect![[r#"
            File[/tmp/shop/motd] Pending /tmp/shop/site.pp:1
              content: Some("{sha256}deed8a1aab1c886650dae0a8062be6e79b777bc7abf12e319ea920750ffca1e3") -> Some("{sha256}5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03")
            Exec[/bin/echo refreshed] Unchanged /tmp/shop/site.pp:2
            Exec[bad] Pending /tmp/shop/site.pp:3
              returns: Some("notrun") -> Some("[\"0\"]")
            Notify[never] Pending /tmp/shop/site.pp:4
              message: Some("absent") -> Some("never")
            File[/tmp/shop/secret] Unchanged /tmp/shop/site.pp:5
            File[/tmp/shop/gone] Pending /tmp/shop/site.pp:6
              ensure: Some("file") -> Some("absent")
        "#]],
    );
    let report = parse(NOOP);
    assert_eq!((report.noop, report.failure()), (Some(true), None));
}

#[test]
fn a_corrective_change_is_reported_as_corrective() {
    check(
        CORRECTIVE,
        expect![[r#"
            File[/tmp/shop/motd] Changed corrective /tmp/shop/c.pp:1
              content: Some("{sha256}deed8a1aab1c886650dae0a8062be6e79b777bc7abf12e319ea920750ffca1e3") -> Some("{sha256}5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03")
        "#]],
    );
}

#[test]
fn a_run_that_never_reached_its_resources_reports_the_first_error() {
    let text = "--- !ruby/object:Puppet::Transaction::Report\ntransaction_uuid: x\nstatus: failed\ntransaction_completed: false\nlogs:\n- {level: err, message: noise, source: Facter}\n- {level: warning, message: hm, source: Puppet}\n- {level: err, message: 'Could not retrieve catalog from remote server: no', source: Puppet}\n- {level: err, message: Could not retrieve catalog; skipping run, source: Puppet}\nresource_statuses: {}\ncorrective_change: false\n";
    assert_eq!(
        parse(text).failure().as_deref(),
        Some("Could not retrieve catalog from remote server: no")
    );
    let silent = "transaction_uuid: x\nstatus: failed\nlogs:\nresource_statuses:\ncorrective_change: false\n";
    assert_eq!(
        parse(silent).failure().as_deref(),
        Some("Puppet reported a failed run without a reason")
    );
}

#[test]
fn tags_of_older_puppets_symbols_and_odd_values_are_read() {
    let text = "--- !ruby/object:Puppet::Transaction::Report
transaction_uuid: '08bd60c2-d3c7-48eb-b3fb-b0d879033e2e'
status: changed
puppet_version: 5.5
logs:
- !ruby/object:Puppet::Util::Log
  level: !ruby/sym notice
  message: 17
  source: Puppet
metrics:
  time: !ruby/object:Puppet::Util::Metric
    name: time
    label: Time
    values:
    - [total, Total, 3]
resource_statuses:
  Thing[7]: !ruby/object:Puppet::Resource::Status
    resource_type: Thing
    title: 7
    changed: true
    failed: false
    events:
    - !ruby/object:Puppet::Transaction::Event
      property: size
      previous_value: 1
      desired_value: [1, {a: b}]
      message: grew
      status: success
      corrective_change: false
  Gone[x]:
corrective_change: false
";
    let report = parse(text);
    assert_eq!(report.logs[0].message, "17");
    assert_eq!(report.metrics, [("total".to_owned(), 3.0)]);
    let shown = resources(&report);
    assert_eq!(shown.len(), 1);
    assert_eq!(
        (shown[0].title.as_str(), shown[0].status),
        ("7", EventStatus::Changed)
    );
    assert_eq!(shown[0].changes[0].to.as_deref(), Some("[1,{\"a\":\"b\"}]"));
}

#[test]
fn an_invalid_or_oversized_report_is_refused() {
    let bomb = "a: &a [x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]\ntransaction_uuid: *g\n";
    let deep = format!(
        "transaction_uuid: x\nlogs: {}{}\n",
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let two = format!("{FAILED}{FAILED}");
    for text in [
        "",
        "42",
        "[]",
        "status: changed\n",
        "transaction_uuid: [1]\n",
        bomb,
        &deep,
        &two,
        "\u{0}",
    ] {
        assert!(
            PuppetReport::parse(text).is_err(),
            "{}",
            &text[..text.len().min(60)]
        );
    }
}

#[test]
fn a_report_that_is_cut_off_anywhere_is_none() {
    let end = CORRECTIVE.rfind("\ncorrective_change").expect("there");
    for (index, _) in CORRECTIVE[..=end].match_indices('\n').step_by(5) {
        let read = PuppetReport::parse(&CORRECTIVE[..=index]);
        assert!(read.is_err(), "cut at {index}");
    }
    assert!(PuppetReport::parse(CORRECTIVE).is_ok());
}

#[test]
fn a_file_that_is_too_large_is_not_read_to_its_end() {
    let directory = tempfile::TempDir::new().expect("a directory");
    let path = directory.path().join("report.yaml");
    assert!(matches!(PuppetReport::read(&path), Err(ReportError::None)));
    let file = std::fs::File::create(&path).expect("created");
    // The file is sparse: it takes no space on the disk.
    file.set_len(LARGEST + 10).expect("long");
    assert!(matches!(
        PuppetReport::read(&path),
        Err(ReportError::TooLarge)
    ));
    std::fs::write(&path, [0xff, 0xfe, 0x00]).expect("written");
    assert!(matches!(
        PuppetReport::read(&path),
        Err(ReportError::NotText)
    ));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_reports_never_panic(position in 0..FAILED.len(), byte in 0_u8..128) {
        let mut bytes = FAILED.as_bytes().to_vec();
        bytes[position] = byte;
        if let Ok(text) = std::str::from_utf8(&bytes)
            && let Ok(report) = PuppetReport::parse(text)
        {
            let _ = (report.failure(), report.about(), resources(&report).len());
        }
    }
}
