//! Ordering modes on the command line.

use bunraku_model::OrderingMode;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Returns the parser of `--order`, which lists the modes in help and completions.
pub(crate) fn ordering_mode() -> impl TypedValueParser<Value = OrderingMode> {
    let words = OrderingMode::ALL.map(OrderingMode::as_str);
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}
