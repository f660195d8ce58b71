//! What orders are called, in every form that VTEX knows.

use rand::RngExt;
use rand::rngs::StdRng;

use super::flow::Flow;
use super::items::happens;

/// The names of the orders of one purchase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Naming {
    /// What the orders of one purchase have in common; an order's id is this, `-` and two digits.
    pub(super) group: String,
    /// The three letters of the marketplace that the purchase came from.
    pub(super) affiliate: Option<&'static str>,
    pub(super) flow: Flow,
}

/// Gives out names that never repeat.
#[derive(Debug)]
pub(super) struct OrderIds {
    next: u64,
    /// Probability of an id that has to be escaped in a path.
    odd: f64,
}

impl OrderIds {
    pub(super) fn new(odd: f64, rng: &mut StdRng) -> Self {
        Self { next: rng.random_range(1_100_000_000_000..1_500_000_000_000), odd }
    }

    /// The next purchase: mostly of the store itself, one in eight from a marketplace.
    pub(super) fn draw(&mut self, rng: &mut StdRng) -> Naming {
        // VTEX counts up by random steps.
        self.next += rng.random_range(1..5_000);
        let number = self.next;
        if happens(self.odd, rng) {
            let (affiliate, group) = odd_group(rng.random_range(0..ODD_FORMS), number);
            return Naming { group, affiliate: Some(affiliate), flow: Flow::Seller };
        }
        match rng.random_range(0..8) {
            0 => Naming { group: format!("SBX-{number}"), affiliate: Some("SBX"), flow: Flow::Seller },
            1 => Naming { group: format!("v{number}sbx"), affiliate: None, flow: Flow::Complete },
            _ => Naming { group: number.to_string(), affiliate: None, flow: Flow::Complete },
        }
    }
}

const ODD_FORMS: u8 = 6;

/// A marketplace's own ids have no fixed form.
fn odd_group(form: u8, number: u64) -> (&'static str, String) {
    match form {
        0 => ("SPC", format!("SPC-order {number}")),
        1 => ("SLH", format!("SLH-{number}/1")),
        2 => ("PCT", format!("PCT-{number}%2F")),
        3 => ("UTF", format!("UTF-ção-№{number}")),
        4 => ("DOT", format!("DOT-../{number}")),
        _ => ("QRY", format!("QRY-{number}?a=1&b=2#c")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeSet;

    fn draw(odd: f64) -> Vec<Naming> {
        let mut rng = StdRng::seed_from_u64(1);
        let mut ids = OrderIds::new(odd, &mut rng);
        (0..1_000).map(|_| ids.draw(&mut rng)).collect()
    }

    #[test]
    fn ids_have_the_documented_forms_and_never_repeat() {
        let names = draw(0.0);
        let count = |form: fn(&str) -> bool| names.iter().filter(|name| form(&name.group)).count();
        assert!(count(|group| group.len() == 13 && group.bytes().all(|b| b.is_ascii_digit())) > 600);
        assert!(count(|group| group.starts_with('v') && group.ends_with("sbx")) > 50);
        assert!(count(|group| group.starts_with("SBX-")) > 50);
        assert_eq!(names.iter().map(|name| &name.group).collect::<BTreeSet<_>>().len(), 1_000);
    }

    #[test]
    fn odd_ids_hold_every_character_that_a_path_needs_escaped() {
        let all: String = draw(1.0).into_iter().map(|name| name.group).collect();
        for character in [' ', '/', '%', 'ç', '№', '?', '#', '&'] {
            assert!(all.contains(character), "{character}");
        }
    }
}
