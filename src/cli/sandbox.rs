//! `sandbox`: a local VTEX order feed for trying things out.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::output;
use crate::config::Secret;
use crate::config::limited::{ReadError, read_regular};
use crate::sandbox::text::duration;
use crate::sandbox::{KeyPair, Options, Sandbox, Settings, SettingsError};

/// Dozens of faults are a few KiB.
const MAX_SETTINGS_BYTES: u64 = 1024 * 1024;

/// Serve a local VTEX order feed for trying things out
#[derive(Debug, Args)]
pub(super) struct SandboxArgs {
    /// Address to listen on; port 0 takes a free one and says which
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8391")]
    pub listen: SocketAddr,

    /// Events per second that are made as time passes
    #[arg(long, value_name = "EVENTS_PER_S", default_value_t = 0.0, value_parser = rate)]
    pub rate: f64,

    /// Events that wait for each app key at its first contact
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub count: u64,

    /// Another set of orders, shuffles and faults; the same number repeats them, but for dates and with them event ids
    /// and handles, which follow the clock
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// How long a received event stays hidden before it comes back
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = visibility)]
    pub visibility: Duration,

    /// Let in only this app key with this token; may be given again [default: any key is welcome]
    #[arg(long, value_name = "KEY=TOKEN", value_parser = key_pair)]
    pub key: Vec<KeyPair>,

    /// Feeds have no configuration until one is posted; requests are answered 404 until then
    #[arg(long)]
    pub unconfigured: bool,

    /// Settings file: faults, rate limits and every other oddity
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,

    /// Loopback address at which a test may push events, move the clock and read the ledger
    #[arg(long, value_name = "ADDR", value_parser = loopback)]
    pub oracle: Option<SocketAddr>,
}

/// Why the sandbox could not serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    #[error("{} {reason}", path.display())]
    Read { path: PathBuf, reason: ReadError },
    #[error("{} is not UTF-8 text", path.display())]
    NotText { path: PathBuf },
    /// Wrong contents of the settings file.
    #[error("{}:{reason}", path.display())]
    Settings { path: PathBuf, reason: SettingsError },
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot write to stdout")]
    Print(#[source] io::Error),
}

impl SandboxError {
    /// Whether the settings file is what is wrong.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Read { .. } | Self::NotText { .. } | Self::Settings { .. } => true,
            Self::Listen { .. } | Self::Print(_) => false,
        }
    }
}

/// Serves until `shutdown`. Prints where, and the lines of a configuration that points an agent there.
///
/// # Errors
/// [`SandboxError`] when the settings file is refused, an address is taken or not ours, or what is printed cannot be
/// stored.
pub(super) async fn run(args: SandboxArgs, shutdown: CancellationToken) -> Result<(), SandboxError> {
    let SandboxArgs { listen, rate, count, seed, visibility, key, unconfigured, faults, oracle } = args;
    let settings = faults.map(read_settings).transpose()?.unwrap_or_default();
    let (listener, address) = bind(listen).await?;
    let oracle = match oracle {
        Some(oracle) => Some(bind(oracle).await?),
        None => None,
    };
    let printed = print_ready(address, oracle.as_ref().map(|(_, address)| *address), key.first());
    output::forgive_leaving(printed).map_err(SandboxError::Print)?;

    let sandbox = Sandbox::new(Options { count, rate, seed, visibility, keys: key, unconfigured, settings });
    let answering = sandbox.serve(listener, shutdown.clone());
    let Some((listener, address)) = oracle else {
        answering.await;
        return Ok(());
    };
    let ((), consulted) = tokio::join!(answering, sandbox.serve_oracle(listener, shutdown));
    consulted.map_err(|source| SandboxError::Listen { address, source })
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), SandboxError> {
    let refused = |source| SandboxError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

fn read_settings(path: PathBuf) -> Result<Settings, SandboxError> {
    let bytes = match read_regular(&path, MAX_SETTINGS_BYTES) {
        Ok(bytes) => bytes,
        Err(reason) => return Err(SandboxError::Read { path, reason }),
    };
    let Ok(text) = String::from_utf8(bytes) else { return Err(SandboxError::NotText { path }) };
    Settings::parse(&text).map_err(|reason| SandboxError::Settings { path, reason })
}

fn print_ready(address: SocketAddr, oracle: Option<SocketAddr>, key: Option<&KeyPair>) -> io::Result<()> {
    let app_key = key.map_or("vtexappkey-sandbox-AAAAAA", |key| key.app_key.as_str());
    let app_token = key.map_or("any", |_| "the token given with --key");
    let mut out = io::stdout().lock();
    writeln!(out, "sandbox ready on http://{address}")?;
    if let Some(oracle) = oracle {
        writeln!(out, "oracle ready on http://{oracle}")?;
    }
    writeln!(out, "\nPoint an agent at it:\n")?;
    writeln!(out, "[accounts.sandbox]")?;
    writeln!(out, "app_key = {app_key:?}")?;
    writeln!(out, "app_token = {app_token:?}")?;
    writeln!(out, "base_url = \"http://{address}\"")?;
    out.flush()
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate| (0.0..=10_000.0).contains(rate))
        .ok_or_else(|| "a number from 0 to 10000".into())
}

fn visibility(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|parsed| {
        if parsed <= Duration::from_secs(43_200) { Ok(parsed) } else { Err("at most 12h".to_owned()) }
    })
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "ADDRESS:PORT".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("a loopback address, such as 127.0.0.1:8392".into())
    }
}

fn key_pair(text: &str) -> Result<KeyPair, String> {
    match text.split_once('=') {
        Some((key, token)) if !key.is_empty() && !token.is_empty() => {
            Ok(KeyPair { app_key: key.to_owned(), app_token: Secret::new(token.to_owned()) })
        }
        _ => Err("KEY=TOKEN".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: SandboxArgs,
    }

    #[test]
    fn the_defaults_serve_a_hundred_events_on_the_documented_address() {
        let args = Cli::parse_from(["x"]).args;
        assert_eq!(args.listen.to_string(), "127.0.0.1:8391");
        assert_eq!((args.count, args.rate, args.visibility), (100, 0.0, Duration::from_secs(30)));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (option, value) in [
            ("--rate", "-1"),
            ("--rate", "NaN"),
            ("--rate", "10001"),
            ("--count", "1000001"),
            ("--visibility", "30"),
            ("--visibility", "-1s"),
            ("--visibility", "13h"),
            ("--key", "only-a-key"),
            ("--key", "=token"),
            ("--listen", "8391"),
            ("--oracle", "0.0.0.0:8392"),
            ("--oracle", "8392"),
        ] {
            assert!(
                Cli::try_parse_from(["x".into(), format!("{option}={value}")]).is_err(),
                "{option} {value}"
            );
        }
    }

    #[tokio::test]
    async fn a_wrong_settings_file_is_refused_with_name_and_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[feed]\nshort_read = 1.0\n").unwrap();
        let path = file.path().to_str().unwrap();
        let args = Cli::parse_from(["x", "--listen", "127.0.0.1:0", "--faults", path]).args;
        let refused = run(args, CancellationToken::new()).await.unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{path}:2:1: feed.short_read: unknown field")), "{refused}");
    }

    #[test]
    fn a_token_on_the_command_line_is_in_no_debug_output() {
        let args = Cli::parse_from(["x", "--key", "mykey=mytoken"]).args;
        assert!(!format!("{args:?}").contains("mytoken"));
    }
}
