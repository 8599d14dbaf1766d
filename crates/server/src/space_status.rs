//! The space of the store, in the words of the API.

use bunraku_store::{MemberSpace, SharedStore, StoreSpace};
use bunraku_wire::api::{MemberSpaceStatus, SpaceStatus};

/// Returns the space as last observed, if the store knows it.
pub(crate) fn space_status(store: &SharedStore) -> Option<SpaceStatus> {
    store.space().map(|space| status_of(&space))
}

fn status_of(space: &StoreSpace) -> SpaceStatus {
    SpaceStatus {
        level: space.level().word().to_owned(),
        alarm: space.is_alarm_raised,
        members: space.members.iter().map(member_status).collect(),
    }
}

fn member_status(member: &MemberSpace) -> MemberSpaceStatus {
    MemberSpaceStatus {
        datastore: member.name.clone(),
        size_bytes: member.size_bytes,
        used_bytes: member.used_bytes,
        quota_bytes: member.quota_bytes,
        limit_bytes: member.limit_bytes(),
    }
}
