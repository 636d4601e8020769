//! The picture of differences to the baseline: arms as rows, measures as columns, a dot and its interval for each.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use seed_train::picture::COLOURS;

use super::results::Comparison;

/// Arms as rows, measures as columns side by side; a dot with its interval for each.
pub(super) fn forest(columns: &[(String, Vec<&Comparison>)]) -> Result<String, String> {
    const ROW: u32 = 30;
    const COLUMN: u32 = 300;
    const NAMES: u32 = 190;
    const HEAD: u32 = 34;
    const FOOT: u32 = 58;
    let mut arms: Vec<&str> = Vec::new();
    for row in columns.iter().flat_map(|(_, rows)| rows) {
        if !arms.contains(&row.arm.as_str()) {
            arms.push(&row.arm);
        }
    }
    let reach = reach(columns.iter().flat_map(|(_, rows)| rows).copied());
    let rows = arms.len() as u32;
    let size = (
        NAMES + COLUMN * columns.len() as u32 + 10,
        HEAD + ROW * rows + FOOT,
    );
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
    let paint = || -> Result<(), DrawingAreaErrorKind<<SVGBackend<'_> as DrawingBackend>::ErrorType>> {
        root.fill(&WHITE)?;
        let font = ("sans-serif", 15).into_font();
        for (number, (name, comparisons)) in columns.iter().enumerate() {
            let left = NAMES + COLUMN * number as u32;
            let area = root.clone().shrink((left, 0), (COLUMN, size.1));
            let mut frame = ChartBuilder::on(&area)
                .caption(name, ("sans-serif", 15))
                .margin_right(12)
                .x_label_area_size(FOOT - 8)
                .build_cartesian_2d(-reach..reach, f64::from(rows)..0.0)?;
            frame
                .configure_mesh()
                .disable_y_mesh()
                .y_labels(0)
                .light_line_style(TRANSPARENT)
                .bold_line_style(BLACK.mix(0.12))
                .x_labels(5)
                .label_style(("sans-serif", 13))
                .x_desc("points")
                .x_label_formatter(&|value| format!("{value:+.0}"))
                .draw()?;
            if number == 0 {
                // Where the rows came to lie: the caption takes its own height.
                let style = TextStyle::from(font.clone()).pos(Pos::new(HPos::Left, VPos::Center));
                for (index, arm) in arms.iter().enumerate() {
                    let (_, y) = frame.backend_coord(&(0.0, index as f64 + 0.5));
                    root.draw(&Text::new((*arm).to_owned(), (8, y), style.clone()))?;
                }
            }
            let zero = vec![(0.0, 0.0), (0.0, f64::from(rows))];
            frame.draw_series(std::iter::once(PathElement::new(zero, BLACK.mix(0.6))))?;
            for row in comparisons {
                let Some(index) = arms.iter().position(|arm| *arm == row.arm) else {
                    continue;
                };
                let y = index as f64 + 0.5;
                let [colour, ..] = COLOURS;
                let points = row.difference * 100.0;
                if points.abs() > reach {
                    let mark = OffScale { points, y, reach };
                    frame.draw_series(std::iter::once(Polygon::new(mark.arrow(), colour.filled())))?;
                    frame.draw_series(std::iter::once(mark.label(&font)))?;
                    continue;
                }
                if let Some(interval) = row.interval {
                    let [low, high] =
                        [interval.low, interval.high].map(|end| (end * 100.0).clamp(-reach, reach));
                    let bar = vec![(low, y), (high, y)];
                    frame.draw_series(std::iter::once(PathElement::new(bar, colour.stroke_width(2))))?;
                }
                let at = (points, y);
                // Filled where the corrected p-value is below 5 %, hollow elsewhere.
                if row.corrected < 0.05 {
                    frame.draw_series(std::iter::once(Circle::new(at, 5, colour.filled())))?;
                } else {
                    frame.draw_series(std::iter::once(Circle::new(at, 5, WHITE.filled())))?;
                    frame.draw_series(std::iter::once(Circle::new(at, 5, colour.stroke_width(2))))?;
                }
            }
        }
        root.present()
    };
    paint().map_err(|error| error.to_string())?;
    drop(root);
    Ok(text)
}

/// How far the axis goes to either side, in points: as far as the intervals do, but for those more than twice as far out as three
/// quarters of them are. A single arm that collapsed would else squeeze all others into a line.
fn reach<'a>(rows: impl Iterator<Item = &'a Comparison>) -> f64 {
    let mut extents: Vec<f64> = rows
        .map(|row| {
            let ends = row
                .interval
                .map_or([row.difference; 2], |interval| [interval.low, interval.high]);
            ends.map(f64::abs).into_iter().fold(0.0, f64::max) * 100.0
        })
        .collect();
    extents.sort_by(f64::total_cmp);
    let limit = extents
        .get(extents.len() * 3 / 4)
        .map_or(0.0, |quartile| quartile * 2.0);
    let inside = extents.into_iter().filter(|extent| *extent <= limit);
    inside.fold(1.0, f64::max) * 1.1
}

/// What stands at the edge for a difference beyond it: an arrow outward, and the number.
struct OffScale {
    points: f64,
    y: f64,
    reach: f64,
}

impl OffScale {
    fn arrow(&self) -> Vec<(f64, f64)> {
        let tip = self.reach * 0.99 * self.points.signum();
        let back = tip * 0.93;
        vec![(tip, self.y), (back, self.y - 0.2), (back, self.y + 0.2)]
    }

    fn label<'a>(&self, font: &FontDesc<'a>) -> Text<'a, (f64, f64), String> {
        let (side, at) = if self.points < 0.0 {
            (HPos::Left, -self.reach * 0.89)
        } else {
            (HPos::Right, self.reach * 0.89)
        };
        let style = TextStyle::from(font.clone()).pos(Pos::new(side, VPos::Center));
        Text::new(format!("{:+.1}", self.points), (at, self.y), style)
    }
}

#[cfg(test)]
mod tests {
    use seed_env::Split;

    use super::super::results::Measure;
    use super::*;
    use seed_train::statistics::Interval;

    fn row(arm: &str, difference: f64) -> Comparison {
        Comparison {
            measure: Measure::AreaEpisodes { split: Split::Seen },
            arm: arm.to_owned(),
            against: "GRPO".to_owned(),
            pairs: 5,
            against_mean: 0.6,
            arm_mean: 0.6 + difference,
            difference,
            interval: Some(Interval {
                value: difference,
                low: difference - 0.03,
                high: difference + 0.03,
            }),
            p_value: 0.06,
            corrected: 1.0,
        }
    }

    #[test]
    fn one_arm_that_collapsed_does_not_set_the_scale() {
        let mut rows: Vec<Comparison> = (0..7)
            .map(|number| row(&format!("arm {number}"), 0.01 * f64::from(number)))
            .collect();
        // The widest interval ends at 9 points, and there is a tenth of that beside it.
        assert!((reach(rows.iter()) - 9.9).abs() < 1e-9);
        rows.push(row("collapsed", -0.677));
        assert!((reach(rows.iter()) - 9.9).abs() < 1e-9);

        let svg = forest(&[("area".to_owned(), rows.iter().collect())]).unwrap();
        assert_eq!(svg.matches("<polygon").count(), 1, "one arrow");
        assert!(svg.contains("-67.7"), "the number that the scale leaves out");
        assert_eq!(svg.matches("<circle").count(), 2 * 7, "hollow dots of the others");
    }

    #[test]
    fn differences_of_one_size_are_all_within_the_scale() {
        let rows = [row("better", 0.4), row("worse", -0.38)];
        assert!((reach(rows.iter()) - 43.0 * 1.1).abs() < 1e-9);
        assert!((reach([row("same", 0.0)].iter()) - 3.3).abs() < 1e-9);
        assert!((reach([].iter()) - 1.1).abs() < 1e-9);
    }
}
