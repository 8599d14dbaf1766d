//! The run times of the nodes, as bars of text.

use bunraku_plan::run::Timeline;

const WIDTH: usize = 50;

/// Draws bars in order of start. The longest chain is marked with `*`.
pub(crate) fn timeline_text(timeline: &Timeline) -> String {
    let total = timeline
        .ended
        .duration_since(timeline.begun)
        .as_secs_f64()
        .max(0.001);
    let widest = timeline
        .bars
        .iter()
        .map(|bar| bar.name.chars().count())
        .max()
        .unwrap_or(0);
    let mut out = format!("total {total:.1} s; `*` marks the longest chain of nodes\n");
    for bar in &timeline.bars {
        let at = |time: jiff::Timestamp| {
            let share = time.duration_since(timeline.begun).as_secs_f64() / total;
            ((share * WIDTH as f64).round() as usize).min(WIDTH)
        };
        let (from, to) = (at(bar.asked), at(bar.ended).max(at(bar.asked) + 1));
        let fill = if bar.critical { "█" } else { "▒" };
        let state = if bar.state == "succeeded" {
            String::new()
        } else {
            format!("  {}", bar.state)
        };
        out.push_str(&format!(
            "{} {:widest$}  {}{}{}  {:.1} s{state}\n",
            if bar.critical { "*" } else { " " },
            bar.name,
            " ".repeat(from),
            fill.repeat(to - from),
            " ".repeat((WIDTH + 1).saturating_sub(to)),
            bar.seconds(),
        ));
    }
    out
}
