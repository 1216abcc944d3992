//! `launchscope`: what was typed, what it means, and the exit code.

use anyhow::Context;
use clap::Parser;
use launchscope::cli::{Cli, Command};
use launchscope::config::{CollectConfig, EnvConfig, RunConfig};
use launchscope::run::child::{ChildError, Ending};
use launchscope::run::{RunError, run};
use launchscope::{collect, environment, signals};
use std::process::ExitCode;

/// As env, timeout and nohup do: it failed itself, COMMAND cannot be executed, COMMAND was not found.
const OWN_FAILURE: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help goes to stdout and is a success.
            let _closed = error.print();
            return if error.use_stderr() { ExitCode::from(OWN_FAILURE) } else { ExitCode::SUCCESS };
        }
    };
    let (ending, error) = match dispatch(cli) {
        Ok(ending) => (ending, None),
        Err(error) => (ending_of(&error), Some(error)),
    };
    if let Some(error) = error {
        eprintln!("launchscope: {error:#}");
    }
    match ending {
        Ending::Exit(code) => ExitCode::from(code),
        Ending::Signal(number) => {
            signals::end_by(number);
            // Only a signal that does not end a process comes here.
            ExitCode::from(128u8.saturating_add(number as u8))
        }
    }
}

fn dispatch(cli: Cli) -> anyhow::Result<Ending> {
    match cli.command {
        Command::Run(args) => Ok(run(&RunConfig::new(args).context("cannot run")?)?),
        Command::Collect(args) => {
            collect::collect(&CollectConfig::new(args).context("cannot collect")?)?;
            Ok(Ending::Exit(0))
        }
        Command::Env(args) => {
            print!("{}", environment::text(&EnvConfig::new(args).context("cannot tell the environment")?));
            Ok(Ending::Exit(0))
        }
    }
}

fn ending_of(error: &anyhow::Error) -> Ending {
    match error.downcast_ref::<RunError>() {
        // The command has run: its own code is worth more than ours, unless it says that all is well.
        Some(RunError::Export { ending, .. }) if *ending != Ending::Exit(0) => *ending,
        Some(RunError::Child(ChildError::NotFound { .. })) => Ending::Exit(NOT_FOUND),
        Some(RunError::Child(ChildError::NotExecutable { .. })) => Ending::Exit(NOT_EXECUTABLE),
        _ => Ending::Exit(OWN_FAILURE),
    }
}
