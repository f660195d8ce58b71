//! Tells a marketplace that prices of a seller have changed: one notification for each SKU on stdin.
//!
//! ```sh
//! export VTEX_APP_KEY=… VTEX_APP_TOKEN=…
//! cargo run --example price_notifications -- --base-url https://store.vtexcommercestable.com.br --seller 1 < skus.txt
//! ```
//!
//! It shows the agent's gate and client as a library. Every request passes the gate, which keeps to the documented
//! limit, and is silent after a 429 for as long as that asks. A notification that may have arrived is not sent again
//! unless `--resend` says so. Ctrl-C finishes what is in hand; a second one ends at once.

use std::fmt::Display;
use std::io::{self, BufReader, IsTerminal, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use order_feed_agent::account::{Gate, gate};
use order_feed_agent::config::{self, Secret, SecretError, SecretSource};
use order_feed_agent::http::client::Clients;
use order_feed_agent::observe::logging::ErrorChain;
use order_feed_agent::policy::backoff::Backoff;
use order_feed_agent::policy::pace::Preset;
use order_feed_agent::policy::retry::Retry;
use order_feed_agent::policy::{breaker, pause};
use order_feed_agent::shutdown::on_signals;
use order_feed_agent::vtex::http::Http;
use reqwest::Url;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use input::Input;
use sending::{Done, NotSent, Notifier, send_all};

#[path = "price_notifications/input.rs"]
mod input;
#[path = "price_notifications/sending.rs"]
mod sending;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

const MINUTE: Duration = Duration::from_secs(60);

// Not as arguments, which everybody on the machine can read.
const APP_KEY: &str = "VTEX_APP_KEY";
const APP_TOKEN: &str = "VTEX_APP_TOKEN";

const AFTER_HELP: &str = "\
Environment: VTEX_APP_KEY and VTEX_APP_TOKEN.
Exit codes: 0 all were sent; 1 one failed or was not sent; 2 wrong usage.";

/// Posts a price change notification for each SKU read from stdin (one a line).
#[derive(Debug, Parser)]
#[command(after_help = AFTER_HELP)]
struct Arguments {
    /// Of the marketplace: https, or http to this machine
    #[arg(long, value_parser = base_url)]
    base_url: Url,
    /// The seller whose prices have changed
    #[arg(long)]
    seller: String,
    /// The documented limit to keep to: pricing-write (40/s, 1,000 credits), pricing-delete (16/s, 300 credits)
    #[arg(long, value_name = "NAME", default_value = Preset::PRICING_WRITE.name, value_parser = preset)]
    preset: Preset,
    /// Requests at a time; 1 keeps the order of the SKUs
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    lanes: u32,
    /// Send a notification again that may have arrived
    #[arg(long)]
    resend: bool,
}

/// How it went.
struct Summary {
    sent: u64,
    failed: u64,
    /// Read, but stopped before.
    not_sent: u64,
    is_complete: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(Summary { failed: 0, is_complete: true, .. }) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            say(format_args!("error: {}", ErrorChain(&*error)));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<Summary, AnyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let second_signal = on_signals(shutdown.clone())?;
        tokio::select! {
            summary = notify_all(arguments, &shutdown) => summary,
            () = second_signal => Err("ended by a second signal".into()),
        }
    })
}

async fn notify_all(arguments: Arguments, shutdown: &CancellationToken) -> Result<Summary, AnyError> {
    let started = Instant::now();
    let notifier = Arc::new(notifier(&arguments)?);
    let Input { skus, n_read, mut broken } = input::read(BufReader::new(io::stdin()));
    let (_workers, mut results) = send_all(Arc::clone(&notifier), arguments.lanes, skus, shutdown.clone());
    let mut progress = Progress::new();
    let mut ticks = interval(Duration::from_millis(200));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut sent, mut failed) = (0, 0);
    loop {
        tokio::select! {
            done = results.recv() => match done {
                Some(Done { result: Ok(()), .. }) => sent += 1,
                Some(Done { result: Err(NotSent::Shutdown), .. }) => {}
                Some(Done { sku, result: Err(why @ (NotSent::Id(_) | NotSent::Failed(_))) }) => {
                    failed += 1;
                    progress.say(format_args!("SKU {:?}: {}{}", shortened(&sku), ErrorChain(&why), why.told()));
                }
                None => break,
            },
            _ = ticks.tick() => progress.show(sent, failed, n_read.load(Ordering::Relaxed), notifier.gate.pause_left()),
        }
    }
    progress.end();
    if let Ok(error) = broken.try_recv() {
        shutdown.cancel();
        say(format_args!("error: stdin: {error}"));
    }
    let not_sent = n_read.load(Ordering::Relaxed) - sent - failed;
    let summary = Summary { sent, failed, not_sent, is_complete: !shutdown.is_cancelled() };
    let throttled = notifier.gate.metrics().totals().throttled;
    writeln!(io::stdout(), "{}", summary.text(throttled, started.elapsed()))?;
    Ok(summary)
}

impl Summary {
    fn text(&self, throttled: u64, took: Duration) -> String {
        let Self { sent, failed, not_sent, is_complete } = self;
        let seconds = took.as_secs_f64();
        let end = if *is_complete {
            String::new()
        } else {
            format!("; stopped early, {not_sent} read but not sent")
        };
        format!("{sent} sent, {failed} failed in {seconds:.1} s, throttled {throttled} times{end}")
    }
}

/// Puts the library's parts together.
fn notifier(arguments: &Arguments) -> Result<Notifier, AnyError> {
    let Arguments { base_url, seller, preset, lanes, resend } = arguments;
    let account = config::Account {
        name: seller.clone(),
        account: seller.clone(),
        base_url: base_url.clone(),
        app_key: secret(APP_KEY)?,
        app_token: secret(APP_TOKEN)?,
        app_token_source: SecretSource::Env(APP_TOKEN.to_owned()),
        // Nothing is polled here.
        poll: config::Poll { interval: MINUTE, batch_size: 1, drain: false },
        requests: config::Requests {
            per_second: preset.per_second,
            burst: preset.credits,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            max_body: 1024 * 1024,
            concurrency: *lanes,
            proxy: config::Proxy::None,
            ca_file: None,
        },
    };
    let rate_limit = pause::Settings { pause: MINUTE, max_pause: 15 * MINUTE };
    let circuit_breaker = breaker::Settings { failures: 5, recovery: Duration::from_secs(30), successes: 3 };
    let settings = gate::Settings::shared([&account.requests], rate_limit, circuit_breaker)
        .ok_or("a gate needs the settings of an account")?;
    Ok(Notifier {
        http: Http::new(Clients::default().client(&account)?, &account),
        gate: Arc::new(Gate::new(seller.clone(), settings, rand::random())),
        seller: seller.clone(),
        retry: Retry {
            backoff: Backoff { base: Duration::from_secs(1), max: MINUTE },
            max_retries: 5,
            // Long enough for the Retry-After of a bad hour.
            budget: 60 * MINUTE,
        },
        resend: *resend,
    })
}

/// What somebody sees meanwhile: a bar on a terminal, else a line now and then.
enum Progress {
    Bar(ProgressBar),
    Lines { next: Instant, was_paused: bool },
}

impl Progress {
    const LINE_EVERY: Duration = Duration::from_secs(10);

    fn new() -> Self {
        if !io::stderr().is_terminal() {
            return Self::Lines { next: Instant::now() + Self::LINE_EVERY, was_paused: false };
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{elapsed} {wide_bar} {pos}/{len} {msg}") {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    fn show(&mut self, sent: u64, failed: u64, n_read: u64, pause: Option<Duration>) {
        let paused = pause.map(|left| format!("paused for {} s", left.as_secs() + 1));
        match self {
            Self::Bar(bar) => {
                bar.set_length(n_read);
                bar.set_position(sent + failed);
                bar.set_message(paused.unwrap_or_else(|| format!("{failed} failed")));
            }
            Self::Lines { next, was_paused } => {
                match &paused {
                    Some(paused) if !*was_paused => say(paused),
                    Some(_) | None => {}
                }
                *was_paused = paused.is_some();
                if *next <= Instant::now() {
                    *next += Self::LINE_EVERY;
                    say(format_args!("{sent} sent, {failed} failed of {n_read} read so far"));
                }
            }
        }
    }

    fn say(&self, text: impl Display) {
        match self {
            Self::Bar(bar) => bar.suspend(|| say(text)),
            Self::Lines { .. } => say(text),
        }
    }

    fn end(&self) {
        match self {
            Self::Bar(bar) => bar.finish_and_clear(),
            Self::Lines { .. } => {}
        }
    }
}

fn say(text: impl Display) {
    writeln!(io::stderr(), "{text}").ok();
}

fn shortened(sku: &str) -> String {
    sku.chars().take(60).collect()
}

fn base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let host = url.host_str().unwrap_or_default();
    let is_here = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_here => Ok(url),
        _ => Err("allowed is https, or http to this machine".to_owned()),
    }
}

fn preset(name: &str) -> Result<Preset, String> {
    let presets = [Preset::PRICING_WRITE, Preset::PRICING_DELETE];
    let known = presets.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
    presets.into_iter().find(|preset| preset.name == name).ok_or(format!("allowed are {known}"))
}

fn secret(variable: &str) -> Result<Secret, SecretError> {
    Secret::from_variable(variable, std::env::var_os(variable).as_deref())
}
