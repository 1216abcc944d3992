//! The command: its environment, start and end.

use crate::cli::{Cupti, Door};
use crate::config::RunConfig;
use crate::summary::say;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;

/// Why the command did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildError {
    /// There is no such program.
    #[error("command `{command}` was not found; is it spelled right and on PATH?")]
    NotFound {
        /// As typed.
        command: String,
    },
    /// It cannot be executed.
    #[error("command `{command}` cannot be executed")]
    NotExecutable {
        /// As typed.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// No process could be made.
    #[error("starting `{command}` failed")]
    Start {
        /// As typed.
        command: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this code.
    Exit(u8),
    /// It was killed by this signal.
    Signal(i32),
}

/// The running command.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
}

impl Child {
    /// Starts it with everything it needs to find this collector. `mask` is the signal mask it shall have.
    pub fn start(
        config: &RunConfig,
        socket: &str,
        token: &str,
        mask: libc::sigset_t,
    ) -> Result<Self, ChildError> {
        let (program, arguments) = config
            .command
            .split_first()
            .map_or((OsStr::new(""), &[][..]), |(program, rest)| (program.as_os_str(), rest));
        let mut command = Command::new(program);
        command.args(arguments);
        for (name, value) in variables(config, socket, token) {
            command.env(name, value);
        }
        // SAFETY: pthread_sigmask is async-signal-safe, and the closure touches nothing but its own copy of the mask.
        unsafe {
            command.pre_exec(move || {
                libc::pthread_sigmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                Ok(())
            });
        }
        let process = command.spawn().map_err(|source| {
            let command = program.to_string_lossy().into_owned();
            match source.kind() {
                io::ErrorKind::NotFound => ChildError::NotFound { command },
                io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => {
                    ChildError::NotExecutable { command, source }
                }
                _ if source.raw_os_error() == Some(libc::ENOEXEC) => {
                    ChildError::NotExecutable { command, source }
                }
                _ => ChildError::Start { command, source },
            }
        })?;
        Ok(Self { process })
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<Ending> {
        let status = self.process.try_wait().ok()??;
        let exit = status.code().map(|code| Ending::Exit(code as u8));
        exit.or_else(|| status.signal().map(Ending::Signal))
    }

    /// Sends it a signal.
    pub fn signal(&self, number: i32) {
        // SAFETY: plain system call; the process is not reaped before `ended` says so, so the id is still its own.
        unsafe { libc::kill(self.process.id() as i32, number) };
    }
}

fn variables(config: &RunConfig, socket: &str, token: &str) -> Vec<(&'static str, OsString)> {
    let mut variables: Vec<(&'static str, OsString)> =
        vec![("LAUNCHSCOPE_SOCKET", socket.into()), ("LAUNCHSCOPE_TOKEN", token.into())];
    if let Some(cupti) = config.cupti {
        variables.push(("LAUNCHSCOPE_CUPTI", cupti_value(cupti).into()));
    }
    if config.door != Door::Preload {
        match std::env::var_os("CUDA_INJECTION64_PATH").filter(|path| !path.is_empty()) {
            Some(existing) if Path::new(&existing) != config.library => {
                let doors =
                    if config.door == Door::Both { "LD_PRELOAD remains" } else { "no way in remains" };
                let existing = existing.to_string_lossy();
                say(
                    config.output.talk,
                    &format!(
                        "launchscope: warning: CUDA_INJECTION64_PATH is already {existing}; it is left as it is, {doors}"
                    ),
                );
            }
            _ => variables.push(("CUDA_INJECTION64_PATH", config.library.clone().into())),
        }
    }
    if config.door != Door::Injection {
        let existing = std::env::var_os("LD_PRELOAD");
        variables.push(("LD_PRELOAD", with_preload(existing.as_deref(), &config.library)));
    }
    variables
}

/// What stands in LAUNCHSCOPE_CUPTI.
pub fn cupti_value(cupti: Cupti) -> &'static str {
    match cupti {
        Cupti::Window => "window",
        Cupti::Resident => "resident",
        Cupti::Off => "off",
    }
}

/// Ours comes last: who was there before keeps its place in the order of look-up.
fn with_preload(existing: Option<&OsStr>, library: &Path) -> OsString {
    let Some(existing) = existing.filter(|existing| !existing.is_empty()) else { return library.into() };
    let is_there = existing
        .as_bytes()
        .split(|byte| b": ".contains(byte))
        .any(|name| name == library.as_os_str().as_bytes());
    if is_there {
        return existing.to_owned();
    }
    let mut whole = existing.to_owned();
    whole.push(":");
    whole.push(library);
    whole
}

#[cfg(test)]
mod tests {
    use super::with_preload;
    use std::ffi::OsStr;
    use std::path::Path;

    /// An existing LD_PRELOAD is kept, in front.
    #[test]
    fn preload_is_appended() {
        let ours = Path::new("/l/liblaunchscope.so");
        assert_eq!(with_preload(Some(OsStr::new("/a.so")), ours), "/a.so:/l/liblaunchscope.so");
        assert_eq!(with_preload(Some(OsStr::new("")), ours), "/l/liblaunchscope.so");
        let both = OsStr::new("/l/liblaunchscope.so:/a.so");
        assert_eq!(with_preload(Some(both), ours), both);
        assert_eq!(with_preload(None, ours), "/l/liblaunchscope.so");
    }
}
