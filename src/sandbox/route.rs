//! Which of VTEX's routes a request asks for.

use hyper::Method;
use percent_encoding::percent_decode_str;
use reqwest::Url;
use serde::{Deserialize, Serialize};

/// A request as far as its first line tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Receive,
    Commit,
    ShowConfig,
    SetConfig,
    DeleteConfig,
    TestExpression,
    ListOrders,
    /// With the order's id, decoded.
    GetOrder(String),
    StartHandling(String),
}

/// Why there is no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoRoute {
    Unknown,
    /// With the methods that there are.
    WrongMethod(&'static str),
}

/// What requests are called in logs, faults and the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub enum Operation {
    #[serde(rename = "feed.receive")]
    FeedReceive,
    #[serde(rename = "feed.commit")]
    FeedCommit,
    #[serde(rename = "feed.config")]
    FeedConfig,
    #[serde(rename = "expression.test")]
    ExpressionTest,
    #[serde(rename = "order.list")]
    OrderList,
    #[serde(rename = "order.get")]
    OrderGet,
    #[serde(rename = "order.start_handling")]
    OrderStartHandling,
}

impl Route {
    /// Finds the route; one slash at the end of the path is overlooked.
    ///
    /// # Errors
    /// [`NoRoute`] when VTEX would answer 404 or 405.
    pub(super) fn find(method: &Method, path: &str) -> Result<Self, NoRoute> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        match segments[..] {
            ["api", "orders", "feed"] => match *method {
                Method::GET => Ok(Self::Receive),
                Method::POST => Ok(Self::Commit),
                _ => Err(NoRoute::WrongMethod("GET, POST")),
            },
            ["api", "orders", "feed", "config"] => match *method {
                Method::GET => Ok(Self::ShowConfig),
                Method::POST => Ok(Self::SetConfig),
                Method::DELETE => Ok(Self::DeleteConfig),
                _ => Err(NoRoute::WrongMethod("GET, POST, DELETE")),
            },
            ["api", "orders", "expressions", "jsonata"] => {
                only(&Method::POST, "POST", method, Self::TestExpression)
            }
            ["api", "oms", "pvt", "orders"] => only(&Method::GET, "GET", method, Self::ListOrders),
            ["api", "oms", "pvt", "orders", id] => {
                only(&Method::GET, "GET", method, Self::GetOrder(decoded(id)?))
            }
            ["api", "oms", "pvt", "orders", id, "start-handling"] => {
                only(&Method::POST, "POST", method, Self::StartHandling(decoded(id)?))
            }
            _ => Err(NoRoute::Unknown),
        }
    }

    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::Receive => Operation::FeedReceive,
            Self::Commit => Operation::FeedCommit,
            Self::ShowConfig | Self::SetConfig | Self::DeleteConfig => Operation::FeedConfig,
            Self::TestExpression => Operation::ExpressionTest,
            Self::ListOrders => Operation::OrderList,
            Self::GetOrder(_) => Operation::OrderGet,
            Self::StartHandling(_) => Operation::OrderStartHandling,
        }
    }
}

/// The names and values of a query, decoded, in their order.
pub(super) fn parameters(query: &str) -> Vec<(String, String)> {
    let url = Url::parse(&format!("http://sandbox/?{query}"));
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

fn only(allowed: &Method, name: &'static str, method: &Method, route: Route) -> Result<Route, NoRoute> {
    if method == allowed { Ok(route) } else { Err(NoRoute::WrongMethod(name)) }
}

fn decoded(segment: &str) -> Result<String, NoRoute> {
    percent_decode_str(segment).decode_utf8().map(Into::into).map_err(|_| NoRoute::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_methods_are_those_of_vtex() {
        let wrong = |allowed| Err(NoRoute::WrongMethod(allowed));
        let table = [
            ("GET", "/api/orders/feed", Ok(Route::Receive)),
            ("GET", "/api/orders/feed/", Ok(Route::Receive)),
            ("POST", "/api/orders/feed", Ok(Route::Commit)),
            ("PUT", "/api/orders/feed", wrong("GET, POST")),
            ("DELETE", "/api/orders/feed/config", Ok(Route::DeleteConfig)),
            ("PATCH", "/api/orders/feed/config", wrong("GET, POST, DELETE")),
            ("GET", "/api/orders/expressions/jsonata", wrong("POST")),
            ("GET", "/api/oms/pvt/orders", Ok(Route::ListOrders)),
            ("GET", "/api/oms/pvt/orders/SLH-7%2F1%20x-01", Ok(Route::GetOrder("SLH-7/1 x-01".into()))),
            ("POST", "/api/oms/pvt/orders/1-01/start-handling", Ok(Route::StartHandling("1-01".into()))),
            ("GET", "/api/oms/pvt/orders/1-01/invoice", Err(NoRoute::Unknown)),
            ("GET", "/api/oms/pvt/orders/%ff", Err(NoRoute::Unknown)),
            ("GET", "/api/orders/feeds", Err(NoRoute::Unknown)),
            ("GET", "/", Err(NoRoute::Unknown)),
        ];
        for (method, path, expected) in table {
            assert_eq!(Route::find(&method.parse().unwrap(), path), expected, "{method} {path}");
        }
    }
}
