//! What was typed means this. Everything that can be wrong with it is said here, before anything starts.

use crate::cli::{CollectArgs, Cupti, Door, EnvArgs, FormatName, OutputArgs, RunArgs};
use crate::drain::handover::TOKEN_BYTES;
use crate::export::Format;
use crate::moment::file_time;
use shared_abi::handover::DEFAULT_SOCKET;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What cannot be meant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not a time.
    #[error("`{text}` is not a time for {option}; write a number with ms, s, m or h, such as 30s or 5m")]
    Time {
        /// The option.
        option: &'static str,
        /// As typed.
        text: String,
    },
    /// Too long.
    #[error("LAUNCHSCOPE_TOKEN has {bytes} bytes, at most {TOKEN_BYTES} are possible")]
    Token {
        /// Its length.
        bytes: usize,
    },
    /// No library.
    #[error(
        "liblaunchscope.so was not found; looked at {tried}. Set LAUNCHSCOPE_LIBRARY to its path, or install it \
         beside launchscope or in ../lib"
    )]
    LibraryNotFound {
        /// Paths that were looked at.
        tried: String,
    },
    /// Its path cannot stand in LD_PRELOAD.
    #[error(
        "`{library}` cannot stand in LD_PRELOAD, where spaces and colons separate names; move liblaunchscope.so to a path \
         without them or use --door injection"
    )]
    LibraryPath {
        /// Path of the library.
        library: String,
    },
}

/// Where profiles go.
#[derive(Clone, Debug)]
pub struct OutputConfig {
    /// Directory.
    pub directory: PathBuf,
    /// Formats.
    pub formats: Vec<Format>,
    /// Title.
    pub title: String,
    /// Whether people want to read anything.
    pub talk: Talk,
}

/// Whether people want to read anything on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// Progress (on a terminal) and summary.
    Normal,
    /// Errors only.
    Quiet,
}

/// `launchscope run`.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// Files.
    pub output: OutputConfig,
    /// Which way in.
    pub door: Door,
    /// LAUNCHSCOPE_CUPTI for the command, if it is to be set.
    pub cupti: Option<Cupti>,
    /// Whether stdout gets a summary.
    pub json_summary: bool,
    /// Program and arguments.
    pub command: Vec<OsString>,
    /// liblaunchscope.so.
    pub library: PathBuf,
}

/// `launchscope collect`.
#[derive(Clone, Debug)]
pub struct CollectConfig {
    /// Files.
    pub output: OutputConfig,
    /// Socket.
    pub socket: String,
    /// Token that processes must show, if any.
    pub token: Option<[u8; TOKEN_BYTES]>,
    /// How often profiles are written.
    pub interval: Duration,
    /// When to stop.
    pub duration: Option<Duration>,
    /// Profiles of this run that are kept; `None` for all.
    pub keep: Option<usize>,
    /// One profile of all processes, or one each.
    pub grouping: Grouping,
}

/// How processes are put into profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// One each.
    PerProcess,
    /// All in one.
    Merged,
}

/// For whom the variables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvStyle {
    /// A shell.
    Shell,
    /// `docker run`.
    Docker,
    /// A pod.
    Kubernetes,
}

/// `launchscope env`.
#[derive(Clone, Debug)]
pub struct EnvConfig {
    /// For whom.
    pub style: EnvStyle,
    /// Socket.
    pub socket: String,
    /// Which way in.
    pub door: Door,
    /// liblaunchscope.so as the engine sees it.
    pub library: PathBuf,
    /// LAUNCHSCOPE_CUPTI, if it is to be set.
    pub cupti: Option<Cupti>,
    /// Token, if one is set here.
    pub token: Option<String>,
}

impl RunConfig {
    /// From what was typed.
    pub fn new(args: RunArgs) -> Result<Self, ConfigError> {
        let door = match (args.no_preload, args.no_injection) {
            (true, _) => Door::Injection,
            (_, true) => Door::Preload,
            _ => args.door,
        };
        let library = find_library()?;
        check_preload_path(door, &library)?;
        let command_name = args.command.first().map(|word| base_name(Path::new(word))).unwrap_or_default();
        let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
        let output = output_config(args.output, &command_name, &words.join(" "));
        let json_summary = args.json;
        Ok(Self { output, door, cupti: args.cupti, json_summary, command: args.command, library })
    }
}

impl CollectConfig {
    /// From what was typed.
    pub fn new(args: CollectArgs) -> Result<Self, ConfigError> {
        let interval = parse_time("--interval", &args.interval)?;
        let duration = args.duration.as_deref().map(|text| parse_time("--duration", text)).transpose()?;
        let socket =
            args.socket.filter(|socket| !socket.is_empty()).unwrap_or_else(|| DEFAULT_SOCKET.to_owned());
        let grouping = if args.merge { Grouping::Merged } else { Grouping::PerProcess };
        let output = output_config(args.output, "collect", "");
        let token = std::env::var("LAUNCHSCOPE_TOKEN").ok().filter(|token| !token.is_empty());
        let token = token.as_deref().map(token_bytes).transpose()?;
        Ok(Self { output, socket, token, interval, duration, keep: args.keep, grouping })
    }
}

impl EnvConfig {
    /// From what was typed.
    pub fn new(args: EnvArgs) -> Result<Self, ConfigError> {
        let style = match (args.docker, args.kubernetes) {
            (true, _) => EnvStyle::Docker,
            (_, true) => EnvStyle::Kubernetes,
            _ => EnvStyle::Shell,
        };
        let library = match (args.library, style) {
            (Some(library), _) => library,
            // In a container it lies where the volume is mounted, wherever it lies here.
            (None, EnvStyle::Kubernetes) => PathBuf::from("/opt/launchscope/lib/liblaunchscope.so"),
            (None, _) => find_library()?,
        };
        check_preload_path(args.door, &library)?;
        let socket = args.socket.unwrap_or_else(|| match style {
            // Containers of a pod share the network namespace, and so abstract sockets; docker containers do not.
            EnvStyle::Docker => "/run/launchscope/launchscope.sock".to_owned(),
            EnvStyle::Shell | EnvStyle::Kubernetes => DEFAULT_SOCKET.to_owned(),
        });
        let token = std::env::var("LAUNCHSCOPE_TOKEN").ok().filter(|token| !token.is_empty());
        Ok(Self { style, socket, door: args.door, library, cupti: args.cupti, token })
    }
}

/// A token as it stands in a hello.
pub fn token_bytes(token: &str) -> Result<[u8; TOKEN_BYTES], ConfigError> {
    let mut bytes = [0; TOKEN_BYTES];
    let target = bytes.get_mut(..token.len()).ok_or(ConfigError::Token { bytes: token.len() })?;
    target.copy_from_slice(token.as_bytes());
    Ok(bytes)
}

/// Finds liblaunchscope.so: LAUNCHSCOPE_LIBRARY, beside the executable, in ../lib, in the build's directory.
pub fn find_library() -> Result<PathBuf, ConfigError> {
    let said = std::env::var_os("LAUNCHSCOPE_LIBRARY").filter(|path| !path.is_empty()).map(PathBuf::from);
    let candidates = match said {
        Some(said) => vec![said],
        None => library_candidates(),
    };
    let tried = candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let found = candidates.into_iter().find(|path| path.is_file());
    let found = found.and_then(|path| path.canonicalize().ok());
    found.ok_or(ConfigError::LibraryNotFound { tried })
}

fn library_candidates() -> Vec<PathBuf> {
    let Ok(executable) = std::env::current_exe() else { return Vec::new() };
    let directory = executable.parent().unwrap_or(Path::new("/"));
    // Tests run from target/*/deps, the binary from target/*.
    ["", "../lib", "../lib/launchscope", ".."]
        .map(|place| directory.join(place).join("liblaunchscope.so"))
        .into()
}

fn check_preload_path(door: Door, library: &Path) -> Result<(), ConfigError> {
    let text = library.to_string_lossy();
    if door != Door::Injection && text.contains([' ', ':', '\t']) {
        return Err(ConfigError::LibraryPath { library: text.into_owned() });
    }
    Ok(())
}

fn output_config(args: OutputArgs, name: &str, title: &str) -> OutputConfig {
    let formats = args.format.iter().map(|format| match format {
        FormatName::Pprof => Format::Pprof,
        FormatName::Collapsed => Format::Collapsed,
        FormatName::Speedscope => Format::Speedscope,
        FormatName::Html => Format::Html,
        FormatName::Json => Format::Json,
    });
    OutputConfig {
        directory: args
            .output
            .unwrap_or_else(|| PathBuf::from(format!("launchscope-{name}-{}", file_time()))),
        formats: formats.collect(),
        title: args.title.unwrap_or_else(|| title.to_owned()),
        talk: if args.quiet { Talk::Quiet } else { Talk::Normal },
    }
}

fn base_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.chars().map(|character| if character.is_ascii_graphic() { character } else { '_' }).collect()
}

fn parse_time(option: &'static str, text: &str) -> Result<Duration, ConfigError> {
    let error = || ConfigError::Time { option, text: text.to_owned() };
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| error())?;
    let seconds = match &text[digits.len()..] {
        "ms" => number / 1000.0,
        "s" | "" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(error()),
    };
    let is_possible = seconds.is_finite() && (0.001..=1e9).contains(&seconds);
    if is_possible { Ok(Duration::from_secs_f64(seconds)) } else { Err(error()) }
}

#[cfg(test)]
mod tests {
    use super::{parse_time, token_bytes};
    use std::time::Duration;

    /// Times are read with their unit, and nonsense is refused.
    #[test]
    fn times_have_units() {
        let time = |text| parse_time("--interval", text).ok();
        assert_eq!(time("30s"), Some(Duration::from_secs(30)));
        assert_eq!(time("1.5m"), Some(Duration::from_secs(90)));
        assert_eq!(time("250ms"), Some(Duration::from_millis(250)));
        for nonsense in ["", "s", "-1s", "0s", "1d", "inf", "NaN", "1e300h"] {
            assert_eq!(time(nonsense), None, "{nonsense}");
        }
    }

    /// A token that does not fit is an error, not cut.
    #[test]
    fn long_tokens_are_refused() {
        assert!(token_bytes(&"x".repeat(64)).is_ok());
        assert!(token_bytes(&"x".repeat(65)).is_err());
    }
}
