//! Text as one word of a POSIX shell.

/// Returns the text in single quotes, whatever it contains.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::quoted;

    #[test]
    fn a_shell_reads_back_every_text() {
        for text in [
            "", "a b", "it's", "$(id)", "`id`", "a\nb", r"\'", "--", "é*?",
        ] {
            let script = format!("printf %s {}", quoted(text));
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), text);
        }
    }
}
