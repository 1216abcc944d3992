//! Messages on stderr, for people who asked for them (QUIET=false and RUST_LOG). Never on the launch path.

use crate::config::{Config, LogLevel};
use core::fmt;
use std::io::Write as _;

/// Who may print what.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    level: LogLevel,
}

impl Log {
    /// As the settings say.
    pub fn new(config: &Config) -> Self {
        Self { level: if config.quiet { LogLevel::Off } else { config.log_level } }
    }

    /// Prints one line, if the level is wanted.
    pub fn line(&self, level: LogLevel, message: fmt::Arguments<'_>) {
        if level > self.level || level == LogLevel::Off {
            return;
        }
        let word = match level {
            LogLevel::Error => "ERROR",
            LogLevel::Warn => "WARN",
            LogLevel::Debug => "DEBUG",
            LogLevel::Info | LogLevel::Off => "INFO",
        };
        // A closed stderr is the engine's own choice.
        let _ = std::io::stderr().write_all(format!("{word} launchscope: {message}\n").as_bytes());
    }

    /// Prints one line where QUIET=false, whatever RUST_LOG says (PRINT_STATS).
    pub fn statistics(&self, message: fmt::Arguments<'_>) {
        self.line(if self.level == LogLevel::Off { LogLevel::Info } else { self.level }, message);
    }
}
