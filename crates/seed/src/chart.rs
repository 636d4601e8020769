//! Learning curves in the terminal, as lines of text.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::{Constraint, Rect};
use ratatui_core::style::{Color, Style};
use ratatui_core::widgets::Widget;

use ratatui_widgets::chart::{Axis, Chart, Dataset, GraphType, LegendPosition};

/// One curve of a chart.
pub(crate) struct Line<'a> {
    /// Legend entry.
    pub name: &'a str,
    /// `(x, y)` points, y in percent.
    pub points: &'a [(f64, f64)],
}

const COLOURS: [(Color, console::Color); 3] = [
    (Color::Cyan, console::Color::Cyan),
    (Color::Yellow, console::Color::Yellow),
    (Color::Magenta, console::Color::Magenta),
];

/// Draws `lines` over `0..=right` into `width` by `height` characters; colours are written for terminals that have them.
pub(crate) fn chart(lines: &[Line<'_>], right: f64, x_title: &str, width: u16, height: u16) -> String {
    let top = lines
        .iter()
        .flat_map(|line| line.points)
        .map(|point| point.1)
        .fold(10.0_f64, f64::max);
    let top = (top / 10.0).ceil() * 10.0;
    let datasets = lines
        .iter()
        .zip(COLOURS.iter().cycle())
        .map(|(line, (colour, _))| {
            Dataset::default()
                .name(line.name.to_owned())
                .graph_type(GraphType::Line)
                .style(Style::new().fg(*colour))
                .data(line.points)
        })
        .collect();
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    Chart::new(datasets)
        .x_axis(
            Axis::default()
                .title(x_title.to_owned())
                .bounds([0.0, right])
                .labels(vec![
                    "0".to_owned(),
                    format!("{:.0}", right / 2.0),
                    format!("{right:.0}"),
                ]),
        )
        .y_axis(Axis::default().bounds([0.0, top]).labels(vec![
            "0 %".to_owned(),
            format!("{:.0}", top / 2.0),
            format!("{top:.0}"),
        ]))
        .legend_position(Some(LegendPosition::TopLeft))
        // Shown however much of a small chart it takes: without it the curves have no names.
        .hidden_legend_constraints((Constraint::Percentage(100), Constraint::Percentage(100)))
        .render(area, &mut buffer);
    (0..height)
        .map(|row| text_of_row(&buffer, width, row))
        .collect::<Vec<_>>()
        .join("\n")
}

fn text_of_row(buffer: &Buffer, width: u16, row: u16) -> String {
    let mut text = String::new();
    for column in 0..width {
        let Some(cell) = buffer.cell((column, row)) else {
            continue;
        };
        let colour = COLOURS
            .iter()
            .find(|(colour, _)| *colour == cell.fg)
            .map(|(_, colour)| *colour);
        match colour {
            Some(colour) => text.push_str(&console::style(cell.symbol()).for_stderr().fg(colour).to_string()),
            None => text.push_str(cell.symbol()),
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rising_curve_rises() {
        console::set_colors_enabled_stderr(false);
        let points = [(0.0, 10.0), (640.0, 35.0), (1280.0, 60.0)];
        let text = chart(
            &[Line {
                name: "seed",
                points: &points,
            }],
            1280.0,
            "episodes",
            48,
            10,
        );
        insta::assert_snapshot!(text);
    }

    #[test]
    fn both_curves_of_a_small_chart_are_named() {
        console::set_colors_enabled_stderr(false);
        let curves = [
            ("GRPO", [(0.0, 20.0), (64.0, 22.0)]),
            ("SEED", [(0.0, 20.0), (64.0, 35.0)]),
        ];
        let lines = curves.each_ref().map(|(name, points)| Line { name, points });
        let text = chart(&lines, 128.0, "episodes", 40, 9);
        assert!(text.contains("GRPO") && text.contains("SEED"), "{text}");
    }
}
