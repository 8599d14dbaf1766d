//! Holds the command stream of an agent, at one server after the other, and executes commands.

use std::time::Duration;

use bunraku_agent::rehearsal::Rehearsal;
use bunraku_wire::api::{Command, CommandOutcome, CommandResult, Envelope, StreamMessage};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Agent;
use crate::Bug;

/// The number of requests before the agent gives up an answer, and its connection.
const TRIES: usize = 4;

impl Agent {
    /// Connects again and again, for ever.
    pub(super) async fn hold_stream(&self, life: &Rehearsal) {
        loop {
            if let Some(messages) = self.servers.connect(&self.node) {
                self.listen(life, messages).await;
            }
            let pause = self.servers.chance.up_to(Duration::from_secs(2));
            tokio::time::sleep(pause).await;
        }
    }

    /// Obeys until the connection ends.
    async fn listen(&self, life: &Rehearsal, mut messages: UnboundedReceiver<StreamMessage>) {
        let broken = self.connection_breaks();
        tokio::pin!(broken);
        loop {
            let message = tokio::select! {
                biased;
                () = &mut broken => return,
                message = messages.recv() => message,
            };
            let Some(message) = message else { return };
            tokio::time::sleep(self.servers.transit()).await;
            match message {
                StreamMessage::Command(envelope) => {
                    if !self.execute(life, &envelope).await {
                        return;
                    }
                }
                StreamMessage::Hold { hold } => life.hold(hold),
                StreamMessage::Superseded | StreamMessage::Revoked | StreamMessage::Goodbye => {
                    return;
                }
                // It asks for its target now and then.
                StreamMessage::Target { .. }
                | StreamMessage::Welcome { .. }
                | StreamMessage::Ping { .. }
                | StreamMessage::Servers { .. }
                | StreamMessage::Authority => {}
            }
        }
    }

    async fn connection_breaks(&self) {
        let chance = &self.servers.chance;
        if !self.servers.faults() || !chance.happens(40) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(chance.up_to(Duration::from_secs(20))).await;
    }

    /// Executes a command and answers it. Returns false if no server has the answer: then the
    /// command comes again with the next connection.
    async fn execute(&self, life: &Rehearsal, envelope: &Envelope) -> bool {
        self.strike.step().await;
        let outcome = match &envelope.command {
            Command::Run(request) => {
                let mut request = (**request).clone();
                if self.bug == Some(Bug::RequestsForgotten) {
                    let chance = &self.servers.chance;
                    request.id.0 = uuid::Uuid::from_u64_pair(chance.number(), chance.number());
                }
                let id = request.id;
                if life.submit(request.clone()) {
                    self.checker.record_request(&self.node, id);
                    self.cues.record_request(&self.node, &request);
                    CommandOutcome::Done
                } else {
                    CommandOutcome::Failed
                }
            }
            Command::CancelRun { run, reason } => {
                life.cancel(*run, reason);
                CommandOutcome::Done
            }
            Command::Ping | Command::RefreshFacts | Command::Administer { .. } => {
                CommandOutcome::Done
            }
        };
        self.strike.step().await;
        let result = CommandResult {
            outcome,
            message: String::new(),
            finished: self.servers.clock.now(),
        };
        for _ in 0..TRIES {
            if self.answer(envelope, &result).await {
                return true;
            }
        }
        false
    }

    async fn answer(&self, envelope: &Envelope, result: &CommandResult) -> bool {
        let (node, id, result) = (self.node.clone(), envelope.id, result.clone());
        let asked = self.servers.ask(move |services, answer| {
            let (node, result) = (node.clone(), result.clone());
            async move {
                if (services.commands.answer(&node, id, &result).await).is_ok() {
                    answer.give(());
                }
            }
        });
        asked.await.is_some()
    }
}
