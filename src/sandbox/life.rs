//! Made-up orders on their way through the workflow.

use jiff::Timestamp;
use rand::RngExt;
use rand::rngs::StdRng;

use super::items::{Item, WorkflowEvent, date};

/// Makes events of orders that are under way at the same time. The same generator makes the same events.
#[derive(Debug)]
pub struct Life {
    rng: StdRng,
    under_way: Vec<Order>,
    /// What the next order is called; ids grow by a random step, as VTEX's do.
    next_order: u64,
}

impl Life {
    pub fn new(mut rng: StdRng) -> Self {
        let next_order = rng.random_range(1_100_000_000_000..1_500_000_000_000);
        Self { rng, under_way: Vec::new(), next_order }
    }

    /// The next change of some order, as having happened at `at`; `at` never goes back.
    pub fn next(&mut self, at: Timestamp) -> Item {
        if self.under_way.len() < UNDER_WAY {
            self.start_order(at);
        }
        let chosen = self.rng.random_range(0..self.under_way.len());
        let order = &mut self.under_way[chosen];
        let change = date(at, &mut self.rng);
        let item = WorkflowEvent {
            order_id: &order.id,
            domain: "Marketplace",
            state: STATES[order.step],
            last_state: order.step.checked_sub(1).map(|last| STATES[last]),
            last_change: &order.last_change,
            current_change: &change,
        }
        .item();
        order.last_change = change;
        order.step += 1;
        if order.step == STATES.len() {
            self.under_way.swap_remove(chosen);
        }
        item
    }

    fn start_order(&mut self, at: Timestamp) {
        self.next_order += self.rng.random_range(1..5_000);
        let last_change = date(at, &mut self.rng);
        self.under_way.push(Order { id: format!("{}-01", self.next_order), step: 0, last_change });
    }
}

const UNDER_WAY: usize = 8;

/// The flow of a store that sells and ships.
const STATES: [&str; 10] = [
    "order-created",
    "on-order-completed",
    "payment-pending",
    "payment-approved",
    "window-to-cancel",
    "ready-for-handling",
    "start-handling",
    "handling",
    "invoice",
    "invoiced",
];

#[derive(Debug)]
struct Order {
    id: String,
    /// Which of [`STATES`] comes next.
    step: usize,
    last_change: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::BTreeMap;

    #[test]
    fn every_order_takes_the_states_in_their_order() {
        let mut life = Life::new(StdRng::seed_from_u64(1));
        let mut orders: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for second in 0..500 {
            let item = life.next(Timestamp::from_second(1_772_000_000 + second).unwrap()).value();
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            let states = orders.entry(text("orderId")).or_default();
            assert_eq!(text("lastState"), states.last().cloned().unwrap_or_default());
            states.push(text("state"));
        }
        assert!(orders.len() > 40);
        for states in orders.values() {
            assert_eq!(states[..], STATES[..states.len()]);
        }
    }
}
