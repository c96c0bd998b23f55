//! Rounds, medians and the line that each comparison prints.

use std::error::Error;
use std::time::{Duration, Instant};

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Counted rounds of each side, besides one that warms up.
pub const ROUNDS: usize = 9;

/// A peer whose own rounds differ by more than this measures the machine, not itself.
const MAX_SPREAD: f64 = 2.5;

/// What a round's number means.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// Things per second: a ratio above 1 is a win.
    PerSecond(&'static str),
    /// Milliseconds: a ratio below 1 is a win.
    Millis,
    /// Microseconds: a ratio below 1 is a win.
    Micros,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Self::PerSecond(what) if value >= 1e6 => format!("{:.2} M {what}/s", value / 1e6),
            Self::PerSecond(what) => format!("{:.1} k {what}/s", value / 1e3),
            Self::Millis => format!("{value:.2} ms"),
            Self::Micros => format!("{value:.1} us"),
        }
    }

    fn better(self) -> &'static str {
        match self {
            Self::PerSecond(_) => "higher is better",
            Self::Millis | Self::Micros => "lower is better",
        }
    }
}

/// Runs both sides in turn, the order alternating, and prints one line. Each side gets the
/// number of the round, measures itself, and checks its own result after its clock.
pub async fn compare(
    workload: &str,
    unit: Unit,
    rounds: usize,
    mut ours: impl AsyncFnMut(usize) -> Result<f64>,
    mut peer: impl AsyncFnMut(usize) -> Result<f64>,
) -> Result<()> {
    let mut pairs = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        let pair = match round % 2 {
            0 => {
                let own = ours(round).await?;
                (own, peer(round).await?)
            }
            _ => {
                let other = peer(round).await?;
                (ours(round).await?, other)
            }
        };
        // The first round fills caches on both sides.
        if round > 0 {
            pairs.push(pair);
        }
    }
    println!("{}", line(workload, unit, &pairs));
    Ok(())
}

fn line(workload: &str, unit: Unit, pairs: &[(f64, f64)]) -> String {
    let own = sorted(pairs.iter().map(|pair| pair.0));
    let peer = sorted(pairs.iter().map(|pair| pair.1));
    let ratios = sorted(pairs.iter().map(|pair| pair.0 / pair.1));
    let spread = peer[peer.len() - 1] / peer[0];
    let verdict = if spread > MAX_SPREAD {
        format!("noise (the peer's rounds differ by {spread:.1}x)")
    } else {
        format!(
            "ratio {:.2} [{:.2}, {:.2}] ({})",
            median(&ratios),
            ratios[0],
            ratios[ratios.len() - 1],
            unit.better()
        )
    };
    format!(
        "{workload:<44} ours {:>16}  peer {:>16}  {verdict}",
        unit.show(median(&own)),
        unit.show(median(&peer))
    )
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// Durations of single calls.
#[derive(Debug, Default)]
pub struct Latencies(Vec<f64>);

impl Latencies {
    pub fn add(&mut self, duration: Duration) {
        self.0.push(duration.as_secs_f64() * 1e6);
    }

    /// A quantile, in microseconds.
    pub fn micros(&self, quantile: f64) -> f64 {
        let all = sorted(self.0.iter().copied());
        let rank = (quantile * all.len() as f64).ceil() as usize;
        all[rank.clamp(1, all.len()) - 1]
    }
}

pub fn rate(count: usize, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

/// Fails a workload whose result is wrong: a fast wrong answer is no answer.
pub fn check<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}
