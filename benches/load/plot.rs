//! docs/throughput.svg from the rates that `compare a` left.

use std::collections::BTreeMap;
use std::fs;

use super::compare::rates_file;
use super::svg::{put, save, text};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 306.0;
/// Powers of ten at the ends of the axis of rates, if the data stay inside.
const LOW: i32 = 2;
const HIGH: i32 = 8;
/// Least distance of two names of lines.
const LINE_HEIGHT: f64 = 15.0;

const STYLE: &str = "
    text { font: 12px system-ui, sans-serif; fill: #444 }
    .title { font-size: 14px; font-weight: 600 }
    .grid { stroke: #8884; stroke-width: 1 }
    polyline { fill: none; stroke-width: 2; stroke-linejoin: round }
    .s0 { stroke: #0072b2 } .s1 { stroke: #d55e00 } .s2 { stroke: #009e73 } .s3 { stroke: #888; stroke-dasharray: 5 4 }
    text.s0 { fill: #0072b2; stroke: none } text.s1 { fill: #d55e00; stroke: none }
    text.s2 { fill: #009e73; stroke: none } text.s3 { fill: #888; stroke: none }
    @media (prefers-color-scheme: dark) {
      text { fill: #bbb }
      .s0 { stroke: #56b4e9 } .s1 { stroke: #e69f00 } .s2 { stroke: #2fc998 } .s3 { stroke: #999 }
      text.s0 { fill: #56b4e9 } text.s1 { fill: #e69f00 } text.s2 { fill: #2fc998 } text.s3 { fill: #999 }
    }
";

type Rates = BTreeMap<String, Vec<(u32, f64)>>;

pub(crate) fn run() {
    let file = rates_file();
    let text = fs::read_to_string(&file)
        .unwrap_or_else(|error| panic!("{}: {error}; run `load compare a`", file.display()));
    save("throughput.svg", &draw(&parse(&text)));
}

fn parse(text: &str) -> Rates {
    let mut rates = Rates::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let mut next = || fields.next().expect("three fields a line");
        let series = next().to_owned();
        let threads = next().parse().expect("a number of threads");
        let rate = next().parse().expect("a rate");
        rates.entry(series).or_default().push((threads, rate));
    }
    rates
}

fn draw(rates: &Rates) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Critical sections a second against threads\">\n<style>{STYLE}</style>\n"
    );
    text(
        &mut svg,
        (LEFT, 20.0),
        "start",
        "title",
        "Critical sections a second, threads of one process on one lock",
    );
    axes(&mut svg, rates);
    let mut names: Vec<(f64, usize, &str)> = Vec::new();
    for (at, name) in ["hand-off", "no hand-off", "bare FIFO", "plain"]
        .iter()
        .enumerate()
    {
        let Some(points) = rates.get(*name) else {
            continue;
        };
        line(&mut svg, at, points);
        names.extend(points.last().map(|(_, rate)| (y(*rate), at, *name)));
    }
    label(&mut svg, names);
    svg + "</svg>\n"
}

fn axes(svg: &mut String, rates: &Rates) {
    for power in LOW..=HIGH {
        let rate = 10f64.powi(power);
        let at = y(rate);
        put(
            svg,
            format_args!(
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{RIGHT}\" y2=\"{at:.1}\"/>"
            ),
        );
        text(svg, (LEFT - 8.0, at + 4.0), "end", "", &short(power));
    }
    let threads = rates.values().flatten().map(|(threads, _)| *threads);
    let mut threads: Vec<u32> = threads.collect();
    threads.sort_unstable();
    threads.dedup();
    for count in threads {
        text(
            svg,
            (x(count), BOTTOM + 18.0),
            "middle",
            "",
            &count.to_string(),
        );
    }
    text(
        svg,
        (f64::midpoint(LEFT, RIGHT), BOTTOM + 40.0),
        "middle",
        "",
        "threads (both axes logarithmic)",
    );
}

fn line(svg: &mut String, series: usize, points: &[(u32, f64)]) {
    let places: Vec<String> = points
        .iter()
        .map(|(threads, rate)| format!("{:.1},{:.1}", x(*threads), y(*rate)))
        .collect();
    put(
        svg,
        format_args!(
            "<polyline class=\"s{series}\" points=\"{}\"/>",
            places.join(" ")
        ),
    );
}

/// Names the lines at their ends, pushed apart where they would cover each other.
fn label(svg: &mut String, mut names: Vec<(f64, usize, &str)>) {
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut free = f64::MIN;
    for (at, series, name) in names {
        let at = at.max(free);
        free = at + LINE_HEIGHT;
        let name = match name {
            "hand-off" => "with local hand-off",
            "no hand-off" => "without",
            "plain" => "plain calls, 1 thread",
            other => other,
        };
        text(
            svg,
            (RIGHT + 8.0, at + 4.0),
            "start",
            &format!("s{series}"),
            name,
        );
    }
}

fn short(power: i32) -> String {
    let unit = ["", " k", " M"][usize::try_from(power / 3).expect("not below one").min(2)];
    format!("{}{unit}", 10i32.pow(power.unsigned_abs() % 3))
}

/// One thread at the left, 32 at the right.
fn x(threads: u32) -> f64 {
    LEFT + 12.0 + (RIGHT - LEFT - 24.0) * f64::from(threads).log2() / 5.0
}

fn y(rate: f64) -> f64 {
    let part = (rate.log10() - f64::from(LOW)) / f64::from(HIGH - LOW);
    BOTTOM - (BOTTOM - TOP) * part
}
