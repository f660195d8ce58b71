//! The ways an order takes through VTEX's workflow, and how long each step takes.

use std::ops::Range;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

/// Whose workflow an order follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    /// Of a store that sells and ships.
    Complete,
    /// Of a seller who ships for a marketplace.
    Seller,
}

/// An order enters `state` this long after the purchase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    pub(super) after: Duration,
    pub(super) state: &'static str,
}

/// The way of one order from its purchase to `invoiced` or `canceled`: 5 to 14 steps, at most [`LONGEST`].
pub(super) fn draw(flow: Flow, rng: &mut StdRng) -> Vec<Step> {
    let (begin, paid, ask_cancel) = match flow {
        Flow::Complete => (COMPLETE_BEGIN, COMPLETE_PAID, COMPLETE_ASK_CANCEL),
        Flow::Seller => (SELLER_BEGIN, SELLER_PAID, SELLER_ASK_CANCEL),
    };
    let legs = match rng.random_range(0..100) {
        0..4 => [begin, UNPAID].concat(),
        4..7 => [begin, paid, ask_cancel, CANCEL].concat(),
        7..10 => [begin, paid, READY, HANDLING, ask_cancel, CANCEL].concat(),
        _ => [begin, paid, READY, HANDLING, INVOICE].concat(),
    };
    let mut steps = walk(Duration::ZERO, &legs, rng);
    // A cancelled order may flip once more and tell so twice.
    if let Some(last) = steps.last().filter(|last| last.state == "canceled").copied()
        && rng.random_range(0..10) == 0
    {
        steps.extend(walk(last.after, FLIP, rng));
    }
    steps
}

/// What follows `ready-for-handling` once somebody starts the handling `after` the purchase.
pub(super) fn draw_handling(after: Duration, rng: &mut StdRng) -> Vec<Step> {
    let mut steps: Vec<Step> = HANDLING.iter().map(|leg| Step { after, state: leg.0 }).collect();
    steps.extend(walk(after, INVOICE, rng));
    steps
}

/// Whether the marketplace's or the fulfilment's side of VTEX tells of this state.
pub(super) fn domain(flow: Flow, state: &str) -> &'static str {
    let shipping = [READY, HANDLING, INVOICE].concat().iter().any(|leg| leg.0 == state);
    match flow {
        Flow::Complete if !shipping => "Marketplace",
        Flow::Complete | Flow::Seller => "Fulfillment",
    }
}

/// The longest way, in time.
pub(super) const LONGEST: Duration = Duration::from_secs(21_600);

/// A state, and the seconds that pass before it is entered.
type Leg = (&'static str, Range<u32>);

const COMPLETE_BEGIN: &[Leg] =
    &[("order-created", 0..1), ("on-order-completed", 1..6), ("payment-pending", 1..10)];
const COMPLETE_PAID: &[Leg] =
    &[("approve-payment", 5..1_200), ("payment-approved", 1..4), ("window-to-cancel", 1..5)];
const COMPLETE_ASK_CANCEL: &[Leg] = &[("request-cancel", 60..1_700)];

const SELLER_BEGIN: &[Leg] =
    &[("order-accepted", 0..1), ("on-order-completed-ffm", 1..6), ("waiting-ffmt-authorization", 1..10)];
const SELLER_PAID: &[Leg] = &[("authorize-fulfillment", 5..1_200), ("window-to-cancel", 1..5)];
const SELLER_ASK_CANCEL: &[Leg] = &[("cancellation-requested", 60..1_700)];

/// The grace period in which a buyer may cancel is half an hour unless a store changes it.
const READY: &[Leg] = &[("ready-for-handling", 1_800..1_860)];
const HANDLING: &[Leg] = &[("start-handling", 60..5_400), ("handling", 1..6)];
const INVOICE: &[Leg] = &[("invoice", 600..10_800), ("invoiced", 1..11)];
const UNPAID: &[Leg] = &[("cancel", 3_600..7_200), ("canceled", 2..30)];
const CANCEL: &[Leg] = &[("cancel", 5..600), ("canceled", 2..30)];
const FLIP: &[Leg] = &[("cancel", 1..60), ("canceled", 1..30)];

fn walk(start: Duration, legs: &[Leg], rng: &mut StdRng) -> Vec<Step> {
    let mut after = start;
    legs.iter()
        .map(|(state, gap)| {
            let seconds = f64::from(gap.start)..f64::from(gap.end);
            after += Duration::from_secs_f64(rng.random_range(seconds));
            Step { after, state }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn most_orders_are_invoiced_some_are_cancelled_and_none_takes_longer_than_said() {
        let mut rng = StdRng::seed_from_u64(1);
        for flow in [Flow::Complete, Flow::Seller] {
            let ways: Vec<Vec<Step>> = (0..2_000).map(|_| draw(flow, &mut rng)).collect();
            let ends = |state| ways.iter().filter(|way| way.last().unwrap().state == state).count();
            assert_eq!(ends("invoiced") + ends("canceled"), 2_000);
            assert!((120..280).contains(&ends("canceled")), "{}", ends("canceled"));
            for way in &ways {
                assert!(way.is_sorted_by_key(|step| step.after));
                assert!(way.last().unwrap().after <= LONGEST);
                assert!((5..=14).contains(&way.len()), "{way:?}");
            }
        }
    }

    #[test]
    fn an_order_waits_half_an_hour_before_it_is_ready_for_handling() {
        let mut rng = StdRng::seed_from_u64(2);
        let way = (0..100).map(|_| draw(Flow::Complete, &mut rng)).find(|way| way.len() == 11).unwrap();
        let at = |state| way.iter().find(|step| step.state == state).unwrap().after;
        assert!(at("ready-for-handling") - at("window-to-cancel") >= Duration::from_secs(1_800));
    }

    #[test]
    fn the_shipping_states_of_a_complete_flow_are_told_by_the_fulfilment() {
        assert_eq!(domain(Flow::Complete, "payment-approved"), "Marketplace");
        assert_eq!(domain(Flow::Complete, "ready-for-handling"), "Fulfillment");
        assert_eq!(domain(Flow::Seller, "order-accepted"), "Fulfillment");
    }
}
