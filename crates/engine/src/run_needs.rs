//! What a run of a catalog needs, before it is planned.
//!
//! The agent and `bunraku apply` both ask here, so that a catalog is applied in the same way by
//! both.

use bunraku_model::{Catalog, OrderingMode};

use crate::PlanOptions;

/// The needs of one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunNeeds {
    pub ordering: OrderingMode,
    /// A template of the catalog may read this machine's facts. Collecting them takes a while, so
    /// other runs do without.
    pub facts: bool,
}

impl RunNeeds {
    /// Returns the needs of a catalog. `chosen` is the ordering mode that this machine or the
    /// caller insists on. It wins over the catalog's own, which the environment sets. Without
    /// either, states are applied in the order of their files, as in Salt, and other resources in
    /// inferred order.
    pub fn of(catalog: &Catalog, chosen: Option<OrderingMode>) -> Self {
        let has_states = (catalog.resources.iter()).any(|resource| resource.state.is_some());
        let usual = if has_states {
            OrderingMode::Ansible
        } else {
            OrderingMode::default()
        };
        Self {
            ordering: chosen.or(catalog.ordering).unwrap_or(usual),
            facts: (catalog.resources.iter())
                .any(|resource| resource.parameters.contains_key("template")),
        }
    }

    /// Returns the options of the plan, which uses every processor of this machine.
    pub fn plan_options(self) -> PlanOptions {
        PlanOptions {
            mode: self.ordering,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use bunraku_model::OrderingMode::{Ansible, Genius, JustDoIt};
    use serde_json::json;

    use super::*;

    fn catalog(resource: serde_json::Value) -> Catalog {
        let catalog = json!({"name": "web-1", "resources": [resource]});
        serde_json::from_value(catalog).expect("a catalog")
    }

    #[test]
    fn the_callers_order_wins_over_the_catalogs_and_that_over_the_default() {
        let plain = catalog(json!({"type": "File", "title": "/a"}));
        let states = catalog(json!({"type": "File", "title": "/a", "state": {
            "id": "a", "name": "/a", "function": "file.managed", "sls": "web",
        }}));
        for (catalog, usual) in [(plain, Genius), (states, Ansible)] {
            let ordering = |own, chosen| {
                let catalog = Catalog {
                    ordering: own,
                    ..catalog.clone()
                };
                RunNeeds::of(&catalog, chosen).ordering
            };
            assert_eq!(ordering(None, None), usual);
            assert_eq!(ordering(Some(JustDoIt), None), JustDoIt);
            assert_eq!(ordering(Some(JustDoIt), Some(Genius)), Genius);
            assert_eq!(ordering(None, Some(JustDoIt)), JustDoIt);
        }
    }

    #[test]
    fn only_templates_need_facts() {
        let needs = |parameters| {
            let resource = json!({"type": "File", "title": "/a", "parameters": parameters});
            RunNeeds::of(&catalog(resource), None).facts
        };
        assert!(!needs(json!({"content": "x"})));
        assert!(needs(json!({"content": "x", "template": "jinja"})));
    }
}
