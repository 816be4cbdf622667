//! Cases as a picture: time to the first token and tokens a second, over the number of clients, a line a shape.

use super::report::Case;
use std::fmt::Write;

/// Size of one of the two panels, with room for its axes.
const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 56.0;
/// Told apart by people who see colours differently too (Okabe and Ito).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// The picture.
pub(super) fn svg(cases: &[Case]) -> String {
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        2.0 * WIDTH
    );
    panel(&mut text, cases, 0.0, "time to the first token, p50, ms", |case| case.first_token_ms.p50);
    panel(&mut text, cases, WIDTH, "tokens a second", |case| case.tokens_per_second);
    text + "</svg>\n"
}

fn panel(text: &mut String, cases: &[Case], left: f64, title: &str, value: fn(&Case) -> f64) {
    let most = cases.iter().map(value).fold(f64::MIN_POSITIVE, f64::max);
    let clients_most = cases.iter().map(|case| case.clients).max().unwrap_or(1).max(2) as f64;
    // Clients on a logarithmic scale, from 1 on.
    let x = |case: &Case| {
        left + MARGIN + (WIDTH - 1.5 * MARGIN) * (case.clients as f64).log2() / clients_most.log2()
    };
    let y = |value: f64| HEIGHT - MARGIN - (HEIGHT - 1.8 * MARGIN) * value / most;
    let (bottom, right) = (HEIGHT - MARGIN, left + WIDTH - MARGIN / 2.0);
    let start = left + MARGIN;
    // A string takes any text.
    let _ = writeln!(text, "<text x=\"{start}\" y=\"18\">{title}</text>");
    let _ = writeln!(
        text,
        "<path d=\"M{start} {}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>",
        MARGIN / 2.0
    );
    let end = start - 4.0;
    let _ = writeln!(text, "<text x=\"{end}\" y=\"{}\" text-anchor=\"end\">{most:.0}</text>", y(most) + 4.0);
    let _ = writeln!(text, "<text x=\"{end}\" y=\"{bottom}\" text-anchor=\"end\">0</text>");
    for case in cases {
        let (place, below) = (x(case), bottom + 14.0);
        let _ = writeln!(
            text,
            "<text x=\"{place:.1}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            case.clients
        );
    }
    for (number, shape) in shapes(cases).into_iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = cases
            .iter()
            .filter(|case| (case.prompt_tokens, case.answer_tokens) == shape)
            .map(|case| format!("{:.1},{:.1}", x(case), y(value(case))))
            .collect();
        let path = points.join(" ");
        let _ = writeln!(
            text,
            "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
        );
        for point in &points {
            let (x, y) = point.split_once(',').expect("a point is two numbers");
            let _ = writeln!(text, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (place, below) = (start + 90.0 * number as f64, HEIGHT - 12.0);
        let _ = writeln!(
            text,
            "<text x=\"{place}\" y=\"{below}\" fill=\"{colour}\">{}/{}</text>",
            shape.0, shape.1
        );
    }
}

/// All shapes, in their order.
fn shapes(cases: &[Case]) -> Vec<(usize, usize)> {
    let mut shapes: Vec<(usize, usize)> =
        cases.iter().map(|case| (case.prompt_tokens, case.answer_tokens)).collect();
    shapes.dedup();
    shapes
}

#[cfg(test)]
mod tests {
    use super::super::client::Sample;
    use super::*;

    #[test]
    fn each_shape_is_a_line_of_its_cases() {
        let sample = Sample { first: 0.1, gaps: vec![0.01; 9] };
        let case = |shape, clients| Case::new(shape, clients, std::slice::from_ref(&sample), 1, 1.0);
        let picture = svg(&[case((1, 2), 1), case((1, 2), 8), case((3, 4), 1)]);
        assert_eq!(picture.matches("<polyline").count(), 4);
        assert_eq!(picture.matches("<circle").count(), 6);
        assert!(picture.contains(">1/2</text>") && picture.contains(">3/4</text>"));
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }
}
