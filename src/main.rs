//! Arguments, configuration, logging, runtime, exit code; no logic.

use std::process::ExitCode;

fn main() -> ExitCode {
    order_feed_agent::cli::main(std::env::args_os())
}
