//! placeholder

pub mod facts;
