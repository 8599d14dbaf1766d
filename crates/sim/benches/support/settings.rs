//! Numbers from the command line.

/// Returns the number after a flag, or the default.
pub(crate) fn setting(name: &str, usual: u64) -> u64 {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == name);
    at.map_or(usual, |at| {
        let number = words.get(at + 1).and_then(|text| text.parse().ok());
        number.expect("a number after the flag")
    })
}
