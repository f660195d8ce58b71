//! `demo`: the real agent against a sandbox, through real HTTP, in a temporary directory.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{Failure, load, output};
use crate::observe::metrics::Metrics;
use crate::run;
use crate::sandbox::{Options, Sandbox};

/// Show the whole job on a sandbox of its own; needs no account and no file
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// End by itself after this many events [default: go on until Ctrl-C]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: Option<u64>,

    /// Events per second, where no --count is given
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 1.0, value_parser = super::sandbox::rate)]
    rate: f64,
}

/// The demo did not show what it should have.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("{lost} events were lost and {twice} were delivered twice")]
    Wrong { lost: usize, twice: usize },
    #[error("the temporary directory cannot be used")]
    Directory(#[source] io::Error),
}

/// Shows events as they are delivered, until `--count` is reached or `shutdown`; ends with a summary.
pub(super) async fn run(args: DemoArgs, shutdown: CancellationToken) -> Result<(), Failure> {
    let directory = tempfile::tempdir().map_err(DemoError::Directory)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = write_config(directory.path(), listener.local_addr()?).map_err(DemoError::Directory)?;
    let options = match args.count {
        Some(count) => Options { count, ..Options::default() },
        None => Options { count: 5, rate: args.rate, ..Options::default() },
    };
    let sandbox = Sandbox::new(options);
    let serving = tokio::spawn({
        let sandbox = sandbox.clone();
        async move { sandbox.serve(listener, CancellationToken::new()).await }
    });

    let mut shown = Shown::default();
    let deliveries = directory.path().join("orders.jsonl");
    let stopping = shutdown.clone();
    let agent = run::run(load(&config)?.config, None, Metrics::default(), shutdown);
    let watching = async {
        // Whatever ends the watching ends the agent.
        let _ended = stopping.clone().drop_guard();
        while !stopping.is_cancelled() {
            shown.follow(&deliveries).await?;
            if args
                .count
                .is_some_and(|count| count <= sandbox.counts().committed && count <= shown.n_events())
            {
                stopping.cancel();
            }
            stopping.run_until_cancelled(sleep(Duration::from_millis(50))).await;
        }
        io::Result::Ok(())
    };
    let (ended, watched) = tokio::join!(agent, watching);
    ended?;
    let watched = match watched {
        Ok(()) => shown.follow(&deliveries).await,
        Err(error) => Err(error),
    };
    serving.abort();
    match watched {
        Ok(()) => summarize(&sandbox, &shown),
        // Whoever watched has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(DemoError::Directory(error).into()),
    }
}

/// Writes what a user would write, so that the demo takes the same way as everything else.
fn write_config(directory: &Path, address: SocketAddr) -> io::Result<PathBuf> {
    let text = format!(
        "[accounts.demo]\n\
         base_url = \"http://{address}\"\n\
         app_key = \"vtexappkey-demo-AAAAAA\"\n\
         app_token = \"any-token-will-do\"\n\
         [poll]\n\
         interval = \"5s\"\n\
         [journal]\n\
         path = '{journal}'\n\
         [sinks.file]\n\
         type = \"file\"\n\
         path = '{file}'\n",
        journal = directory.join("journal.db").display(),
        file = directory.join("orders.jsonl").display(),
    );
    let path = directory.join("config.toml");
    std::fs::write(&path, text)?;
    Ok(path)
}

/// The deliveries that were shown so far.
#[derive(Default)]
struct Shown {
    /// How often each envelope id was delivered.
    times: HashMap<String, u64>,
    /// Bytes of the file that were read.
    offset: u64,
}

#[derive(Deserialize)]
struct Line {
    id: String,
    subject: String,
    state: String,
    sequence: String,
    time: String,
}

impl Shown {
    fn n_events(&self) -> u64 {
        self.times.len() as u64
    }

    /// Shows the lines that were added to the file since the last time.
    async fn follow(&mut self, path: &Path) -> io::Result<()> {
        let mut file = match tokio::fs::File::open(path).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        tokio::io::AsyncSeekExt::seek(&mut file, io::SeekFrom::Start(self.offset)).await?;
        let mut reader = BufReader::new(file);
        let mut text = String::new();
        while 0 < reader.read_line(&mut text).await? && text.ends_with('\n') {
            self.offset += text.len() as u64;
            let line: Line = serde_json::from_str(&text)?;
            let number = line.sequence.trim_start_matches('0');
            output::line(format_args!(
                "{number:>6}  {:<28}  {:<20}  {}",
                line.time, line.subject, line.state
            ))?;
            *self.times.entry(line.id).or_default() += 1;
            text.clear();
        }
        Ok(())
    }
}

fn summarize(sandbox: &Sandbox, shown: &Shown) -> Result<(), Failure> {
    let ledger = sandbox.counts();
    let delivered = shown.times.len();
    let committed = usize::try_from(ledger.committed).unwrap_or(usize::MAX);
    let lost = committed.saturating_sub(delivered);
    let twice = shown.times.values().filter(|times| 1 < **times).count();
    let summary = format!(
        "\n{delivered} delivered, {committed} committed, {lost} lost, {twice} twice ({} received, {} waiting in the feed)",
        ledger.received, ledger.waiting
    );
    output::forgive_leaving(output::line(summary))?;
    if lost == 0 && twice == 0 { Ok(()) } else { Err(DemoError::Wrong { lost, twice }.into()) }
}
