//! The compatibility graph drawn: Graphviz, Mermaid, or a picture.

use planner::explain::Relation;

use crate::render::explain_text::{Explained, node_label};
use crate::render::words::value;

/// In which language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Graphviz.
    Dot,
    /// Mermaid.
    Mermaid,
    /// A picture.
    Svg,
}

struct Line {
    a: usize,
    b: usize,
    label: String,
    merges: bool,
}

/// The graph of one scenario; specs of kinds that never merge have no line between them.
pub(super) fn draw(kind: Kind, explained: &Explained<'_>) -> String {
    let graph = &explained.explanation.compatibility.graph;
    let labels: Vec<String> = graph.node_weights().map(|node| node_label(explained.model, node)).collect();
    let lines: Vec<Line> = graph
        .edge_indices()
        .filter_map(|edge| {
            let (a, b) = graph.edge_endpoints(edge)?;
            let (label, merges) = match graph.edge_weight(edge)? {
                Relation::OtherKind => return None,
                Relation::Merge => ("merge".to_owned(), true),
                Relation::Forbidden(fields) => {
                    let words: Vec<String> = fields
                        .iter()
                        .map(|f| {
                            format!("{}: {} / {}", f.field, value(f.left.as_ref()), value(f.right.as_ref()))
                        })
                        .collect();
                    (words.join("\n"), false)
                }
            };
            Some(Line { a: a.index(), b: b.index(), label, merges })
        })
        .collect();
    match kind {
        Kind::Dot => dot(&labels, &lines),
        Kind::Mermaid => mermaid(&labels, &lines),
        Kind::Svg => svg(&labels, &lines),
    }
}

fn dot(labels: &[String], lines: &[Line]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut out = String::from("graph compatibility {\n  node [shape=box];\n");
    for (i, label) in labels.iter().enumerate() {
        out.push_str(&format!("  s{i} [label=\"{}\"];\n", quoted(label)));
    }
    for Line { a, b, label, merges } in lines {
        let style = if *merges { "solid" } else { "dashed" };
        out.push_str(&format!("  s{a} -- s{b} [label=\"{}\", style={style}];\n", quoted(label)));
    }
    out.push_str("}\n");
    out
}

fn mermaid(labels: &[String], lines: &[Line]) -> String {
    let quoted = |text: &str| text.replace('"', "#quot;").replace('\n', "<br>");
    let mut out = String::from("graph LR\n");
    for (i, label) in labels.iter().enumerate() {
        out.push_str(&format!("  s{i}[\"{}\"]\n", quoted(label)));
    }
    for Line { a, b, label, merges } in lines {
        let link = if *merges { "---" } else { "-.-" };
        out.push_str(&format!("  s{a} {link}|\"{}\"| s{b}\n", quoted(label)));
    }
    out
}

/// Specs in a column, lines as arcs to their right: every label has a line of its own.
fn svg(labels: &[String], lines: &[Line]) -> String {
    const BOX_WIDTH: usize = 340;
    const BOX_HEIGHT: usize = 44;
    const GAP: usize = 36;
    const TEXT_WIDTH: usize = 460;
    let top = |i: usize| 20 + i * (BOX_HEIGHT + GAP);
    let middle = |i: usize| top(i) + BOX_HEIGHT / 2;
    let right = 20 + BOX_WIDTH;
    let reach = 40 + lines.len() * 14;
    let height = top(labels.len()).max(80 + lines.len() * 40);
    let width = right + reach + TEXT_WIDTH;
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (n, Line { a, b, label, merges }) in lines.iter().enumerate() {
        let x = right + 30 + n * 14;
        let (from, to) = (middle(*a), middle(*b));
        let (color, dash) = if *merges { ("#2e7d32", "") } else { ("#c62828", " stroke-dasharray=\"5 4\"") };
        out.push_str(&format!(
            "<path d=\"M {right} {from} H {x} V {to} H {right}\" fill=\"none\" stroke=\"{color}\"{dash}/>\n"
        ));
        for (row, text) in label.lines().enumerate() {
            out.push_str(&format!(
                "<text x=\"{}\" y=\"{}\" fill=\"{color}\">{}</text>\n",
                x + 6,
                (from + to) / 2 + 4 + row * 16,
                escaped(text)
            ));
        }
    }
    for (i, label) in labels.iter().enumerate() {
        out.push_str(&format!(
            "<rect x=\"20\" y=\"{}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"4\" fill=\"#eef3f8\" \
             stroke=\"#37474f\"/>\n",
            top(i)
        ));
        for (row, text) in label.lines().enumerate() {
            out.push_str(&format!(
                "<text x=\"30\" y=\"{}\">{}</text>\n",
                top(i) + 18 + row * 17,
                escaped(text)
            ));
        }
    }
    out.push_str("</svg>\n");
    out
}
