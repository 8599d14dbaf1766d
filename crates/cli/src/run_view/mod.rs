//! Views of a run for people who follow it.

mod lines;
mod live;
mod options;
mod screen;
mod summary;
mod timeline;

pub(crate) use lines::{line, wait_text};
pub(crate) use live::{LiveView, REDRAW};
pub(crate) use options::option_words;
pub(crate) use screen::{NodeProgress, Progress};
pub(crate) use summary::{
    list_state, list_table, mark, outcome_word, phase, scheduled, short, step_reason, summary,
};
pub(crate) use timeline::timeline_text;
