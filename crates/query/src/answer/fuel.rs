//! The remaining cost budget of a query.

use super::{AnswerError, Limits};

pub(super) struct Fuel {
    steps: usize,
    limits: Limits,
    bytes: usize,
}

impl Fuel {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            steps: 0,
            bytes: 0,
            limits: *limits,
        }
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), AnswerError> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > self.limits.steps {
            Err(AnswerError::TooManySteps(self.limits.steps))
        } else {
            Ok(())
        }
    }

    pub(super) fn show(&mut self, bytes: usize) -> Result<(), AnswerError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            Err(AnswerError::TooManyBytes(self.limits.bytes))
        } else {
            Ok(())
        }
    }

    pub(super) fn rows(&self, rows: usize) -> Result<(), AnswerError> {
        if rows > self.limits.rows {
            Err(AnswerError::TooManyRows(self.limits.rows))
        } else {
            Ok(())
        }
    }
}
