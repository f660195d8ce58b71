//! What happens while agents come and go: orders, weather, clocks, disks, strangers.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::time::sleep;

use super::coverage::Met;
use super::disk::{Disk, Medium};
use super::plan::{Plan, about, generator, visibility};
use super::receiver::Mood;
use super::storage::Storage;
use super::trace::Step;
use super::weather::Weather;
use super::world::World;

const MEAN_WEATHER: Duration = Duration::from_secs(10 * 60);
const MEAN_MOOD: Duration = Duration::from_secs(10 * 60);
const MEAN_DISK: Duration = Duration::from_secs(15 * 60);
const MEAN_ODDITY: Duration = Duration::from_secs(12 * 60);

/// The most events that come at once.
const BURST: u32 = 60;

/// Lets things happen until it is dropped.
pub(super) async fn happen(world: &Arc<World>, storage: &Storage) -> std::convert::Infallible {
    let Plan { seed, .. } = world.plan;
    tokio::join!(
        orders(world, generator(seed, "orders")),
        weather(world, generator(seed, "weather")),
        moods(world, generator(seed, "moods")),
        disks(world, generator(seed, "disk weather")),
        oddities(world, storage, generator(seed, "oddities")),
    );
    std::future::pending().await
}

/// A trickle for every feed, and a burst now and then.
async fn orders(world: &World, mut rng: StdRng) {
    let n_feeds = world.plan.feeds.len();
    loop {
        sleep(about(world.plan.mean_gap / n_feeds as u32, &mut rng)).await;
        let feed = rng.random_range(0..n_feeds);
        let n_events = if rng.random_bool(0.02) { rng.random_range(1..=BURST) } else { 1 };
        for _ in 0..n_events {
            world.with(|state, now| state.enqueue(now, feed, &mut rng));
        }
    }
}

async fn weather(world: &World, mut rng: StdRng) {
    loop {
        sleep(about(MEAN_WEATHER / world.plan.n_accounts as u32, &mut rng)).await;
        let (account, weather) = (rng.random_range(0..world.plan.n_accounts), Weather::draw(&mut rng));
        world.with(|state, now| {
            state.weather[account] = weather;
            state.note_calm(now);
            state.trace.note(now, Step::Weather { account, weather });
        });
    }
}

/// Of each receiver by itself: it may be down for minutes, and now and then for hours.
async fn moods(world: &World, mut rng: StdRng) {
    let n_receivers = world.plan.receivers.len();
    let mut held_until = vec![Duration::ZERO; n_receivers];
    if n_receivers == 0 {
        return;
    }
    loop {
        sleep(about(MEAN_MOOD / n_receivers as u32, &mut rng)).await;
        let (receiver, mood) = (rng.random_range(0..n_receivers), Mood::draw(&mut rng));
        if world.now() < held_until[receiver] {
            continue;
        }
        if mood == Mood::Down && rng.random_bool(0.2) {
            held_until[receiver] = world.now() + Duration::from_secs(rng.random_range(1_800..10_800));
        }
        world.with(|state, now| {
            if mood == Mood::Down {
                state.coverage.meet(Met::ReceiverDown);
            }
            state.receivers[receiver].mood = mood;
            state.trace.note(now, Step::Mood { receiver, mood });
        });
    }
}

async fn disks(world: &World, mut rng: StdRng) {
    loop {
        sleep(about(MEAN_DISK, &mut rng)).await;
        let medium = match rng.random_range(0..=world.plan.n_sinks) {
            0 => Medium::Journal,
            sink => Medium::Sink(sink - 1),
        };
        let disk = Disk::draw(&mut rng);
        world.with(|state, now| {
            state.disks.insert(medium, disk);
            state.note_calm(now);
            state.trace.note(now, Step::Disk { medium, disk });
        });
    }
}

async fn oddities(world: &World, storage: &Storage, mut rng: StdRng) {
    loop {
        sleep(about(MEAN_ODDITY, &mut rng)).await;
        let feed = rng.random_range(0..world.plan.feeds.len());
        match rng.random_range(0..10) {
            0..3 => jump(world, &mut rng),
            3..5 => world.with(|state, now| state.stranger(feed, now)),
            5 => world.with(|state, now| state.set_visibility(now, feed, visibility(&mut rng))),
            6..8 => world.with(|state, now| {
                let event = state.newest_event(feed);
                state.feeds[feed].poisoned = event;
                if let Some(event) = event {
                    state.trace.note(now, Step::Poisoned { feed, event });
                }
            }),
            8 => world.with(|state, _| state.feeds[feed].poisoned = None),
            _ => rotate(world, storage, rng.random_range(0..world.plan.n_sinks)),
        }
    }
}

/// Sets the wall clock by seconds, hours or days.
fn jump(world: &World, rng: &mut StdRng) {
    let size_ms = [1_000, 60_000, 3_600_000, 86_400_000][rng.random_range(0..4)];
    let by_ms = rng.random_range(-size_ms..=size_ms);
    world.simulated_wall.jump(by_ms);
    world.with(|state, now| {
        state.coverage.meet(if by_ms < 0 { Met::WallBack } else { Met::WallForward });
        state.trace.note(now, Step::WallJumped { by_ms });
    });
}

/// What was in hand may be in both files afterwards: the new one proves nothing about the old.
fn rotate(world: &World, storage: &Storage, sink: usize) {
    world.with(|state, now| {
        if storage.rotate(sink) {
            let in_hand = state.sinks[sink].in_hand.clone();
            state.may_repeat[sink].extend(in_hand);
            state.sinks[sink].unsynced = None;
            state.coverage.meet(Met::SinkRotated);
            state.trace.note(now, Step::Rotated { sink });
        }
    });
}
