//! A run's timeline as SVG, with the longest chain marked.

use super::timeline::{Bar, Timeline};
use crate::picture::{escape, shorten};

/// Maximum number of bars. Beyond it, only the critical chain and the longest others are
/// shown.
const MOST_BARS: usize = 60;
const LEFT: f64 = 230.0;
const WIDTH: f64 = 720.0;
const ROW: f64 = 22.0;
const TOP: f64 = 78.0;
/// The room for the note behind the longest bar, such as `120.0 s, not started`.
const RIGHT: f64 = 140.0;

const STYLE: &str = "text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#1d2b36;font-size:12px}\
.head{font-size:17px;font-weight:600}.sub{fill:#5b6b78}.axis{stroke:#d8e0e6}\
.queue{fill:#dfe7ed}.bar{fill:#8fb3cc}.bad{fill:#d98d84}.critical{fill:#2f6690}.badcritical{fill:#b3392c}\
.name{font-weight:600}";

/// Draws the timeline.
pub fn timeline_svg(title: &str, timeline: &Timeline) -> String {
    let total = timeline
        .ended
        .duration_since(timeline.begun)
        .as_secs_f64()
        .max(0.001);
    let (bars, hidden) = visible_bars(&timeline.bars);
    let height = TOP + bars.len() as f64 * ROW + 40.0;
    let width = LEFT + WIDTH + RIGHT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n<rect \
         width=\"100%\" height=\"100%\" fill=\"#fbfcfd\"/>\n<text class=\"head\" x=\"20\" \
         y=\"30\">{}</text>\n<text class=\"sub\" x=\"20\" y=\"50\">total {total:.1} s; dark: the \
         longest chain of nodes</text>\n",
        escape(title)
    );
    axis(&mut out, total, height);
    for (row, bar) in bars.iter().enumerate() {
        draw(&mut out, timeline, bar, total, TOP + row as f64 * ROW);
    }
    if hidden > 0 {
        out.push_str(&format!(
            "<text class=\"sub\" x=\"20\" y=\"{:.0}\">and {hidden} shorter ones</text>\n",
            height - 14.0
        ));
    }
    out.push_str("</svg>\n");
    out
}

/// Returns the bars that fit, and the number of those that do not.
fn visible_bars(bars: &[Bar]) -> (Vec<&Bar>, usize) {
    let mut by_length: Vec<&Bar> = bars.iter().collect();
    by_length.sort_by(|one, other| {
        let critical = other.critical.cmp(&one.critical);
        critical.then(other.seconds().total_cmp(&one.seconds()))
    });
    by_length.truncate(MOST_BARS);
    by_length.sort_by_key(|bar| (bar.asked, bar.step));
    let hidden = bars.len() - by_length.len();
    (by_length, hidden)
}

fn axis(out: &mut String, total: f64, height: f64) {
    for part in 0..=4 {
        let x = LEFT + WIDTH * f64::from(part) / 4.0;
        out.push_str(&format!(
            "<line class=\"axis\" x1=\"{x:.0}\" y1=\"{:.0}\" x2=\"{x:.0}\" y2=\"{:.0}\"/>\
             <text class=\"sub\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{:.1} s</text>\n",
            TOP - 8.0,
            height - 30.0,
            TOP - 12.0,
            total * f64::from(part) / 4.0
        ));
    }
}

fn draw(out: &mut String, timeline: &Timeline, bar: &Bar, total: f64, y: f64) {
    let place = |at: jiff::Timestamp| {
        LEFT + WIDTH * (at.duration_since(timeline.begun).as_secs_f64() / total).clamp(0.0, 1.0)
    };
    let (asked, ended) = (place(bar.asked), place(bar.ended));
    let started = bar.started.map_or(asked, place);
    let good = bar.state == "succeeded";
    let class = match (good, bar.critical) {
        (true, false) => "bar",
        (true, true) => "critical",
        (false, false) => "bad",
        (false, true) => "badcritical",
    };
    let note = if good {
        format!("{:.1} s", bar.seconds())
    } else {
        format!("{:.1} s, {}", bar.seconds(), bar.state)
    };
    let name_class = if bar.critical { "name" } else { "sub" };
    out.push_str(&format!(
        "<text class=\"{name_class}\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
         <rect class=\"queue\" x=\"{asked:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"13\"/>\
         <rect class=\"{class}\" x=\"{started:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"13\" rx=\"2\"/>\
         <text class=\"sub\" x=\"{:.0}\" y=\"{:.0}\">{}</text>\n",
        LEFT - 10.0,
        y + 11.0,
        escape(&shorten(&bar.name, 30)),
        y,
        (started - asked).max(0.0),
        y,
        (ended - started).max(1.0),
        ended + 6.0,
        y + 11.0,
        escape(&note)
    ));
}
