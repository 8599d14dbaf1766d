//! Jinja in file contents, with a limit on the time to render.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value};

/// The number of steps that a template may take: enough for any file, but it stops an
/// infinite loop.
const FUEL: u64 = 5_000_000;

/// The reason why a template has no content.
#[derive(Debug, thiserror::Error)]
#[error("the template failed{}", .line.map_or(String::new(), |line| format!(" at line {line}")))]
pub(crate) struct TemplateError {
    line: Option<usize>,
    #[source]
    source: minijinja::Error,
}

/// Renders a template. `facts` are also available as `grains`. `labels` is a map, which is empty
/// unless an alert or call started the run. Names in the context take precedence.
pub(crate) fn render(
    text: &str,
    facts: &Map<String, Value>,
    labels: &Map<String, Value>,
    context: &Map<String, Value>,
) -> Result<String, TemplateError> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters are valid"));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    let mut variables = Map::new();
    variables.insert("facts".to_owned(), Value::Object(facts.clone()));
    variables.insert("grains".to_owned(), Value::Object(facts.clone()));
    variables.insert("labels".to_owned(), Value::Object(labels.clone()));
    variables.extend(context.clone());
    let rendered = environment.render_str(text, Serde(&variables));
    rendered.map_err(|source| TemplateError {
        line: source.line(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().expect("a map").clone()
    }

    #[test]
    fn facts_and_context_fill_a_template() {
        let facts = map(json!({"os": {"family": "Debian"}}));
        let text = "{{ name }} on {{ facts.os.family }}{% if grains.os.family.startswith('Deb') %}!{% endif %}\n";
        assert_eq!(
            render(text, &facts, &Map::new(), &map(json!({"name": "web"}))).expect("text"),
            "web on Debian!\n"
        );
    }

    #[test]
    fn labels_fill_a_template_and_may_be_missing() {
        let text = "{{ labels.severity | default('none') }}";
        let labels = map(json!({"severity": "{{ facts }}"}));
        let render = |labels| render(text, &Map::new(), labels, &Map::new()).expect("text");
        assert_eq!(render(&labels), "{{ facts }}", "a label is data");
        assert_eq!(render(&Map::new()), "none");
    }

    #[test]
    fn what_is_undefined_fails_with_its_line() {
        let error = render("a\n{{ nothing }}\n", &Map::new(), &Map::new(), &Map::new())
            .expect_err("undefined");
        assert_eq!(error.to_string(), "the template failed at line 2");
    }

    #[test]
    fn a_loop_without_end_runs_out_of_fuel() {
        let text =
            "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}";
        assert!(render(text, &Map::new(), &Map::new(), &Map::new()).is_err());
    }
}
