//! Which text does the server cut into a given number of tokens?

use executor::load::request::{PlannedRequest, Prompt};
use executor::server::probe::Probe;

/// Tries a prompt; a tokenizer that merges across words needs some.
const TRIES: usize = 10;

/// Turns random token ids into text with the server's own tokenizer.
pub(super) struct Speller<'a> {
    pub(super) probe: &'a Probe,
    pub(super) model: &'a str,
    /// Whether the tokens that the server puts around a prompt count into its length.
    pub(super) special: bool,
}

impl Speller<'_> {
    /// Gives every request of token ids a text, and tells how many have another length than asked; `None` where
    /// the server does not turn ids into text.
    pub(super) fn spell_out<'r>(
        &self,
        requests: impl Iterator<Item = &'r mut PlannedRequest>,
    ) -> Option<usize> {
        let mut around = None;
        let mut off = 0;
        for request in requests {
            let Prompt::Tokens(ids) = &request.prompt else { continue };
            let around = match around {
                Some(known) => known,
                None => *around.insert(self.around(ids)),
            };
            let (text, count) = self.spell(ids, ids.len().saturating_sub(around).max(1))?;
            if let Some(count) = count {
                let whole = count + around;
                off += usize::from(whole != ids.len());
                if self.special {
                    request.prompt_tokens = Some(whole as u64);
                }
            }
            request.prompt = Prompt::Text(text);
        }
        Some(off)
    }

    /// How many tokens the server puts around a prompt.
    fn around(&self, ids: &[u32]) -> usize {
        if !self.special {
            return 0;
        }
        let Some(text) = self.probe.detokenize(self.model, ids) else { return 0 };
        let count = |special| Some(self.probe.tokenize(self.model, &text, special)?.len());
        count(true).zip(count(false)).map_or(0, |(with, without)| with.saturating_sub(without))
    }

    /// A text of `length` tokens made from the ids, and how many it has, where the server tells.
    fn spell(&self, ids: &[u32], length: usize) -> Option<(String, Option<usize>)> {
        let mut tried: Vec<u32> = ids.iter().copied().take(length).collect();
        let mut best: Option<(String, usize)> = None;
        for attempt in 0..TRIES {
            let text = self.probe.detokenize(self.model, &tried)?;
            let Some(again) = self.probe.tokenize(self.model, &text, false) else {
                return Some((text, None));
            };
            let count = again.len();
            if best.as_ref().is_none_or(|(_, had)| count.abs_diff(length) < had.abs_diff(length)) {
                best = Some((text, count));
            }
            if count == length {
                break;
            }
            // Other tokens at the end each time, or the same merge would come again.
            let more = ids.iter().cycle().skip(attempt * 7).copied();
            tried = again.into_iter().take(length).collect();
            let lacking = length - tried.len();
            tried.extend(more.take(lacking));
        }
        best.map(|(text, count)| (text, Some(count)))
    }
}
