//! Command lines in documentation, as words.

/// Splits the command line of an example as a shell does. Ends at two spaces, which precede a
/// remark, and at a comment, a pipe, a redirection or the next command.
pub fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.split("  ").next().unwrap_or_default().chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            (c, Some(_)) => word.get_or_insert_default().push(c),
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (' ', None) => words.extend(word.take()),
            (c, None) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    let end = |word: &String| ["#", "|", ">", ">>", "&&", ";"].contains(&word.as_str());
    let end = words.iter().position(end).unwrap_or(words.len());
    words.truncate(end);
    words
}
