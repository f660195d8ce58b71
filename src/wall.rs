//! Wall time: what clocks on the wall show, which is set and jumps. Waits never go by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Where wall time comes from. Clones show the same time.
#[derive(Debug, Clone, Default)]
pub enum Wall {
    #[default]
    System,
    Simulated(SimulatedWall),
}

/// Goes as tokio's clock goes, and jumps when told to.
#[derive(Debug, Clone)]
pub struct SimulatedWall {
    origin: Timestamp,
    start: Instant,
    jumped_ms: Arc<AtomicI64>,
}

impl Wall {
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Simulated(wall) => wall.now(),
        }
    }
}

impl SimulatedWall {
    /// Shows `origin` now.
    pub fn new(origin: Timestamp) -> Self {
        Self { origin, start: Instant::now(), jumped_ms: Arc::default() }
    }

    /// Sets the clock forward, or back where `by_ms` is negative.
    pub fn jump(&self, by_ms: i64) {
        self.jumped_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    fn now(&self) -> Timestamp {
        let gone = SignedDuration::try_from(self.start.elapsed()).unwrap_or_default();
        let jumped = SignedDuration::from_millis(self.jumped_ms.load(Ordering::Relaxed));
        self.origin.saturating_add(gone + jumped).unwrap_or(self.origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_wall_goes_with_time_and_jumps_for_all_its_clones() {
        let simulated = SimulatedWall::new("2026-03-02T12:00:00Z".parse().unwrap());
        let wall = Wall::Simulated(simulated.clone());
        tokio::time::sleep(std::time::Duration::from_secs(61)).await;
        assert_eq!(wall.now().to_string(), "2026-03-02T12:01:01Z");
        simulated.jump(-3_600_000);
        assert_eq!(wall.now().to_string(), "2026-03-02T11:01:01Z");
    }
}
