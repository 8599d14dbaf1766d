//! The space that a store uses, its quota, and what follows from them.
//!
//! Everything here is pure: backends observe, this module judges.
//!
//! A part of the quota is a reserve. When only the reserve is left, the store is full: writes that
//! add data are refused ([`crate::ReserveStore`]), while deletions and coordination continue. So
//! the backend's own limit, at which nothing can be written, is not reached.

/// The largest reserve. Above a quota of five times this size, a fifth would be wasteful.
const LARGEST_RESERVE: u64 = 1 << 30;
/// Without a known quota, less unused space than this is not worth a pause of a member.
const WORTH_RECLAIMING: u64 = 512 << 20;

/// Files with the same data differ by less than this, or by a tenth of their size.
const SAME_SIZE: u64 = 1 << 20;

/// The space of one member of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSpace {
    /// The address of an etcd member; `local` for the embedded store.
    pub name: String,
    /// The bytes that count towards the quota, including unused ones.
    pub size_bytes: u64,
    /// The bytes that hold data or history.
    pub used_bytes: u64,
    pub quota_bytes: Option<u64>,
}

/// The space of a store, as last observed.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StoreSpace {
    /// The members that answered.
    pub members: Vec<MemberSpace>,
    /// The backend refuses every write that adds data, because a member reached its quota.
    pub is_alarm_raised: bool,
}

/// How full a store is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SpaceLevel {
    Normal,
    /// Three quarters of the space that data may use are used.
    Low,
    /// Only the reserve is left.
    Full,
}

impl SpaceLevel {
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Low => "low",
            Self::Full => "full",
        }
    }
}

impl MemberSpace {
    /// Returns the space that data may use: the quota without the reserve.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.quota_bytes.map(|quota| quota - reserve(quota))
    }

    pub fn unused_bytes(&self) -> u64 {
        self.size_bytes.saturating_sub(self.used_bytes)
    }

    fn level(&self) -> SpaceLevel {
        let (Some(quota), Some(limit)) = (self.quota_bytes, self.limit_bytes()) else {
            return SpaceLevel::Normal;
        };
        // Unused bytes count towards the quota until they are reclaimed.
        if self.used_bytes >= limit || self.size_bytes >= quota - reserve(quota) / 4 {
            SpaceLevel::Full
        } else if self.used_bytes >= limit / 4 * 3 {
            SpaceLevel::Low
        } else {
            SpaceLevel::Normal
        }
    }

    fn is_worth_reclaiming(&self, level: SpaceLevel) -> bool {
        let unused = self.unused_bytes();
        match (self.quota_bytes, level) {
            (Some(quota), SpaceLevel::Full) => unused > quota / 100,
            (Some(quota), _) => unused >= quota / 4,
            (None, _) => unused >= WORTH_RECLAIMING && unused >= self.used_bytes,
        }
    }
}

impl StoreSpace {
    pub fn level(&self) -> SpaceLevel {
        if self.is_alarm_raised {
            return SpaceLevel::Full;
        }
        let levels = self.members.iter().map(MemberSpace::level);
        levels.max().unwrap_or(SpaceLevel::Normal)
    }

    pub fn is_full(&self) -> bool {
        self.level() == SpaceLevel::Full
    }

    /// Returns the fullest member.
    pub fn fullest(&self) -> Option<&MemberSpace> {
        let members = self.members.iter();
        members.max_by_key(|member| (member.level(), member.used_bytes, member.size_bytes))
    }

    /// Returns the percentage of the quota that is used, if the quota is known.
    pub fn used_percentage(&self) -> Option<u8> {
        let percentages = self.members.iter().filter_map(|member| {
            let quota = member.quota_bytes?.max(1);
            let percentage = member.used_bytes.saturating_mul(100) / quota;
            Some(u8::try_from(percentage.min(100)).unwrap_or(100))
        });
        percentages.max()
    }

    /// Returns the bytes that data may still use.
    pub fn room_bytes(&self) -> Option<u64> {
        let rooms = self.members.iter().filter_map(|member| {
            let limit = member.limit_bytes()?;
            Some(limit.saturating_sub(member.used_bytes))
        });
        rooms.min()
    }

    /// Returns whether returning unused space is worth the pause that it causes.
    pub fn is_worth_reclaiming(&self) -> bool {
        let level = self.level();
        let mut members = self.members.iter();
        self.is_alarm_raised || members.any(|member| member.is_worth_reclaiming(level))
    }

    /// Returns whether a member's file is larger than those of others: all of them hold the same
    /// data, so after a defragmentation it still contains history that the others have dropped.
    pub fn is_oversized(&self, name: &str) -> bool {
        let least = self.members.iter().map(|member| member.size_bytes).min();
        let least = least.unwrap_or_default();
        let slack = (least / 10).max(SAME_SIZE);
        let mut members = self.members.iter();
        members.any(|member| member.name == name && member.size_bytes > least + slack)
    }

    /// Returns whether every member would accept writes if the alarm were cleared.
    pub fn has_room_below_quota(&self) -> bool {
        self.members.iter().all(|member| {
            member
                .quota_bytes
                .is_none_or(|quota| member.size_bytes.saturating_add(quota / 200) < quota)
        })
    }
}

impl std::fmt::Display for StoreSpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(member) = self.fullest() else {
            return write!(f, "its size is unknown");
        };
        let used = megabytes(member.used_bytes);
        match member.quota_bytes {
            Some(quota) => write!(f, "{used} of {} are used", megabytes(quota)),
            None => write!(f, "{used} are used"),
        }
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Returns the part of a quota that only deletions and coordination may use.
fn reserve(quota: u64) -> u64 {
    (quota / 5).min(LARGEST_RESERVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn member(size: u64, used: u64, quota: Option<u64>) -> MemberSpace {
        MemberSpace {
            name: "m".to_owned(),
            size_bytes: size * MB,
            used_bytes: used * MB,
            quota_bytes: quota.map(|quota| quota * MB),
        }
    }

    fn space(size: u64, used: u64, quota: Option<u64>) -> StoreSpace {
        StoreSpace {
            members: vec![member(1, 1, quota), member(size, used, quota)],
            is_alarm_raised: false,
        }
    }

    #[test]
    fn the_reserve_is_a_fifth_of_the_quota_but_at_most_a_gibibyte() {
        let limit = |quota| member(0, 0, Some(quota)).limit_bytes();
        assert_eq!(limit(20), Some(16 * MB));
        assert_eq!(limit(8_590), Some(8_590 * MB - LARGEST_RESERVE));
        assert_eq!(member(9, 9, None).limit_bytes(), None);
    }

    #[test]
    fn the_fullest_member_decides() {
        let level = |size, used| space(size, used, Some(20)).level();
        assert_eq!(level(11, 11), SpaceLevel::Normal);
        assert_eq!(level(12, 12), SpaceLevel::Low);
        assert_eq!(level(16, 16), SpaceLevel::Full);
        // Little is used, but the backend counts unused space too.
        assert_eq!(level(19, 2), SpaceLevel::Full);
        assert_eq!(space(999, 999, None).level(), SpaceLevel::Normal);
        let raised = StoreSpace {
            is_alarm_raised: true,
            ..space(1, 1, Some(20))
        };
        assert_eq!(raised.level(), SpaceLevel::Full);
    }

    #[test]
    fn space_is_reclaimed_when_it_matters() {
        let worth = |size, used, quota| space(size, used, quota).is_worth_reclaiming();
        assert!(!worth(4, 1, Some(20)), "little is unused");
        assert!(worth(8, 2, Some(20)), "a quarter of the quota is unused");
        assert!(worth(17, 16, Some(20)), "the store is full");
        assert!(!worth(16, 16, Some(20)), "nothing is unused");
        assert!(!worth(500, 1, None));
        assert!(worth(1_000, 400, None));
        assert!(!worth(2_000, 1_200, None), "most of it is used");
    }

    #[test]
    fn a_member_that_kept_its_history_is_larger_than_the_others() {
        let named = |name: &str, size: u64| MemberSpace {
            name: name.to_owned(),
            ..member(size, 1, None)
        };
        let space = StoreSpace {
            members: vec![
                named("a", 40 << 20),
                named("b", 43 << 20),
                named("c", 50 << 20),
            ],
            is_alarm_raised: false,
        };
        let oversized = ["a", "b", "c", "d"].map(|name| space.is_oversized(name));
        assert_eq!(oversized, [false, false, true, false]);
    }

    #[test]
    fn the_alarm_is_cleared_only_if_it_would_not_be_raised_again() {
        assert!(space(19, 19, Some(20)).has_room_below_quota());
        assert!(!space(20, 19, Some(20)).has_room_below_quota());
        assert!(space(20, 19, None).has_room_below_quota());
    }
}
