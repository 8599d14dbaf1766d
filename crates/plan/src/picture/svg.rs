//! A plan as SVG: groups from left to right, with the dependencies in between.

use super::escape;
use super::layout::{Bundle, Edge, Layout, MARGIN, TOP, layout};
use bunraku_wire::api::ordered_runs::RunPlan;

const STYLE: &str = "text{font-family:system-ui,'DejaVu Sans',sans-serif;fill:#1d2b36}\
.head{font-size:17px;font-weight:600}.sub{font-size:12px;fill:#5b6b78}\
.group{font-size:12px;font-weight:600;fill:#5b6b78}\
.title{font-size:13px;font-weight:600}.line{font-size:11.5px;fill:#3a4a57}\
.box{fill:#fff;stroke:#8aa0b2;stroke-width:1.2}.many{fill:#f3f7fa}\
.edge{fill:none;stroke:#5b87a8;stroke-width:1.3;opacity:.75}";

/// Draws the plan.
pub fn plan_svg(plan: &RunPlan) -> String {
    let picture = layout(plan);
    let Layout { width, height, .. } = picture;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
         markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#5b87a8\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fbfcfd\"/>\n"
    );
    heading(&mut out, plan);
    for (number, x) in picture.columns.iter().enumerate() {
        let nodes = plan.groups.get(number).map_or(0, Vec::len);
        let nodes = match nodes {
            1 => "1 node".to_owned(),
            count => format!("{count} nodes"),
        };
        out.push_str(&format!(
            "<text class=\"group\" x=\"{x:.0}\" y=\"{:.0}\">group {} · {nodes}</text>\n",
            TOP - 12.0,
            number + 1
        ));
    }
    for edge in &picture.edges {
        draw_edge(&mut out, &picture, edge);
    }
    for one in &picture.boxes {
        draw_box(&mut out, one);
    }
    out.push_str("</svg>\n");
    out
}

fn heading(out: &mut String, plan: &RunPlan) {
    let nodes = plan.nodes().len();
    let count = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    };
    out.push_str(&format!(
        "<text class=\"head\" x=\"{MARGIN}\" y=\"30\">{}: {} on {}</text>\n\
         <text class=\"sub\" x=\"{MARGIN}\" y=\"48\">plan {} · {} in run order, from left to right</text>\n",
        escape(&plan.environment),
        count(plan.applications.len(), "application"),
        count(nodes, "node"),
        plan.id.0.short(),
        count(plan.groups.len(), "group"),
    ));
}

fn draw_box(out: &mut String, one: &Bundle) {
    let class = if one.count > 1 { "box many" } else { "box" };
    let Bundle {
        x,
        y,
        width,
        height,
        ..
    } = one;
    out.push_str(&format!("<g><title>{}</title>", escape(&one.full)));
    if one.count > 1 {
        // A second outline behind the box shows that it is a stack.
        out.push_str(&format!(
            "<rect class=\"box\" x=\"{:.0}\" y=\"{:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\"/>",
            x + 4.0,
            y + 4.0
        ));
    }
    out.push_str(&format!(
        "<rect class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" rx=\"6\"/>\
         <text class=\"title\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
        x + 10.0,
        y + 18.0,
        escape(&one.title)
    ));
    for (number, line) in one.lines.iter().enumerate() {
        out.push_str(&format!(
            "<text class=\"line\" x=\"{:.0}\" y=\"{:.0}\">{}</text>",
            x + 10.0,
            y + 36.0 + number as f64 * 17.0,
            escape(line)
        ));
    }
    out.push_str("</g>\n");
}

fn draw_edge(out: &mut String, picture: &Layout, edge: &Edge) {
    let (from, to) = (&picture.boxes[edge.from], &picture.boxes[edge.to]);
    let (x1, y1) = (from.x + from.width, from.y + from.height / 2.0);
    let (x2, y2) = (to.x - 2.0, to.y + to.height / 2.0);
    let bend = ((x2 - x1) / 2.0).max(40.0);
    out.push_str(&format!(
        "<path class=\"edge\" d=\"M{x1:.0} {y1:.0}C{:.0} {y1:.0} {:.0} {y2:.0} {x2:.0} {y2:.0}\" \
         marker-end=\"url(#tip)\"><title>{}</title></path>\n",
        x1 + bend,
        x2 - bend,
        escape(&edge.full)
    ));
}
