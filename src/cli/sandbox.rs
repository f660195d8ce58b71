//! `sandbox`: a local VTEX order feed for trying things out.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::config::Secret;
use crate::sandbox::{KeyPair, Options, Sandbox};

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
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=2_000_000))]
    pub count: u64,

    /// Repeats the orders, the shuffles and the handles of another run
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// How long a received event stays hidden before it comes back
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = visibility)]
    pub visibility: Duration,

    /// Let in only this app key with this token; may be given again [default: any key is welcome]
    #[arg(long, value_name = "KEY=TOKEN", value_parser = key_pair)]
    pub key: Vec<KeyPair>,
}

/// Why the sandbox could not serve.
#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot write to stdout")]
    Print(#[source] io::Error),
}

/// Serves until `shutdown`. Prints where, and the lines of a configuration that points an agent there.
///
/// # Errors
/// [`SandboxError`] when the address is taken or not ours, or nobody reads what is printed.
pub(super) async fn run(args: SandboxArgs, shutdown: CancellationToken) -> Result<(), SandboxError> {
    let SandboxArgs { listen, rate, count, seed, visibility, key } = args;
    let listen_error = |source| SandboxError::Listen { address: listen, source };
    let listener = TcpListener::bind(listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    print_ready(address, key.first()).map_err(SandboxError::Print)?;
    Sandbox::new(Options { count, rate, seed, visibility, keys: key }).serve(listener, shutdown).await;
    Ok(())
}

fn print_ready(address: SocketAddr, key: Option<&KeyPair>) -> io::Result<()> {
    let app_key = key.map_or("vtexappkey-sandbox-AAAAAA", |key| key.app_key.as_str());
    let app_token = key.map_or("any", |_| "the token given with --key");
    let mut out = io::stdout().lock();
    writeln!(out, "sandbox ready on http://{address}")?;
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
    let allowed = || "a duration with a unit, from 0s to 12h, such as 30s or 4m".to_owned();
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| allowed())?;
    Duration::try_from(parsed)
        .ok()
        .filter(|parsed| *parsed <= Duration::from_secs(43_200))
        .ok_or_else(allowed)
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
            ("--count", "2000001"),
            ("--visibility", "30"),
            ("--visibility", "-1s"),
            ("--visibility", "13h"),
            ("--key", "only-a-key"),
            ("--key", "=token"),
            ("--listen", "8391"),
        ] {
            assert!(
                Cli::try_parse_from(["x".into(), format!("{option}={value}")]).is_err(),
                "{option} {value}"
            );
        }
    }

    #[test]
    fn a_token_on_the_command_line_is_in_no_debug_output() {
        let args = Cli::parse_from(["x", "--key", "mykey=mytoken"]).args;
        assert!(!format!("{args:?}").contains("mytoken"));
    }
}
