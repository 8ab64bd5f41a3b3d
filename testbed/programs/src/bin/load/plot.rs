//! docs/throughput.svg from the rates that `compare a` left.

use std::collections::BTreeMap;

use super::compare::RATES;
use super::svg::{LEFT, Picture};
use testbed::measure::results;

const HEIGHT: f64 = 360.0;
const RIGHT: f64 = 500.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 306.0;
/// Powers of ten at the ends of the axis of rates, if the data stay inside.
const LOW: i32 = 2;
const HIGH: i32 = 8;
/// Least distance of two names of lines.
const LINE_HEIGHT: f64 = 15.0;

const STYLE: &str = "
    polyline { fill: none; stroke-width: 2; stroke-linejoin: round }
    .s0 { stroke: #0072b2 } .s1 { stroke: #d55e00 } .s2 { stroke: #009e73 } .s3 { stroke: #888; stroke-dasharray: 5 4 }
    text.s0 { fill: #0072b2; stroke: none } text.s1 { fill: #d55e00; stroke: none }
    text.s2 { fill: #009e73; stroke: none } text.s3 { fill: #888; stroke: none }
    @media (prefers-color-scheme: dark) {
      .s0 { stroke: #56b4e9 } .s1 { stroke: #e69f00 } .s2 { stroke: #2fc998 } .s3 { stroke: #999 }
      text.s0 { fill: #56b4e9 } text.s1 { fill: #e69f00 } text.s2 { fill: #2fc998 } text.s3 { fill: #999 }
    }
";

type Rates = BTreeMap<String, Vec<(u32, f64)>>;

pub(crate) fn run() {
    let text = results::read(RATES, "load compare a");
    draw(&parse(&text)).save("throughput.svg");
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

fn draw(rates: &Rates) -> Picture {
    let about = "Critical sections a second against threads";
    let title = "Critical sections a second, threads of one process on one lock";
    let mut picture = Picture::new(HEIGHT, about, title, STYLE);
    axes(&mut picture, rates);
    let mut names: Vec<(f64, usize, &str)> = Vec::new();
    for (at, name) in ["hand-off", "no hand-off", "bare FIFO", "plain"]
        .iter()
        .enumerate()
    {
        let Some(points) = rates.get(*name) else {
            continue;
        };
        line(&mut picture, at, points);
        names.extend(points.last().map(|(_, rate)| (y(*rate), at, *name)));
    }
    label(&mut picture, names);
    picture
}

fn axes(picture: &mut Picture, rates: &Rates) {
    for power in LOW..=HIGH {
        picture.rung(y(10f64.powi(power)), RIGHT, &short(power));
    }
    let threads = rates.values().flatten().map(|(threads, _)| *threads);
    let mut threads: Vec<u32> = threads.collect();
    threads.sort_unstable();
    threads.dedup();
    for count in threads {
        let under = (x(count), BOTTOM + 18.0);
        picture.text(under, "middle", "", &count.to_string());
    }
    let middle = f64::midpoint(LEFT, RIGHT);
    let words = "threads (both axes logarithmic)";
    picture.text((middle, BOTTOM + 40.0), "middle", "", words);
}

fn line(picture: &mut Picture, series: usize, points: &[(u32, f64)]) {
    let places: Vec<String> = points
        .iter()
        .map(|(threads, rate)| format!("{:.1},{:.1}", x(*threads), y(*rate)))
        .collect();
    picture.put(format_args!(
        "<polyline class=\"s{series}\" points=\"{}\"/>",
        places.join(" ")
    ));
}

/// Names the lines at their ends, pushed apart where they would cover each other.
fn label(picture: &mut Picture, mut names: Vec<(f64, usize, &str)>) {
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
        let after = (RIGHT + 8.0, at + 4.0);
        picture.text(after, "start", &format!("s{series}"), name);
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
