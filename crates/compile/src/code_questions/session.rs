//! The questions and answers of one compile.
//!
//! Every answer is from the same state of the index: when the index has moved
//! on between two questions, earlier answers are computed again. If one of
//! them is different now, the session is outdated and the compile must be
//! repeated.

use std::sync::Arc;

use bunraku_control::ServiceError;
use bunraku_model::NodeName;
use serde_json::Value;
use tokio::sync::Mutex;

use super::{AnswerCode, AskedQuestion, CodeAnswer, CodeLookup, CodeQuestion};

/// Maximum number of different questions in one compile.
const MOST_QUESTIONS: usize = 1_000;
/// Maximum size of all questions of one compile: they are stored together.
const MOST_BYTES: usize = 256 << 10;

/// The reason why code gets no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The question is wrong. The code may know what to do.
    #[error("{0}")]
    Refused(String),
    #[error("the data about other nodes changed during the compile")]
    Outdated,
    #[error("cannot answer a query in code now")]
    Unanswered(#[source] ServiceError),
}

#[derive(Default)]
struct Asked {
    version: Option<u64>,
    answers: Vec<(CodeQuestion, CodeAnswer)>,
    bytes: usize,
    is_outdated: bool,
    unanswered: Option<ServiceError>,
}

/// A compile's access to data about other nodes. Clones share the answers.
#[derive(Clone)]
pub struct CodeSession {
    answers: Arc<dyn AnswerCode>,
    reader: NodeName,
    asked: Arc<Mutex<Asked>>,
}

impl std::fmt::Debug for CodeSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeSession")
            .field("reader", &self.reader)
            .finish_non_exhaustive()
    }
}

impl CodeSession {
    pub fn new(answers: Arc<dyn AnswerCode>, reader: &NodeName) -> Self {
        Self {
            answers,
            reader: reader.clone(),
            asked: Arc::default(),
        }
    }

    /// Answers a question. The same question always gets the same answer.
    pub async fn ask(&self, question: CodeQuestion) -> Result<Value, AskError> {
        let mut asked = self.asked.lock().await;
        if asked.is_outdated {
            return Err(AskError::Outdated);
        }
        let known = asked.answers.iter().find(|(known, _)| *known == question);
        if let Some((_, known)) = known {
            return known.answer.clone().map_err(AskError::Refused);
        }
        asked.bytes += serde_json::to_vec(&question).map_or(MOST_BYTES, |text| text.len());
        if asked.answers.len() >= MOST_QUESTIONS || asked.bytes > MOST_BYTES {
            return Err(AskError::Refused(format!(
                "one compile may ask {MOST_QUESTIONS} different questions with {} KiB together",
                MOST_BYTES >> 10
            )));
        }
        let lookup = CodeLookup {
            reader: self.reader.clone(),
            version: asked.version,
            earlier: questions(&asked),
            question: question.clone(),
        };
        match self.answers.answer(lookup).await {
            Ok(looked) if looked.is_outdated => {
                asked.is_outdated = true;
                Err(AskError::Outdated)
            }
            Ok(looked) => {
                asked.version = Some(looked.version);
                let answer = looked.answer.answer.clone();
                asked.answers.push((question, looked.answer));
                answer.map_err(AskError::Refused)
            }
            Err(error) => {
                let shown = ServiceError::Busy {
                    message: error.to_string(),
                };
                asked.unanswered = Some(error);
                Err(AskError::Unanswered(shown))
            }
        }
    }

    /// Returns whether the compile must be repeated.
    pub async fn is_outdated(&self) -> bool {
        self.asked.lock().await.is_outdated
    }

    /// Returns the reason for a missing answer that is not the code's fault.
    pub async fn take_error(&self) -> Option<ServiceError> {
        self.asked.lock().await.unanswered.take()
    }

    /// Returns the questions so far, in a stable order.
    pub async fn questions(&self) -> Vec<AskedQuestion> {
        let mut asked = questions(&*self.asked.lock().await);
        asked.sort_by_cached_key(|one| serde_json::to_string(&one.question).unwrap_or_default());
        asked
    }
}

fn questions(asked: &Asked) -> Vec<AskedQuestion> {
    let all = asked
        .answers
        .iter()
        .map(|(question, answer)| AskedQuestion {
            question: question.clone(),
            digest: answer.digest.clone(),
        });
    all.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Lock;

    use async_trait::async_trait;
    use bunraku_query::{Index, Limits, Query};
    use serde_json::json;
    use tokio::sync::watch;

    use super::super::{AnswerDigests, LookupResult};
    use super::*;

    /// An index that a test changes between two questions.
    struct Changing(Lock<Index>);

    impl Changing {
        fn rows(&self, question: &CodeQuestion) -> Value {
            let CodeQuestion::Query(query) = question else {
                panic!("only queries are asked here");
            };
            let query = Query::parse_in_code(query).expect("a query");
            let index = self.0.lock().expect("a lock");
            let answer = index.answer(&query, &Limits::default());
            json!(answer.expect("an answer").objects())
        }

        fn digest(&self, question: &CodeQuestion) -> String {
            let answer = AnswerDigests::same(&Ok(self.rows(question)), false);
            answer.for_reader(&node("reader"))
        }

        fn add(&self, name: &str) {
            let fields = json!({"status": "new"}).as_object().cloned();
            let mut index = self.0.lock().expect("a lock");
            index.set_fields(&node(name), fields.expect("an object"));
        }
    }

    #[async_trait]
    impl AnswerCode for Changing {
        async fn answer(&self, lookup: CodeLookup) -> Result<LookupResult, ServiceError> {
            let (earlier, question) = (&lookup.earlier, &lookup.question);
            let now = self.0.lock().expect("a lock").version();
            let is_same = |asked: &AskedQuestion| self.digest(&asked.question) == asked.digest;
            Ok(LookupResult {
                version: now,
                is_outdated: lookup.version != Some(now) && !earlier.iter().all(is_same),
                answer: CodeAnswer {
                    answer: Ok(self.rows(question)),
                    digest: self.digest(question),
                },
            })
        }

        async fn digests(
            &self,
            _: CodeQuestion,
            _: Option<u64>,
        ) -> Result<(u64, Option<AnswerDigests>), ServiceError> {
            unreachable!("a session compares nothing")
        }

        fn changes(&self) -> watch::Receiver<u64> {
            watch::channel(0).1
        }
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).expect("a name")
    }

    fn query(text: &str) -> CodeQuestion {
        CodeQuestion::Query(json!(text))
    }

    #[tokio::test]
    async fn answers_of_two_states_are_never_mixed() {
        let index = Arc::new(Changing(Lock::default()));
        index.add("web-1");
        let session = CodeSession::new(index.clone(), &node("reader"));
        let webs = query("nodes[certname] { certname ~ '^web' }");
        let databases = query("nodes[certname] { certname ~ '^db' }");
        let first = session.ask(webs.clone()).await.expect("an answer");
        // A change that no answer shows makes no difference.
        index.add("db-1");
        let found = session.ask(databases).await.expect("an answer");
        assert_eq!(found, json!([{"certname": "db-1"}]));
        // The same question has the same answer, whatever happens.
        index.add("web-2");
        assert_eq!(session.ask(webs).await.expect("an answer"), first);
        assert!(!session.is_outdated().await);
        // A new question would be answered from a state in which the first answer is wrong.
        let refused = session.ask(query("nodes[certname]")).await;
        assert!(matches!(refused, Err(AskError::Outdated)), "{refused:?}");
        assert!(session.is_outdated().await);
        assert_eq!(session.questions().await.len(), 2);
    }

    #[tokio::test]
    async fn a_compile_cannot_ask_without_end() {
        let session = CodeSession::new(Arc::new(Changing(Lock::default())), &node("reader"));
        for number in 0..MOST_QUESTIONS {
            let one = query(&format!("nodes {{ certname = '{number}' }}"));
            session.ask(one).await.expect("an answer");
        }
        let refused = session.ask(query("nodes")).await;
        assert!(matches!(refused, Err(AskError::Refused(_))), "{refused:?}");
        let long = query(&format!(
            "nodes {{ certname = '{}' }}",
            "x".repeat(MOST_BYTES)
        ));
        let session = CodeSession::new(Arc::new(Changing(Lock::default())), &node("reader"));
        assert!(matches!(session.ask(long).await, Err(AskError::Refused(_))));
    }
}
