//! How a person learns what is wrong with a file: the place, the piece of text, what to write instead.

use super::tree::{Node, Place};
use crate::failure::Failure;

/// Something wrong at a place.
#[derive(Debug)]
pub(super) struct Complaint {
    place: Place,
    causes: Vec<String>,
    hints: Vec<String>,
}

impl Complaint {
    pub(super) fn at(place: &Place, cause: impl Into<String>) -> Self {
        Self { place: place.clone(), causes: vec![cause.into()], hints: Vec::new() }
    }

    /// A value of another type than `wanted`, which reads on after "must be".
    pub(super) fn wrong_type(name: &str, wanted: &str, found: &Node) -> Self {
        Self::at(&found.place, format!("`{name}` must be {wanted}, not {}", found.described()))
    }

    #[must_use]
    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// A name that is none of `choices`; `what` is what it should have been, such as "field".
    pub(super) fn unknown<'a>(
        place: &Place,
        what: &str,
        name: &str,
        choices: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let choices: Vec<&str> = choices.into_iter().collect();
        let complaint = Self::at(place, format!("there is no {what} `{}`", cut(name, 60)));
        match nearest(name, &choices) {
            Some(near) => complaint.hint(format!("did you mean `{near}`?")),
            None => complaint.hint(list_of(what, &choices)),
        }
    }
}

impl From<Complaint> for Failure {
    fn from(complaint: Complaint) -> Self {
        let Complaint { place, causes, hints } = complaint;
        let mut failure = Self::new(format!("failed to read `{}`", place.source.name));
        failure.causes = causes;
        failure.excerpt = place.excerpt();
        failure.hints = hints;
        failure
    }
}

/// "the fields are a, b and c".
pub(super) fn list_of(what: &str, choices: &[&str]) -> String {
    match choices {
        [] => format!("there is no {what} to name"),
        [one] => format!("the only {what} is `{one}`"),
        [most @ .., last] => {
            let most: Vec<String> = most.iter().map(|name| format!("`{name}`")).collect();
            format!("each {what} is one of {} and `{last}`", most.join(", "))
        }
    }
}

/// The choice that `name` was most likely meant to be.
pub(super) fn nearest<'a>(name: &str, choices: &[&'a str]) -> Option<&'a str> {
    // Edit distance grows with the product of both lengths.
    let name: String = name.chars().take(100).map(|c| if c == '-' { '_' } else { c }).collect();
    let name = name.to_lowercase();
    choices
        .iter()
        .map(|choice| {
            let plain = choice.replace('-', "_").to_lowercase();
            (strsim::damerau_levenshtein(&name, &plain), plain.len(), *choice)
        })
        .filter(|(distance, length, _)| {
            let length = *length.min(&name.len());
            *distance <= 1 + length / 4 && *distance < length
        })
        .min_by_key(|(distance, ..)| *distance)
        .map(|(.., choice)| choice)
}

/// At most `limit` characters of a text, in one line.
pub(super) fn cut(text: &str, limit: usize) -> String {
    let clean: String = text.chars().take(limit).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(limit).is_some() { format!("{clean}...") } else { clean }
}

impl Place {
    /// The line of a place with a mark under the column: at most 80 characters of it.
    pub(super) fn excerpt(&self) -> Option<String> {
        let line = self.source.text.lines().nth(self.line.checked_sub(1)?)?;
        let column = self.column.max(1);
        let from = if column > 60 { column - 40 } else { 0 };
        let piece: String =
            line.chars().skip(from).take(80).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let mark = " ".repeat((column - 1).saturating_sub(from));
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        Some(format!(
            "{margin}--> {}:{number}:{column}\n{margin} |\n{number} | {piece}\n{margin} | {mark}^",
            self.source.name
        ))
    }
}
