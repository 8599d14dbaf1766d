//! Triggers on two servers at the same time.

use bunraku_store::testing::{InterferingStore, MemoryStore};
use bunraku_testkit::eventually;

use super::*;
use bunraku_control::Nodes;
use bunraku_model::FiringId;
use bunraku_model::Role;
use bunraku_wire::api::{CommandOutcome, CommandResult};

fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a name")
}

fn trigger() -> TriggerName {
    TriggerName::new("go").expect("a name")
}

fn server(store: &SharedStore) -> Triggers {
    Triggers::new(store.clone(), Clock::system(), Arc::default())
}

fn request(hosts: &[&str]) -> FireTrigger {
    let hosts = hosts.iter().map(|host| name(host)).collect();
    FireTrigger::new(FiringId(Uuid::now_v7()), hosts)
}

async fn fire(triggers: &Triggers, request: &FireTrigger) -> FireReply {
    let operator = name("operator");
    let asker = CueCaller::new(&operator, Role::Operator);
    let fired = triggers.fire(&trigger(), asker, request).await;
    fired.expect("fired")
}

async fn with_nodes(hosts: &[&str]) -> SharedStore {
    let store: SharedStore = Arc::new(MemoryStore::new());
    let nodes = Nodes::new(store.clone(), Clock::system());
    for host in hosts {
        nodes.register(&name(host)).await.expect("registered");
    }
    store
}

/// Counts the causes that are on their way to a host or wait for it.
async fn causes(store: &SharedStore, host: &str) -> usize {
    let key = keys::trigger_queue(&name(host));
    let queue = document::read::<NodeQueue>(&**store, &key).await;
    let queue = queue.expect("read").expect("a queue").document;
    queue.waiting.len()
        + queue
            .under_way
            .map_or(0, |on_its_way| on_its_way.causes.len())
}

async fn commands(store: &SharedStore) -> usize {
    let pending = document::keys_under(&**store, &keys::all_pending_commands()).await;
    pending.expect("read").len()
}

/// Answers the command that is on its way, as the node.
async fn answer(store: &SharedStore, outcome: Option<CommandOutcome>) {
    let prefix = keys::all_pending_commands();
    let pending = document::keys_under(&**store, &prefix).await.expect("read");
    let (node, id) = keys::parse_pending_command(&pending[0]).expect("a command");
    let mut answered = Transaction::new().delete(pending[0].clone());
    if let Some(outcome) = outcome {
        let result = CommandResult {
            outcome,
            message: "disabled".to_owned(),
            finished: Timestamp::UNIX_EPOCH,
        };
        answered = answered.put(keys::command_result(&node, id), document::encode(&result));
    }
    store.commit(answered).await.expect("answered");
}

#[tokio::test]
async fn firings_through_two_servers_at_once_are_both_in_the_queue() {
    // One host is written separately, several together: two code paths.
    for hosts in [&["lb-1"][..], &["lb-1", "lb-2"]] {
        let store = with_nodes(hosts).await;
        let (other, also) = (server(&store), request(hosts));
        let meddled = Arc::new(InterferingStore::new(store.clone(), async move {
            fire(&other, &also).await;
        }));
        let shared: SharedStore = meddled.clone();
        fire(&server(&shared), &request(hosts)).await;
        assert!(meddled.is_meddled());
        for host in hosts {
            assert_eq!(causes(&store, host).await, 2, "{hosts:?}");
        }
        assert_eq!(
            commands(&store).await,
            hosts.len(),
            "one is on its way to each"
        );
    }
}

/// Stores a held firing that is due.
async fn held(store: &SharedStore) {
    let limits = TriggerLimits {
        quiet_seconds: Some(1),
        ..TriggerLimits::default()
    };
    let triggers = server(store);
    triggers.define(&trigger(), &limits).await.expect("limited");
    let mut held = HeldFirings::default();
    let cause = TriggerCause {
        firing: Some(FiringId(Uuid::now_v7())),
        ..TriggerCause::new(trigger().as_str(), 7)
    };
    let long_ago = Timestamp::UNIX_EPOCH;
    held.add(vec![name("lb-1")], vec![cause], &limits, long_ago);
    let put = Transaction::new().put(keys::trigger_held(&trigger()), document::encode(&held));
    store.commit(put).await.expect("stored");
}

#[tokio::test]
async fn what_two_servers_let_go_at_once_goes_out_once() {
    let store = with_nodes(&["lb-1"]).await;
    held(&store).await;
    let other = server(&store);
    let meddled: SharedStore = Arc::new(InterferingStore::new(store.clone(), async move {
        other.release_due().await.expect("released");
    }));
    server(&meddled).release_due().await.expect("released");
    let fired = server(&store).history(None, 100).await.expect("read");
    assert_eq!(fired.len(), 1, "{fired:?}");
}

/// Defines a trigger that is released at its third firing.
async fn at_the_third_time() -> (SharedStore, Triggers) {
    let store = with_nodes(&["lb-1"]).await;
    let triggers = server(&store);
    let limits = TriggerLimits {
        occurrences: Some(3),
        ..TriggerLimits::default()
    };
    triggers.define(&trigger(), &limits).await.expect("limited");
    (store, triggers)
}

#[tokio::test]
async fn the_same_firing_again_is_held_back_once() {
    let (_, triggers) = at_the_third_time().await;
    // Its reply was lost: it is one occurrence, however often it is repeated.
    let request = request(&["lb-1"]);
    for _ in 0..5 {
        let reply = fire(&triggers, &request).await;
        assert!(
            matches!(reply, FireReply::Held { occurrences: 1, .. }),
            "{reply:?}"
        );
    }
}

#[tokio::test]
async fn what_is_held_back_goes_out_when_the_limits_are_taken_away() {
    let (store, triggers) = at_the_third_time().await;
    fire(&triggers, &request(&["lb-1"])).await;
    assert_eq!(commands(&store).await, 0);
    triggers.forget(&trigger()).await.expect("forgotten");
    assert_eq!(commands(&store).await, 1);
}

#[tokio::test]
async fn the_answer_to_another_command_makes_no_room() {
    let store = with_nodes(&["lb-1"]).await;
    let triggers = server(&store);
    for _ in 0..2 {
        fire(&triggers, &request(&["lb-1"])).await;
    }
    let other = CommandId(Uuid::now_v7());
    let advanced = triggers.advance(&name("lb-1"), Some(other)).await;
    advanced.expect("looked at");
    assert_eq!(commands(&store).await, 1, "the first is still on its way");
    assert_eq!(causes(&store, "lb-1").await, 2);
}

#[tokio::test]
async fn more_hosts_than_anybody_has_are_refused() {
    let triggers = server(&with_nodes(&[]).await);
    let hosts: Vec<NodeName> = (0..=MOST_HOSTS)
        .map(|number| name(&format!("n{number}")))
        .collect();
    let limits = TriggerLimits::default();
    let refused = triggers.hosts(&hosts, None, &limits).await;
    assert!(matches!(refused, Err(ServiceError::Invalid { .. })));
    let allowed = triggers.hosts(&hosts[1..], None, &limits).await;
    assert_eq!(allowed.expect("as many as may be").len(), MOST_HOSTS);
}

#[tokio::test]
async fn what_was_answered_while_no_server_looked_makes_room_when_one_does() {
    let store = with_nodes(&["lb-1"]).await;
    for _ in 0..2 {
        fire(&server(&store), &request(&["lb-1"])).await;
    }
    answer(&store, None).await;
    let triggers = server(&store);
    let stop = tokio_util::sync::CancellationToken::new();
    let next = eventually(async || commands(&store).await > 0);
    let working = async {
        tokio::select! {
            () = triggers.run(stop.clone()) => panic!("nobody stopped it"),
            () = next => {}
        }
    };
    working.await;
}

#[tokio::test]
async fn a_cause_that_expires_behind_a_command_in_flight_is_reported_at_once() {
    let store = with_nodes(&["lb-1"]).await;
    let triggers = server(&store);
    fire(&triggers, &request(&["lb-1"])).await;
    let late = FireTrigger {
        deadline_seconds: Some(0),
        ..request(&["lb-1"])
    };
    fire(&triggers, &late).await;
    let advanced = triggers.advance(&name("lb-1"), None).await;
    advanced.expect("looked at");
    assert_eq!(causes(&store, "lb-1").await, 1, "the first stays");
    let history = triggers.history(None, 100).await.expect("read");
    let expired = |event: &bunraku_wire::api::triggers::TriggerEvent| matches!(&event.what, TriggerNews::Expired { node } if node.as_str() == "lb-1");
    assert_eq!(history.iter().filter(|event| expired(event)).count(), 1);
}

#[tokio::test]
async fn a_node_that_refuses_a_run_is_reported_with_its_reason() {
    let store = with_nodes(&["lb-1"]).await;
    let triggers = server(&store);
    fire(&triggers, &request(&["lb-1"])).await;
    answer(&store, Some(CommandOutcome::Failed)).await;
    let advanced = triggers.advance(&name("lb-1"), None).await;
    advanced.expect("looked at");
    let history = triggers.history(None, 100).await.expect("read");
    let refused = |event: &bunraku_wire::api::triggers::TriggerEvent| matches!(&event.what, TriggerNews::Refused { message, .. } if message == "disabled");
    assert!(history.iter().any(refused), "{history:?}");
}

#[tokio::test]
async fn an_answer_makes_room_without_anybody_looking_now_and_then() {
    let store = with_nodes(&["lb-1"]).await;
    let triggers = server(&store);
    let work = async {
        // Repeatedly: the first may come before the follower starts.
        for _ in 0..3 {
            for _ in 0..2 {
                fire(&triggers, &request(&["lb-1"])).await;
            }
            eventually(async || commands(&store).await > 0).await;
            answer(&store, Some(CommandOutcome::Done)).await;
        }
    };
    let followed = async {
        tokio::select! {
            () = triggers.follow_answers() => panic!("it goes on for ever"),
            () = work => {}
        }
    };
    followed.await;
}

/// Announces a firing by something other than a run. Returns its key.
async fn announced(store: &SharedStore) -> String {
    let id = FiringId(Uuid::now_v7());
    let (by, why) = ("a test".to_owned(), "it is time".to_owned());
    let hosts = vec![name("lb-1")];
    let announced =
        AnnouncedFiring::beginning(id, trigger(), by, hosts, why, Timestamp::UNIX_EPOCH);
    let put = announced.put_in(Transaction::new());
    store.commit(put).await.expect("announced");
    keys::trigger_announced(id)
}

#[tokio::test]
async fn what_is_announced_is_held_back_as_what_is_fired_is() {
    let store = with_nodes(&["lb-1"]).await;
    let triggers = server(&store);
    let limits = TriggerLimits {
        occurrences: Some(2),
        ..TriggerLimits::default()
    };
    triggers.define(&trigger(), &limits).await.expect("limited");
    let key = announced(&store).await;
    triggers.process(&key).await.expect("processed");
    assert_eq!(commands(&store).await, 0);
    let shown = triggers.show(&trigger()).await.expect("shown");
    assert_eq!(shown.held, 1);
}

#[tokio::test]
async fn a_firing_processed_by_two_servers_at_once_is_sent_once() {
    let store = with_nodes(&["lb-1"]).await;
    let key = announced(&store).await;
    let (other, below, same) = (server(&store), store.clone(), key.clone());
    let meddled: SharedStore = Arc::new(InterferingStore::new(store.clone(), async move {
        other.process(&same).await.expect("processed");
        // The node has answered already: its queue looks the same as before.
        answer(&below, None).await;
        let empty = Transaction::new().delete(keys::trigger_queue(&name("lb-1")));
        below.commit(empty).await.expect("emptied");
    }));
    let late = server(&meddled).process(&key).await;
    late.expect("nothing is left to do");
    assert_eq!(commands(&store).await, 0, "not a second time");
    let history = server(&store).history(None, 100).await.expect("read");
    assert_eq!(history.len(), 1, "{history:?}");
}
