//! What users promise: `ttft<2s,tpot<15ms,e2e<30s`.

use simulator::cost::closed_loop::Estimate;

use crate::failure::Failure;

/// What is promised of means; seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Slo {
    pub(crate) ttft: Option<f64>,
    pub(crate) tpot: Option<f64>,
    pub(crate) e2e: Option<f64>,
}

/// What is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    Ttft,
    Tpot,
    E2e,
}

impl Broken {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
        }
    }
}

impl Slo {
    /// Reads a list of upper bounds.
    ///
    /// # Errors
    /// If a bound is no time, is given twice, or two contradict each other for answers of `output` tokens.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut slo = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let failed = |cause: String| {
                Failure::new(format!("failed to read `--slo {text}`"))
                    .caused_by(cause)
                    .hint("write upper bounds such as `ttft<2s,tpot<15ms,e2e<30s`")
            };
            let (name, bound) = part
                .split_once("<=")
                .or_else(|| part.split_once('<'))
                .ok_or_else(|| failed(format!("`{part}` is no upper bound")))?;
            let seconds =
                seconds(bound.trim()).ok_or_else(|| failed(format!("`{bound}` is no time above 0")))?;
            let slot = match name.trim() {
                "ttft" => &mut slo.ttft,
                "tpot" | "itl" => &mut slo.tpot,
                "e2e" | "latency" => &mut slo.e2e,
                other => return Err(failed(format!("`{other}` is not known; known are ttft, tpot, e2e"))),
            };
            if slot.replace(seconds).is_some() {
                return Err(failed(format!("`{}` is bounded twice: which one holds?", name.trim())));
            }
        }
        if slo == Self::default() {
            return Err(Failure::new("failed to read `--slo`: it bounds nothing")
                .hint("write upper bounds such as `ttft<2s,tpot<15ms`"));
        }
        if let (Some(e2e), Some(ttft)) = (slo.e2e, slo.ttft)
            && e2e < ttft
        {
            return Err(Failure::new(format!("failed to read `--slo {text}`"))
                .caused_by("it contradicts itself: an answer may not take less time than its first token")
                .hint("raise `e2e`, or lower `ttft`"));
        }
        Ok(slo)
    }

    /// What an estimate does not keep, worst first; times are multiplied by the intervals' factors.
    pub(crate) fn broken(&self, estimate: &Estimate, tpot_times: f64, ttft_times: f64) -> Option<Broken> {
        let over = [
            (Broken::Ttft, self.ttft, estimate.ttft * ttft_times),
            (Broken::Tpot, self.tpot, estimate.tpot * tpot_times),
            (Broken::E2e, self.e2e, estimate.ttft * ttft_times + (estimate.e2e - estimate.ttft) * tpot_times),
        ];
        over.into_iter()
            .filter_map(|(broken, bound, value)| bound.map(|bound| (broken, value / bound)))
            .filter(|(_, share)| *share > 1.0)
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(broken, _)| broken)
    }
}

/// A time with its unit: `15ms`, `2s`, `1.5min`.
pub(crate) fn seconds(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return None,
    };
    let value = number.trim().parse::<f64>().ok()? * unit;
    (value > 0.0 && value.is_finite()).then_some(value)
}

/// A rate: `20/s`, `600/min`, or requests a second.
pub(crate) fn rate(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
    let unit = match unit.trim() {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let value = number.trim().parse::<f64>().ok()? / unit;
    (value > 0.0 && value.is_finite()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_with_their_units() {
        let slo = Slo::parse("ttft<2s, tpot<=15ms").ok();
        assert_eq!(slo, Some(Slo { ttft: Some(2.0), tpot: Some(0.015), e2e: None }));
        assert_eq!(rate("600/min"), Some(10.0));
        for wrong in
            ["", "ttft", "ttft<", "ttft<0s", "ttft<2", "ttft>2s", "ttft<2s,ttft<1s", "e2e<1s,ttft<2s", "x<1s"]
        {
            assert!(Slo::parse(wrong).is_err(), "{wrong}");
        }
    }
}
