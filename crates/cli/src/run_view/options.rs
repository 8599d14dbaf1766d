//! The options of a run in words: everything that differs from the defaults.

use bunraku_plan::run::{OnFailure, RunOptions};

/// Returns one phrase for each option that is set.
pub(crate) fn option_words(options: &RunOptions) -> Vec<String> {
    let mut words = Vec::new();
    if options.noop {
        words.push("noop".to_owned());
    }
    if options.canary > 0 {
        words.push(format!("canary {}", options.canary));
    }
    if options.soak_seconds > 0 {
        words.push(format!("soak {} s", options.soak_seconds));
    }
    words.extend(
        options
            .checks
            .iter()
            .map(|check| format!("check `{check}`")),
    );
    if let Some(fact) = &options.batch_by {
        let each = if options.gate_each_batch {
            ", with a gate after each"
        } else {
            ""
        };
        words.push(format!("batches by {fact}{each}"));
    }
    if let Some(most) = options.max_unavailable {
        words.push(format!("at most {most} unavailable"));
    }
    if let Some(most) = options.max_drift {
        words.push(format!("stop after drift on more than {most}"));
    }
    if let Some(batch) = options.batch {
        words.push(format!("at most {batch} at a time"));
    }
    if let Some(most) = options.max_failures {
        words.push(format!("stop after more than {most} failures"));
    }
    if options.on_failure == OnFailure::ContinueIndependent {
        words.push("continue with independent nodes".to_owned());
    }
    if options.by_group {
        words.push("group by group".to_owned());
    }
    words
}
