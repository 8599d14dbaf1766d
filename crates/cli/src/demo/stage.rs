//! The output of the demo: acts, what happens in them, and one panel with the fleet.
//!
//! On a terminal, the panel is redrawn in place below everything else, and each act waits for
//! Enter. Elsewhere, only plain lines are printed, and the panel once after each act in which it
//! changed. No line is wider than [`WIDEST`].

use std::io::{BufRead, IsTerminal, Write};
use std::time::Instant;

use anstyle::{AnsiColor, Style};
use serde_json::json;

use super::panel::{Mark, Panel, cut};
use crate::failure::Failure;
use crate::output;
use crate::terminal::visible;

/// The maximum width of a line.
const WIDEST: usize = 100;

/// How to present the demo.
#[derive(Clone, Copy)]
pub(crate) struct StageOptions {
    /// Do not wait for Enter.
    pub(crate) fast: bool,
    /// Print every line as JSON.
    pub(crate) json: bool,
    /// The number of acts.
    pub(crate) acts: u32,
}

enum Output {
    /// The panel is redrawn. It has this many lines on the screen.
    Terminal {
        drawn: usize,
    },
    /// Lines only. The panel was last printed like this.
    Plain {
        panel: Vec<String>,
    },
    Json,
}

pub(crate) struct Stage {
    started: Instant,
    options: StageOptions,
    act: u32,
    output: Output,
    panel: Panel,
    /// Long texts and their short forms.
    short_forms: Vec<(String, String)>,
}

impl Stage {
    pub(crate) fn new(options: StageOptions) -> Self {
        let output = if options.json {
            Output::Json
        } else if std::io::stdout().is_terminal() {
            Output::Terminal { drawn: 0 }
        } else {
            Output::Plain { panel: Vec::new() }
        };
        Self {
            started: Instant::now(),
            options,
            act: 0,
            output,
            panel: Panel::default(),
            short_forms: Vec::new(),
        }
    }

    /// Shows `short` wherever a line contains `long`.
    pub(crate) fn shorten(&mut self, long: &str, short: &str) {
        self.short_forms.push((long.to_owned(), short.to_owned()));
    }

    /// Starts the next act. On a terminal, this waits for Enter first.
    pub(crate) async fn act(&mut self, sentence: &str) -> Result<(), Failure> {
        self.end_act().await?;
        self.act += 1;
        let number = format!("{}/{}", self.act, self.options.acts);
        if let Output::Json = self.output {
            return output::json_line(&json!({"act": self.act, "title": sentence}));
        }
        let bold = Style::new().bold();
        self.print("")?;
        self.print(&format!("{bold}{number}  {sentence}{bold:#}"))
    }

    /// Ends an act: the state of the fleet stays visible until the reader continues.
    async fn end_act(&mut self) -> Result<(), Failure> {
        if self.act == 0 {
            return Ok(());
        }
        let lines = self.panel.lines(self.columns());
        let is_paced = self.is_paced();
        match &mut self.output {
            Output::Plain { panel } if *panel != lines => {
                panel.clone_from(&lines);
                for line in &lines {
                    anstream::println!("{line}");
                }
                Ok(())
            }
            Output::Terminal { .. } if is_paced => self.wait_for_enter().await,
            _ => Ok(()),
        }
    }

    fn is_paced(&self) -> bool {
        !self.options.fast && std::io::stdin().is_terminal()
    }

    /// Waits for Enter. A thread reads, because reading a terminal cannot be cancelled.
    async fn wait_for_enter(&mut self) -> Result<(), Failure> {
        let dim = Style::new().dimmed();
        let next = self.act + 1;
        let what = if next > self.options.acts {
            "for the summary".to_owned()
        } else {
            format!("for act {next} of {}", self.options.acts)
        };
        anstream::print!("  {dim}Press Enter {what}, or Ctrl-C to stop{dim:#}");
        std::io::stdout().flush()?;
        let (done, entered) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = std::io::stdin().lock().read_line(&mut line);
            let _ = done.send(());
        });
        // The terminal may be gone. Then the demo goes on without it.
        let _ = entered.await;
        // Enter has moved the cursor below the prompt.
        if let Output::Terminal { drawn } = &mut self.output {
            *drawn += 1;
        }
        self.erase();
        self.draw();
        Ok(())
    }

    /// Prints something that happened, with the time since the start.
    pub(crate) fn note(&mut self, what: &str) -> Result<(), Failure> {
        let seconds = self.started.elapsed().as_secs_f64();
        let what = self.short(what);
        if let Output::Json = self.output {
            let line = json!({"act": self.act, "seconds": seconds, "event": what});
            return output::json_line(&line);
        }
        let dim = Style::new().dimmed();
        let text = cut(&what, self.columns().saturating_sub(12));
        self.print(&format!("  {dim}{seconds:>6.2} s{dim:#}  {text}"))
    }

    /// Prints a command as a user types it.
    pub(crate) fn command(&mut self, command: &str) -> Result<(), Failure> {
        let command = self.short(command);
        if let Output::Json = self.output {
            return output::json_line(&json!({"act": self.act, "command": command}));
        }
        let style = AnsiColor::Cyan.on_default();
        let text = cut(&command, self.columns().saturating_sub(6));
        self.print(&format!("    {style}$ {text}{style:#}"))
    }

    /// Prints the output of a command.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.short(text.trim_end());
        if let Output::Json = self.output {
            return output::json_line(&json!({"act": self.act, "output": text}));
        }
        for line in text.lines() {
            let style = line_style(line);
            let line = cut(line, self.columns().saturating_sub(4));
            self.print(&format!("    {style}{line}{style:#}"))?;
        }
        Ok(())
    }

    /// Adds a server or a node to the panel.
    pub(crate) fn add(&mut self, name: &str, role: &str) {
        let name = self.short(name);
        self.panel.add(&name, role);
        self.redraw();
    }

    /// Shows the state of a server or a node in the panel.
    pub(crate) fn set(&mut self, name: &str, mark: Mark, state: &str, note: &str) {
        let (name, note) = (self.short(name), self.short(note));
        self.panel.set(&name, mark, state, &note);
        self.redraw();
    }

    /// Prints the last lines of the demo.
    pub(crate) async fn finish(&mut self, lines: &[(&str, String)]) -> Result<(), Failure> {
        self.end_act().await?;
        if let Output::Json = self.output {
            let lines = lines
                .iter()
                .map(|(name, text)| ((*name).to_owned(), json!(text)));
            let lines: serde_json::Map<_, _> = lines.collect();
            return output::json_line(&json!({"summary": lines}));
        }
        // The panel stays above, as the last act left it.
        self.close();
        let bold = Style::new().bold();
        self.print("")?;
        for (name, text) in lines {
            let text = cut(&self.short(text), self.columns().saturating_sub(12));
            self.print(&format!("  {bold}{name:<9}{bold:#} {text}"))?;
        }
        Ok(())
    }

    /// Leaves the panel as it is. The next output appears below it.
    pub(crate) fn close(&mut self) {
        self.panel = Panel::default();
        if let Output::Terminal { drawn } = &mut self.output {
            *drawn = 0;
        }
    }

    fn print(&mut self, line: &str) -> Result<(), Failure> {
        self.erase();
        anstream::println!("{line}");
        self.draw();
        std::io::stdout().flush()?;
        Ok(())
    }

    fn redraw(&mut self) {
        self.erase();
        self.draw();
        // If the terminal is gone, nothing can be done.
        let _ = std::io::stdout().flush();
    }

    fn erase(&mut self) {
        if let Output::Terminal { drawn } = &mut self.output
            && *drawn > 0
        {
            print_raw(&format!("\x1b[{drawn}A\r\x1b[J"));
            *drawn = 0;
        }
    }

    fn draw(&mut self) {
        let columns = self.columns();
        if let Output::Terminal { drawn } = &mut self.output {
            let lines = self.panel.lines(columns);
            if lines.is_empty() {
                return;
            }
            let dim = Style::new().dimmed();
            let rule = "─".repeat(columns.saturating_sub(12));
            anstream::println!("  {dim}─ fleet {rule}{dim:#}");
            for line in &lines {
                anstream::println!("{line}");
            }
            *drawn = lines.len() + 1;
        }
    }

    fn columns(&self) -> usize {
        match self.output {
            Output::Terminal { .. } => {
                crate::terminal::columns(&std::io::stdout()).map_or(WIDEST, |it| it.min(WIDEST))
            }
            _ => WIDEST,
        }
    }

    fn short(&self, text: &str) -> String {
        let forms = self.short_forms.iter();
        let text = forms.fold(text.to_owned(), |text, (long, short)| {
            text.replace(long, short)
        });
        visible(&text).into_owned()
    }
}

fn print_raw(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Returns the colour of a line of output: of a result, or of a diff.
fn line_style(line: &str) -> Style {
    let mut characters = line.trim_start().chars();
    match (characters.next(), characters.next()) {
        (Some('✓'), _) => AnsiColor::Green.on_default(),
        (Some('✗'), _) => AnsiColor::Red.on_default(),
        (Some('+'), next) if next != Some('+') => AnsiColor::Green.on_default(),
        (Some('-'), Some(next)) if next != ' ' && next != '-' => AnsiColor::Red.on_default(),
        _ => Style::new(),
    }
}
