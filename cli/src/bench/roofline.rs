//! The roofline chart of a profile: how fast each kind of step multiplies, over the multiply-adds that it has for each byte.
//!
//! The roofs are what the machine was measured to do; a dot below them is as far from them as it could be faster. Source:
//! Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures" (2009).

use llamay_engine::plan::Ceilings;

use super::measure::{Measured, Opened};
use super::profile::Profiled;
use super::report::model_type;
use super::svg::{Svg, number};

/// Pixels of one panel, and of its plot within.
const WIDTH: f64 = 1100.0;
const HEIGHT: f64 = 660.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 30.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = HEIGHT - 56.0;
/// Of a label's letter, on average, and of its line.
const LETTER: f64 = 6.3;
const LINE: f64 = 13.0;
/// Kinds of steps that take less of the run's time are left out.
const LEAST_SHARE: f64 = 0.002;
/// Colours of series in the style sheet.
const N_COLOURS: usize = 6;

/// Plain rules, since not every viewer knows variables; those that know no media take the light colours.
const STYLE: &str = "
text { fill: #1f2328; font: 11px system-ui, sans-serif; }
.title { font-size: 15px; font-weight: 600; }
.page { fill: #ffffff; }
.grid { stroke: #d8dee4; }
.note, .tick { fill: #57606a; }
.roof, .memory, .leader { stroke: #57606a; }
.roof { stroke-width: 2; }
.memory { stroke-dasharray: 5 4; }
.leader { stroke-width: 0.6; }
.dot { fill-opacity: 0.75; }
.s0 { fill: #0969da; } .s1 { fill: #bc4c00; } .s2 { fill: #1a7f37; }
.s3 { fill: #8250df; } .s4 { fill: #bf3989; } .s5 { fill: #9a6700; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .page { fill: #0d1117; }
  .grid { stroke: #30363d; }
  .note, .tick { fill: #9198a1; }
  .roof, .memory, .leader { stroke: #9198a1; }
  .s0 { fill: #58a6ff; } .s1 { fill: #f0883e; } .s2 { fill: #56d364; }
  .s3 { fill: #bc8cff; } .s4 { fill: #f778ba; } .s5 { fill: #e3b341; }
}
";

/// The charts of a command, one below the other.
#[derive(Default)]
pub(super) struct Chart {
    panels: Vec<Panel>,
}

/// One model, run in one way.
struct Panel {
    title: String,
    ceilings: Option<Ceilings>,
    series: Vec<Series>,
}

/// One shape.
struct Series {
    name: String,
    /// Tokens one by one: squares instead of circles.
    decode: bool,
    dots: Vec<Dot>,
}

/// One kind of step.
struct Dot {
    label: String,
    /// Multiply-adds a byte, and a second.
    intensity: f64,
    rate: f64,
    /// Of the run's time.
    share: f64,
    of_ceiling: f64,
}

impl Chart {
    /// Begins a panel for a model and a way to run it.
    pub(super) fn begin(&mut self, opened: &Opened) {
        let n = opened.threads;
        let threads = if n == 1 { "thread" } else { "threads" };
        let model = model_type(opened.model.gguf());
        let title = format!("{model}, {}, {n} {threads}", opened.isa.name());
        self.panels.push(Panel { title, ceilings: None, series: Vec::new() });
    }

    /// Adds a result to the last panel, if it has a profile.
    pub(super) fn add(&mut self, result: &Measured) {
        let (Some(panel), Some(profiled)) = (self.panels.last_mut(), &result.profile) else { return };
        panel.add(result.shape.name(), result.shape.n_prompt == 0, profiled);
    }

    /// The drawing.
    pub(super) fn draw(&self) -> String {
        let height = HEIGHT * self.panels.len().max(1) as f64;
        let mut svg = Svg::new(WIDTH, height, STYLE);
        let (w, h) = (number(WIDTH), number(height));
        svg.leaf("rect", &[("class", "page"), ("width", &w), ("height", &h)], "");
        for (i, panel) in self.panels.iter().enumerate() {
            let offset = format!("translate(0 {})", number(i as f64 * HEIGHT));
            svg.begin("g", &[("transform", &offset)]);
            panel.draw(&mut svg);
            svg.end();
        }
        svg.finish()
    }
}

impl Panel {
    fn add(&mut self, name: String, decode: bool, profiled: &Profiled) {
        self.ceilings = Some(profiled.ceilings);
        let rows = profiled.rows();
        let shown = rows.iter().filter(|r| r.share >= LEAST_SHARE && r.cost.macs() > 0 && r.seconds > 0.0);
        let dots = shown.map(|r| Dot {
            label: r.label.clone(),
            intensity: r.cost.intensity(),
            rate: r.cost.macs() as f64 / r.seconds,
            share: r.share,
            of_ceiling: r.of_ceiling,
        });
        self.series.push(Series { name, decode, dots: dots.collect() });
    }

    fn draw(&self, svg: &mut Svg) {
        svg.label("title", "start", (LEFT, 24.0), &self.title);
        let note = "Area: share of the run's time. Percent: of the roof above.";
        svg.label("note", "end", (RIGHT, 24.0), note);
        let Some(ceilings) = &self.ceilings else { return };
        let dots = || self.series.iter().flat_map(|s| &s.dots);
        let axes = Axes::around(ceilings, dots().map(|d| (d.intensity, d.rate)));
        axes.draw(svg);
        draw_roofs(svg, &axes, ceilings);
        let mut taken: Vec<Rect> =
            dots().map(|d| Rect::around(axes.at(d.intensity, d.rate), d.radius())).collect();
        for (i, series) in self.series.iter().enumerate() {
            let colour = format!("s{}", i % N_COLOURS);
            let at = (LEFT + 120.0 * i as f64, 46.0);
            draw_mark(svg, &colour, series.decode, at, 5.0, &series.name);
            svg.label("legend", "start", (at.0 + 10.0, at.1 + 4.0), &series.name);
            for dot in &series.dots {
                let at = axes.at(dot.intensity, dot.rate);
                let told = format!(
                    "{} {}: {:.1} % of the time, {:.2} GMAC/s, {:.2} MAC/byte, {:.1} % of the roof",
                    series.name,
                    dot.label,
                    dot.share * 100.0,
                    dot.rate / 1e9,
                    dot.intensity,
                    dot.of_ceiling * 100.0
                );
                draw_mark(svg, &colour, series.decode, at, dot.radius(), &told);
            }
        }
        // The labels of the long steps get the good places.
        let mut all: Vec<(usize, &Dot)> =
            (self.series.iter().enumerate()).flat_map(|(i, s)| s.dots.iter().map(move |d| (i, d))).collect();
        all.sort_by(|a, b| b.1.share.total_cmp(&a.1.share));
        for (series, dot) in all {
            draw_label(svg, series % N_COLOURS, dot, axes.at(dot.intensity, dot.rate), &mut taken);
        }
    }
}

impl Dot {
    /// Pixels; the area goes with the share of time, beyond the least that can be seen.
    fn radius(&self) -> f64 {
        4.0 + 14.0 * self.share.clamp(0.0, 1.0).sqrt()
    }
}

/// Logarithmic axes: multiply-adds a byte to the right, multiply-adds a second upwards.
struct Axes {
    /// Decimal logarithms of the ends.
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    /// Axes that show the points, the ridges and some room around.
    fn around(ceilings: &Ceilings, points: impl Iterator<Item = (f64, f64)>) -> Axes {
        let top = ceilings.int8_macs.max(ceilings.f32_macs);
        let ridge = (top / ceilings.read.max(1.0), top);
        let (mut low, mut high) = ((ridge.0 / 10.0, ridge.1 / 10.0), ridge);
        for (x, y) in points {
            low = (low.0.min(x), low.1.min(y));
            high = (high.0.max(x), high.1.max(y));
        }
        let log = |v: f64| v.max(1e-9).log10();
        Axes { x: (log(low.0 / 1.5), log(high.0 * 3.0)), y: (log(low.1 / 2.0), log(high.1 * 2.0)) }
    }

    /// Where a point is in the panel.
    fn at(&self, intensity: f64, rate: f64) -> (f64, f64) {
        let along =
            |v: f64, (from, to): (f64, f64)| ((v.max(1e-9).log10() - from) / (to - from)).clamp(0.0, 1.0);
        (LEFT + (RIGHT - LEFT) * along(intensity, self.x), BOTTOM - (BOTTOM - TOP) * along(rate, self.y))
    }

    fn draw(&self, svg: &mut Svg) {
        let decades =
            |(from, to): (f64, f64)| (from.ceil() as i32..=to.floor() as i32).map(|e| 10f64.powi(e));
        for x in decades(self.x) {
            let at = self.at(x, 0.0).0;
            svg.line("grid", (at, TOP), (at, BOTTOM));
            svg.label("tick", "middle", (at, BOTTOM + 16.0), &format!("{x}"));
        }
        for y in decades(self.y) {
            let at = self.at(0.0, y).1;
            svg.line("grid", (LEFT, at), (RIGHT, at));
            svg.label("tick", "end", (LEFT - 6.0, at + 4.0), &format!("{}", y / 1e9));
        }
        svg.label("tick", "end", (RIGHT, BOTTOM + 38.0), "multiply-adds a byte");
        svg.label("tick", "start", (8.0, TOP - 8.0), "GMAC/s");
    }
}

fn draw_roofs(svg: &mut Svg, axes: &Axes, c: &Ceilings) {
    let top = c.int8_macs.max(c.f32_macs);
    let (x0, x1) = (10f64.powf(axes.x.0), 10f64.powf(axes.x.1));
    let lowest = 10f64.powf(axes.y.0);
    let mut slope = |class: &str, rate: f64, name: &str| {
        let from = x0.max(lowest / rate);
        svg.line(class, axes.at(from, from * rate), axes.at(top / rate, top));
        // Half way up, where dots of memory-bound steps are below and those of caches to the left.
        let (x, y) = axes.at((from * top / rate).sqrt(), (from * rate * top).sqrt());
        svg.label("note", "end", (x - 8.0, y - 8.0), &format!("{name} {:.1} GB/s", rate / 1e9));
    };
    slope("roof", c.read, "read");
    // A slope of its own only where the weights stay in a cache.
    if c.memory < 0.95 * c.read {
        slope("memory", c.memory, "memory");
    }
    for (name, rate) in [("int8", c.int8_macs), ("f32", c.f32_macs)] {
        svg.line("roof", axes.at(rate / c.read, rate), axes.at(x1, rate));
        let (x, y) = axes.at(x1, rate);
        svg.label("note", "end", (x, y - 5.0), &format!("{name} {:.1} GMAC/s", rate / 1e9));
    }
}

/// A circle, or a square for decoding; `told` is what a pointer that rests there is told.
fn draw_mark(svg: &mut Svg, colour: &str, square: bool, at: (f64, f64), r: f64, told: &str) {
    let class = format!("dot {colour}");
    if square {
        let [x, y, side] = [at.0 - 0.9 * r, at.1 - 0.9 * r, 1.8 * r].map(number);
        svg.begin("rect", &[("class", &class), ("x", &x), ("y", &y), ("width", &side), ("height", &side)]);
    } else {
        let [x, y, r] = [at.0, at.1, r].map(number);
        svg.begin("circle", &[("class", &class), ("cx", &x), ("cy", &y), ("r", &r)]);
    }
    svg.leaf("title", &[], told);
    svg.end();
}

/// Labels a dot where there is room beside it, or near it with a line to it.
fn draw_label(svg: &mut Svg, colour: usize, dot: &Dot, at: (f64, f64), taken: &mut Vec<Rect>) {
    let text = format!("{} {:.0} %", dot.label, dot.of_ceiling * 100.0);
    let width = LETTER * text.chars().count() as f64;
    let gap = dot.radius() + 3.0;
    let place = |right: bool, line: f64| {
        let x = if right { at.0 + gap } else { at.0 - gap - width };
        let y = at.1 + line * LINE;
        Rect { left: x, right: x + width, top: y - LINE / 2.0, bottom: y + LINE / 2.0 }
    };
    let lines = (0..24).flat_map(|i| if i == 0 { vec![0.0] } else { vec![f64::from(i), -f64::from(i)] });
    let mut places = lines.flat_map(|line| [place(true, line), place(false, line)]);
    let free = places.find(|p| p.is_inside() && taken.iter().all(|t| !t.overlaps(p)));
    let rect = free.unwrap_or_else(|| place(true, 0.0));
    let middle = (rect.top + rect.bottom) / 2.0;
    if (middle - at.1).abs() > LINE {
        let x = if rect.left > at.0 { rect.left - 1.0 } else { rect.right + 1.0 };
        svg.line("leader", at, (x, middle));
    }
    svg.label(&format!("s{colour}"), "start", (rect.left, middle + 4.0), &text);
    taken.push(rect);
}

/// A part of the panel.
struct Rect {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

impl Rect {
    fn around((x, y): (f64, f64), r: f64) -> Rect {
        Rect { left: x - r, right: x + r, top: y - r, bottom: y + r }
    }

    fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn is_inside(&self) -> bool {
        self.left >= LEFT && self.right <= RIGHT && self.top >= TOP && self.bottom <= BOTTOM
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::profile::tests::example;

    #[test]
    fn a_chart_has_a_mark_and_a_label_for_each_kind_of_step() {
        let mut panel = Panel { title: "<model>".to_owned(), ceilings: None, series: Vec::new() };
        panel.add("pp8".to_owned(), false, &example());
        panel.add("tg4".to_owned(), true, &example());
        let text = Chart { panels: vec![panel] }.draw();
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let count = |name: &str, class: &str| {
            let of_class =
                |n: &roxmltree::Node<'_, '_>| n.attribute("class").is_some_and(|c| c.starts_with(class));
            document.descendants().filter(|n| n.tag_name().name() == name && of_class(n)).count()
        };
        // One of two kinds multiplies nothing, so it has no place; each series has a mark in the legend.
        assert_eq!((count("circle", "dot"), count("rect", "dot")), (2, 2), "{text}");
        assert_eq!(count("text", "s"), 2);
        assert!(document.descendants().any(|n| n.text() == Some("<model>")));
    }

    #[test]
    fn a_chart_of_nothing_is_well_formed() {
        for panels in [vec![], vec![Panel { title: String::new(), ceilings: None, series: Vec::new() }]] {
            let text = Chart { panels }.draw();
            assert!(roxmltree::Document::parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn labels_of_dots_in_one_place_do_not_overlap() {
        let dot = |label: &str| Dot {
            label: label.to_owned(),
            intensity: 1.0,
            rate: 1.0,
            share: 0.1,
            of_ceiling: 0.5,
        };
        let (mut svg, mut taken) = (Svg::new(WIDTH, HEIGHT, ""), Vec::new());
        for label in ["a", "longer label", "another one", "d"] {
            draw_label(&mut svg, 0, &dot(label), (500.0, 300.0), &mut taken);
        }
        for (i, a) in taken.iter().enumerate() {
            assert!(a.is_inside() && taken[i + 1..].iter().all(|b| !a.overlaps(b)));
        }
    }
}
