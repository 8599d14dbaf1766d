//! Generates small state files from a number: the same number gives the same file.

use std::fmt::Write as _;

/// A small random number generator. Its quality does not matter, only that it gives the same
/// numbers everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from[self.roll(from.len() as u64) as usize]
    }
}

const FUNCTIONS: [&str; 8] = [
    "nop",
    "succeed_with_changes",
    "succeed_with_changes",
    "succeed_without_changes",
    "fail_without_changes",
    "fail_with_changes",
    "configurable_test_state",
    "configurable_test_state",
];
/// The requisites that point backwards, and those that may point anywhere. A file with a cycle is a
/// good case too, but most files should run.
const BACKWARDS: [&str; 14] = [
    "require",
    "require",
    "require",
    "watch",
    "watch",
    "onchanges",
    "onchanges",
    "onfail",
    "require_any",
    "watch_any",
    "onchanges_any",
    "onfail_any",
    "onfail_all",
    "listen",
];
const FORWARDS: [&str; 6] = [
    "require_in",
    "watch_in",
    "onchanges_in",
    "onfail_in",
    "listen_in",
    "prereq",
];

/// Returns the text of one file.
pub(crate) fn state_file(seed: u64) -> String {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let count = 3 + dice.roll(8);
    let functions: Vec<&'static str> = (0..count).map(|_| dice.pick(&FUNCTIONS)).collect();
    let mut maker = Maker {
        // Salt forgets a listener that a `prereq` checked and found blocked.
        listens: dice.roll(2) == 0,
        functions,
        dice,
        text: String::new(),
    };
    for number in 0..count as usize {
        maker.state(number);
    }
    maker.text
}

struct Maker {
    dice: Dice,
    functions: Vec<&'static str>,
    listens: bool,
    text: String,
}

impl Maker {
    fn state(&mut self, number: usize) {
        let function = self.functions[number];
        let mut lines = self.options(function, number);
        let mut seen = Vec::new();
        for _ in 0..self.dice.roll(3) {
            self.requisite(number, &mut seen, &mut lines);
        }
        let _ = write!(self.text, "state {number}:\n  test.{function}");
        if !lines.is_empty() {
            self.text.push(':');
        }
        self.text.push('\n');
        for line in lines {
            let _ = writeln!(self.text, "    {line}");
        }
    }

    fn options(&mut self, function: &str, number: usize) -> Vec<String> {
        let dice = &mut self.dice;
        let mut lines = Vec::new();
        if function == "configurable_test_state" {
            lines.push(format!("- changes: {}", dice.pick(&["True", "False"])));
            lines.push(format!(
                "- result: {}",
                dice.pick(&["True", "True", "False"])
            ));
        }
        match dice.roll(12) {
            0 => {
                let order = dice.pick(&["1", "5", "last", "first", "-1", "20000"]);
                lines.push(format!("- order: {order}"));
            }
            // In Salt, the check of a `prereq` on a blocked state ends the run.
            1 if self.listens => lines.push("- failhard: True".to_owned()),
            2 => lines.push(format!("- onlyif: {}", dice.pick(&["'true'", "'false'"]))),
            3 => lines.push(format!("- unless: {}", dice.pick(&["'true'", "'false'"]))),
            4 => lines.push(format!("- name: name of {number}")),
            5 => lines.push(format!(
                "- check_cmd: {}",
                dice.pick(&["'true'", "'false'"])
            )),
            _ => {}
        }
        lines
    }

    fn requisite(&mut self, number: usize, seen: &mut Vec<&'static str>, lines: &mut Vec<String>) {
        let count = self.functions.len();
        let forwards = number + 1 < count && self.dice.roll(4) == 0;
        let word = self
            .dice
            .pick(if forwards { &FORWARDS } else { &BACKWARDS });
        let unwanted = if self.listens { "prereq" } else { "listen" };
        if seen.contains(&word) || word.starts_with(unwanted) || (!forwards && number == 0) {
            return;
        }
        let refreshes = word.starts_with("watch") || word.starts_with("listen");
        if refreshes && !forwards && !refreshable(self.functions[number]) {
            return;
        }
        let mut targets = Vec::new();
        for _ in 0..1 + self.dice.roll(2) {
            let target = if forwards {
                number + 1 + self.dice.roll((count - number - 1) as u64) as usize
            } else {
                self.dice.roll(number as u64) as usize
            };
            if !(forwards && refreshes) || refreshable(self.functions[target]) {
                targets.push(target);
            }
        }
        if targets.is_empty() {
            return;
        }
        seen.push(word);
        lines.push(format!("- {word}:"));
        lines.extend(
            targets
                .iter()
                .map(|target| format!("  - test: state {target}")),
        );
    }
}

/// Returns true for functions whose refresh is not one of the known differences.
fn refreshable(function: &str) -> bool {
    matches!(
        function,
        "nop" | "succeed_with_changes" | "succeed_without_changes"
    )
}
