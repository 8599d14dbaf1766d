//! Reports are kept until a server has them, whatever happens in between.

use bunraku_wire::api::{EventStatus, OmittedEvents, ResourceEvent, RunEnding, RunMode};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;

fn id(number: u128) -> NodeRunId {
    NodeRunId(Uuid::from_u128(number))
}

fn started() -> RunStarted {
    RunStarted::new(Timestamp::UNIX_EPOCH, RunMode::Enforce, "engine")
}

fn resource(status: EventStatus) -> ReportEvent {
    ReportEvent::Resource(Box::new(ResourceEvent::new(
        Timestamp::UNIX_EPOCH,
        "File",
        "/a",
        status,
    )))
}

fn open(directory: &TempDir, options: SpoolOptions) -> Arc<Spool> {
    Spool::open(directory.path(), options).expect("a spool")
}

fn receipt(next: u64, finished: bool) -> ReportReceipt {
    ReportReceipt { next, finished }
}

/// Sends everything, as a server would accept it: each number once, without gaps.
fn drain(spool: &Spool) -> Vec<(NodeRunId, Vec<ReportEvent>)> {
    let mut taken: Vec<(NodeRunId, Vec<ReportEvent>)> = Vec::new();
    let mut next = std::collections::HashMap::new();
    while let Some(batch) = spool.next_batch(3, 1 << 20) {
        let wanted = next.entry(batch.run).or_insert(0);
        let mut finished = false;
        if taken.last().is_none_or(|(run, _)| *run != batch.run) {
            taken.push((batch.run, Vec::new()));
        }
        for event in batch.events {
            assert_eq!(event.number, *wanted, "no gap and nothing twice");
            *wanted = event.number + event.event.width();
            finished |= matches!(event.event, ReportEvent::Finished(_));
            taken.last_mut().expect("just pushed").1.push(event.event);
        }
        spool.acknowledge(batch.run, receipt(*wanted, finished));
    }
    taken
}

/// Creates a clock that moves by this many hours after each reading.
fn stepping(hours: i64) -> WallClock {
    let looks = std::sync::atomic::AtomicI64::new(0);
    let first: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
    Box::new(move || {
        let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        first + jiff::SignedDuration::from_hours(look * hours)
    })
}

#[test]
fn a_clock_that_is_set_during_a_run_changes_neither_its_order_nor_its_duration() {
    for hours in [-24, 24] {
        let directory = TempDir::new().expect("a directory");
        let clock = stepping(hours);
        let spool = Spool::open_with_clock(directory.path(), SpoolOptions::default(), clock);
        let spool = spool.expect("a spool");
        let recorder = spool.begin(id(1), started(), false);
        for number in 0..10 {
            recorder.log("info", None, &number.to_string());
        }
        recorder.finish(RunEnding::Succeeded, None);
        let taken = drain(&spool);
        let (lines, times): (Vec<&str>, Vec<Timestamp>) = (taken[0].1.iter())
            .filter_map(|event| match event {
                ReportEvent::Log(line) => Some((line.message.as_str(), line.at)),
                _ => None,
            })
            .unzip();
        let wanted = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        assert_eq!(lines, wanted, "in the order in which they were written");
        let stepped = times
            .windows(2)
            .all(|pair| (pair[1] < pair[0]) == (hours < 0));
        assert!(
            stepped,
            "times are reported as the clock showed them: {times:?}"
        );
        let Some(ReportEvent::Finished(end)) = taken[0].1.last() else {
            panic!("no end");
        };
        // By the clock, the run took days, forward or backward.
        let day = 24.0 * 3_600.0;
        assert!((0.0..day).contains(&end.duration_seconds), "{end:?}");
    }
}

#[test]
fn events_are_sent_in_order_and_the_file_goes_with_the_last_receipt() {
    let directory = TempDir::new().expect("a directory");
    let spool = open(&directory, SpoolOptions::default());
    let recorder = spool.begin(id(1), started(), false);
    for _ in 0..10 {
        recorder.record(resource(EventStatus::Changed));
    }
    recorder.finish(RunEnding::Succeeded, None);
    assert!(directory.path().join(format!("{}.events", id(1))).exists());
    let taken = drain(&spool);
    assert_eq!(taken[0].1.len(), 12);
    let Some(ReportEvent::Finished(end)) = taken[0].1.last() else {
        panic!("no end");
    };
    assert_eq!(end.changed, 10);
    assert_eq!(
        std::fs::read_dir(directory.path())
            .expect("readable")
            .count(),
        0
    );
}

#[test]
fn after_a_crash_the_events_are_there_and_a_line_that_was_cut_off_is_not() {
    let directory = TempDir::new().expect("a directory");
    {
        let spool = open(&directory, SpoolOptions::default());
        let recorder = spool.begin(id(1), started(), false);
        recorder.record(resource(EventStatus::Failed));
    }
    let path = directory.path().join(format!("{}.events", id(1)));
    let mut text = std::fs::read(&path).expect("readable");
    text.extend_from_slice(b"{\"number\":2,\"event\":\"log\",\"mes");
    std::fs::write(&path, text).expect("written");
    let spool = open(&directory, SpoolOptions::default());
    let unfinished = spool.unfinished();
    assert_eq!(unfinished[0].0, id(1));
    assert_eq!(unfinished[0].2.failed, 1);
    spool.resume(id(1)).finish(RunEnding::Interrupted, None);
    let taken = drain(&spool);
    assert_eq!(taken[0].1.len(), 3);
    assert!(matches!(&taken[0].1[2], ReportEvent::Finished(end) if end.failed == 1));
}

#[test]
fn a_server_that_knows_more_than_the_disk_gets_the_end_under_the_number_it_wants() {
    let directory = TempDir::new().expect("a directory");
    let spool = open(&directory, SpoolOptions::default());
    let recorder = spool.begin(id(1), started(), false);
    recorder.finish(RunEnding::Interrupted, None);
    let batch = spool.next_batch(100, 1 << 20).expect("something to send");
    assert_eq!(batch.events.len(), 2);
    // A power failure removed events 1 to 6 from this disk, after they were sent.
    assert!(!spool.acknowledge(id(1), receipt(7, false)));
    let end = spool.end_under(id(1), 7).expect("the end");
    assert_eq!(end.number, 7);
    assert!(spool.acknowledge(id(1), receipt(8, true)));
    assert!(spool.next_batch(100, 1 << 20).is_none());
}

#[test]
fn a_full_spool_keeps_summaries_of_the_oldest_runs_and_says_what_went() {
    let directory = TempDir::new().expect("a directory");
    let options = SpoolOptions {
        most_bytes: 20_000,
        most_in_memory: 100,
        ..SpoolOptions::default()
    };
    let spool = open(&directory, options);
    for run in 1..=10 {
        let recorder = spool.begin(id(run), started(), false);
        for _ in 0..40 {
            recorder.record(resource(EventStatus::Changed));
        }
        recorder.finish(RunEnding::Succeeded, None);
    }
    assert!(spool.runs().bytes() <= 20_000);
    let taken = drain(&spool);
    assert_eq!(taken.len(), 10, "no run is gone");
    let whole = taken
        .iter()
        .filter(|(_, events)| events.len() == 42)
        .count();
    assert!((1..10).contains(&whole), "{whole}");
    let ReportEvent::Omitted(omitted) = &taken[0].1[1] else {
        panic!("the oldest is a summary: {:?}", taken[0].1);
    };
    assert_eq!(omitted.count, 40);
    assert!(matches!(&taken[0].1[2], ReportEvent::Finished(end) if end.changed == 40));
    assert_eq!(taken[9].1.len(), 42, "the newest is whole");
}

#[test]
fn when_even_summaries_are_too_many_the_next_report_says_how_many_are_lost() {
    let directory = TempDir::new().expect("a directory");
    let options = SpoolOptions {
        most_bytes: 3_000,
        most_in_memory: 100,
        ..SpoolOptions::default()
    };
    let spool = open(&directory, options.clone());
    for run in 1..=30 {
        spool
            .begin(id(run), started(), false)
            .finish(RunEnding::Succeeded, None);
    }
    let left = spool.runs().files.len();
    assert!(left < 30);
    // The same holds after a restart.
    drop(spool);
    let spool = open(&directory, options);
    spool
        .begin(id(99), started(), false)
        .finish(RunEnding::Succeeded, None);
    let taken = drain(&spool);
    let said: Vec<&String> = (taken.iter().flat_map(|(_, events)| events))
        .filter_map(|event| match event {
            ReportEvent::Log(line) => Some(&line.message),
            _ => None,
        })
        .collect();
    assert!(
        said.iter()
            .any(|line| line.contains("earlier runs are lost")),
        "{said:?}"
    );
}

#[test]
fn a_long_run_loses_its_chatter_first_and_says_so() {
    let directory = TempDir::new().expect("a directory");
    let options = SpoolOptions {
        most_bytes: 10_000,
        most_in_memory: 100,
        ..SpoolOptions::default()
    };
    let spool = open(&directory, options);
    let recorder = spool.begin(id(1), started(), false);
    for number in 0..1_000 {
        recorder.log("info", None, &format!("line {number}"));
    }
    recorder.record(resource(EventStatus::Failed));
    recorder.finish(RunEnding::Failed, None);
    let events = drain(&spool).remove(0).1;
    let omitted: u64 = events
        .iter()
        .filter_map(|event| match event {
            ReportEvent::Omitted(OmittedEvents { count, .. }) => Some(*count),
            _ => None,
        })
        .sum();
    assert!(omitted > 500, "{omitted}");
    let failed = |event: &ReportEvent| matches!(event, ReportEvent::Resource(resource) if resource.status == EventStatus::Failed);
    assert!(events.iter().any(failed), "what failed is kept");
    let widths: u64 = events.iter().map(ReportEvent::width).sum();
    assert_eq!(widths, 1_003, "every number is accounted for");
}

#[test]
fn an_event_that_no_server_accepts_is_reported_as_missing() {
    let directory = TempDir::new().expect("a directory");
    let spool = open(&directory, SpoolOptions::default());
    let recorder = spool.begin(id(1), started(), false);
    recorder.record(resource(EventStatus::Changed));
    recorder.finish(RunEnding::Succeeded, None);
    spool.omit(id(1), 1, "it exceeded the server's limit");
    let events = drain(&spool).remove(0).1;
    assert!(
        matches!(&events[1], ReportEvent::Omitted(omitted) if omitted.reason.contains("limit"))
    );
    assert!(matches!(events[2], ReportEvent::Finished(_)));
}

/// A small separate file system, unmounted on drop.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn new(size: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", size, "tmpfs"])
            .arg(directory.path())
            .status()
            .expect("mount is part of util-linux; scripts/setup installs it");
        assert!(
            mounted.success(),
            "this test runs as root and mounts a small file system"
        );
        Self(directory)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
    }
}

#[test]
fn on_a_full_disk_the_run_continues_and_lost_events_are_reported() {
    let disk = SmallDisk::new("size=64k");
    let options = SpoolOptions {
        most_in_memory: 50,
        ..SpoolOptions::default()
    };
    let spool = open(&disk.0, options);
    let recorder = spool.begin(id(1), started(), false);
    for _ in 0..2_000 {
        recorder.record(resource(EventStatus::Changed));
    }
    recorder.finish(RunEnding::Succeeded, None);
    let events = drain(&spool).remove(0).1;
    let kept = events
        .iter()
        .filter(|event| matches!(event, ReportEvent::Resource(_)))
        .count();
    let omitted: u64 = (events.iter())
        .filter_map(|event| match event {
            ReportEvent::Omitted(omitted) => Some(omitted.count),
            _ => None,
        })
        .sum();
    assert!(kept > 50, "the disk and the memory held some: {kept}");
    assert_eq!(
        kept as u64 + omitted,
        2_000,
        "every event is there or counted"
    );
    let Some(ReportEvent::Finished(end)) = events.last() else {
        panic!("no end");
    };
    assert_eq!(end.changed, 2_000, "the count is right all the same");
    assert_eq!(
        std::fs::read_dir(disk.0.path()).expect("readable").count(),
        0
    );
}

#[test]
fn with_room_again_the_rest_is_written_and_survives_a_crash() {
    let disk = SmallDisk::new("size=64k");
    let ballast = disk.0.path().join("ballast");
    let spool = open(&disk.0, SpoolOptions::default());
    let recorder = spool.begin(id(1), started(), false);
    std::fs::write(&ballast, vec![0; 64 << 10]).expect_err("it fills the disk");
    for _ in 0..40 {
        recorder.record(resource(EventStatus::Changed));
    }
    std::fs::remove_file(&ballast).expect("removed");
    recorder.finish(RunEnding::Succeeded, None);
    drop((recorder, spool));
    let spool = open(&disk.0, SpoolOptions::default());
    let events = drain(&spool).remove(0).1;
    assert_eq!(events.len(), 42);
}

#[test]
fn unchanged_resources_are_counted_and_only_reported_if_somebody_wants_that() {
    for (report_unchanged, events) in [(false, 3), (true, 5)] {
        let directory = TempDir::new().expect("a directory");
        let spool = open(&directory, SpoolOptions::default());
        let recorder = spool.begin(id(1), started(), report_unchanged);
        recorder.record(resource(EventStatus::Unchanged));
        recorder.record(resource(EventStatus::Unchanged));
        // What it has to say is never dropped.
        let ReportEvent::Resource(mut talkative) = resource(EventStatus::Unchanged) else {
            panic!("a resource")
        };
        talkative.message = Some("it is fine".to_owned());
        recorder.record(ReportEvent::Resource(talkative));
        recorder.finish(RunEnding::Succeeded, None);
        let taken = drain(&spool);
        assert_eq!(taken[0].1.len(), events, "{:?}", taken[0].1);
        let last = taken[0].1.last();
        assert!(matches!(last, Some(ReportEvent::Finished(end)) if end.unchanged == 3));
    }
}
