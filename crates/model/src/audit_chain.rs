//! The chain of the audit log: every line contains the SHA-256 of the line before.
//!
//! A hash covers the exact bytes of a line, without its line break. So anyone with the lines can
//! verify them with any program that computes SHA-256; [`AuditChainCheck`] does it here.
//!
//! The chain proves that nothing between two lines was changed, left out, added or reordered. It
//! cannot prove that nobody replaced the whole log, or cut off its end: compare the newest hash
//! with one that was kept elsewhere.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The hash in the first line of every log.
pub const AUDIT_CHAIN_START: &str =
    "0000000000000000000000000000000000000000000000000000000000000000";

/// Returns the hash of a line, in hexadecimal.
pub fn audit_line_hash(line: &[u8]) -> String {
    hex::encode(Sha256::digest(line))
}

/// A place in the chain: a record and the hash of its line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuditChainPlace {
    pub number: u64,
    pub hash: String,
}

impl AuditChainPlace {
    /// The place before the first line.
    pub fn start() -> Self {
        Self {
            number: 0,
            hash: AUDIT_CHAIN_START.to_owned(),
        }
    }
}

/// The parts of a line that the check needs.
#[derive(Deserialize)]
struct Line {
    number: u64,
    previous: String,
    id: Uuid,
    outcome: String,
    #[serde(default)]
    checkpoint: Option<Checkpoint>,
}

#[derive(Deserialize)]
struct Checkpoint {
    first: u64,
    previous: String,
}

/// The reason why lines are not an intact log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BrokenAuditChain {
    #[error("the line after record {after} is not an audit record")]
    Unreadable { after: u64 },
    #[error("record {found} follows record {after}: {}", missing(*after, *found))]
    Gap { after: u64, found: u64 },
    #[error("record {number} does not continue record {before}: one of them was changed")]
    Changed { number: u64, before: u64 },
    #[error("action {id} is recorded twice: as record {first} and as record {second}")]
    Repeated { id: Uuid, first: u64, second: u64 },
    #[error("the log begins at record {first}, but no record says that older ones were deleted")]
    Beheaded { first: u64 },
    #[error(
        "the log begins at record {first}, but record {checkpoint} says that it begins at {said}"
    )]
    WrongStart {
        first: u64,
        checkpoint: u64,
        said: u64,
    },
    #[error("the log ends at record {found}, but the server's newest record is {wanted}")]
    CutOff { found: u64, wanted: u64 },
    #[error("record {number} has another hash than expected: the log was replaced")]
    Replaced { number: u64 },
    #[error("record {number} is not in the log")]
    Absent { number: u64 },
}

fn missing(after: u64, found: u64) -> String {
    match found.checked_sub(after + 1) {
        None | Some(0) => "they are not in order".to_owned(),
        Some(1) => "1 record is missing".to_owned(),
        Some(count) => format!("{count} records are missing"),
    }
}

/// Checks the lines of a log, oldest first.
#[derive(Default)]
pub struct AuditChainCheck {
    /// The first record, and the hash that it continues.
    first: Option<AuditChainPlace>,
    last: Option<AuditChainPlace>,
    /// The newest checkpoint: the record that contains it, and the start that it names.
    checkpoint: Option<(u64, AuditChainPlace)>,
    /// The record of each action, and whether its outcome was unknown.
    actions: BTreeMap<Uuid, (u64, bool)>,
    /// Hashes that were kept elsewhere and have to be in the log.
    anchors: BTreeMap<u64, String>,
    unknown: u64,
}

impl AuditChainCheck {
    /// Requires that a record has this hash.
    #[must_use]
    pub fn with_anchor(mut self, anchor: AuditChainPlace) -> Self {
        self.anchors.insert(anchor.number, anchor.hash);
        self
    }

    /// Checks the next line.
    pub fn add(&mut self, line: &[u8]) -> Result<(), BrokenAuditChain> {
        let after = self.last.as_ref().map_or(0, |last| last.number);
        let Ok(read) = serde_json::from_slice::<Line>(line) else {
            return Err(BrokenAuditChain::Unreadable { after });
        };
        let number = read.number;
        match &self.last {
            None => {
                self.first = Some(AuditChainPlace {
                    number,
                    hash: read.previous.clone(),
                });
            }
            Some(last) if number != last.number + 1 => {
                return Err(BrokenAuditChain::Gap {
                    after,
                    found: number,
                });
            }
            Some(last) if read.previous != last.hash => {
                return Err(BrokenAuditChain::Changed {
                    number,
                    before: last.number,
                });
            }
            Some(_) => {}
        }
        let hash = audit_line_hash(line);
        if let Some(wanted) = self.anchors.remove(&number)
            && !wanted.eq_ignore_ascii_case(&hash)
        {
            return Err(BrokenAuditChain::Replaced { number });
        }
        let is_unknown = read.outcome == "unknown";
        self.unknown += u64::from(is_unknown);
        match self.actions.insert(read.id, (number, is_unknown)) {
            // The outcome became known late.
            None | Some((_, true)) => {}
            Some((first, false)) => {
                return Err(BrokenAuditChain::Repeated {
                    id: read.id,
                    first,
                    second: number,
                });
            }
        }
        if let Some(start) = read.checkpoint {
            let start = AuditChainPlace {
                number: start.first,
                hash: start.previous,
            };
            self.checkpoint = Some((number, start));
        }
        self.last = Some(AuditChainPlace { number, hash });
        Ok(())
    }

    /// Checks the beginning and the end. `head` is the newest record according to the server:
    /// the lines may go on behind it, because the log grows.
    pub fn finish(
        self,
        head: Option<&AuditChainPlace>,
    ) -> Result<AuditChainSummary, BrokenAuditChain> {
        let first = self.first.unwrap_or(AuditChainPlace {
            number: 1,
            hash: AUDIT_CHAIN_START.to_owned(),
        });
        match self.checkpoint {
            Some((_, start)) if start == first => {}
            None if first.number == 1 && first.hash == AUDIT_CHAIN_START => {}
            None => {
                return Err(BrokenAuditChain::Beheaded {
                    first: first.number,
                });
            }
            Some((checkpoint, start)) => {
                return Err(BrokenAuditChain::WrongStart {
                    first: first.number,
                    checkpoint,
                    said: start.number,
                });
            }
        }
        let last = self.last.unwrap_or_else(AuditChainPlace::start);
        if let Some(head) = head {
            if last.number < head.number {
                return Err(BrokenAuditChain::CutOff {
                    found: last.number,
                    wanted: head.number,
                });
            }
            if last.number == head.number && last.hash != head.hash {
                return Err(BrokenAuditChain::Replaced {
                    number: head.number,
                });
            }
        }
        // An anchor before the first kept record was deleted with its record.
        if let Some((number, _)) = self.anchors.range(first.number..).next() {
            return Err(BrokenAuditChain::Absent { number: *number });
        }
        Ok(AuditChainSummary {
            first: first.number,
            last,
            unknown: self.unknown,
        })
    }
}

/// An intact log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditChainSummary {
    pub first: u64,
    pub last: AuditChainPlace,
    /// The number of records whose outcome is unknown.
    pub unknown: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a log of this many lines.
    fn log(count: u64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut previous = AUDIT_CHAIN_START.to_owned();
        for number in 1..=count {
            let line = line(number, &previous, u128::from(number), "succeeded");
            previous = audit_line_hash(line.as_bytes());
            lines.push(line);
        }
        lines
    }

    fn line(number: u64, previous: &str, id: u128, outcome: &str) -> String {
        let id = Uuid::from_u128(id);
        format!(
            r#"{{"number":{number},"previous":"{previous}","id":"{id}","outcome":"{outcome}"}}"#
        )
    }

    fn check(lines: &[String]) -> Result<AuditChainSummary, BrokenAuditChain> {
        let mut check = AuditChainCheck::default();
        for line in lines {
            check.add(line.as_bytes())?;
        }
        check.finish(None)
    }

    fn place(lines: &[String], number: usize) -> AuditChainPlace {
        AuditChainPlace {
            number: number as u64,
            hash: audit_line_hash(lines[number - 1].as_bytes()),
        }
    }

    #[test]
    fn an_untouched_log_is_intact() {
        assert_eq!(check(&[]).expect("empty").last, AuditChainPlace::start());
        let lines = log(5);
        assert_eq!(check(&lines).expect("intact").last, place(&lines, 5));
    }

    #[test]
    fn every_single_change_is_found() {
        for number in 0..4 {
            let mut lines = log(5);
            lines[number] = lines[number].replace("succeeded", "refused");
            let before = number as u64 + 1;
            let number = before + 1;
            assert_eq!(
                check(&lines),
                Err(BrokenAuditChain::Changed { number, before })
            );
        }
    }

    #[test]
    fn a_missing_record_is_found_wherever_it_was() {
        for number in 1..4 {
            let mut lines = log(5);
            lines.remove(number);
            let after = number as u64;
            let found = after + 2;
            assert_eq!(check(&lines), Err(BrokenAuditChain::Gap { after, found }));
        }
        assert_eq!(
            check(&log(5)[1..]),
            Err(BrokenAuditChain::Beheaded { first: 2 })
        );
    }

    #[test]
    fn a_log_without_its_end_is_found_with_the_newest_record_of_the_server() {
        let lines = log(5);
        let mut check = AuditChainCheck::default();
        for line in &lines[..4] {
            check.add(line.as_bytes()).expect("a good line");
        }
        assert_eq!(
            check.finish(Some(&place(&lines, 5))),
            Err(BrokenAuditChain::CutOff {
                found: 4,
                wanted: 5
            })
        );
    }

    #[test]
    fn a_replaced_log_is_found_with_a_hash_that_was_kept() {
        let kept = place(&log(5), 3);
        let mut forged = vec![line(1, AUDIT_CHAIN_START, 99, "succeeded")];
        for number in 2..=5 {
            let previous = audit_line_hash(forged[forged.len() - 1].as_bytes());
            forged.push(line(number, &previous, u128::from(number), "succeeded"));
        }
        assert!(check(&forged).is_ok(), "the chain itself is intact");
        let mut anchored = AuditChainCheck::default().with_anchor(kept);
        let result = forged.iter().try_for_each(|it| anchored.add(it.as_bytes()));
        assert_eq!(result, Err(BrokenAuditChain::Replaced { number: 3 }));
    }

    #[test]
    fn an_action_is_recorded_once_unless_its_outcome_was_unknown() {
        let first = line(1, AUDIT_CHAIN_START, 7, "unknown");
        let second = line(2, &audit_line_hash(first.as_bytes()), 7, "succeeded");
        let third = line(3, &audit_line_hash(second.as_bytes()), 7, "succeeded");
        assert_eq!(
            check(&[first.clone(), second.clone()])
                .expect("a late outcome")
                .unknown,
            1
        );
        assert!(matches!(
            check(&[first, second, third]),
            Err(BrokenAuditChain::Repeated {
                first: 2,
                second: 3,
                ..
            })
        ));
    }

    #[test]
    fn a_log_may_begin_where_its_checkpoint_says() {
        let lines = log(4);
        let (kept, before) = (&lines[2..], place(&lines, 2));
        let previous = place(&lines, 4).hash;
        let id = Uuid::from_u128(50);
        let checkpoint = |hash: &str| {
            format!(
                r#"{{"number":5,"previous":"{previous}","id":"{id}","outcome":"succeeded","checkpoint":{{"first":3,"previous":"{hash}"}}}}"#
            )
        };
        let with = |hash: &str| [kept, &[checkpoint(hash)]].concat();
        assert_eq!(check(&with(&before.hash)).expect("intact").first, 3);
        assert!(matches!(
            check(&with(AUDIT_CHAIN_START)),
            Err(BrokenAuditChain::WrongStart { .. })
        ));
    }
}
