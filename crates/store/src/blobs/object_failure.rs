//! Why an object store failed, in a sentence for people.

use std::error::Error;

/// The reason of a failed request, without the nesting and the XML of its source.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ObjectFailure(String);

impl ObjectFailure {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl From<object_store::Error> for ObjectFailure {
    fn from(error: object_store::Error) -> Self {
        let mut innermost: &dyn Error = &error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let text = innermost.to_string();
        Self(describe(&text))
    }
}

fn describe(text: &str) -> String {
    let status = after(text, "status code: ").map(|rest| {
        let digits = rest.chars().take_while(char::is_ascii_digit);
        digits.collect::<String>()
    });
    let code = between(text, "<Code>", "</Code>");
    let message = between(text, "<Message>", "</Message>");
    let answered = match (status.filter(|status| !status.is_empty()), code) {
        (Some(status), Some(code)) => format!("S3 answered {status} {code}"),
        (Some(status), None) => format!("S3 answered {status}"),
        (None, Some(code)) => format!("S3 answered {code}"),
        (None, None) => return text.to_owned(),
    };
    match message {
        Some(message) => format!("{answered}: {message}"),
        None => answered,
    }
}

fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    Some(text.split_once(marker)?.1)
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    Some(after(text, from)?.split_once(to)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_s3_is_one_sentence() {
        let check = |text: &str, expected: &str| assert_eq!(describe(text), expected);
        check(
            "Server returned non-2xx status code: 503 Service Unavailable: \
             <?xml?><Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>",
            "S3 answered 503 SlowDown: Reduce your request rate",
        );
        check(
            "Server returned non-2xx status code: 507: ",
            "S3 answered 507",
        );
        check("connection refused", "connection refused");
    }
}
