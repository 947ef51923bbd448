//! Which rule chooses the group size: the engine's own, and the proposals that people compare, by name.

use planner::GroupSizeRule;

/// Names as they are written, and what they do, for the help.
pub(crate) const NAMES: &[(&str, &str)] = &[
    ("default", "the engine's own rule"),
    ("49472", "or `padding-plus-groups`: least padding plus 1 a group; `49472=X` weighs a group X layers"),
    ("51742", "or `skip-single-layers`: buckets of one layer do not count for the minimum"),
    ("36143=N", "or `fixed=N`: groups of N layers"),
    ("31275", "or `least-padding`: the largest size with padding of at most 10%"),
    ("58175", "or `divide-full-attention`: a divisor of the full-attention buckets"),
    ("old-1.25", "the threshold of 1.25 that vLLM used before its pull request 36684"),
];

/// Why a text names no rule.
#[derive(Debug)]
pub(crate) struct NoRule {
    pub(crate) cause: String,
    pub(crate) hint: String,
}

/// The rule of that name; `None` is the engine's own.
pub(crate) fn parse(text: &str) -> Result<Option<GroupSizeRule>, NoRule> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => (text.trim(), None),
    };
    let rule = match name.strip_prefix('#').unwrap_or(name) {
        "default" => None,
        "49472" | "padding-plus-groups" => {
            let weight = match value {
                None => 1000,
                Some(value) => thousandths(value).ok_or_else(|| NoRule {
                    cause: format!("`{value}` is no number of padding layers"),
                    hint: "write `49472=X` with X from 0 to 1000000, such as `49472=0.5`".to_owned(),
                })?,
            };
            return Ok(Some(GroupSizeRule::PaddingPlusGroups { padding_per_group_milli: weight }));
        }
        "51742" | "skip-single-layers" => Some(GroupSizeRule::SkipSingleLayers),
        "36143" | "fixed" => {
            let size = value.and_then(|value| value.parse().ok()).filter(|size| *size > 0);
            let size = size.ok_or_else(|| NoRule {
                cause: format!("`{text}` has no group size"),
                hint: "write `36143=N` with the layers of a group, such as `36143=8`".to_owned(),
            })?;
            return Ok(Some(GroupSizeRule::Fixed(size)));
        }
        "31275" | "least-padding" => Some(GroupSizeRule::LeastPadding),
        "58175" | "divide-full-attention" => Some(GroupSizeRule::DivideFullAttention),
        "old-1.25" => Some(GroupSizeRule::MinOrMax { numerator: 5, denominator: 4 }),
        _ => {
            let names: Vec<&str> = NAMES
                .iter()
                .map(|(name, _)| *name)
                .chain(["padding-plus-groups", "skip-single-layers", "fixed=N", "least-padding"])
                .chain(["divide-full-attention"])
                .collect();
            return Err(NoRule {
                cause: format!("there is no grouping `{}`", super::complaint::cut(text, 60)),
                hint: match super::complaint::nearest(name, &names) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => super::complaint::list_of("grouping", &names),
                },
            });
        }
    };
    match value {
        None => Ok(rule),
        Some(_) => Err(NoRule {
            cause: format!("grouping `{name}` takes no value"),
            hint: format!("write `{name}`"),
        }),
    }
}

/// A decimal number of at least 0, in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || fraction.len() > 3 || !text.chars().all(|c| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let whole: u64 = whole.parse().ok().filter(|whole| *whole <= 1_000_000)?;
    let fraction: u64 = if fraction.is_empty() { 0 } else { format!("{fraction:0<3}").parse().ok()? };
    Some(whole * 1000 + fraction)
}
