//! The command line: what may be typed, and which exit code it ends with.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::runtime::Builder;
use tokio_util::sync::CancellationToken;

use crate::config::{self, ConfigErrors, Loaded, Outline};
use crate::journal::desk::Desk;
use crate::observe::logging::ErrorChain;
use crate::shutdown;

pub mod check;
mod dead_letters;
mod demo;
mod events;
mod output;
mod run;
mod sandbox;

/// Wrong usage (`EX_USAGE` of sysexits.h).
const WRONG_USAGE: u8 = 64;

/// The configuration is refused (`EX_CONFIG` of sysexits.h).
const CONFIG_REFUSED: u8 = 78;

const CONFIG_VARIABLE: &str = "ORDER_FEED_AGENT_CONFIG";
const DEFAULT_CONFIG: &str = "/etc/order-feed-agent/config.toml";

/// Reads the VTEX order feed politely, loses nothing, and delivers every event.
#[derive(Debug, Parser)]
#[command(name = "order-feed-agent", version, about, after_help = AFTER_HELP)]
struct Cli {
    /// The configuration [default: $ORDER_FEED_AGENT_CONFIG, else /etc/order-feed-agent/config.toml]
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done; 1 failed while running, or the grace period ran out, or a second signal;
            64 wrong usage; 78 configuration refused.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Poll, journal, commit and deliver, until stopped by SIGTERM or SIGINT
    Run,
    /// Validate the configuration as `run` would; touch nothing
    Check(CheckArgs),
    /// Show what the journal holds, beside a running agent or without one
    Events(events::EventsArgs),
    /// Show, retry or discard what could not be delivered or decoded, beside a running agent or without one
    DeadLetters(dead_letters::DeadLettersArgs),
    /// Serve a local VTEX order feed for trying things out
    Sandbox(sandbox::SandboxArgs),
    /// Show the whole job on a sandbox of its own; needs no account and no file
    Demo(demo::DemoArgs),
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Show the effective configuration, each value with where it came from; secrets as `***`
    #[arg(long)]
    print: bool,
    /// Show the JSON Schema of the configuration
    #[arg(long, conflicts_with = "print")]
    schema: bool,
}

/// Why a command did not do its work.
enum Failure {
    Config(ConfigErrors),
    /// A file that configures something is refused.
    Refused(Box<dyn Error + Send + Sync>),
    /// The configuration is refused, and the reasons have been printed.
    Told,
    Failed(Box<dyn Error + Send + Sync>),
    /// Not everything could be done, and the reasons have been printed.
    Unfinished,
}

/// A second signal asked to end at once.
#[derive(Debug, thiserror::Error)]
#[error("ended at once by a second signal; what was in hand comes back from the feed")]
struct Interrupted;

impl fmt::Display for Failure {
    /// One line, with the causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(errors) => errors.fmt(f),
            Self::Told => f.write_str("the configuration is refused"),
            Self::Unfinished => f.write_str("not everything could be done"),
            Self::Refused(error) | Self::Failed(error) => ErrorChain(&**error).fmt(f),
        }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Runs the command that `arguments` (the first is the program) ask for.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Help and version are no errors. Where they cannot be printed there is nobody to tell.
        Err(error) => {
            error.print().ok();
            return ExitCode::from(if error.use_stderr() { WRONG_USAGE } else { 0 });
        }
    };
    let config = || config_path(cli.config);
    let done = match cli.command {
        Command::Run => run::run(&config()),
        Command::Check(arguments) => self::check(&config(), &arguments),
        Command::Events(arguments) => events::run(&config(), arguments),
        Command::DeadLetters(arguments) => dead_letters::run(&config(), arguments),
        Command::Sandbox(arguments) => self::sandbox(arguments),
        Command::Demo(arguments) => block_on(async |shutdown| demo::run(arguments, shutdown).await),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Config(errors)) => {
            for problem in errors.problems() {
                output::error(problem);
            }
            ExitCode::from(CONFIG_REFUSED)
        }
        Err(Failure::Told) => ExitCode::from(CONFIG_REFUSED),
        Err(Failure::Unfinished) => ExitCode::FAILURE,
        Err(refused @ Failure::Refused(_)) => {
            output::error(&refused);
            ExitCode::from(CONFIG_REFUSED)
        }
        Err(failed @ Failure::Failed(_)) => {
            output::error(&failed);
            ExitCode::FAILURE
        }
    }
}

/// What was given, else what the environment names: like every variable of the agent, an empty one is none.
fn config_path(given: Option<PathBuf>) -> PathBuf {
    let named = || std::env::var_os(CONFIG_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    given.or_else(named).unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG))
}

fn check(path: &Path, arguments: &CheckArgs) -> Result<(), Failure> {
    let options = match arguments {
        CheckArgs { schema: true, .. } => check::Options::Schema,
        CheckArgs { print: true, .. } => check::Options::Print,
        CheckArgs { .. } => check::Options::Validate,
    };
    match check::check(path, std::env::vars_os(), options, &mut io::stdout(), &mut io::stderr())? {
        check::Verdict::Accepted => Ok(()),
        check::Verdict::Refused => Err(Failure::Told),
    }
}

fn sandbox(arguments: sandbox::SandboxArgs) -> Result<(), Failure> {
    block_on(async |shutdown| match sandbox::run(arguments, shutdown).await {
        Ok(()) => Ok(()),
        Err(error) if error.is_refusal() => Err(Failure::Refused(error.into())),
        Err(error) => Err(error.into()),
    })
}

/// Reads the configuration as every command does that needs one.
fn load(path: &Path) -> Result<Loaded, Failure> {
    config::load(path, std::env::vars_os()).map_err(Failure::Config)
}

/// Opens the journal that the configuration names, beside a running agent or without one. No secret is fetched.
fn open_journal(path: &Path) -> Result<(Outline, Desk), Failure> {
    let outline = config::outline(path, std::env::vars_os()).map_err(Failure::Config)?;
    let desk = Desk::open(&outline.journal)?;
    Ok((outline, desk))
}

/// Runs `work`, whose token the first SIGTERM or SIGINT cancels; a second one ends it at once.
fn block_on(work: impl AsyncFnOnce(CancellationToken) -> Result<(), Failure>) -> Result<(), Failure> {
    // One thread is enough: the gate sets the speed, and whatever blocks has threads of its own.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        let second_signal = shutdown::on_signals(shutdown.clone())?;
        tokio::select! {
            done = work(shutdown) => done,
            () = second_signal => Err(Interrupted.into()),
        }
    });
    // A look-up or a disk that hangs must not hold up the end.
    runtime.shutdown_background();
    done
}
