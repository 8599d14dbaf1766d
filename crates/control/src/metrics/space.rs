//! Metrics of the space that the store uses.

use bunraku_store::StoreSpace;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct MemberLabels {
    datastore: String,
}

/// The space of each datastore.
#[derive(Default)]
pub(super) struct SpaceMetrics {
    quota: Family<MemberLabels, Gauge>,
    size: Family<MemberLabels, Gauge>,
    used: Family<MemberLabels, Gauge>,
    full: Gauge,
    alarm: Gauge,
}

impl SpaceMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "store_quota_bytes",
            "Quota of each datastore, if it is known",
            self.quota.clone(),
        );
        registry.register(
            "store_size_bytes",
            "Bytes of each datastore that count towards its quota, including unused ones",
            self.size.clone(),
        );
        registry.register(
            "store_used_bytes",
            "Bytes of each datastore that hold data or history",
            self.used.clone(),
        );
        registry.register(
            "store_full",
            "1 if the store is full and refuses new data",
            self.full.clone(),
        );
        registry.register(
            "store_alarm",
            "1 if etcd raised its NOSPACE alarm and refuses writes",
            self.alarm.clone(),
        );
    }

    pub(super) fn set(&self, space: &StoreSpace) {
        // Members that are gone must not keep their last value.
        for family in [&self.quota, &self.size, &self.used] {
            family.clear();
        }
        let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        for member in &space.members {
            let labels = MemberLabels {
                datastore: member.name.clone(),
            };
            if let Some(quota) = member.quota_bytes {
                self.quota.get_or_create(&labels).set(number(quota));
            }
            let size = self.size.get_or_create(&labels);
            size.set(number(member.size_bytes));
            let used = self.used.get_or_create(&labels);
            used.set(number(member.used_bytes));
        }
        self.full.set(i64::from(space.is_full()));
        self.alarm.set(i64::from(space.is_alarm_raised));
    }
}
