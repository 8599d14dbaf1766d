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
        match self.steps > self.limits.steps {
            true => Err(AnswerError::TooManySteps(self.limits.steps)),
            false => Ok(()),
        }
    }

    pub(super) fn show(&mut self, bytes: usize) -> Result<(), AnswerError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes > self.limits.bytes {
            true => Err(AnswerError::TooManyBytes(self.limits.bytes)),
            false => Ok(()),
        }
    }

    pub(super) fn rows(&self, rows: usize) -> Result<(), AnswerError> {
        match rows > self.limits.rows {
            true => Err(AnswerError::TooManyRows(self.limits.rows)),
            false => Ok(()),
        }
    }
}
