//! The states that orders are known to go through.
//!
//! Source: VTEX help, "Order flow and status", and the Orders API. VTEX may add others, so an unknown one is doubtful,
//! not wrong.

const KNOWN: &[&str] = &[
    "approve-payment",
    "authorize-fulfillment",
    "cancel",
    "canceled",
    "cancellation-request-denied",
    "cancellation-request-denied-ffm",
    "cancellation-requested",
    "handling",
    "invoice",
    "invoice-after-cancellation-deny",
    "invoiced",
    "on-order-completed",
    "on-order-completed-ffm",
    "order-accepted",
    "order-completed",
    "order-create-error",
    "order-created",
    "order-creation-error",
    "payment-approved",
    "payment-denied",
    "payment-pending",
    "ready-for-handling",
    "ready-for-invoicing",
    "release-to-fulfillment",
    "replaced",
    "request-cancel",
    "start-handling",
    "waiting-ffmt-authorization",
    "waiting-for-authorization",
    "waiting-for-fulfillment",
    "waiting-for-manual-authorization",
    "waiting-for-mkt-authorization",
    "waiting-for-order-authorization",
    "waiting-for-seller-decision",
    "waiting-seller-handling",
    "window-to-cancel",
    "window-to-change-payment",
    "window-to-change-seller",
];

/// The known state that is nearest to one that is not known; `None` for a known one, and for `""`, which is an event
/// without a state.
pub(super) fn meant_by(state: &str) -> Option<&'static str> {
    if state.is_empty() || KNOWN.contains(&state) {
        return None;
    }
    KNOWN.iter().copied().min_by_key(|known| strsim::damerau_levenshtein(&state.to_lowercase(), known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_state_is_told_from_a_known_one() {
        for (state, meant) in [
            ("redy-for-handling", Some("ready-for-handling")),
            ("Handling", Some("handling")),
            ("cancelled", Some("canceled")),
            ("handling", None),
            ("", None),
        ] {
            assert_eq!(meant_by(state), meant, "{state}");
        }
    }
}
