//! Learning curves as an SVG picture.

use std::path::Path;

use plotters::prelude::*;
use thiserror::Error;

/// One curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Legend entry.
    pub name: String,
    /// `(x, mean)` points in order of x.
    pub points: Vec<(f64, f64)>,
    /// What is known about the points' accuracy.
    pub spread: Spread,
}

/// What the heights of a chart are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heights {
    /// Shares from 0 to 1, shown in percent from 0 up.
    Shares,
    /// Numbers of any sign, shown with a line at 0.
    Numbers,
}

/// A chart of curves.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// Heading.
    pub title: &'a str,
    /// What x is.
    pub x_label: &'a str,
    /// What y is.
    pub y_label: &'a str,
    /// How y is shown.
    pub heights: Heights,
    /// The curves, in the order of the legend and of the colours.
    pub curves: &'a [Curve],
}

/// How far a point may be off, as `(x, low, high)`.
#[derive(Clone, Debug)]
pub enum Spread {
    /// An interval at each point, drawn as a bar: what one run's panel allows to say.
    Bars(Vec<(f64, f64, f64)>),
    /// A range along the curve, drawn as a band: how far runs lie apart.
    Band(Vec<(f64, f64, f64)>),
}

impl Spread {
    fn values(&self) -> &[(f64, f64, f64)] {
        match self {
            Self::Bars(values) | Self::Band(values) => values,
        }
    }
}

/// Why a picture could not be drawn.
#[derive(Debug, Error)]
#[error("the picture `{path}` could not be drawn: {message}")]
pub struct PictureError {
    /// Where it was to go.
    pub path: String,
    /// What the drawing library said.
    pub message: String,
}

/// Okabe and Ito's colours, told apart with any colour vision.
pub const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
];

/// Draws success-rate `curves` (y in `0..=1`) over `x_label` into an SVG file.
///
/// # Errors
/// [`PictureError`] with the path when the file cannot be written.
pub fn draw_curves(path: &Path, title: &str, x_label: &str, curves: &[Curve]) -> Result<(), PictureError> {
    let chart = Chart {
        title,
        x_label,
        y_label: "success rate",
        heights: Heights::Shares,
        curves,
    };
    chart.write(path)
}

impl Chart<'_> {
    /// Draws the chart into an SVG file.
    ///
    /// # Errors
    /// [`PictureError`] with the path when the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), PictureError> {
        let mut text = String::new();
        draw(&mut text, self).map_err(|message| PictureError {
            path: path.display().to_string(),
            message,
        })?;
        write_picture(path, &text)
    }

    /// The lower and upper end of the y axis.
    fn range(&self) -> (f64, f64) {
        let heights = self.curves.iter().flat_map(|curve| {
            let points = curve.points.iter().map(|point| point.1);
            points.chain(
                curve
                    .spread
                    .values()
                    .iter()
                    .flat_map(|spread| [spread.1, spread.2]),
            )
        });
        match self.heights {
            Heights::Shares => {
                let top = heights.fold(0.1_f64, f64::max);
                (0.0, ((top * 10.0).ceil() / 10.0).min(1.0))
            }
            Heights::Numbers => {
                let (low, high) =
                    heights.fold((0.0_f64, 0.0_f64), |(low, high), y| (low.min(y), high.max(y)));
                let room = ((high - low) * 0.06).max(1e-3);
                (low - room, high + room)
            }
        }
    }
}

/// Puts a picture in its place.
///
/// # Errors
/// [`PictureError`] with the path.
pub fn write_picture(path: &Path, text: &str) -> Result<(), PictureError> {
    seed_run::write_atomic(path, text.as_bytes()).map_err(|error| PictureError {
        path: path.display().to_string(),
        message: error.to_string(),
    })
}

fn draw(text: &mut String, chart: &Chart<'_>) -> Result<(), String> {
    let curves = chart.curves;
    let right = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.0)
        .fold(1.0_f64, f64::max);
    // Room for the last bar's ends.
    let right = right * 1.01;
    let (bottom, top) = chart.range();
    let heights = chart.heights;
    let area = SVGBackend::with_string(text, (900, 540)).into_drawing_area();
    let build = || -> Result<(), DrawingAreaErrorKind<<SVGBackend<'_> as DrawingBackend>::ErrorType>> {
        area.fill(&WHITE)?;
        let mut frame = ChartBuilder::on(&area)
            .caption(chart.title, ("sans-serif", 22))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..right, bottom..top)?;
        frame
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(chart.x_label)
            .y_desc(chart.y_label)
            .y_label_formatter(&|value| match heights {
                Heights::Shares => format!("{:.0} %", value * 100.0),
                Heights::Numbers => format!("{value:+.3}"),
            })
            .x_label_formatter(&|value| format!("{value:.0}"))
            .draw()?;
        if heights == Heights::Numbers {
            let zero = vec![(0.0, 0.0), (right, 0.0)];
            frame.draw_series(std::iter::once(PathElement::new(zero, BLACK.mix(0.5))))?;
        }
        for (number, (curve, colour)) in curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
            match &curve.spread {
                Spread::Band(band) => {
                    let outline = band
                        .iter()
                        .map(|&(x, _, high)| (x, high.min(top)))
                        .chain(band.iter().rev().map(|&(x, low, _)| (x, low)));
                    frame.draw_series(std::iter::once(Polygon::new(
                        outline.collect::<Vec<_>>(),
                        colour.mix(0.15),
                    )))?;
                }
                Spread::Bars(bars) => {
                    // Arms are evaluated at the same x: each has its bars a little aside.
                    let aside = right * 0.004 * (number as f64 - (curves.len() as f64 - 1.0) / 2.0);
                    let cap = right * 0.004;
                    for &(x, low, high) in bars {
                        let (x, high) = (x + aside, high.min(top));
                        let strokes = [
                            vec![(x, low), (x, high)],
                            vec![(x - cap, low), (x + cap, low)],
                            vec![(x - cap, high), (x + cap, high)],
                        ];
                        frame.draw_series(
                            strokes.map(|stroke| PathElement::new(stroke, colour.mix(0.55).stroke_width(1))),
                        )?;
                    }
                }
            }
            let marks = curve
                .points
                .iter()
                .map(|&point| Circle::new(point, 3, colour.filled()));
            frame.draw_series(marks)?;
            frame
                .draw_series(LineSeries::new(
                    curve.points.iter().copied(),
                    colour.stroke_width(2),
                ))?
                .label(curve.name.clone())
                .legend(|(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        }
        frame
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()
    };
    build().map_err(|error| error.to_string())
}
