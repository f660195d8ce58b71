//! A program for each event, without a shell.
//!
//! Arguments come from the configuration alone. The event is on stdin, whole; what identifies it is in the environment,
//! too, which is otherwise empty but for `PATH` and the user's own variables. Inherited are user, groups, umask,
//! limits and file systems, and no descriptor but stdin, stdout and stderr.
//!
//! The program leads a process group of its own, which ends with the attempt, however it ends. Who leaves the group
//! (`setsid`) is out of reach: only the service manager's control group holds it.

use std::borrow::Cow;
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tracing::debug;

use super::{Envelope, EventSink, ProgramError, Refusal, secrets};
use crate::{config, http};

use group::Group;
use output::Output;

mod group;
mod output;

/// What systemd gives to its services.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A longer value is on stdin only: one of 128 KiB could not be passed on.
const LONGEST_VARIABLE: usize = 32 * 1024;

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);

/// How long what a program printed is read after its end: what it left behind may hold its stdout open.
const LINGER: Duration = Duration::from_secs(1);

/// A process that was killed is gone at once, unless the kernel holds it, as on a file server that does not answer.
const BURIAL: Duration = Duration::from_secs(5);

/// The sink of `type = "command"`.
pub struct CommandSink {
    name: String,
    command: config::Command,
    /// What must not come back in what the program prints.
    secrets: Vec<String>,
}

impl CommandSink {
    /// `name` is that of the sink.
    pub fn new(name: &str, command: config::Command) -> Self {
        let secrets = secrets(&command);
        Self { name: name.to_owned(), command, secrets }
    }

    /// Runs the program once; afterwards nothing of its group is left.
    async fn run(&self, envelope: &Envelope, output: &mut Output) -> Result<(), ProgramError> {
        // Listened to before there is a child, so that no end goes unnoticed.
        let children = signal(SignalKind::child()).map_err(ProgramError::NotStarted)?;
        let mut child = self.program(envelope).spawn().map_err(ProgramError::NotStarted)?;
        let group = Group::led_by(&child);
        let is_in_time = {
            let talk = talk(&mut child, &envelope.line, output);
            let mut ending = pin!(ending(group.leader_ended(children), talk));
            let in_time = timeout(self.command.limits.timeout, &mut ending).await;
            let is_in_time = in_time.is_ok() || group.leader_has_ended();
            if !is_in_time {
                group.signal(Signal::TERM);
                timeout(GRACE, &mut ending).await.ok();
            }
            is_in_time
        };
        drop(group);
        let status = timeout(BURIAL, child.wait()).await;
        match status {
            _ if !is_in_time => Err(ProgramError::TimedOut),
            Ok(Ok(status)) => judge(status),
            Ok(Err(error)) => Err(ProgramError::Lost(error)),
            Err(elapsed) => Err(ProgramError::Lost(elapsed.into())),
        }
    }

    fn program(&self, envelope: &Envelope) -> Command {
        let config::Command { program, args, env, working_directory, limits: _ } = &self.command;
        let mut command = Command::new(program);
        command.args(args).current_dir(working_directory);
        command.env_clear().env("PATH", PATH);
        command.envs(env.iter().map(|(name, value)| (name, value.expose())));
        command.envs(variables(envelope).into_iter().map(|(name, value)| (name, value.into_owned())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0);
        command
    }

    fn redact(&self, said: &str) -> Option<String> {
        let said = http::redact(said, self.secrets.iter().map(String::as_str));
        (!said.is_empty()).then_some(said)
    }
}

impl EventSink for CommandSink {
    /// Dropping the future kills the program and its group.
    async fn deliver(&self, envelope: &Envelope) -> Result<(), Refusal> {
        let mut output = Output::default();
        let ended = self.run(envelope, &mut output).await;
        let (stdout, stderr) = (self.redact(&output.stdout.text()), self.redact(&output.stderr.text()));
        match ended {
            Err(error) => Err(Refusal { cause: error.into(), retry_after: None, answer: stderr.or(stdout) }),
            Ok(()) if stdout.is_none() && stderr.is_none() => Ok(()),
            Ok(()) => {
                debug!(
                    event = "delivery.output",
                    sink = self.name,
                    id = envelope.id,
                    order = envelope.order_id,
                    stdout,
                    stderr,
                    "the program took the event and printed something"
                );
                Ok(())
            }
        }
    }
}

/// Hands the event over and takes what is printed, until all pipes are closed.
async fn talk(child: &mut Child, line: &str, output: &mut Output) {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    tokio::join!(tell(stdin, line), output.stdout.take_in(stdout), output.stderr.take_in(stderr));
}

/// A program need not read its stdin: a pipe that breaks says nothing.
async fn tell(stdin: Option<ChildStdin>, line: &str) {
    if let Some(mut stdin) = stdin {
        stdin.write_all(&[line.as_bytes(), b"\n"].concat()).await.ok();
    }
}

/// Waits for the end of the program, and not for those who hold its pipes after that.
async fn ending(leader: impl Future<Output = ()>, talk: impl Future<Output = ()>) {
    let (mut leader, mut talk) = (pin!(leader), pin!(talk));
    tokio::select! {
        () = &mut talk => leader.await,
        () = &mut leader => {
            timeout(LINGER, talk).await.ok();
        }
    }
}

fn judge(status: ExitStatus) -> Result<(), ProgramError> {
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(ProgramError::Exit(code)),
        (None, signal) => Err(ProgramError::Signal(signal.unwrap_or_default())),
    }
}

/// What identifies the event, as far as it can be the value of a variable.
fn variables(envelope: &Envelope) -> Vec<(&'static str, Cow<'_, str>)> {
    let Envelope { id, order_id, account, state, seq, time, line: _ } = envelope;
    let mut variables = vec![
        ("ORDER_FEED_ID", Cow::from(id)),
        ("ORDER_FEED_ORDER_ID", Cow::from(order_id)),
        ("ORDER_FEED_STATE", Cow::from(state)),
        ("ORDER_FEED_ACCOUNT", Cow::from(account)),
        ("ORDER_FEED_SEQUENCE", format!("{seq:020}").into()),
        ("ORDER_FEED_TIME", time.to_string().into()),
    ];
    variables.retain(|(_, value)| value.len() <= LONGEST_VARIABLE && !value.contains('\0'));
    variables
}

/// Each secret and each of its words.
fn secrets(command: &config::Command) -> Vec<String> {
    let whole = command.env.iter().map(|(_, value)| value.expose());
    let words = whole.clone().flat_map(str::split_whitespace);
    secrets::in_order(whole.chain(words).map(str::to_owned))
}
