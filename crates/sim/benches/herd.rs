//! A thundering herd: pushed code changes 1 % of the catalogs, and then the whole
//! fleet asks. Compared with the same fleet asking a server that compiles on
//! request.
//!
//!     cargo bench -p bunraku-sim --bench herd -- [--nodes 10000] [--one-in 100] [--rounds 2]
//!
//! Both sides use the same compiler (states), in this process, one after the other.
//! Our side runs the real services on the embedded store, with every write durable.
//! The other side compiles, writes the catalog as JSON, and keeps nothing. Neither
//! side includes HTTP and TLS: they would cost both the same per request, and
//! `--bench newer` measures how much.

#[path = "support/code.rs"]
mod code;
#[path = "support/fleet.rs"]
mod fleet;
#[path = "support/processor.rs"]
mod processor;
#[path = "support/settings.rs"]
mod settings;

use std::time::{Duration, Instant};

use code::{SiteCode, Version};
use fleet::Fleet;
use futures::StreamExt;
use processor::processor_time;
use settings::setting;

/// The cost of some work to the server.
#[derive(Clone, Copy, Default)]
struct Cost {
    compiles: u64,
    bytes: u64,
    replies: u64,
    processor: Duration,
    wall: Duration,
}

/// Measures the work, which returns how many replies had a body, and their bytes.
async fn measured(code: &SiteCode, work: impl Future<Output = (u64, u64)>) -> Cost {
    let (compiles, processor, started) = (code.compiles(), processor_time(), Instant::now());
    let (replies, bytes) = work.await;
    Cost {
        compiles: code.compiles() - compiles,
        bytes,
        replies,
        processor: processor_time() - processor,
        wall: started.elapsed(),
    }
}

fn show(what: &str, cost: Cost) {
    println!(
        "{what:<44} {:>7} compiles  {:>7} replies with a body  {:>12} bytes  {:>9.3} s CPU  {:>7.1} s",
        cost.compiles,
        cost.replies,
        cost.bytes,
        cost.processor.as_secs_f64(),
        cost.wall.as_secs_f64()
    );
}

/// Every node asks, and its catalog is compiled immediately.
async fn compile_on_request(code: &SiteCode, nodes: u64) -> (u64, u64) {
    let at_once = std::thread::available_parallelism().map_or(2, usize::from);
    let lengths = futures::stream::iter(0..nodes).map(|number| {
        let code = code.clone();
        tokio::task::spawn_blocking(move || {
            let name = fleet::name(number);
            let facts = fleet::facts(number);
            let catalog = code.compile(Version::New, &name, &facts);
            serde_json::to_vec(&catalog).expect("plain data").len() as u64
        })
    });
    let bytes = lengths
        .buffer_unordered(at_once)
        .fold(0, async |sum, length| sum + length.expect("it compiles"))
        .await;
    (nodes, bytes)
}

#[tokio::main]
async fn main() {
    let (nodes, one_in) = (setting("--nodes", 10_000), setting("--one-in", 100));
    let rounds = setting("--rounds", 2);
    let code = SiteCode::new(one_in);
    let mut fleet = Fleet::start(nodes, &code).await;
    let first = measured(&code, async {
        fleet.submit_facts().await;
        fleet.wait_for(nodes).await;
        fleet.ask().await
    });
    show("the first time: facts, compiled, fetched", first.await);
    let push = measured(&code, async {
        fleet.push_new_code().await;
        fleet.wait_for(nodes.div_ceil(one_in)).await;
        (0, 0)
    });
    let push = push.await;
    show("the push: compiled ahead, kept, released", push);
    let mut ours = Vec::new();
    for round in 1..=rounds {
        let cost = measured(&code, fleet.ask()).await;
        show(&format!("every node asks, round {round}"), cost);
        ours.push(cost);
    }
    fleet.end().await;
    let mut theirs = Vec::new();
    for round in 1..=rounds {
        let cost = measured(&code, compile_on_request(&code, nodes)).await;
        show(&format!("compile on request, round {round}"), cost);
        theirs.push(cost);
    }
    for (round, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        compare(&format!("round {}", round + 1), *ours, *theirs);
    }
    let all = |costs: &[Cost], first: Cost| {
        costs.iter().fold(first, |sum, cost| Cost {
            compiles: sum.compiles + cost.compiles,
            bytes: sum.bytes + cost.bytes,
            replies: sum.replies + cost.replies,
            processor: sum.processor + cost.processor,
            wall: sum.wall + cost.wall,
        })
    };
    let (ours, theirs) = (all(&ours, push), all(&theirs, Cost::default()));
    compare("push and all rounds", ours, theirs);
}

/// Prints how many times more the other side needs.
fn compare(what: &str, ours: Cost, theirs: Cost) {
    let ratio = |ours: f64, theirs: f64| match ours {
        0.0 => "all".to_owned(),
        ours => format!("{:.2}", theirs / ours),
    };
    println!(
        "{what:<22} compile on request against ours: compiles {}  bytes {}  CPU {}",
        ratio(ours.compiles as f64, theirs.compiles as f64),
        ratio(ours.bytes as f64, theirs.bytes as f64),
        ratio(ours.processor.as_secs_f64(), theirs.processor.as_secs_f64()),
    );
}
