//! State trees, and Salt's results for the same ones.

mod exports;
mod facts;
mod formulas;
mod generate;
mod hard_cases;
mod noop;
mod places;
mod salt_comparison;
mod support;
mod trees;
