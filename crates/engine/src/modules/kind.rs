//! The decisions for a module's type: compares the desired state with the module's observation.

use bunraku_module::TypeEntry;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::program::Program;
use crate::{
    ApplyResult, Change, Declaration, DisplayValue, Observation, Provider, ReadAccess, Refusal,
    ResourceType, StepError, TypeSpec,
};

/// One type of a module.
pub(crate) struct ModuleType {
    pub(super) spec: &'static TypeSpec,
    pub(super) entry: TypeEntry,
    pub(super) program: Arc<Program>,
}

/// The desired state of a resource, by parameter, including the name.
pub(crate) struct DesiredState {
    parameters: Map<String, Value>,
}

/// The state that the module reported, by property.
pub(crate) struct ObservedState {
    state: Map<String, Value>,
}

impl DesiredState {
    fn is_absent(&self) -> bool {
        self.parameters.get("ensure").and_then(Value::as_str) == Some("absent")
    }
}

impl ObservedState {
    fn is_absent(&self) -> bool {
        self.state.get("ensure").and_then(Value::as_str) == Some("absent")
    }
}

impl ResourceType for ModuleType {
    type Desired = DesiredState;
    type Observed = ObservedState;

    fn spec(&self) -> &'static TypeSpec {
        self.spec
    }

    fn desire(&self, declaration: &Declaration) -> Result<DesiredState, Refusal> {
        let mut parameters: Map<String, Value> = (self.spec.parameters.iter())
            .filter_map(|known| {
                let value = declaration.value(known.name)?;
                Some((known.name.to_owned(), value.clone()))
            })
            .collect();
        let name = declaration.name()?;
        parameters.insert(self.spec.name_parameter.to_owned(), json!(name));
        if self.entry.has_ensure() {
            parameters
                .entry("ensure")
                .or_insert_with(|| json!("present"));
        }
        Ok(DesiredState { parameters })
    }

    fn changes(&self, desired: &DesiredState, observed: &ObservedState) -> Vec<Change> {
        if self.entry.has_ensure() && desired.is_absent() != observed.is_absent() {
            return vec![change("ensure", &observed.state, &desired.parameters)];
        }
        if desired.is_absent() {
            return Vec::new();
        }
        (self.wished(desired))
            .filter(|(name, wished)| {
                (observed.state.get(*name)).is_none_or(|observed| !is_same(observed, wished))
            })
            .map(|(name, _)| change(name, &observed.state, &desired.parameters))
            .collect()
    }
}

impl ModuleType {
    /// Returns the properties that a resource declares.
    fn wished<'a>(
        &'a self,
        desired: &'a DesiredState,
    ) -> impl Iterator<Item = (&'a str, &'a Value)> {
        (self.entry.properties.iter()).filter_map(|property| {
            let wished = desired.parameters.get(&property.name)?;
            Some((property.name.as_str(), wished))
        })
    }

    /// Refuses an answer that the manifest does not allow.
    fn checked(&self, desired: &DesiredState, answer: Value) -> Result<ObservedState, StepError> {
        let says = |what: String| {
            let module = self.program.title();
            Err(StepError::new(format!("{module} {what}")))
        };
        let state = match answer.get("state") {
            Some(Value::Object(state)) => state.clone(),
            _ => return says("did not return `state`".to_owned()),
        };
        let is_property = |name: &String| self.entry.properties.iter().any(|one| one.name == *name);
        if let Some(name) = state.keys().find(|name| !is_property(name)) {
            return says(format!(
                "returned `{name}`, which is not a property of its type"
            ));
        }
        let observed = ObservedState { state };
        let ensure = observed.state.get("ensure").map(Value::is_string);
        if self.entry.has_ensure() && ensure != Some(true) {
            return says("did not return `ensure`".to_owned());
        }
        let missing = |(name, _): &(&str, &Value)| !observed.state.contains_key(*name);
        if !observed.is_absent()
            && !desired.is_absent()
            && let Some((name, _)) = self.wished(desired).find(missing)
        {
            return says(format!("did not return `{name}`"));
        }
        Ok(observed)
    }

    fn request(&self, method: &str, desired: &DesiredState, access: &ReadAccess<'_>) -> Value {
        json!({
            "method": method,
            "type": self.entry.name,
            "name": desired.parameters.get(self.spec.name_parameter),
            "parameters": desired.parameters,
            "root": access.root(),
        })
    }
}

impl Provider for ModuleType {
    fn observe(
        &self,
        desired: &DesiredState,
        access: &ReadAccess<'_>,
    ) -> Result<ObservedState, StepError> {
        let request = self.request("observe", desired, access);
        let answer = self.program.ask(request, self.entry.timeout, access)?;
        self.checked(desired, answer)
    }

    /// Applies, and then observes again: a module's report may be wrong, or a lie.
    fn apply(&self, step: &Observation<'_, Self>) -> Result<ApplyResult, StepError> {
        let (desired, observed, changes, write_access) = step.parts();
        let _turn = self.program.turn_to_apply();
        if write_access.cancellation().is_cancelled() {
            return Err(StepError::interrupted());
        }
        let mut request = self.request("apply", desired, write_access);
        request["state"] = Value::Object(observed.state.clone());
        let names: Vec<&str> = changes.iter().map(|one| one.property.as_str()).collect();
        request["changes"] = json!(names);
        let answer = self
            .program
            .ask(request, self.entry.timeout, write_access)?;
        let after = self.observe(desired, write_access)?;
        if let Some(left) = self.changes(desired, &after).first() {
            return Err(StepError::new(format!(
                "{} reported success, but `{}` still differs from the desired value",
                self.program.title(),
                left.property
            ))
            .with_changes_made());
        }
        let outputs = answer.get("outputs").and_then(Value::as_object);
        Ok(ApplyResult {
            message: (answer.get("message").and_then(Value::as_str)).map(str::to_owned),
            outputs: outputs.cloned().unwrap_or_default(),
            no_change: false,
        })
    }
}

fn change(name: &str, from: &Map<String, Value>, to: &Map<String, Value>) -> Change {
    let shown = |side: &Map<String, Value>| match side.get(name) {
        None | Some(Value::Null) => DisplayValue::Absent,
        Some(value) => DisplayValue::Value(value.clone()),
    };
    Change::new(name, shown(from), shown(to))
}

/// Compares as JSON. A number or boolean also equals its text, as Puppet catalogs and
/// states use both forms.
fn is_same(one: &Value, other: &Value) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    one == other || text(one).is_some_and(|one| Some(one) == text(other))
}
