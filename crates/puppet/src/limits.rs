//! Limits that keep hostile or faulty code from taking the process down.

/// The limits of one evaluation. Reaching a limit is an error with a location.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of one source file.
    pub source_bytes: usize,
    /// The nesting and chain length of one expression. Parser, evaluator and `Drop` recurse at most
    /// this deep.
    pub depth: usize,
    /// The evaluated expressions, plus the elements that functions touch.
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
