//! Puppet's regular expressions.

/// Compiles a regular expression in Ruby's dialect, as far as the two dialects agree.
pub(crate) fn regex(pattern: &str) -> Result<regex::Regex, regex::Error> {
    let pattern = pattern.replace("\\Z", "\\z").replace("\\h", "[0-9a-fA-F]");
    // In Ruby, `^` and `$` match at lines.
    regex::RegexBuilder::new(&pattern)
        .multi_line(true)
        .size_limit(1 << 20)
        .build()
}
