//! The document of an order, as `GET /api/oms/pvt/orders/{id}` answers it: VTEX's shape and size, made-up content.
//!
//! Every field that would hold something about a person holds the word [`DECOY`], so that nobody takes it for a
//! person's and a test can search logs and files for it.

use jiff::{SignedDuration, Timestamp};
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::behaviour::OrderBehaviour;
use super::items::{date, happens};
use super::life::Order;

/// Marks made-up personal data.
pub const DECOY: &str = "DECOY";

/// What is special about an order; drawn from a generator of its own, so that an order stays as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Traits {
    pub(super) missing: bool,
    incomplete: bool,
    /// In place of the true status.
    odd_status: Option<Option<&'static str>>,
}

impl Traits {
    pub(super) fn draw(behaviour: &OrderBehaviour, rng: &mut StdRng) -> Self {
        let missing = happens(behaviour.missing, rng);
        let incomplete = happens(behaviour.incomplete, rng);
        let odd = [None, Some(""), Some("detail.state.null")][rng.random_range(0..3)];
        Self { missing, incomplete, odd_status: happens(behaviour.odd_status, rng).then_some(odd) }
    }
}

/// The whole document; `rng` decides what was bought.
pub(super) fn document(order: &Order, traits: Traits, epoch: Timestamp, rng: &mut StdRng) -> Value {
    let wall = |at| wall(epoch, at);
    let entered = |states: &[&str]| states.iter().find_map(|state| order.entered(state)).map(wall);
    let mut templates = templates();
    let items: Vec<Value> = (0..rng.random_range(1..=4)).map(|_| item(&templates["item"], rng)).collect();
    let logistics: Vec<Value> =
        (0..items.len()).map(|index| logistics(&templates["logistics"], index)).collect();
    let goods: u64 =
        items.iter().filter_map(|item| Some(item["price"].as_u64()? * item["quantity"].as_u64()?)).sum();
    let value = goods + FREIGHT;
    // What VTEX shows in place of a buyer's address has 32 hex digits in front, too.
    let alias = format!("{:032x}-{DECOY}@ct.example", rng.random::<u128>());

    let mut document = templates["order"].take();
    fill_common(&mut document, order, epoch);
    document["orderGroup"] = (*order.group).into();
    document["marketplaceOrderId"] = order.affiliate.map_or("", |_| &*order.group).into();
    document["sellerOrderId"] = format!("00-{}", order.id).into();
    document["status"] = traits.odd_status.unwrap_or_else(|| order.state()).into();
    document["isCompleted"] = (!traits.incomplete).into();
    document["value"] = value.into();
    document["authorizedDate"] = entered(&["payment-approved", "authorize-fulfillment"]).into();
    document["invoicedDate"] = entered(&["invoiced"]).into();
    document["totals"][0]["value"] = goods.into();
    document["totals"][2]["value"] = FREIGHT.into();
    document["items"] = items.into();
    document["clientProfileData"]["email"] = alias.into();
    document["shippingData"]["logisticsInfo"] = logistics.into();
    let transaction = &mut document["paymentData"]["transactions"][0];
    transaction["transactionId"] = hex_id(rng);
    let payment = &mut transaction["payments"][0];
    payment["id"] = hex_id(rng);
    payment["value"] = value.into();
    payment["referenceValue"] = value.into();
    payment["tid"] = rng.random_range(10_000_000..99_999_999_u32).to_string().into();
    if let Some(at) = entered(&["canceled"]) {
        document["cancelReason"] = "Cancelled in the sandbox".into();
        document["cancellationData"] = json!({
            "RequestedByUser": false, "RequestedBySystem": true, "RequestedBySellerNotification": false,
            "RequestedByPaymentNotification": false, "Reason": "Cancelled in the sandbox", "CancellationDate": at,
        });
    }
    document
}

/// One row of the list of orders.
pub(super) fn list_row(order: &Order, epoch: Timestamp) -> Value {
    let mut row = templates()["row"].take();
    fill_common(&mut row, order, epoch);
    row["marketPlaceOrderId"] = order.affiliate.map(|_| &*order.group).into();
    row["status"] = order.state().into();
    row
}

/// Cents.
const FREIGHT: u64 = 1_990;

/// The shapes, with all that is the same for every order.
fn templates() -> Value {
    serde_json::from_str(include_str!("templates.json")).unwrap_or_default()
}

/// What a document and a row of the list have in common.
fn fill_common(of: &mut Value, order: &Order, epoch: Timestamp) {
    of["orderId"] = (*order.id).into();
    of["sequence"] = order.sequence.to_string().into();
    of["creationDate"] = wall(epoch, order.purchased_at).into();
    of["lastChange"] = wall(epoch, order.last_change()).into();
    if let Some(affiliate) = order.affiliate {
        of["affiliateId"] = affiliate.into();
        of["origin"] = "Fulfillment".into();
    }
}

fn item(template: &Value, rng: &mut StdRng) -> Value {
    let sku = rng.random_range(1_000..100_000_u32);
    let price: u64 = rng.random_range(500..100_000);
    let mut item = template.clone();
    item["uniqueId"] = hex_id(rng);
    item["id"] = sku.to_string().into();
    item["sellerSku"] = sku.to_string().into();
    item["productId"] = (sku / 10).to_string().into();
    item["ean"] = format!("000{sku:010}").into();
    item["lockId"] = format!("00-sandbox-{sku}").into();
    item["name"] = format!("Sandbox article {sku}").into();
    item["refId"] = format!("SBX-{sku}").into();
    item["quantity"] = rng.random_range(1..=3_u64).into();
    for member in ["price", "listPrice", "sellingPrice", "costPrice"] {
        item[member] = price.into();
    }
    item["priceDefinition"]["sellingPrices"][0]["value"] = price.into();
    item["priceDefinition"]["calculatedSellingPrice"] = price.into();
    item["priceDefinition"]["total"] = price.into();
    item
}

/// The first item bears the freight.
fn logistics(template: &Value, index: usize) -> Value {
    let freight = if index == 0 { FREIGHT } else { 0 };
    let mut logistics = template.clone();
    logistics["itemIndex"] = index.into();
    logistics["itemId"] = (index + 1).to_string().into();
    for member in ["price", "listPrice", "sellingPrice"] {
        logistics[member] = freight.into();
    }
    logistics["slas"][0]["price"] = freight.into();
    logistics
}

fn hex_id(rng: &mut StdRng) -> Value {
    format!("{:032X}", rng.random::<u128>()).into()
}

/// A date as order documents have it, with an offset.
fn wall(epoch: Timestamp, at: SignedDuration) -> String {
    format!("{}+00:00", date(epoch.saturating_add(at).unwrap_or(epoch)))
}
