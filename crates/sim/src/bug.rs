//! Planted bugs: mistakes that a checker must find.

/// A mistake that a checker must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// Servers accept events as they come, whatever their numbers.
    NumbersIgnored,
    /// Servers answer before anything is stored.
    AnsweredTooEarly,
    /// Servers acknowledge triggers and do not fire them.
    FiringForgotten,
    /// Agents do not recognise a command that comes again.
    RequestsForgotten,
    /// Ordered runs start all nodes at once.
    OrderIgnored,
    /// Servers record changes after they made them.
    RecordedTooLate,
}
