//! Long-running parts by name, each of which follows its own piece of the configuration.

use std::collections::BTreeMap;
use std::future::Future;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::RunError;

/// What keeps running under one name while its configuration changes. It lives as long as the agent, so what must
/// outlive a change (when the last poll ended) is its own state.
pub(super) trait Part: Send + 'static {
    type Settings: Clone + PartialEq + Send + Sync + 'static;

    /// Works with these settings until `stop`, then finishes what is in hand.
    fn work(&mut self, settings: Self::Settings, stop: CancellationToken) -> impl Future<Output = ()> + Send;
}

/// The parts of one kind.
pub(super) struct Parts<P: Part> {
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
    wanted: BTreeMap<String, watch::Sender<Option<P::Settings>>>,
}

impl<P: Part> Parts<P> {
    pub(super) fn new(shutdown: CancellationToken) -> Self {
        Self { shutdown, tasks: JoinSet::new(), wanted: BTreeMap::new() }
    }

    /// Starts, changes and stops parts so that exactly these run; what did not change is not disturbed. Returns
    /// how many changed.
    pub(super) fn follow(
        &mut self,
        settings: BTreeMap<String, P::Settings>,
        make: impl Fn(&str) -> P,
    ) -> usize {
        let mut n_changed = 0;
        for (name, wanted) in &self.wanted {
            n_changed += usize::from(want(wanted, settings.get(name)));
        }
        for (name, settings) in settings {
            if !self.wanted.contains_key(&name) {
                let (sender, receiver) = watch::channel(Some(settings));
                self.tasks.spawn(keep(make(&name), receiver, self.shutdown.clone()));
                self.wanted.insert(name, sender);
                n_changed += 1;
            }
        }
        n_changed
    }

    /// Waits for a part that ends although nobody asked it to: it panicked. Cancel safe.
    pub(super) async fn ended_early(&mut self) -> RunError {
        match self.tasks.join_next().await {
            Some(ended) => RunError::PartEnded(ended.err()),
            None => std::future::pending().await,
        }
    }

    /// Waits until every part has finished what is in hand.
    pub(super) async fn finished(&mut self) -> Result<(), RunError> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.map_err(|error| RunError::PartEnded(Some(error)))?;
        }
        Ok(())
    }
}

/// Returns whether that is a change.
fn want<S: Clone + PartialEq>(wanted: &watch::Sender<Option<S>>, settings: Option<&S>) -> bool {
    wanted.send_if_modified(|current| {
        let changes = current.as_ref() != settings;
        if changes {
            *current = settings.cloned();
        }
        changes
    })
}

/// Works with one configuration after another. A change stops the work as a shutdown would, so what is in hand is
/// finished before the part goes on with its new settings.
async fn keep<P: Part>(
    mut part: P,
    mut wanted: watch::Receiver<Option<P::Settings>>,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        let settings = wanted.borrow_and_update().clone();
        let Some(settings) = settings else {
            // Switched off; its name may come back.
            shutdown.run_until_cancelled(wanted.changed()).await;
            continue;
        };
        let stop = shutdown.child_token();
        let mut working = std::pin::pin!(part.work(settings, stop.clone()));
        tokio::select! {
            () = &mut working => {}
            _ = wanted.changed() => {
                stop.cancel();
                working.await;
            }
        }
    }
}
