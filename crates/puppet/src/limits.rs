//! Bounds that keep hostile or mistaken code from taking the process down.

/// How much one evaluation may use. Reaching a bound is an error with a place.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one source file.
    pub source_bytes: usize,
    /// Nesting and chain length of one expression. Parser, evaluator and
    /// `Drop` recurse this deep at most.
    pub depth: usize,
    /// Expressions that are evaluated, and elements that functions touch.
    pub steps: u64,
    /// Elements of one collection.
    pub elements: usize,
    /// Bytes of one string.
    pub string_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            source_bytes: 16 << 20,
            depth: 120,
            steps: 20_000_000,
            elements: 1_000_000,
            string_bytes: 16 << 20,
        }
    }
}
