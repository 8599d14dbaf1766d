//! Generates `docs/resources.md` from the table of types, and runs its examples.
//!
//! `UPDATE_EXPECT=1` regenerates the page.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bunraku_engine::{
    ApplyOptions, Cancellation, CatalogPlan, EVERYWHERE, ParameterSpec, PlanOptions, Registry,
    Status, TypeSpec, apply_plan,
};
use bunraku_model::Catalog;
use serde_json::{Value, json};

const HEAD: &str = "\
# Resource types

This page lists all built-in resource types with their parameters, their names
in Puppet and Salt, and an example. To add types of your own, see
[Extension modules](modules.md).

To try an example, replace `@ROOT@` with a directory, put the list into a
catalog (a JSON object with a `name` and `resources`), and run
`bunraku apply FILE`.

The page is generated from the engine's own table (`TypeSpec` in
`crates/engine`). A test keeps it up to date and runs every example.
";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/resources.md")
}

fn rendered() -> String {
    let registry = Registry::standard();
    let mut specs: Vec<&TypeSpec> = registry.specs().collect();
    specs.sort_by_key(|spec| spec.name);
    let mut text = HEAD.to_owned();
    text.push_str("\n## Parameters of all types\n\n");
    parameters(EVERYWHERE, &mut text);
    for spec in specs {
        one(spec, &mut text);
    }
    text
}

fn one(spec: &TypeSpec, text: &mut String) {
    let _ = write!(text, "\n## {}\n\n{}\n\n", spec.name, spec.summary);
    let _ = writeln!(
        text,
        "In Puppet: `{}['…']`. The title is the default of `{}`.",
        spec.capitalised(),
        spec.name_parameter
    );
    if !spec.aliases.is_empty() {
        let _ = writeln!(text, "Also known as `{}`.", spec.aliases.join("`, `"));
    }
    if !spec.states.is_empty() {
        text.push_str("\n| Salt function | implies | renamed arguments |\n|---|---|---|\n");
        for state in spec.states {
            let implies: Vec<String> = state
                .implies
                .iter()
                .map(|(name, value)| format!("`{name}: {value}`"))
                .collect();
            let renamed = state
                .arguments
                .iter()
                .filter(|argument| argument.salt != "name");
            let renamed: Vec<String> = renamed
                .map(|argument| format!("`{}` → `{}`", argument.salt, argument.ours))
                .collect();
            let _ = writeln!(
                text,
                "| `{}` | {} | {} |",
                state.function,
                implies.join(", "),
                renamed.join(", ")
            );
        }
    }
    text.push('\n');
    parameters(spec.parameters, text);
    let _ = write!(text, "\n```json\n{}\n```\n", spec.example);
}

fn parameters(parameters: &[ParameterSpec], text: &mut String) {
    if parameters.is_empty() {
        text.push_str("This type has no other parameters.\n");
        return;
    }
    text.push_str("| parameter | meaning |\n|---|---|\n");
    for parameter in parameters {
        let _ = writeln!(
            text,
            "| `{}` | {} |",
            parameter.name,
            parameter.doc.replace('|', "\\|")
        );
    }
}

#[test]
fn the_page_says_what_the_table_says() {
    let rendered = rendered();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(page(), &rendered).expect("the page can be written");
    }
    let written = std::fs::read_to_string(page())
        .expect("docs/resources.md exists: write it with UPDATE_EXPECT=1");
    assert!(
        written == rendered,
        "docs/resources.md is not what the table says: write it with UPDATE_EXPECT=1"
    );
}

/// Returns the examples on the page, each with the heading above it.
fn examples(page: &str) -> Vec<(String, Value)> {
    let mut examples = Vec::new();
    let mut heading = String::new();
    let mut open: Option<String> = None;
    for line in page.lines() {
        match (&mut open, line) {
            (None, "```json") => open = Some(String::new()),
            (Some(text), "```") => {
                let value = serde_json::from_str(text)
                    .unwrap_or_else(|error| panic!("{heading}: {error}\n{text}"));
                examples.push((heading.clone(), value));
                open = None;
            }
            (Some(text), line) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, line) => {
                if let Some(title) = line.strip_prefix("## ") {
                    heading = title.to_owned();
                }
            }
        }
    }
    examples
}

/// Returns true if an example stays inside the reader's own directory.
fn stays_inside(example: &Value) -> bool {
    let harmless = ["Notify", "Test", "Anchor", "Schedule", "Filebucket"];
    let resources = example
        .as_array()
        .expect("an example is a list of resources");
    resources.iter().all(|resource| {
        let of = resource["type"].as_str().expect("a type");
        harmless.contains(&of)
            || IN_A_DIRECTORY.contains(&of) && resource.to_string().contains("@ROOT@")
    })
}

/// Types whose examples name all paths that they change.
const IN_A_DIRECTORY: [&str; 9] = [
    "Archive", "Exec", "File", "Git", "Host", "Mount", "Pkgrepo", "Service", "Sysctl",
];

/// Types whose examples run on a machine in a directory.
const IN_A_ROOT: [&str; 4] = ["Cron", "Group", "Ssh_authorized_key", "User"];

/// Creates a machine that only has the user root.
fn machine_root(example: &Value, place: &Path) -> Option<PathBuf> {
    let of = |resource: &Value| resource["type"].as_str().map(str::to_owned);
    let types: Vec<_> = example.as_array()?.iter().filter_map(of).collect();
    if !types.iter().all(|of| IN_A_ROOT.contains(&of.as_str())) {
        return None;
    }
    let root = place.join("machine");
    std::fs::create_dir_all(root.join("etc")).expect("a directory");
    let files = [
        ("passwd", "root:x:0:0:root:/root:/bin/sh\n"),
        ("shadow", "root:*:1::::::\n"),
        ("group", "root:x:0:\n"),
        ("gshadow", "root:*::\n"),
    ];
    for (name, content) in files {
        let path = root.join("etc").join(name);
        if !path.exists() {
            std::fs::write(path, content).expect("a file");
        }
    }
    Some(root)
}

fn run(heading: &str, example: &Value, root: &Path, noop: bool) -> bunraku_engine::Summary {
    let text = example
        .to_string()
        .replace("@ROOT@", &root.to_string_lossy());
    let resources: Value = serde_json::from_str(&text).expect("still JSON");
    let catalog: Catalog =
        serde_json::from_value(json!({"name": "example", "resources": resources}))
            .expect("resources");
    let plan = CatalogPlan::new(&catalog, &Registry::standard(), PlanOptions::default());
    let plan = plan.unwrap_or_else(|error| panic!("the example of {heading}: {error}"));
    let cancellation = Cancellation::new().expect("a pipe");
    let how = ApplyOptions {
        noop,
        root: machine_root(example, root),
        ..ApplyOptions::new(root.join(".state"), cancellation, &())
    };
    apply_plan(&plan, how).expect("a summary")
}

#[test]
fn every_type_has_an_example_and_every_example_runs() {
    let page = std::fs::read_to_string(page()).expect("docs/resources.md exists");
    let examples = examples(&page);
    for spec in Registry::standard().specs() {
        assert!(
            examples.iter().any(|(heading, _)| heading == spec.name),
            "{} has no example",
            spec.name
        );
    }
    for (heading, example) in &examples {
        let root = tempfile::tempdir().expect("a directory");
        if !stays_inside(example) && machine_root(example, root.path()).is_none() {
            // It would change the machine, so this only tests that the example is understood.
            run(heading, example, root.path(), true);
            continue;
        }
        let summary = run(heading, example, root.path(), false);
        let failed = summary
            .finished
            .iter()
            .find(|one| one.outcome.status == Status::Failed);
        assert!(summary.succeeded(), "the example of {heading}: {failed:?}");
        let again = run(heading, example, root.path(), false);
        let settled = matches!(heading.as_str(), "notify" | "test") || !again.changed();
        assert!(
            settled,
            "the example of {heading} changes something every time"
        );
    }
}
