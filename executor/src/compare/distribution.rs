//! What are the tails and quantiles of Student's t and Fisher's F?
//!
//! Both come from the regularised incomplete beta function, evaluated by its continued fraction (Abramowitz
//! and Stegun 26.5.8, modified Lentz). Accurate to about 1e-10 for the degrees of freedom used here.

/// The natural logarithm of the gamma function for `x > 0` (Lanczos, g = 7, nine terms).
pub(crate) fn ln_gamma(x: f64) -> f64 {
    const COEFFICIENTS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    if x < 0.5 {
        return (std::f64::consts::PI / (std::f64::consts::PI * x).sin()).ln() - ln_gamma(1.0 - x);
    }
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    let mut term = 1.0;
    for coefficient in COEFFICIENTS {
        sum += coefficient / (x + term);
        term += 1.0;
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularised incomplete beta function I_x(a, b), for `0 <= x <= 1` and positive `a`, `b`.
pub(crate) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * continued_fraction(a, b, x) / a
    } else {
        1.0 - front * continued_fraction(b, a, 1.0 - x) / b
    }
}

fn continued_fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away_from_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut result = d;
    let mut m = 1.0;
    while m < 20_000.0 {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away_from_zero(1.0 + even * d);
        c = away_from_zero(1.0 + even / c);
        result *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away_from_zero(1.0 + odd * d);
        c = away_from_zero(1.0 + odd / c);
        let step = d * c;
        result *= step;
        if (step - 1.0).abs() < 1e-15 {
            break;
        }
        m += 1.0;
    }
    result
}

/// The probability that |T| is at least `t` for Student's t with `df` degrees of freedom.
pub fn t_two_sided(t: f64, df: f64) -> f64 {
    if t.is_nan() || df <= 0.0 {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(df / 2.0, 0.5, df / (df + t * t))
}

/// The value that |T| exceeds with probability `two_sided` (in (0, 1)) for `df` degrees of freedom.
pub fn t_quantile(two_sided: f64, df: f64) -> f64 {
    let mut high = 1.0;
    while t_two_sided(high, df) > two_sided && high < 1e12 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if t_two_sided(middle, df) > two_sided {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The probability that Fisher's F with `above` and `below` degrees of freedom is at least `f`.
pub(crate) fn f_upper(f: f64, above: f64, below: f64) -> f64 {
    if f.is_infinite() {
        return 0.0;
    }
    incomplete_beta(below / 2.0, above / 2.0, below / (below + above * f))
}

/// Degrees of freedom at which Student's t is the normal distribution for every purpose here.
pub(crate) const NORMAL_DF: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_match_printed_tables() {
        // Two-sided 5% and 2% points, from any table of Student's t.
        for (df, five, two) in
            [(1.0, 12.706, 31.821), (2.0, 4.303, 6.965), (4.0, 2.776, 3.747), (30.0, 2.042, 2.457)]
        {
            assert!((t_quantile(0.05, df) - five).abs() < 6e-4, "df {df}");
            assert!((t_quantile(0.02, df) - two).abs() < 6e-4, "df {df}");
        }
        assert!((t_quantile(0.05, NORMAL_DF) - 1.959_964).abs() < 1e-4);
    }

    #[test]
    fn fisher_matches_the_square_of_student() {
        for t in [0.3, 1.0, 2.5, 7.0] {
            assert!((f_upper(t * t, 1.0, 5.0) - t_two_sided(t, 5.0)).abs() < 1e-12);
        }
        // The 5% point of F(2, 2) is 19.
        assert!((f_upper(19.0, 2.0, 2.0) - 0.05).abs() < 1e-9);
    }
}
